package leverplus

import (
	"fmt"
	"math"
	"os"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/phasetest"
	"fulcrum/internal/testkit/runtest"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/grpo"
	"fulcrum/phases/rce"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/group"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
	"fulcrum/selector/pointer"
)

// A short last batch weighs as much as a full one where batches are averaged (defect D16).
func TestMeanOfBatches(t *testing.T) {
	x := []float64{1, 2, 3, 10, 20}
	for batch, want := range map[int]float64{3: (2 + 15) / 2.0, 2: (1.5 + 6.5 + 20) / 3, 1: 36.0 / 5, 9: 36.0 / 5} {
		golden.Close(t, []float64{MeanOfBatches(batch)(x)}, []float64{want}, 1e-12)
	}
	if got := MeanOfBatches(2)(nil); !math.IsNaN(got) {
		t.Errorf("the mean of nothing is %v", got)
	}
}

// normalize puts rewards on the scale of the toy run.
func normalize(r []float64) []float64 { return group.Normalize(r, group.DefaultNormalizeOptions()) }

// compatPlan has the reference's initial policy with other heads and its stale gradients.
func compatPlan(train *pointer.Source) phases.Plan {
	rceOpt, opt := rce.DefaultOptions(), grpo.DefaultOptions()
	rceOpt.Epochs, opt.Epochs, opt.LR, opt.Hooks = 2, 2, 3e-3, Hooks(normalize)
	rceOpt.Weights = Weights(false, true, false, normalize)
	opt.OldPolicy, opt.OldPolicyHeads, opt.Freeze, opt.MaxLogRatio = "init", new(2), []string{"input_proj", "query_proj"}, math.Inf(1)
	opt.KL.Reference, opt.KL.Estimator, opt.KL.Update = "init", "k3_reversed", "step"
	opt.Curriculum = advantage.CurriculumOptions{EarlyEpochs: 1, EarlyTopK: 3, LateTopK: new(5), Baseline: "subset"}
	sched := schedule.LROptions{Name: "constant"}
	return phases.Plan{Checkpoint: phases.DefaultCheckpointOptions(), Doctor: phasetest.Nosy(), Phases: []phases.Phase{
		rce.New(rceOpt, phases.DefaultOptimOptions(), sched, train, 16, 0),
		grpo.New("grpo", opt, phases.DefaultOptimOptions(), sched, train, 16)}}
}

// TestResumeIsExact: the stale gradients, and an old policy with other heads, go on exactly where they were.
func TestResumeIsExact(t *testing.T) {
	train, val := phasetest.Toy(t)
	phasetest.ResumesExactly(t, func() phases.Plan { return compatPlan(train) }, 3*(2+2), func(rec phases.Recorder, dir string) *phases.Env {
		env := phasetest.ToyEnv(t, val, rec, dir)
		env.Gradients = &StaleGradients{}
		env.WithHeads = func(p selector.Policy, heads int) (selector.Policy, error) {
			return p.(*pointer.Policy).CloneWithHeads(heads)
		}
		return env
	})
}

// TestImitationEqualsTheReference compares RCE's loss and gradient with the reference's on explicit inputs.
func TestImitationEqualsTheReference(t *testing.T) {
	torchx.Attach(1)
	var cases []phasetest.LossCase
	golden.JSON(t, golden.Shared(t, "parity", "units", "losses.json"), &cases)
	p := phasetest.ReferencePolicy(t, golden.Shared(t, "parity", "inits", "L1", "init.pt"), 768, 1)
	for i, c := range cases {
		if c.Rank { // no switch of the reference reaches ranks
			continue
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			env := &phases.Env{Policy: p.Clone(), Initial: p, AllowNonFinite: true}
			defer env.Policy.Free()
			opt := rce.DefaultOptions()
			opt.Top1Only, opt.Weights = c.Top1, Weights(c.Top1, false, false, nil)
			opt.Temperature = schedule.TemperatureOptions{Start: c.Temperature, End: c.Temperature, Schedule: "constant"}
			phase := rce.New(opt, phases.DefaultOptimOptions(), schedule.LROptions{Name: "constant"}, c.Source(t), c.B, c.Smoothing)
			if err := phase.Begin(env, 1); err != nil {
				t.Fatal(err)
			}
			defer phase.End()
			queries := make([]int, c.B)
			for q := range queries {
				queries[q] = q
			}
			m := phasetest.MustStepAt(t, phase, 0, queries)
			phasetest.ReportedClose(t, "rce loss", m["loss"], c.RCELoss, 1e-5, 0)
			phasetest.ReportedClose(t, "rce grad norm", m["grad_norm"], c.RCEGradNorm, 1e-6, 1e-4)
		})
	}
}

func TestMain(m *testing.M) {
	if err := torchx.Load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(runtest.Main(m))
}
