// Command growth measures how processor time and memory grow with the data, and prints a table: make growth.
//
//	growth [-most 640000] PROGRAM
//
// It trains a selector on more and more records and on larger and larger pools of candidates, and lists and compares more and more runs,
// in a folder that it removes. A row's exponent is log(time ratio) / log(size ratio) to the row before: 1 is linear. It exits 1 where one
// is above 1.15 and the step costs more than five seconds.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"fulcrum/experiments/bench"
)

const (
	perQuery = 10   // recorded selections of a query
	steepest = 1.15 // exponent that measuring errors allow
	matters  = 5.0  // seconds
)

// series is one thing that grows. args makes what a command needs and returns the command.
type series struct {
	what   string
	sizes  []int
	trains bool
	args   func(dir string, n int) ([]string, error)
}

func main() {
	most := flag.Int("most", 640_000, "records of the largest training set; other sizes shrink with it")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "growth [-most N] PROGRAM")
		os.Exit(2)
	}
	steep, err := measure(flag.Arg(0), float64(*most)/640_000)
	if err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
	for _, row := range steep {
		fmt.Fprintln(os.Stderr, "growth: more than linear:", row)
	}
	if len(steep) > 0 {
		os.Exit(1)
	}
}

func all(share float64) []series {
	scaled := func(sizes ...int) (out []int) {
		for _, n := range sizes {
			out = append(out, max(10, int(float64(n)*share)))
		}
		return out
	}
	train := func(dir string, d bench.Dataset) ([]string, error) {
		d.Name, d.RL, d.Min, d.Max, d.Shots, d.Dim = fmt.Sprint("data", d.Queries, "_", d.Pool), true, perQuery, perQuery, 2, 768
		files, err := d.Generate(dir)
		return append(files.Overrides(d), "exp=beams_v3", "schedule=[rce]", "rce.epochs=1", "data.normalize.method=z_score_clamp",
			"checks.off=[preflight]", "report.plots=false", "threads=1", "hydra.run.dir="+filepath.Join(dir, "trained")), err
	}
	return []series{
		{"recorded selections, pools of 64", scaled(10_000, 40_000, 160_000, 640_000), true, func(dir string, n int) ([]string, error) {
			return train(dir, bench.Dataset{Queries: n / perQuery, Pool: 64, Examples: 5000})
		}},
		{"candidates a pool, 400 queries", scaled(64, 512, 4096, 20_000), true, func(dir string, n int) ([]string, error) {
			args, err := train(dir, bench.Dataset{Queries: 400, Pool: n, Examples: 21_000})
			return append(args, "data.batch_size=8"), err // 64 pools of 20,000 would take 40 GB
		}},
		{"jobs of a sweep, composed", scaled(10, 100, 1000, 5000), false, func(_ string, n int) ([]string, error) {
			return []string{"-m", "exp=beams_v3", fmt.Sprintf("seed=range(0,%d)", n), "--cfg", "sweep"}, nil
		}},
		{"runs, listed", scaled(10, 100, 1000, 5000), false, func(dir string, n int) ([]string, error) {
			return []string{"ls", filepath.Join(dir, "runs")}, copies(dir, n)
		}},
		{"rows of runs, exported", scaled(10, 100, 1000, 5000), false, func(dir string, n int) ([]string, error) {
			err := os.RemoveAll(filepath.Join(dir, "runs"))
			return []string{"export", filepath.Join(dir, "runs"), "--what", "metrics", "--out", filepath.Join(dir, "rows.csv")},
				errors.Join(err, copies(dir, n))
		}},
	}
}

// copies makes n copies of the last run that was trained, which share its files.
func copies(dir string, n int) error {
	for i := range n {
		of := filepath.Join(dir, "runs", fmt.Sprint(i))
		if _, err := os.Stat(of); err == nil {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(of), 0o755); err != nil {
			return err
		}
		if out, err := exec.Command("cp", "-al", filepath.Join(dir, "trained"), of).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

// measure runs all series and prints their rows. It returns those that grow too fast.
func measure(program string, share float64) (steep []string, err error) {
	dir, err := os.MkdirTemp("", "growth-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fmt.Println("| What grows | n | processor time, s | exponent | memory, MB | steps, of the wall time |\n|---|---:|---:|---:|---:|---:|")
	for _, s := range all(share) {
		var before float64
		for i, n := range s.sizes {
			if s.trains {
				if err := os.RemoveAll(filepath.Join(dir, "trained")); err != nil {
					return nil, err
				}
			}
			args, err := s.args(dir, n)
			if err != nil {
				return nil, err
			}
			begin := time.Now()
			cpu, memory, err := run(program, args)
			if err != nil {
				return nil, err
			}
			share := "–"
			if s.trains {
				share = fmt.Sprintf("%.0f %%", 100*stepSeconds(dir)/time.Since(begin).Seconds())
			}
			exponent := "–"
			if i > 0 && n > s.sizes[i-1] {
				e := math.Log(cpu/before) / math.Log(float64(n)/float64(s.sizes[i-1]))
				exponent = fmt.Sprintf("%.2f", e)
				if e > steepest && cpu > matters {
					steep = append(steep, fmt.Sprintf("%s: %d, exponent %.2f", s.what, n, e))
				}
			}
			before = cpu
			fmt.Printf("| %s | %d | %.2f | %s | %.0f | %s |\n", s.what, n, cpu, exponent, memory, share)
		}
	}
	return steep, nil
}

// run returns a command's processor time in seconds and its largest memory in MB.
func run(program string, args []string) (cpu, memory float64, err error) {
	var said strings.Builder
	cmd := exec.Command(program, args...)
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	ended := make(chan struct{})
	var peak int
	var watch sync.WaitGroup
	watch.Go(func() { // its usage would count what this process had when it started it
		for tick := time.Tick(20 * time.Millisecond); ; {
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
				var now int
				fmt.Sscan(rest, &now)
				peak = max(peak, now)
			}
			select {
			case <-tick:
			case <-ended:
				return
			}
		}
	})
	err = cmd.Wait()
	close(ended)
	watch.Wait()
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, said.String())
	}
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), float64(peak) / 1024, nil
}

// stepSeconds is how long the optimizer steps of the last run took.
func stepSeconds(dir string) (sum float64) {
	text, _ := os.ReadFile(filepath.Join(dir, "trained", "metrics.jsonl"))
	for line := range strings.Lines(string(text)) {
		var row struct {
			Kind    string  `json:"kind"`
			Seconds float64 `json:"step_seconds"`
		}
		if json.Unmarshal([]byte(line), &row) == nil && row.Kind == "step" {
			sum += row.Seconds
		}
	}
	return sum
}
