package experiments

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"fulcrum/configs"
	"fulcrum/experiments/bench"
	"fulcrum/experiments/job"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/stdout"
	"fulcrum/internal/torchx"
	"fulcrum/internal/usage"
)

// selftestGolden holds the losses of the self-test's steps in PyTorch, float64, by case. They are made
// by scripts/selftest_golden.py, which shares no code with this program.
//
//go:embed selftest.json
var selftestGolden []byte

// selftestTolerance is what float32 and the order of additions may move a loss by, over 15 steps of
// AdamW: ten times what one machine showed.
const selftestTolerance = 2e-5

// selftestCase trains one phase for a few steps on data with fixed seeds.
type selftestCase struct {
	name string
	data bench.Dataset
	spec bench.Spec
}

// selftestCases cover own and shared pools, padded groups, several heads and layers, and each loss.
func selftestCases(dir string) ([]selftestCase, error) {
	var out []selftestCase
	for _, of := range []struct {
		data  bench.Dataset
		model []string
	}{
		{bench.Dataset{Name: "own", RL: true, Queries: 40, Pool: 12, Examples: 30, Min: 2, Max: 6, Shots: 3, Dim: 24}, []string{"selector.num_heads=2", "selector.num_layers=2"}},
		{bench.Dataset{Name: "shared", Queries: 40, Pool: 15, Examples: 15, Min: 4, Max: 4, Shots: 3, Dim: 24}, nil},
	} {
		files, err := of.data.Generate(dir)
		if err != nil {
			return nil, err
		}
		common := append(files.Overrides(of.data), "selector=v3", "selector.hidden_dim=16", "data.batch_size=8", "data.train_ratio=1", "data.shuffle=false",
			"grpo/curriculum=none", "lr_schedule=constant", "rce.lr=1e-3", "grpo.lr=1e-3", "threads=1", "report.plots=false")
		for _, loss := range []struct{ name, phase, override string }{{"rce", "rce", "rce.rewards=normalized"}, {"grpo", "grpo", "grpo.kl.estimator=k3"}, {"grpo-exact", "grpo", "grpo.kl.estimator=exact"}} {
			overrides := append(append(slices.Clone(common), of.model...), loss.override)
			out = append(out, selftestCase{of.data.Name + " " + loss.name, of.data, bench.Spec{Phase: loss.phase, Passes: 3, Overrides: overrides}})
		}
	}
	return out, nil
}

// verbSelftest compares short trainings with recorded losses, on each device.
func verbSelftest(ctx context.Context, _ App, args []string) error {
	f := pflag.NewFlagSet("selftest", pflag.ContinueOnError)
	f.Usage = func() {}
	device := f.String("device", "auto", "cpu, cuda, cuda:N, or auto: the CPU, then a GPU if there is one")
	dir := f.String("dir", "", "folder that keeps the data (a temporary one if not given)")
	specs := f.Bool("specs", false, "print the cases as JSON, one a line, and run nothing; needs --dir")
	if err := f.Parse(args); err != nil || f.NArg() > 0 {
		if errors.Is(err, pflag.ErrHelp) {
			stdout.Printf("run selftest [flags]: trains a few steps and compares the losses with PyTorch's in float64\n\n%s", f.FlagUsages())
			return nil
		}
		return usage.Errorf("want: run selftest [--device auto|cpu|cuda] [--dir DIR]")
	}
	folder := *dir
	if folder == "" {
		temporary, err := os.MkdirTemp("", "fulcrum-selftest-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temporary)
		folder = temporary
	} else if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	cases, err := selftestCases(folder)
	if err != nil {
		return err
	}
	if *specs {
		for _, c := range cases {
			if err := json.NewEncoder(stdout.Writer()).Encode(map[string]any{"name": c.name, "spec": c.spec}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := torchx.Load(); err != nil {
		return err
	}
	devices := []string{*device}
	if *device == "auto" {
		devices = []string{"cpu"}
		if torchx.CUDAAvailable() {
			devices = append(devices, "cuda")
		}
	}
	return selftest(ctx, cases, devices, folder)
}

func selftest(ctx context.Context, cases []selftestCase, devices []string, dir string) error {
	var golden map[string][]float64
	if err := jsonwords.Unmarshal(selftestGolden, &golden); err != nil {
		return fmt.Errorf("selftest.json: %w", err)
	}
	failed := 0
	report := func(device, name string, steps int, difference, tolerance float64, to string) {
		verdict := "ok"
		if !(difference <= tolerance) {
			verdict = "FAILED"
			failed++
		}
		stdout.Printf("%-7s %-18s %3d steps  largest difference of a loss from %s %.1e (tolerance %.0e)  %s\n", device, name, steps, to, difference, tolerance, verdict)
	}
	for _, device := range devices {
		for _, c := range cases {
			losses, err := trainLosses(ctx, c.spec, device)
			if err != nil {
				return fmt.Errorf("selftest: %s on %s: %w", c.name, device, err)
			}
			report(device, c.name, len(losses), largestDifference(losses, golden[c.name]), selftestTolerance, "PyTorch in float64")
		}
		if !strings.HasPrefix(device, "cuda") {
			continue
		}
		if err := compareDevices(ctx, device, dir, report); err != nil {
			return fmt.Errorf("selftest: %w", err)
		}
	}
	if failed > 0 {
		return fmt.Errorf("selftest: %d comparisons failed: this libtorch or its device computes something else", failed)
	}
	return nil
}

// compareDevices trains the benchmark's own sizes on the CPU and on device.
func compareDevices(ctx context.Context, device, dir string, report func(device, name string, steps int, difference, tolerance float64, to string)) error {
	for _, w := range bench.Workloads() {
		if w.Name != "rl_k64_b32" && w.Name != "legacy_k64_b32" {
			continue
		}
		specs, err := w.Specs(dir, 20)
		if err != nil {
			return err
		}
		for _, s := range specs {
			cpu, err := trainLosses(ctx, s, "cpu")
			if err != nil {
				return err
			}
			other, err := trainLosses(ctx, s, device)
			if err != nil {
				return err
			}
			report(device, w.Name+" "+s.Variant, len(cpu), largestDifference(other, cpu), 1e-3, "the CPU's")
		}
	}
	return nil
}

// trainLosses returns the loss of every step of spec on device.
func trainLosses(ctx context.Context, spec bench.Spec, device string) ([]float64, error) {
	spec.Overrides = append(slices.Clone(spec.Overrides), "device="+device)
	m, err := measureSpec(ctx, spec)
	return m.Losses, err
}

// measureSpec composes the configuration of spec and measures.
func measureSpec(ctx context.Context, spec bench.Spec) (bench.Measurement, error) {
	schema, err := App{}.Schema()
	if err != nil {
		return bench.Measurement{}, err
	}
	composed, err := configs.Compose(configs.Request{Library: configs.Library(), Schema: schema, Overrides: spec.Overrides, Now: time.Now(), AppName: "run"})
	if err != nil {
		return bench.Measurement{}, err
	}
	cfg, err := job.Decode(composed)
	if err != nil {
		return bench.Measurement{}, err
	}
	return Measure(ctx, cfg, spec)
}

// largestDifference is the largest absolute difference of two lists; NaN when they do not compare.
func largestDifference(got, want []float64) float64 {
	if len(got) != len(want) || len(got) == 0 {
		return math.NaN()
	}
	largest := 0.0
	for i := range got {
		largest = math.Max(largest, math.Abs(got[i]-want[i])) // keeps NaN
	}
	return largest
}
