// Package bench measures training steps: queries per second, milliseconds per step, CPU time and peak
// memory of named workloads, each in a process of its own, optionally beside a peer program that does
// the same mathematics (`make bench`, `bin/bench workloads`).
//
//	err := bench.Run(ctx, opt, os.Stdout)   // generates the data, measures, prints the table
//
// It generates the data, starts the processes and prints; it knows nothing of tensors. What is measured
// is package measure's business: the same files, loaders, phases and policy as a run's.
package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"fulcrum/internal/hostmem"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/list"
	"fulcrum/internal/stat"
)

// Options are what `bench workloads` can be told.
type Options struct {
	Workloads []string // none: those that suit the device
	Phases    []string // rce, grpo, grpo-exact; none: all
	Device    string
	Threads   int
	Repeats   int // processes for each row; the table shows medians
	Passes    int // passes over the data in a process; the first is the one that counts beside a peer
	MaxSteps  int // 0: the workload's own
	Queries   int // 0: the workload's own
	Dir       string
	Peer      string         // the peer program (Python); empty: none
	ShapePeer string         // that of the published shapes
	Sizes     map[string]int // of published shapes, instead of their own
	Whole     string         // ShapeWorkload.Whole
	Python    string
	Format    string   // table, markdown, json, or specs: what the measuring processes are told, nothing runs
	Overrides []string // of the configuration
	Program   []string // how a measuring process is started
	// ShapeProgram is how one for a published shape is started.
	ShapeProgram []string
	Progress     io.Writer
}

// Spec is what one process measures.
type Spec struct {
	Workload  string   `json:"workload"`
	Variant   string   `json:"variant"`
	Phase     string   `json:"phase"`
	Warmup    int      `json:"warmup"` // steps before the clock starts
	Passes    int      `json:"passes"`
	MaxSteps  int      `json:"max_steps"` // 0 = all
	Overrides []string `json:"overrides"` // the whole configuration
}

// Measurement is what one process found. Times are seconds.
type Measurement struct {
	Spec       Spec    `json:"-"`
	Libtorch   string  `json:"libtorch"`
	Device     string  `json:"device"`
	Threads    int     `json:"threads"`
	Batch      int     `json:"batch"`
	Pool       int     `json:"pool"`       // K of the first query
	Queries    int     `json:"queries"`    // trained on in a pass
	Candidates int     `json:"candidates"` // of those queries
	Steps      int     `json:"steps"`      // of a pass
	Load       float64 `json:"load"`       // reading the files
	LoadedMB   float64 `json:"loaded_mb"`  // resident after reading, libtorch included
	Begin      float64 `json:"begin"`      // preparing the phase: optimizer, frozen policies
	// Of each pass, from taking the first batch to the end of the last update.
	Wall   []float64 `json:"wall"`
	CPU    []float64 `json:"cpu"`
	StepMS float64   `json:"step_ms"` // median step of all passes
	PeakMB float64   `json:"peak_mb"`
	Losses []float64 `json:"losses"` // of every timed step
}

// PerSecond and PerCPU return queries per second of wall time and per second of CPU time of all threads.
func (m Measurement) PerSecond() float64 { return float64(m.Queries) / stat.Median(m.Wall) }
func (m Measurement) PerCPU() float64    { return float64(m.Queries) / stat.Median(m.CPU) }

// Run generates the data, measures and prints; what was measured before a failure or a signal too.
func Run(ctx context.Context, opt Options, out io.Writer) error {
	defer interrupt.Hold(nil).Release()
	machine := fmt.Sprintf("%s, %d cores, %s", cmp.Or(hostmem.Processor(), runtime.GOARCH), runtime.NumCPU(), runtime.GOOS)
	t := &table{Machine: machine, Device: opt.Device, Threads: opt.Threads, Repeats: opt.Repeats}
	err := t.measure(ctx, opt, out)
	if opt.Format == "specs" || err != nil && len(t.Rows)+len(t.Shapes) == 0 {
		return err
	}
	return cmp.Or(err, t.print(out, opt.Format))
}

