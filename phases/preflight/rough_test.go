package preflight

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"testing"

	"fulcrum/internal/rng"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/selector"
)

// sixteenBits gives the rig a policy that computes in 16 bits: each log-probability is off by some hundredths of a nat,
// which depend on the weights and on nothing else, and the gradient by a hundredth. Its learning rate is one of large
// models, whose first steps change less than that.
func (r *rig) sixteenBits(rate float64) {
	r.trial.Rough = true
	r.with(func(f *faulty, b *selector.Batch, opt selector.ForwardOptions) selector.Output {
		out := f.plain(b, opt)
		h := fnv.New64a()
		for _, x := range f.Params().Values() {
			_ = binary.Write(h, binary.LittleEndian, x) // a hash takes anything
		}
		noise, slope := make([]float32, len(b.Mask)), make([]float32, len(b.Mask))
		for i := range noise {
			at := i / b.T
			g := rng.New(int64(h.Sum64()), "rounding", b.Queries[at/b.G], at%b.G, i%b.T)
			noise[i] = float32(0.03*g.NormFloat64()) * b.Mask[i]
			slope[i] = float32(1 + 0.01*g.NormFloat64())
		}
		shape := []int{b.B(), b.G, b.T}
		scaled := torchx.Mul(out.LogP, torchx.From(slope, shape...))
		rest := torchx.Add(torchx.Detach(torchx.Sub(out.LogP, scaled)), torchx.From(noise, shape...))
		out.LogP = torchx.Add(scaled, rest)
		return out
	})
	for i := range r.stages {
		build := r.stages[i].Build
		r.stages[i].Build = func(s selector.Source) (phases.Phase, error) {
			p, err := build(s)
			if err == nil {
				p = &mutant{Phase: p, step: func(m *mutant, run func() (phases.Metrics, error)) (phases.Metrics, error) {
					at := m.env.Policy.Params().Values()
					out, err := run()
					now := m.env.Policy.Params().Values()
					for i := range now { // a smaller learning rate
						now[i] = at[i] + float32(rate)*(now[i]-at[i])
					}
					m.env.Policy.Params().SetValues(now)
					return out, err
				}}
			}
			return p, err
		}
	}
}

// TestSixteenBits: in 16 bits a step that is lost in the rounding of two log-probabilities is not taken for one in the
// wrong direction, and one in the wrong direction is still found.
func TestSixteenBits(t *testing.T) {
	seeds := []int64{1, 2, 3, 4}
	if testing.Short() {
		seeds = seeds[:2]
	}
	for _, rate := range []float64{1, 1e-3} {
		for _, seed := range seeds {
			t.Run(fmt.Sprint(rate, " ", seed), func(t *testing.T) {
				r := newRig(t)
				r.sixteenBits(rate)
				r.trial.Seed = seed
				for _, f := range r.found(t) {
					if f.Check == "objective_not_improved" || f.Check == "ratio_not_one" || math.IsNaN(f.Value) {
						t.Errorf("%s %s: %s", f.Phase, f.Check, f.Message)
					}
				}
			})
		}
		for stage, want := range []string{"rce", "grpo"} {
			t.Run(fmt.Sprint(rate, " ", want, " turned round"), func(t *testing.T) {
				r := newRig(t)
				r.sixteenBits(rate)
				build := r.stages[stage].Build
				r.stages[stage].Build = func(src selector.Source) (phases.Phase, error) { return build(upside{src}) }
				for _, f := range r.found(t) {
					if f.Phase == want && f.Check == "objective_not_improved" {
						return
					}
				}
				t.Error("not found")
			})
		}
	}
}

// Rounding grows with the numbers that are rounded; dropout is no rounding at any size.
func TestDifferencesCountInProportion(t *testing.T) {
	for _, tc := range []struct {
		name string
		a, b []float64
		same bool
	}{
		{"rounding of large ones", []float64{-486.6787, -3}, []float64{-486.6794, -3}, true},
		{"dropout among large ones", []float64{-486.6787, -3}, []float64{-486.6787, -3.4}, false},
		{"a difference of small ones", []float64{-5, -3}, []float64{-5.001, -3}, false},
		{"never chosen", []float64{math.Inf(-1), -3}, []float64{math.Inf(-1), -3}, true},
	} {
		if d, at := differ(tc.a, tc.b); (d < 1e-4) != tc.same {
			t.Errorf("%s: %g at %v, want the same: %v", tc.name, d, at, tc.same)
		}
	}
}
