package grpo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// allLogProbs evaluates p on all recorded candidates of src; nil: they do not fit.
func allLogProbs(ctx context.Context, p selector.Policy, src selector.Source, batch int, dist, steps bool, candidates int) (*cachedLogProbs,
	error) {
	k := newCache(src.Len(), dist)
	if fits, err := k.add(ctx, p, src, stat.Indices(src.Len()), batch, steps, candidates); !fits || err != nil {
		return nil, err
	}
	return k, nil
}

// What a frozen policy is known to think equals what it thinks, whatever the batch, its order, the
// candidates left of it and the padding of its pools.
func TestKnowledgeIsTheForwardPass(t *testing.T) {
	train, _ := raggedToy(t)
	p := phasetest.ToyPolicy(t)
	known, err := allLogProbs(context.Background(), p, train, 5, true, false, 300)
	if err != nil || known == nil {
		t.Fatalf("%v, %v", known, err)
	}
	steps, err := allLogProbs(context.Background(), p, train, 5, false, true, 300)
	if err != nil || steps == nil {
		t.Fatalf("%v, %v", steps, err)
	}
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	for _, queries := range [][]int{{3}, {7, 0, 11, 4}} {
		groups := train.Recorded(queries)
		top := advantage.TopK(groups.Rewards, groups.Valid, groups.B(), groups.G, 3)
		b := groups.Take(top.K, top.Index, top.Valid)
		out := p.Forward(b, selector.ForwardOptions{Dist: true})
		g := &Phase{rollout: &rollout{batch: b, index: top.Index, adv: make([]float64, len(top.Index))}}
		got := viewNow(g, &frozenPolicy{Policy: p, cached: known}, *g.rollout, selector.ForwardOptions{Dist: true})
		golden.Close(t, got.logp.Floats(), objective.Sequence(out.LogP).Floats(), 1e-5)
		g.opt.Ratio = "token"
		perStep := viewNow(g, &frozenPolicy{Policy: p, cached: steps}, *g.rollout, selector.ForwardOptions{})
		golden.Close(t, perStep.logp.Floats(), out.LogP.Floats(), 1e-5)
		last := b.B() - 1
		part := viewNow(g, &frozenPolicy{Policy: p, cached: steps}, g.rollout.part(phases.Span{From: last, To: b.B()}), selector.ForwardOptions{})
		golden.Close(t, part.logp.Floats(), torchx.Narrow(perStep.logp, 0, last, 1).Floats(), 0)
		kl := p.Forward(b, selector.ForwardOptions{Reference: got.dist}).KL
		golden.Close(t, objective.MaskedSum(kl, b).Floats(), make([]float64, b.B()*b.G), 1e-5)
		if a, w := got.dist.Floats(), out.Dist.Floats(); slices.Max(a) > 0 || len(a) != len(w) {
			t.Errorf("%d log-probabilities up to %g, want %d up to 0", len(a), slices.Max(a), len(w))
		}
	}
	if known, err := allLogProbs(context.Background(), p, train, 5, true, false, 1<<30); known != nil || err != nil {
		t.Errorf("distributions of %d candidates are kept: %v, %v", 1<<30, known, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := allLogProbs(ctx, p, train, 5, true, false, 300); err == nil {
		t.Error("an interrupted evaluation went on")
	}
}

// raggedToy is toy with pools of 4 to 10 examples.
func raggedToy(t *testing.T) (train, val *pointer.Source) {
	t.Helper()
	const rows, dim = 80, 8
	data := make([]float32, rows*dim)
	for i := range data {
		data[i] = float32(math.Sin(float64(3*i + i*i%17)))
	}
	var qs []beamdata.Query
	for i := range 12 {
		q := beamdata.Query{ID: int64(i)}
		for j := range 4 + i%7 {
			q.Pool = append(q.Pool, int32(12+5*i+j))
		}
		for g := range 2 + i%4 {
			q.Candidates = append(q.Candidates, []int32{int32(g % 4), int32((g + 1) % 4)})
			q.Rewards = append(q.Rewards, float64(g%3))
		}
		qs = append(qs, q)
	}
	set, err := beamdata.NewSet("ragged", beamdata.NewTable(rows, dim, data), 2, qs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pointer.NewSource(set), pointer.NewSource(set)
}

// Frozen parameters stay, the others move; a name that fits none is refused.
func TestFreeze(t *testing.T) {
	train, val := phasetest.Toy(t)
	opt := DefaultOptions()
	opt.LR, opt.Freeze = 1e-2, []string{"query_proj", "attn"}
	phase := New("grpo", opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, train, 16)
	env := phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir())
	if err := phase.Begin(env, 10); err != nil {
		t.Fatal(err)
	}
	before := env.Policy.Params().Values()
	for step := range 3 {
		if _, err := phase.Step(context.Background(), phases.At{Epoch: 1, Step: step, Queries: []int{0, 1, 2, 3}}); err != nil {
			t.Fatal(err)
		}
	}
	after := env.Policy.Params().Values()
	moved := 0
	for _, name := range env.Policy.Params().Names() {
		from, to := env.Policy.Params().Range(name)
		same := slices.Equal(before[from:to], after[from:to])
		if still := strings.Contains(name, "query_proj") || strings.Contains(name, "attn"); still && !same {
			t.Errorf("%s moved", name)
		}
		if !same {
			moved++
		}
	}
	if moved == 0 {
		t.Error("nothing moved")
	}
	phase.End()

	for _, part := range []string{"query_prj", ""} {
		opt.Freeze = []string{part}
		phase = New("grpo", opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, train, 16)
		if err := phase.Begin(env, 10); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("no parameter has %q in its name", part)) {
			t.Errorf("error %v, want one that names %q", err, part)
		}
	}
}

// equal returns batches whose rewards are all the same in all but one of n groups.
type equal struct {
	*pointer.Source
	but int
}

func (e equal) Recorded(queries []int) *selector.Batch {
	b := e.Source.Recorded(queries)
	for i, q := range queries {
		for g := range b.G {
			if b.Valid[i*b.G+g] && q >= e.but {
				b.Rewards[i*b.G+g] = 0.5
			}
		}
	}
	return b
}

func TestGroupsWithoutSignalAreRefused(t *testing.T) {
	train, val := phasetest.Toy(t) // 48 groups
	for _, tc := range []struct {
		with int
		any  bool
		want string
	}{
		{2, false, "95.83 % of the 48 recorded groups have no signal"}, {3, false, ""}, {0, true, ""},
	} {
		opt := DefaultOptions()
		opt.Hooks.AnySignal = tc.any
		phase := New("grpo", opt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), equal{train, tc.with}, 16)
		err := phase.Begin(phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir()), 10)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%d groups with a signal, any %v: error %v, want %q", tc.with, tc.any, err, tc.want)
		}
	}
}

