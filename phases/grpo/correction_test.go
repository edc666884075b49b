package grpo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
)

// drawnFixture is a batch of two groups of four completions of 1 to 6 tokens, and what a sampler says of them; NaN: forced.
func drawnFixture(seed uint64) (fx lossFixture, sampled [][]float64) {
	r := rand.New(rand.NewPCG(seed, 1))
	fx = lossFixture{Groups: 2, GroupSize: 4}
	for i := range 8 {
		fx.Rewards = append(fx.Rewards, float64(i%3)+r.Float64())
		fx.Rows = append(fx.Rows, lossRow{})
		row, own := &fx.Rows[i], []float64(nil)
		for t := range 1 + r.IntN(6) {
			old := -3 * r.Float64()
			row.New, row.Old, row.Ref = append(row.New, old+0.1*r.NormFloat64()), append(row.Old, old), append(row.Ref, old+0.1*r.NormFloat64())
			if own = append(own, old+0.6*r.NormFloat64()); t == 0 && i%3 == 0 {
				own[t] = math.NaN()
			}
		}
		sampled = append(sampled, own)
	}
	return fx, sampled
}

// trlWeights is vllm_importance_sampling_ratio of TRL's GRPOTrainer in float64, one a token, and how many weights are beyond the limit.
func trlWeights(o CorrectionOptions, old, sampled []float64) (weights []float64, beyond, all int) {
	limit := func(logRatio float64) float64 {
		w := math.Exp(logRatio)
		all++
		if w > o.Clip {
			beyond++
			return map[string]float64{"truncate": o.Clip, "mask": 0}[o.Kind]
		}
		return w
	}
	sum := 0.0
	for t := range old {
		if d := old[t] - sampled[t]; !math.IsNaN(d) {
			sum += d
			weights = append(weights, d)
			continue
		}
		weights = append(weights, math.NaN())
	}
	whole := 0.0
	if o.Level == "sequence" {
		whole = limit(sum)
	}
	for t, d := range weights {
		switch {
		case o.Level == "sequence":
			weights[t] = whole
		case math.IsNaN(d):
			weights[t] = 1 // outside of TRL's mask
		default:
			weights[t] = limit(d)
		}
	}
	return weights, beyond, all
}

// TestCorrectionIsTRLs: loss, gradient and share of every kind and level are TRL's formula, in one pass, in micro-batches, and in a later
// pass over the batch.
func TestCorrectionIsTRLs(t *testing.T) {
	torchx.Attach(1)
	for seed := range uint64(6) {
		for _, kind := range []string{"truncate", "mask"} {
			for _, of := range []string{"token token grpo", "token token dapo", "token token gspo", "sequence token dr_grpo", "sequence token gspo",
				"sequence sequence grpo"} {
				t.Run(fmt.Sprint(seed, " ", kind, " ", of), func(t *testing.T) {
					level := strings.Fields(of)
					fx, sampled := drawnFixture(seed)
					g := scriptedGRPO(t, fx, "sample", func(o *Options) {
						o.Rollout, o.OldPolicy, o.Ratio, o.Loss, o.KL.Beta = "online", "epoch_start", level[1], level[2], 0.3
						o.Correction = CorrectionOptions{Kind: kind, Level: level[0], Clip: 1.3}
					})
					b, r := g.rollout.batch, g.rollout
					old := make([]float64, len(b.Mask))
					b.Sampled = make([]float64, len(b.Mask))
					beyond, all := 0, 0
					for at := range fx.Rows {
						row := &fx.Rows[at]
						copy(old[at*b.T:], row.Old)
						copy(b.Sampled[at*b.T:], sampled[at])
						weights, n, of := trlWeights(g.opt.Correction, row.Old, sampled[at])
						row.Weights, beyond, all = weights, beyond+n, all+of
					}
					if beyond == 0 || beyond == all {
						t.Fatalf("%d of %d weights are beyond the limit", beyond, all)
					}
					frozen := newScripted(old)
					t.Cleanup(frozen.params.Free)
					g.old = &frozenPolicy{Policy: frozen}
					if r.correction = make([]float32, len(b.Valid)); level[0] == "token" {
						r.correction = make([]float32, len(b.Mask))
					}
					check := func(what string, m phases.Metrics, got float64, gradient []float64) {
						t.Helper()
						if want := textbookLoss(g, fx); math.Abs(got-want) > 5e-6 {
							t.Errorf("%s: loss %.9g, want %.9g", what, got, want)
						}
						if share := m["correction_share"]; share != objective.Share(beyond, all) {
							t.Errorf("%s: share %v, want %d of %d", what, share, beyond, all)
						}
						const h = 1e-6
						for i, row := range fx.Rows {
							for s, x := range row.New {
								row.New[s] = x + h
								up := textbookLoss(g, fx)
								row.New[s] = x - h
								down := textbookLoss(g, fx)
								row.New[s] = x
								if want := (up - down) / (2 * h); math.Abs(gradient[i*b.T+s]-want) > 2e-5 {
									t.Errorf("%s: gradient of completion %d token %d is %.7g, want %.7g", what, i, s, gradient[i*b.T+s], want)
								}
							}
						}
					}
					for _, micro := range []*int{new(1), nil} {
						r.known, g.opt.MicroBatch = false, micro
						m, loss, gradient := g.pass(t)
						check("first pass", m, loss, gradient)
					}
					if !r.known {
						t.Fatal("the first pass kept nothing")
					}
					m, loss, gradient := g.pass(t)
					check("later pass", m, loss, gradient)
				})
			}
		}
	}
}

// TestCorrectionIsRefused: recorded groups have no sampling probability, candidates with one ratio no term a token.
func TestCorrectionIsRefused(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"correction.kind: want none with rollout=offline":     func(o *Options) { o.Rollout = "offline" },
		"correction.level: want sequence with ratio=sequence": func(o *Options) { o.Ratio, o.Loss = "sequence", "grpo" },
	} {
		o := tokenGRPO(func(o *Options) { o.Correction.Kind = "mask" }).opt
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
