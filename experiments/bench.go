package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"fulcrum/beamdata"
	"fulcrum/experiments/bench"
	"fulcrum/experiments/job"
	"fulcrum/experiments/workload"
	"fulcrum/internal/hostmem"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/stdout"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
	"fulcrum/phases"
	"fulcrum/selector"
)

// measureArgument makes `run bench` a measuring process: what follows is its bench.Spec.
const measureArgument = "--measure"

// verbBench measures training steps on named workloads.
func verbBench(ctx context.Context, a App, args []string) error {
	if len(args) == 2 && args[0] == measureArgument {
		return measure(ctx, args[1])
	}
	if len(args) == 2 && args[0] == measureTokensArgument {
		return measureTokens(ctx, args[1])
	}
	opt := bench.Options{Progress: os.Stderr}
	f := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	f.SortFlags = false
	f.Usage = func() {}
	f.StringSliceVar(&opt.Phases, "phases", nil, "rce, grpo (KL estimator k3) and grpo-exact, or tokens-forward … tokens-grpo; all if not given")
	f.StringVar(&opt.Device, "device", "cpu", "cpu, cuda or cuda:N")
	f.IntVar(&opt.Threads, "threads", 1, "threads of one tensor operation")
	f.IntVar(&opt.Repeats, "repeats", 3, "processes for each row; the table shows medians")
	f.IntVar(&opt.Passes, "passes", 1, "passes over the data in a process")
	f.IntVar(&opt.MaxSteps, "steps", 0, "at most so many steps a pass (0: the workload's own)")
	f.IntVar(&opt.Queries, "queries", 0, "at most so many queries (0: the workload's own)")
	f.StringVar(&opt.Dir, "dir", "", "folder that keeps the generated data (a temporary one if not given)")
	f.StringVar(&opt.Data, "data", "", "folder with beams.json and emb.npy or emb.pt to use instead of generated data")
	f.StringVar(&opt.Peer, "peer", "", "torch_floor.py, to be run in turns with ours")
	f.StringVar(&opt.TokenPeer, "token-peer", "", "peer_qwen2_5_vl.py, the same for token policies")
	f.StringVar(&opt.Python, "python", "", "a Python that has torch, for the peer")
	f.StringVar(&opt.Format, "format", "table", "table, markdown, json, or specs: one line for each row, to be given to run bench --measure; needs --dir")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return benchHelp(f)
		}
		return usage.Errorf("bench: %v", err)
	}
	for _, arg := range f.Args() {
		if strings.Contains(arg, "=") {
			opt.Overrides = append(opt.Overrides, arg)
		} else {
			opt.Workloads = append(opt.Workloads, arg)
		}
	}
	switch {
	case !slices.Contains([]string{"table", "markdown", "json", "specs"}, opt.Format):
		return usage.Errorf("bench: --format=%s: want table, markdown, json or specs", opt.Format)
	case opt.Format == "specs" && opt.Dir == "" && opt.Data == "":
		return usage.Errorf("bench: --format=specs names files that must stay: give --dir")
	case opt.Repeats < 1 || opt.Passes < 1 || opt.Threads < 1 || opt.Threads > 1024:
		return usage.Errorf("bench: want --repeats, --passes and --threads of at least 1, and at most 1024 threads")
	}
	if opt.Peer != "" || opt.TokenPeer != "" {
		if python := bench.FindPython(opt.Python); python != "" {
			opt.Python = python
		} else if opt.Python != "" {
			return usage.Errorf("bench: --python=%s has no torch", opt.Python)
		} else {
			fmt.Fprintln(os.Stderr, "bench: no Python with torch here (--python): the peer is left out")
			opt.Peer, opt.TokenPeer = "", ""
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	opt.Program, opt.TokenProgram = []string{self, "bench", measureArgument}, []string{self, "bench", measureTokensArgument}
	return bench.Run(ctx, opt, stdout.Writer())
}

func benchHelp(f *pflag.FlagSet) error {
	stdout.Print("run bench rl_k64_b32 --phases rce        one workload, one phase\nrun bench --device cuda                  all of them on a GPU\n\n" +
		"run bench [WORKLOAD…] [flags] [overrides of the configuration]\n\nworkloads:\n")
	for _, w := range bench.Workloads() {
		stdout.Printf("  %-18s %d queries, K=%d, %d to %d candidates, batch %d\n", w.Name, w.Data.Queries, w.Data.Pool, w.Data.Min, w.Data.Max, w.Batch)
	}
	for _, w := range bench.TokenWorkloads() {
		stdout.Printf("  %-18s decoder of %d layers, width %d, %d tokens, vocabulary %d\n", w.Name, w.Layers, w.Hidden, w.Tokens, w.Vocab)
	}
	stdout.Printf("\nflags:\n%s", f.FlagUsages())
	return nil
}

// measure does what one row of the benchmark asks for, as a run would: compose, load, build the policy
// and the phase, step through the batches. It prints a bench.Measurement.
func measure(ctx context.Context, text string) error {
	var spec bench.Spec
	if err := jsonwords.Unmarshal([]byte(text), &spec); err != nil {
		return usage.Errorf("bench: %s: %v", measureArgument, err)
	}
	m, err := measureSpec(ctx, spec)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout.Writer()).Encode(m)
}

