// Package grpo trains by group-relative policy optimisation.
//
// One step reads in this order: grpo.go (Step), rollout.go (Collect: candidates, rewards, advantages), loss.go (Inputs and Loss), frozen.go
// (the old and the reference policy), then phases/step.go, which takes the gradient. Tables of choices stand in losses.go, old_policies.go
// and sources.go. A first reading can leave out metrics.go (the numbers of a row), kernel.go (the loss as one CUDA kernel), options.go
// (options and their checks), kind.go (what a run asks of them), cache.go (log-probabilities computed ahead) and state.go (for a resume).
package grpo

import (
	"context"
	"errors"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/rewardutil/control"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// Phase is group-relative policy optimisation (Shao et al. 2024, arXiv:2402.03300, eq. 3), with one ratio per sequence
// or one per token. Advantages are taken over the whole group and the curriculum's top k afterwards; the KL penalty is
// exact where the policy gives whole distributions. The sampling probability of recorded groups is unknown: there the
// ratio is a trust region around the old policy, not an importance weight.
type Phase struct {
	name      string
	opt       Options
	chosen    chosen
	optim     phases.OptimOptions
	sched     schedule.LROptions
	src       selector.Source
	batchSize int

	env       *phases.Env
	text      bool // the policy's steps are tokens: it gives no whole distributions
	learn     *phases.Learner
	steps     *phases.Steps[*rollout, *inputs]
	beta      *control.Controller
	temp      *control.Controller
	old       *frozenPolicy // the ratio's denominator; it samples the groups; may be reference
	reference *frozenPolicy // of the KL penalty; nil: nothing asks for it
	sinceOld  int           // steps since old was refreshed
	refreshed int           // the step before which old was last refreshed
	startsOld bool          // the phase starts with the old policy's weights
	recorded  int           // candidates of the whole source (offline)
	checked   bool          // Check has looked at the recorded groups
	showNext  bool          // no batch of this epoch has been kept for reading yet

	rollout *rollout // the batch of this step, for one or more passes
}

// New returns a GRPO phase called name on recorded groups (offline) or on the queries of a scorer (online).
func New(name string, opt Options, optim phases.OptimOptions, sched schedule.LROptions, src selector.Source, batch int) *Phase {
	if opt.OldPolicy == "every_n" && opt.UpdateOldAfter <= opt.NumIterations {
		opt.OldPolicy = "batch" // the same rule without a copy of the weights
	}
	chosen, _ := opt.choose() // Check reports an unknown name
	return &Phase{name: name, opt: opt, chosen: chosen, optim: optim, sched: sched, src: src, batchSize: batch}
}

func (g *Phase) Info() phases.Info {
	return phases.Info{Name: g.name, Epochs: g.opt.Epochs, Source: g.src, BatchSize: g.batchSize, Passes: g.opt.NumIterations,
		EpochQueries: g.opt.EpochQueries, Online: g.chosen.rollout.Samples}
}

// Begin takes the old and reference policies and makes the optimizer.
func (g *Phase) Begin(env *phases.Env, totalSteps int) error {
	if err := g.Check(env); err != nil {
		return err
	}
	g.env = env
	_, g.text = env.Policy.(selector.TokenPolicy)
	if err := g.takeOld(); err != nil {
		return err
	}
	g.takeReference()
	var err error
	g.learn, err = phases.NewLearner(env, g.name, g.optim, g.opt.LR, g.sched, totalSteps, g.opt.Freeze)
	g.steps = phases.NewSteps[*rollout, *inputs](g.learn, g, g.opt.MicroBatch)
	return err
}

// BeginEpoch refreshes the policies that are taken at the start of an epoch.
func (g *Phase) BeginEpoch(int) {
	g.showNext = true
	if g.chosen.old.AtEpoch {
		g.refreshOld()
	}
	if g.opt.KL.Reference == "epoch_start" && g.reference != nil {
		g.reference.Params().CopyFrom(g.env.Policy.Params())
	}
}

// Step makes one GRPO update: Collect (rollout.go), Loss (loss.go), backward pass, clipping and AdamW (phases.Steps).
func (g *Phase) Step(ctx context.Context, at phases.At) (phases.Measured, error) {
	defer torchx.Scope()()
	if stale := g.chosen.old.AtBatch; at.Pass == 0 && stale != nil && stale(g.opt, g.sinceOld) {
		g.refreshOld()
	}
	if refreshed := at.Step - g.sinceOld; g.refreshed != refreshed { // Collect of a later step may read it in another goroutine
		g.refreshed = refreshed
	}
	of, err := g.steps.Make(ctx, at)
	if of.Batch != nil && at.Pass == 0 {
		err = errors.Join(err, g.keepCompletions(at, of.Batch.drawn))
	}
	if err != nil {
		return nil, err
	}
	m := g.measure(of)
	g.rollout = of.Batch
	if m.KL != nil {
		g.beta.Step(*m.KL)
		g.temp.Step(*m.KL)
	}
	g.sinceOld++
	g.syncReference(at.Step)
	return m, nil
}

// EndEpoch moves β and the policy temperature by the epoch's mean KL and reports a β on its bound.
func (g *Phase) EndEpoch() phases.Measured {
	g.beta.EndEpoch()
	g.temp.EndEpoch()
	beta, o := g.beta.Value(), g.opt.KL
	moves := o.Controller != "fixed" && (beta > 0 || o.LiftZero)
	return epochMetrics{KLBetaNext: beta, KLBetaAtBound: moves && (beta <= o.BetaMin || beta >= o.BetaMax)}
}
