package grpo

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"fulcrum/internal/testkit/phasetest"
	"fulcrum/phases"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// answering counts how often a policy answers queries greedily, which a validation does once.
type answering struct {
	selector.Policy
	n *int
}

func (a answering) Decode(src selector.Source, queries []int, t, width int) (*selector.Batch, []float64) {
	*a.n++
	return a.Policy.Decode(src, queries, t, width)
}

// TestNoPolicyIsEvaluatedTwice: a run asks a policy once for each split, whichever rows show it: as an epoch, as what a phase hands on, as
// the best. (TestResumeIsExact finds the rows equal to those of a second evaluation.)
func TestNoPolicyIsEvaluatedTwice(t *testing.T) {
	train, val := phasetest.Toy(t)
	for name, change := range map[string]func(*phases.CheckpointOptions){
		"the highest": func(*phases.CheckpointOptions) {},
		"restored":    func(o *phases.CheckpointOptions) { o.RestoreBest = true },
		"the initial": func(o *phases.CheckpointOptions) { o.Best.Metric = new("val_kl") }, // which has the least
	} {
		rec, n := &phasetest.Memory{}, 0
		env := phasetest.ToyEnv(t, val, rec, t.TempDir())
		env.Policy, env.Initial = answering{env.Policy, &n}, answering{env.Initial, &n}
		plan := toyPlan(train)
		change(&plan.Checkpoint)
		if _, err := phases.Run(context.Background(), plan, env, nil); err != nil {
			t.Fatal(err)
		}
		policies, rows := map[string]bool{}, 0
		for _, row := range rec.Rows {
			f := strings.Fields(row) // kind, phase, epoch
			split := "val"
			if strings.Contains(row, `"split":"dev"`) {
				split = "dev"
			}
			if f[0] == "eval" || f[0] == "epoch" {
				policies[fmt.Sprint(f[1], f[2], split)] = true
				rows++
			}
		}
		if n != len(policies) || rows <= n {
			t.Errorf("%s: %d evaluations of %d policies in %d rows", name, n, len(policies), rows)
		}
	}
}

// forwarding counts the forward passes of a policy.
type forwarding struct {
	selector.Policy
	n *int
}

func (f forwarding) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	*f.n++
	return f.Policy.Forward(b, opt)
}

// What the first phase starts from is the run's initial policy: the KL to one is that to the other, and not computed again. A later phase
// starts from another.
func TestKLToTheSameWeightsIsMeasuredOnce(t *testing.T) {
	train, val := phasetest.Toy(t)
	for name, from := range map[string]int{"grpo": 2, "rce, grpo": 1} {
		rec, n := &phasetest.Memory{}, 0
		env := phasetest.ToyEnv(t, val, rec, t.TempDir())
		env.Initial = forwarding{env.Initial, &n}
		plan := toyPlan(train)
		plan.Phases = plan.Phases[from:3]
		if _, err := phases.Run(context.Background(), plan, env, nil); err != nil {
			t.Fatal(err)
		}
		once := strings.Count(strings.Join(rec.Rows, "\n"), `"policy":"init"`) // its losses on the splits
		if (n == once) != (from == 2) {
			t.Errorf("%s: %d passes of the initial policy on %d splits", name, n, once)
		}
	}
}

// A reference that was rebuilt with other heads is another policy than the initial one, under whose name it goes: the best policy, of an
// earlier epoch, has the same KL in a run that was resumed.
func TestRebuiltReferenceIsNotTheInitialPolicy(t *testing.T) {
	train, val := phasetest.Toy(t)
	opt := DefaultOptions()
	opt.Epochs, opt.LR, opt.OldPolicy, opt.OldPolicyHeads, opt.KL.Reference = 3, 1e-2, "init", new(2), "init"
	phasetest.Resumes(t, func() phases.Plan {
		plan := phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Phases: []phases.Phase{
			New("grpo", opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, train, 16)}}
		plan.Checkpoint.Best = phases.BestOptions{Metric: new("val_kl"), Mode: new("max"), Highest: true}
		return plan
	}, 3*3, func(rec phases.Recorder, dir string) *phases.Env {
		env := phasetest.ToyEnv(t, val, rec, dir)
		env.WithHeads = func(p selector.Policy, heads int) (selector.Policy, error) {
			return p.(*pointer.Policy).CloneWithHeads(heads)
		}
		return env
	})
}

// A held-out file may be called val: its queries are asked, too, and chose nothing.
func TestHeldOutCalledVal(t *testing.T) {
	train, val := phasetest.Toy(t)
	rec := &phasetest.Memory{}
	env := phasetest.ToyEnv(t, val, rec, t.TempDir())
	env.Data.EvalName, env.Data.Eval = "val", pointer.NewSource(val.Set().Subset([]int{0, 1, 2}))
	if _, err := phases.Run(context.Background(), toyPlan(train), env, nil); err != nil {
		t.Fatal(err)
	}
	asked, chosen := map[int]int{}, map[int]int{} // by number of queries
	for _, s := range rec.Asked {
		asked[len(s.QueryIDs)]++
		chosen[len(s.QueryIDs)] += s.ChosenFrom
	}
	if n := asked[3]; len(asked) != 2 || n == 0 || n != asked[val.Len()] || chosen[3] != 0 || chosen[val.Len()] == 0 {
		t.Errorf("evaluations by number of queries: %v, chosen from %v", asked, chosen)
	}
}
