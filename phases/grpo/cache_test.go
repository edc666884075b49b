package grpo

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"fulcrum/internal/testkit/phasetest"
	"fulcrum/phases"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// asked counts the queries whose recorded groups a policy evaluates without gradient.
type asked struct {
	selector.Policy
	queries *[]int
}

func (a asked) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	*a.queries = append(*a.queries, b.Queries...)
	return a.Policy.Forward(b, opt)
}

// recordedPart returns a plan of GRPO on eight of the recorded groups an epoch, against the run's start.
func recordedPart(train selector.Source, estimator string) phases.Plan {
	o := DefaultOptions()
	o.Epochs, o.LR, o.OldPolicy, o.KL.Reference, o.KL.Estimator, o.EpochQueries = 4, 1e-2, "init", "init", estimator, new(8)
	return phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Doctor: phasetest.Nosy(), Phases: []phases.Phase{
		New("grpo", o, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 4)}}
}

// TestOldPolicyAnswersOnFirstUse: the old policy evaluates the queries that an epoch draws, each once in a run, and those of a saved state
// not again; distributions are no part of a state and are computed anew. What a resume goes on with has the same bits.
func TestOldPolicyAnswersOnFirstUse(t *testing.T) {
	train, val := phasetest.Toy(t)
	for estimator, kept := range map[string]bool{"k3": true, "exact": false} {
		phase := func() *Phase { return recordedPart(train, estimator).Phases[0].(*Phase) }
		met := []int{}
		begin := func() *Phase {
			env := phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir())
			env.Initial = asked{env.Initial, &met}
			p := phase()
			if err := p.Begin(env, 8); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.End)
			return p
		}
		prepare := func(p *Phase, queries ...int) {
			if err := p.Prepare(context.Background(), queries); err != nil {
				t.Fatal(err)
			}
		}
		p := begin()
		prepare(p, 5, 2, 9)
		prepare(p, 9, 40, 5, 0)
		if want := []int{2, 5, 9, 0, 40}; !slices.Equal(met, want) {
			t.Errorf("%s: queries %v were evaluated, want %v", estimator, met, want)
		}
		saved, before := p.State(), *p.old.cached
		met = nil
		again := begin()
		if err := again.Restore(saved); err != nil {
			t.Fatal(err)
		}
		prepare(again, 5, 2, 9)
		prepare(again, 9, 40, 5, 0)
		if (len(met) == 0) != kept || !reflect.DeepEqual(*again.old.cached, before) {
			t.Errorf("%s: after a resume queries %v were evaluated, and the numbers are the same: %t", estimator, met,
				reflect.DeepEqual(*again.old.cached, before))
		}
		if saved.Frozen["old_logp"] = nil; kept && begin().Restore(saved) == nil {
			t.Error("a state without its log-probabilities is restored")
		}
		phasetest.Resumes(t, func() phases.Plan { return recordedPart(train, estimator) }, 8,
			func(rec phases.Recorder, dir string) *phases.Env { return phasetest.ToyEnv(t, val, rec, dir) })
	}
}
