package grpo

import (
	"context"
	"fmt"
	"math"
	"testing"

	"fulcrum/phases"
)

// TestShardsAddUp: the second pass over a batch of recorded groups, whose ratios have moved, has the gradient and the loss of the undivided
// step for every number of shards, uneven and empty ones too, under every loss, ratio, estimator and correction of lengths.
func TestShardsAddUp(t *testing.T) {
	n := 0
	for _, ratio := range []string{"sequence", "token"} {
		for _, loss := range []string{"grpo", "bnpo", "dapo", "dr_grpo", "gspo", "ppo_clip"} {
			for i, estimator := range []string{"k1", "k2", "k3"} {
				change := func(o *Options) {
					o.Rollout, o.OldPolicy, o.NumIterations, o.LR = "offline", "batch", 2, 0.05
					o.Ratio, o.Loss, o.KL.Estimator, o.MaskTruncated, o.EntropyWeight = ratio, loss, estimator, i == 2, 0.01
				}
				o := DefaultOptions()
				if change(&o); o.Validate() != nil {
					continue // token means of sequence ratios
				}
				n++
				t.Run(fmt.Sprintf("%s %s %s", ratio, loss, estimator), func(t *testing.T) {
					whole, want := secondPass(t, change, 1)
					for _, shards := range []int{2, 3, 4, 7} {
						gradient, got := secondPass(t, change, shards)
						far, size := 0.0, 0.0
						for k := range whole {
							far, size = math.Max(far, math.Abs(gradient[k]-whole[k])), math.Max(size, math.Abs(whole[k]))
						}
						if far > 1e-6*size || size < 1e-4 || math.Abs(got-want) > 1e-6 {
							t.Errorf("%d shards: a gradient is off by %.3g of %.3g, the loss %.9g instead of %.9g", shards, far, size, got, want)
						}
					}
				})
			}
		}
	}
	if n != 3*(3+6) {
		t.Errorf("%d combinations", n)
	}
}

// secondPass returns the gradient and the loss of the second of two passes over five queries.
func secondPass(t *testing.T, change func(*Options), shards int) (gradient []float64, loss float64) {
	t.Helper()
	env := tokenEnv(t, nil, t.TempDir())
	env.Shards = shards
	g := tokenGRPO(change)
	if err := g.Begin(env, 10); err != nil {
		t.Fatal(err)
	}
	defer g.End()
	g.learn.Optimizer.KeepGrad = true
	for pass := range 2 {
		m, err := g.Step(context.Background(), phases.At{Epoch: 1, Step: pass, Pass: pass, Queries: []int{0, 1, 2, 3, 6}})
		if err != nil {
			t.Fatal(err)
		}
		loss = m.Row()["loss"].(float64)
	}
	return env.Policy.Params().Grad().Floats(), loss
}