func TestRestoreNamesWhatIsMissing(t *testing.T) {
	train, val := phasetest.Toy(t)
	opt := DefaultOptions()
	opt.OldPolicy, opt.KL.Reference = "epoch_start", "phase_start"
	phase := New("grpo", opt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)
	if err := phase.Begin(phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir()), 10); err != nil {
		t.Fatal(err)
	}
	defer phase.End()
	for _, role := range []string{"old", "reference"} {
		s := phase.State()
		delete(s.Frozen, role)
		if err := phase.Restore(s); err == nil || !strings.Contains(err.Error(), "saved "+role+" policy has 0 weights") {
			t.Errorf("without %s: error %v", role, err)
		}
	}
}

// A policy that answers differently each time shows at the first step after a refresh: ratio_not_one.
func TestNondeterministicPolicyIsMeasured(t *testing.T) {
	train, val := phasetest.Toy(t)
	env := phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir())
	phase := New("grpo", DefaultOptions(), phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)
	if err := phase.Begin(env, 10); err != nil {
		t.Fatal(err)
	}
	defer phase.End()
	w := env.Policy.Params().Values()
	for i := range w {
		w[i] *= 1.5
	}
	env.Policy.Params().SetValues(w)
	m, err := phasetest.Row(phase.Step(context.Background(), phases.At{Epoch: 1, Queries: []int{0, 1, 2}}))
	if err != nil {
		t.Fatal(err)
	}
	if drift := m["refresh_drift"].(float64); drift < 1e-2 || m["mean_ratio"] != 1.0 {
		t.Errorf("refresh_drift %v, mean_ratio %v: want the difference that equal weights should not have, and a ratio that does not use it",
			drift, m["mean_ratio"])
	}
}