// measure fills the table; under --format specs it prints what it would measure instead.
func (t *table) measure(ctx context.Context, opt Options, out io.Writer) error {
	workloads, shapes, err := choose(opt.Workloads, opt.Device != "cpu" && opt.Device != "auto")
	if err != nil {
		return err
	}
	variants, cases, err := chooseVariants(opt.Phases)
	if err != nil {
		return fmt.Errorf("--phases: %w", err)
	}
	if len(variants) == 0 {
		workloads = nil
	}
	dir := opt.Dir
	if dir == "" {
		made, remove, err := interrupt.Folder("", "fulcrum-bench-")
		if err != nil {
			return err
		}
		defer remove()
		dir = made
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, w := range workloads {
		if opt.Queries > 0 {
			w.Data = w.Data.cut(opt.Queries)
		}
		if _, err := os.Stat(filepath.Join(dir, w.Data.Name+".json")); err != nil {
			fmt.Fprintf(opt.Progress, "writing %s: %d queries\n", w.Data.Name, w.Data.Queries)
		}
		files, err := w.Data.Generate(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		if opt.Format == "specs" {
			for _, v := range variants {
				if err := json.NewEncoder(out).Encode(opt.spec(w, v, files)); err != nil {
					return err
				}
			}
			continue
		}
		rows, err := opt.rows(ctx, w, variants, files)
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		t.add(w, rows)
	}
	if opt.Format == "specs" {
		return nil
	}
	for _, w := range shapes {
		lines, err := opt.shapeLines(ctx, w, cases)
		t.Shapes = append(t.Shapes, lines...)
		if err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
	}
	return nil
}

// row is what was measured of one workload and variant; Peer[i] ran right after Ours[i].
type row struct {
	variant
	Ours []Measurement
	Peer []PeerMeasurement
}

// rows measures all variants of a workload, in turns: this machine's speed may drift.
func (o Options) rows(ctx context.Context, w Workload, variants []variant, files Files) ([]row, error) {
	rows := make([]row, len(variants))
	if w.Once {
		o.Repeats = 1
	}
	for repeat := range o.Repeats {
		for i, v := range variants {
			rows[i].variant = v
			fmt.Fprintf(o.Progress, "%s %s %d/%d\n", w.Name, v.name, repeat+1, o.Repeats)
			m := Measurement{Spec: o.spec(w, v, files)}
			text, err := json.Marshal(m.Spec)
			if err != nil {
				return nil, err
			}
			whole := func() bool { return m.Steps > 0 && len(m.Losses) > 0 && len(m.Wall) > 0 }
			if err := ask(ctx, &m, whole, append(slices.Clone(o.Program), string(text))...); err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
			rows[i].Ours = append(rows[i].Ours, m)
			if o.Peer == "" || w.Peer == "" {
				continue
			}
			p, err := o.measurePeer(ctx, w, v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
			rows[i].Peer = append(rows[i].Peer, p)
		}
	}
	return rows, nil
}

// spec returns the configuration of a row: what a run would be given, with the peer's settings (no dropout,
// every candidate counts, no shuffling).
func (o Options) spec(w Workload, v variant, files Files) Spec {
	s := Spec{Workload: w.Name, Variant: v.name, Phase: v.phase, Warmup: 1, Passes: o.Passes, MaxSteps: w.MaxSteps}
	if o.MaxSteps > 0 {
		s.MaxSteps = o.MaxSteps
	}
	if o.Device != "cpu" {
		s.Warmup = 5 // kernels are loaded at their first use
	}
	s.Overrides = append(files.Overrides(w.Data), "selector=v3", "grpo/curriculum=none",
		"device="+o.Device, fmt.Sprint("threads=", o.Threads), fmt.Sprint("data.batch_size=", w.Batch),
		"data.train_ratio=1", "data.shuffle=false", "report.plots=false")
	if v.estimator != "" {
		s.Overrides = append(s.Overrides, "grpo.kl.estimator="+v.estimator)
	}
	s.Overrides = append(s.Overrides, o.Overrides...)
	return s
}

// Specs returns the rows of a workload with its data in dir and at most so many steps, for a caller that
// measures them itself; device is left to it.
func (w Workload) Specs(dir string, steps int) ([]Spec, error) {
	files, err := w.Data.Generate(dir)
	if err != nil {
		return nil, err
	}
	opt := Options{Device: "cpu", Threads: 1, Passes: 1, MaxSteps: steps}
	return list.Map(variants(), func(v variant) Spec { return opt.spec(w, v, files) }), nil
}

// ask runs a measuring process, which dies with this one, and reads what it prints into a measurement, which is then whole. Its last line
// on stderr is the error.
func ask(ctx context.Context, into any, whole func() bool, args ...string) error {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the parent-death signal follows the thread that started the child
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		if last := lines[len(lines)-1]; last != "" {
			return errors.New(strings.TrimPrefix(last, "bench: "))
		}
		return fmt.Errorf("%s: %w", args[0], err)
	}
	if err := json.Unmarshal(stdout.Bytes(), into); err != nil || !whole() {
		return fmt.Errorf("the measuring process printed %q, want a measurement (%v)", stdout.Bytes(), err)
	}
	return nil
}
