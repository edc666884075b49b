package job

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// suiteSettings are what the suite asks of a phase.
type suiteSettings struct {
	Epochs int
	LR     float64
	Freeze []string // parameters that stay
}

// phaseSuite checks what the scheduler and the preflight rely on in every phase. build makes the phase on a source; it returns
// nil for settings that the phase does not have. documented reports whether docs/metrics.md knows a metric.
func phaseSuite(t *testing.T, build func(src selector.Source, s suiteSettings) (phases.Phase, error), documented func(metric string) bool) {
	train, val := phasetest.Toy(t)
	made := func(t *testing.T, src selector.Source, s suiteSettings) phases.Phase {
		t.Helper()
		p, err := build(src, s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	begin := func(t *testing.T, p phases.Phase) *phases.Env {
		t.Helper()
		env := phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir())
		if err := p.Begin(env, 100); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.End)
		phases.BeginEpoch(p, 1)
		return env
	}
	t.Run("a resume equals the run that went on", func(t *testing.T) {
		settings := suiteSettings{Epochs: 2, LR: 1e-3}
		plan := func() phases.Plan {
			return phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Phases: []phases.Phase{made(t, train, settings)}}
		}
		steps := 2 * phases.StepsPerEpoch(plan().Phases[0])
		phasetest.Resumes(t, plan, steps, func(rec phases.Recorder, dir string) *phases.Env { return phasetest.ToyEnv(t, val, rec, dir) })
	})
	t.Run("a reward that is no number is refused before the step", func(t *testing.T) {
		p := made(t, poisoned{train}, suiteSettings{Epochs: 1, LR: 1e-3})
		env := begin(t, p)
		before := env.Policy.Params().Values()
		_, err := p.Step(context.Background(), phases.At{Epoch: 1, Queries: batch[:3]})
		if _, ok := errors.AsType[*phases.NonFiniteError](err); !ok || !slices.Equal(before, env.Policy.Params().Values()) {
			t.Errorf("error %v, want a *phases.NonFiniteError and the weights as they were", err)
		}
	})
	t.Run("frozen parameters stay", func(t *testing.T) {
		if p := made(t, train, suiteSettings{Epochs: 1, LR: 1e-2, Freeze: []string{"query_proj"}}); p != nil { // else it freezes nothing
			frozenStay(t, p, begin(t, p), "query_proj")
		}
	})
	t.Run("a step waits for the device once", func(t *testing.T) {
		p := made(t, train, suiteSettings{Epochs: 1, LR: 1e-3})
		begin(t, p)
		sameOperations(t, p)
		phasetest.WaitsOnce(t, p, batch[:3], batch, 8)
	})
	t.Run("metrics are documented", func(t *testing.T) {
		p := made(t, train, suiteSettings{Epochs: 1, LR: 1e-3})
		begin(t, p)
		row := step(t, p, 1)
		for name := range phases.EndEpoch(p) {
			row[name] = true
		}
		for name, value := range row {
			if !documented(name) {
				t.Errorf("docs/metrics.md does not know %s", name)
			}
			if k := reflect.TypeOf(value).Kind(); k != reflect.Float64 && k != reflect.Int && k != reflect.Bool && k != reflect.Slice {
				t.Errorf("%s is a %s", name, k)
			}
		}
		for _, name := range []string{"loss", "grad_norm", "lr"} {
			if _, ok := row[name]; !ok {
				t.Errorf("a step has no %s", name)
			}
		}
	})
	t.Run("it fits one batch", func(t *testing.T) {
		p := made(t, train, suiteSettings{Epochs: 1, LR: 1e-2})
		policy := begin(t, p).Policy
		before := preference(policy, train)
		step(t, p, 40)
		if after := preference(policy, train); !(after > before) {
			t.Errorf("better candidates were preferred by %.4g nats, and by %.4g after 40 steps on them", before, after)
		}
	})
}

// sameOperations takes steps on batches of two sizes, which must make as many tensors.
func sameOperations(t *testing.T, p phases.Phase) {
	t.Helper()
	var made [3]int
	for i, queries := range [][]int{batch, batch[:3], batch} { // the first has the old policy's weights
		before := torchx.Counted()
		phasetest.MustStepAt(t, p, i, queries)
		made[i] = torchx.Counted().Minus(before).Tensors
	}
	if made[1] != made[2] || made[1] == 0 {
		t.Errorf("a step on 3 queries makes %d tensors, on %d queries %d", made[1], len(batch), made[2])
	}
}

// frozenStay takes steps and finds parameters that are named frozen and moved, or that none did.
func frozenStay(t *testing.T, p phases.Phase, env *phases.Env, frozen string) {
	t.Helper()
	params, before := env.Policy.Params(), env.Policy.Params().Values()
	step(t, p, 3)
	after, moved := params.Values(), false
	for _, name := range params.Names() {
		from, to := params.Range(name)
		same := slices.Equal(before[from:to], after[from:to])
		if strings.Contains(name, frozen) && !same {
			t.Errorf("%s moved", name)
		}
		moved = moved || !same
	}
	if !moved {
		t.Error("nothing moved")
	}
}

// batch are the queries that the suite trains on.
var batch = []int{0, 1, 2, 3, 4, 5, 6, 7}

// step makes n steps on the batch and returns the metrics of the last.
func step(t *testing.T, p phases.Phase, n int) (row phases.Metrics) {
	t.Helper()
	for i := range n {
		row = phasetest.MustStepAt(t, p, i, batch)
	}
	return row
}

// preference returns how much likelier the better recorded candidates of the batch are: Σ (reward - mean)·log π.
func preference(policy selector.Policy, src *pointer.Source) float64 {
	b := src.Recorded(batch)
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	logp := objective.Sequence(policy.Forward(b, selector.ForwardOptions{}).LogP).Floats() // log π of the candidates [B*G]
	sum := 0.0
	for i := range b.B() {
		mean, n := 0.0, 0.0
		for at := i * b.G; at < (i+1)*b.G; at++ {
			if b.Valid[at] {
				mean, n = mean+b.Rewards[at], n+1
			}
		}
		for at := i * b.G; at < (i+1)*b.G; at++ {
			if b.Valid[at] {
				sum += (b.Rewards[at] - mean/n) * logp[at]
			}
		}
	}
	return sum
}

// poisoned is a source of which one candidate has the reward NaN.
type poisoned struct{ *pointer.Source }

func (p poisoned) Recorded(queries []int) *selector.Batch {
	b := p.Source.Recorded(queries)
	b.Rewards[0] = math.NaN()
	return b
}