// A reference that moves between the passes over a batch is asked again: the KL to a copy of the policy is 0.
func TestLaterPassesAskTheMovedReference(t *testing.T) {
	train, val := phasetest.Toy(t)
	opt := DefaultOptions()
	opt.LR, opt.NumIterations, opt.KL.Estimator, opt.KL.SyncSteps, opt.KL.SyncMix = 1e-2, 3, "k3", new(2), 1
	phase := New("grpo", opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, train, 16)
	if err := phase.Begin(phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir()), 10); err != nil {
		t.Fatal(err)
	}
	defer phase.End()
	for pass, far := range []bool{false, true, false} {
		m, err := phasetest.Row(phase.Step(context.Background(), phases.At{Epoch: 1, Step: pass, Pass: pass, Queries: []int{0, 1, 2}}))
		if err != nil {
			t.Fatal(err)
		}
		if kl := m["kl"].(float64); (kl > 1e-6) != far {
			t.Errorf("pass %d: KL %g, away from the reference: %v", pass+1, kl, far)
		}
	}
}

// every_n refreshes between batches, never between the passes over one.
func TestEveryNRefreshesBetweenBatches(t *testing.T) {
	train, val := phasetest.Toy(t)
	opt := DefaultOptions()
	opt.LR, opt.OldPolicy, opt.UpdateOldAfter, opt.NumIterations = 1e-2, "every_n", 3, 2
	phase := New("grpo", opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, train, 16)
	if err := phase.Begin(phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir()), 10); err != nil {
		t.Fatal(err)
	}
	defer phase.End()
	for step, fresh := range []bool{true, false, false, false, true, false} {
		m, err := phasetest.Row(phase.Step(context.Background(), phases.At{Epoch: 1, Step: step, Pass: step % 2, Queries: []int{0, 1, 2}}))
		if err != nil {
			t.Fatal(err)
		}
		if (m["mean_ratio"] == 1.0) != fresh {
			t.Errorf("step %d: mean ratio %v, exactly 1 expected: %v", step+1, m["mean_ratio"], fresh)
		}
	}
}

func TestBetaOfZeroIsNoBound(t *testing.T) {
	train, val := phasetest.Toy(t)
	for _, lift := range []bool{false, true} {
		opt := DefaultOptions()
		opt.KL.Beta, opt.KL.LiftZero = 0, lift
		phase := New("grpo", opt, phases.DefaultOptimOptions(), schedule.DefaultLROptions(), train, 16)
		if err := phase.Begin(phasetest.ToyEnv(t, val, &phasetest.Memory{}, t.TempDir()), 10); err != nil {
			t.Fatal(err)
		}
		m := phase.EndEpoch().Row()
		phase.End()
		if m["kl_beta_at_bound"] != lift {
			t.Errorf("lift_zero %v: at bound %v", lift, m["kl_beta_at_bound"])
		}
	}
}

// viewNow is a view whose upload is sent at once.
func viewNow(g *Phase, f *frozenPolicy, part rollout, forward selector.ForwardOptions) view {
	up := &phases.Inputs{}
	in := g.input(f, &part, forward, up)
	up.Upload.Send(f.Params().Flat())
	return g.frozen(in)
}
