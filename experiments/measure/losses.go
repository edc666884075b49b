package measure

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"fulcrum/experiments/bench"
	"fulcrum/internal/jsonwords"
)

// goldenLosses holds the losses of the comparison's steps in PyTorch, float64, by case. They are made
// by scripts/losses_golden.py, which shares no code with this program.
//
//go:embed losses.json
var goldenLosses []byte

// lossTolerance is what float32 and the order of additions may move a loss by, over 15 steps of
// AdamW: ten times what one machine showed.
const lossTolerance = 2e-5

// LossCase trains one phase for a few steps on data with fixed seeds.
type LossCase struct {
	Name string     `json:"name"`
	Spec bench.Spec `json:"spec"`
}

// LossCases cover own and shared pools, padded groups, several heads and layers, and each loss.
func LossCases(dir string) ([]LossCase, error) {
	var out []LossCase
	for _, of := range []struct {
		data  bench.Dataset
		model []string
	}{
		{bench.Dataset{Name: "own", RL: true, Queries: 40, Pool: 12, Examples: 30, Min: 2, Max: 6, Shots: 3, Dim: 24},
			[]string{"selector.num_heads=2", "selector.num_layers=2"}},
		{bench.Dataset{Name: "shared", Queries: 40, Pool: 15, Examples: 15, Min: 4, Max: 4, Shots: 3, Dim: 24}, nil},
	} {
		files, err := of.data.Generate(dir)
		if err != nil {
			return nil, err
		}
		common := append(files.Overrides(of.data), "selector=v3", "selector.hidden_dim=16", "data.batch_size=8",
			"data.train_ratio=1", "data.shuffle=false",
			"grpo/curriculum=none", "lr_schedule=constant", "rce.lr=1e-3", "grpo.lr=1e-3", "threads=1", "report.plots=false")
		for _, loss := range []struct{ name, phase, override string }{{"rce", "rce", "rce.rewards=normalized"},
			{"grpo", "grpo", "grpo.kl.estimator=k3"}, {"grpo-exact", "grpo", "grpo.kl.estimator=exact"}} {
			overrides := append(append(slices.Clone(common), of.model...), loss.override)
			out = append(out, LossCase{of.data.Name + " " + loss.name, bench.Spec{Phase: loss.phase, Passes: 3, Overrides: overrides}})
		}
	}
	return out, nil
}

// Losses trains every case on every device and prints how far its losses are from those of PyTorch.
func Losses(ctx context.Context, w io.Writer, cases []LossCase, devices []string, dir string) error {
	var golden map[string][]float64
	if err := jsonwords.Unmarshal(goldenLosses, &golden); err != nil {
		return fmt.Errorf("losses.json: %w", err)
	}
	failed := 0
	report := func(device, name string, steps int, difference, tolerance float64, to string) {
		verdict := "ok"
		if !(difference <= tolerance) {
			verdict = "FAILED"
			failed++
		}
		fmt.Fprintf(w, "%-7s %-18s %3d steps  %.1e from %s (want %.0e)  %s\n", device, name,
			steps, difference, to, tolerance, verdict)
	}
	for _, device := range devices {
		for _, c := range cases {
			losses, err := trainLosses(ctx, c.Spec, device)
			if err != nil {
				return fmt.Errorf("losses: %s on %s: %w", c.Name, device, err)
			}
			report(device, c.Name, len(losses), largestDifference(losses, golden[c.Name]), lossTolerance, "PyTorch")
		}
		if !strings.HasPrefix(device, "cuda") {
			continue
		}
		if err := compareDevices(ctx, device, dir, report); err != nil {
			return fmt.Errorf("losses: %w", err)
		}
	}
	if failed > 0 {
		return fmt.Errorf("losses: %d comparisons failed: this libtorch or its device computes something else", failed)
	}
	return nil
}

// compareDevices trains the benchmark's own sizes on the CPU and on device.
func compareDevices(ctx context.Context, device, dir string, report func(device, name string, steps int, difference,
	tolerance float64, to string)) error {
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
			report(device, w.Name+" "+s.Variant, len(cpu), largestDifference(other, cpu), 1e-3, "the CPU")
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

// largestDifference returns the largest absolute difference of two lists; NaN when they do not compare.
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
