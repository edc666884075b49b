package grpo

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/phasetest"
	"fulcrum/phases"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// TestReferenceRolloutIsTheBaseline: with advantage.method=reference_rollout an advantage is the reward over what the reference earns with
// its own greedy selection, for samples and for recorded groups, and each group costs a reader call more.
func TestReferenceRolloutIsTheBaseline(t *testing.T) {
	train, val := phasetest.Toy(t)
	queries := []int{3, 0, 5, 1}
	for _, rollout := range []string{"online", "offline"} {
		opt := DefaultOptions()
		opt.Rollout, opt.OldPolicy, opt.Advantage.Method, opt.Advantage.Clip = rollout, "batch", "reference_rollout", math.Inf(1)
		p := New("grpo", opt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 4)
		env := phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir())
		if err := p.Begin(env, 10); err != nil {
			t.Fatal(err)
		}
		p.BeginEpoch(1)
		r, err := p.Collect(context.Background(), phases.At{Epoch: 1, Queries: queries})
		if err != nil {
			t.Fatal(err)
		}
		own, _ := p.reference.Decode(train, queries, env.Data.Shots, 1)
		if err := train.Score(own); err != nil {
			t.Fatal(err)
		}
		for at, ok := range r.batch.Valid {
			if want := r.batch.Rewards[at] - own.Rewards[at/r.batch.G]; ok && math.Abs(r.adv[at]-want) > 1e-12 {
				t.Errorf("%s: advantage %g of reward %g, the reference earns %g", rollout, r.adv[at], r.batch.Rewards[at], own.Rewards[at/r.batch.G])
			}
		}
		if slices.Max(own.Rewards) == slices.Min(own.Rewards) {
			t.Error("the reference earns the same everywhere: the test sees nothing")
		}
		calls := len(queries)
		if rollout == "online" {
			calls += r.drawn.NumValid()
		}
		if r.measured.ReaderCalls != calls {
			t.Errorf("%s: %d reader calls, want %d", rollout, r.measured.ReaderCalls, calls)
		}
		p.End()
	}
}

// Without a reward function nothing can score the reference: said before anything is trained.
func TestReferenceRolloutWantsAReader(t *testing.T) {
	train, val := phasetest.Toy(t)
	opt := DefaultOptions()
	opt.Advantage.Method = "reference_rollout"
	p := New("grpo", opt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), unscored{train}, 4)
	err := p.Check(phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir()))
	if err == nil || !strings.Contains(err.Error(), "grpo.advantage.method=reference_rollout: ") {
		t.Errorf("error %v", err)
	}
}

// unscored is a source whose selections nothing scores.
type unscored struct{ selector.Source }