// Measure trains a phase of cfg for the steps of spec and times them.
func Measure(ctx context.Context, cfg *job.Config, spec bench.Spec) (m bench.Measurement, err error) {
	defer torchx.Recover(&err)
	if err := torchx.Load(); err != nil {
		return m, err
	}
	j := &job.Job{Config: cfg}
	torchx.Attach(j.Threads())
	if j.Device, err = torchx.Device(cfg.Device); err != nil {
		return m, usage.Errorf("%v", err)
	}
	m = bench.Measurement{Spec: spec, Libtorch: torchx.Version(), Device: j.Device, Threads: torchx.Threads()}

	clock := startClock()
	bundle, err := beamdata.Load(cfg.Data)
	if err != nil {
		return m, err
	}
	m.Load, _ = clock.read()
	m.LoadedMB = hostmem.Resident() / mb
	data := workload.NewPointerData(bundle)
	policy, err := workload.OpenPointer(j, bundle.RCE.Table.Dim)
	if err != nil {
		return m, err
	}
	defer policy.Free()
	policy.SetShots(workload.ShotsOf(policy, bundle))
	data.Serve(policy)
	initial := policy.Clone()
	defer initial.Free()
	phase, err := cfg.BuildPhase(spec.Phase, data)
	if err != nil {
		return m, err
	}
	steps := phases.StepsPerEpoch(phase)
	if spec.MaxSteps > 0 {
		steps = min(steps, spec.MaxSteps)
	}
	batches := slices.Collect(selector.Chunks(phase.Source().Len(), phase.BatchSize()))
	batches = batches[:min(steps, len(batches))]
	for _, queries := range batches {
		m.Queries += len(queries)
		m.Candidates += phase.Source().Recorded(queries).NumValid()
	}
	m.Batch, m.Steps, m.Pool = phase.BatchSize(), steps, len(bundle.RCE.Pool(0))

	env := &phases.Env{Policy: policy, Initial: initial, Data: data.ValidationData(cfg, *policy.Options().ShotNum), Seed: cfg.Seed}
	clock = startClock()
	if err := phase.Begin(env, spec.Warmup+steps*spec.Passes); err != nil {
		return m, err
	}
	defer phase.End()
	if p, ok := phase.(phases.Preparer); ok {
		if err := p.Prepare(ctx); err != nil {
			return m, err
		}
	}
	if err := phase.BeginEpoch(1); err != nil {
		return m, err
	}
	m.Begin, _ = clock.read()
	done := 0
	step := func(queries []int) (phases.Metrics, error) { // as the scheduler's
		defer torchx.Scope()()
		done++
		return phase.Step(ctx, 1, done-1, 0, queries)
	}
	for i := range spec.Warmup {
		if _, err := step(batches[i%len(batches)]); err != nil {
			return m, err
		}
	}
	runtime.GC() // what loading left behind is not the steps' to collect
	var stepMS []float64
	for range spec.Passes {
		clock = startClock()
		for i, queries := range batches {
			if err := ctx.Err(); err != nil {
				return m, context.Cause(ctx)
			}
			begin := time.Now()
			metrics, err := step(queries)
			if err != nil {
				return m, fmt.Errorf("step %d: %w", i+1, err)
			}
			stepMS = append(stepMS, 1e3*time.Since(begin).Seconds())
			m.Losses = append(m.Losses, metrics["loss"].(float64))
		}
		wall, cpu := clock.read()
		m.Wall, m.CPU = append(m.Wall, wall), append(m.CPU, cpu)
	}
	slices.Sort(stepMS)
	m.StepMS, m.PeakMB = stepMS[len(stepMS)/2], hostmem.Peak()/mb
	return m, nil
}

const mb = 1 << 20

// stopwatch measures wall time and the CPU time of all threads, after the device has done its work.
type stopwatch struct {
	wall time.Time
	cpu  float64
}

func startClock() stopwatch {
	synchronize()
	return stopwatch{time.Now(), cpuSeconds()}
}

func (s stopwatch) read() (wall, cpu float64) {
	synchronize()
	return time.Since(s.wall).Seconds(), cpuSeconds() - s.cpu
}

func synchronize() {
	if torchx.CUDAAvailable() {
		torchx.Synchronize()
	}
}

func cpuSeconds() float64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // fails for unknown clocks only
	return float64(t.Nano()) / 1e9
}
