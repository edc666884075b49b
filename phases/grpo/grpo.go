// Package grpo trains by group-relative policy optimisation.
package grpo

import (
	"context"
	"fmt"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/rewardutil/control"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// Phase is group-relative policy optimisation (Shao et al. 2024, arXiv:2402.03300, eq. 3), with one ratio
// per sequence or one per token. Advantages are taken over the whole group and the curriculum's top k
// afterwards; the KL penalty is exact where the policy gives whole distributions. On recorded groups
// nobody knows the probability of sampling them: the ratio is then a trust region around the old policy,
// not an importance weight.
//
// A step reads in grpo.go (the algorithm), rollout.go (its batch), loss.go and losses.go (its loss), kl.go, old_policy.go
// and reference.go (what it is measured against). measure.go and metrics.go say what is reported, state.go what a resume
// needs.
type Phase struct {
	name      string
	opt       Options
	chosen    chosen
	optim     phases.OptimOptions
	sched     schedule.LROptions
	src       selector.Source
	batchSize int

	env       *phases.Env
	text      bool // the policy's steps are tokens: it has no distributions to look at
	learn     *phases.Learner
	line      phases.Line[drawn]
	step      int // in hand; the one behind it may be staged already
	beta      *control.KLController
	temp      *control.PolicyTemperature
	old       *frozenPolicy // ratio's denominator, and what samples; may be reference
	reference *frozenPolicy // of the KL penalty
	sinceOld  int           // steps since old was refreshed
	startsOld bool          // the phase starts with the old policy's weights
	recorded  int           // candidates of the whole source (offline)
	checked   bool          // Check has looked at the recorded groups
	showNext  bool          // no batch of this epoch has been kept for reading yet

	rollout rollout // the batch of this step, for one or more passes
}

// New returns a GRPO phase called name on recorded groups (offline) or on the queries of a scorer (online).
func New(name string, opt Options, optim phases.OptimOptions, sched schedule.LROptions, src selector.Source, batch int) *Phase {
	if opt.BatchSize != nil {
		batch = *opt.BatchSize
	}
	if opt.OldPolicy == "every_n" && opt.UpdateOldAfter <= opt.NumIterations {
		opt.OldPolicy = "batch" // the same policy, without a copy of its weights
	}
	chosen, _ := opt.choose() // Check reports an unknown name
	return &Phase{name: name, opt: opt, chosen: chosen, optim: optim, sched: sched, src: src, batchSize: batch}
}

// Info implements phases.Phase.
func (g *Phase) Info() phases.Info {
	return phases.Info{Name: g.name, Epochs: g.opt.Epochs, Source: g.src, BatchSize: g.batchSize, Passes: g.opt.NumIterations,
		EpochQueries: g.opt.EpochQueries, Online: g.chosen.rollout.Samples}
}

// Check asks all that can be wrong with the options for this policy, and whether the recorded groups can teach anything.
func (g *Phase) Check(env *phases.Env) (err error) {
	if g.chosen, err = g.opt.choose(); err != nil {
		return fmt.Errorf("%s.%w", g.name, err)
	}
	if _, text := env.Policy.(selector.TokenPolicy); text {
		if err := g.opt.ValidateTokens(); err != nil {
			return fmt.Errorf("%s.%w", g.name, err)
		}
	}
	if g.beta, err = control.NewKLController(g.opt.KL); err != nil {
		return err
	}
	if g.temp, err = control.NewPolicyTemperature(g.opt.Temperature); err != nil {
		return err
	}
	if err := g.optim.Check(env.Policy.Params(), g.opt.LR, g.opt.Freeze); err != nil {
		return err
	}
	if g.opt.OldPolicyHeads != nil {
		rebuilt, err := g.rebuilt(env)
		if err != nil {
			return err
		}
		rebuilt.Free()
	}
	if g.chosen.rollout.Samples || g.checked {
		return nil
	}
	if err := g.checkGroups(); err != nil {
		return err
	}
	g.checked = true // the groups do not change
	return nil
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
	return err
}

// maxSilent is the share of groups without a learning signal that a run may have.
const maxSilent = 0.95

// checkGroups counts the recorded candidates and refuses groups that can teach nothing.
func (g *Phase) checkGroups() error {
	const chunk = 1024
	signal, groups := 0, 0
	g.recorded = 0
	for queries := range selector.Chunks(g.src.Len(), chunk) {
		b := g.src.Recorded(queries)
		g.recorded += b.NumValid()
		_, stats := advantage.Compute(b.Rewards, b.Valid, b.B(), b.G, g.opt.Advantage)
		signal, groups = signal+stats.Signal, groups+stats.Groups-stats.Empty
	}
	if g.opt.Hooks.AnySignal {
		return nil
	}
	if groups > 0 && g.recorded <= groups {
		return fmt.Errorf("each of the %d recorded groups has one candidate, which nothing compares with: record several a query, or take "+
			"%s out of schedule", groups, g.name)
	}
	if silent := 1 - objective.Share(signal, groups); silent > maxSilent {
		return fmt.Errorf("%.4g %% of the %d recorded groups have no signal (equal rewards, or one candidate): choose another "+
			"data.reward.mode or lower %s.advantage.precision", 100*silent, groups, g.name)
	}
	return nil
}

// BeginEpoch refreshes what belongs to the epoch's start.
func (g *Phase) BeginEpoch(int) {
	g.showNext = true
	if g.chosen.old.AtEpoch {
		g.refreshOld()
	}
	if g.opt.KL.Reference == "epoch_start" {
		g.reference.Params().CopyFrom(g.env.Policy.Params())
	}
}

// drawn is a rollout and what a pass over it measures.
type drawn struct {
	rollout rollout
	sums    *tally
}

// Step makes one GRPO update.
func (g *Phase) Step(_ context.Context, epoch, step, pass int, queries []int) (phases.Measured, error) {
	next := g.env.Next
	if !g.foreseeable() {
		next = nil
	}
	g.step = step
	defer torchx.Scope()()
	at := phases.At{Epoch: epoch, Step: step, Pass: pass, Queries: queries}
	of, optimizer, values, err := g.line.Step(g.learn, at, next, g.prepare, func() phases.Prepare[drawn] {
		aside := *g // its own rollout; on recorded groups nothing else changes
		return aside.prepare
	})
	if err != nil {
		return nil, err
	}
	g.rollout = of.rollout // not the next step's
	of.sums.read(g, values)
	m := g.measure(optimizer, of.sums)
	g.rollout.old, g.rollout.ref = of.sums.old, of.sums.ref
	g.beta.Step(m.KL)
	g.temp.Step(m.KL)
	g.sinceOld++
	g.syncReference(step)
	return m, nil
}

// prepare makes the host's part of a step. Its first pass over a batch makes the rollout.
func (g *Phase) prepare(at phases.At) (drawn, *phases.Work, error) {
	if at.Pass == 0 {
		if of := g.chosen.old.AtBatch; of != nil && of(g.opt, g.sinceOld) {
			g.refreshOld()
		}
		if err := g.collect(at.Epoch, at.Step, at.Queries); err != nil {
			return drawn{}, nil, err
		}
		g.rollout.fresh = g.sinceOld+at.Step-g.step == 0 && g.startsOld
	}
	sums := g.newTally(at.Pass)
	work := g.work(sums)
	return drawn{g.rollout, sums}, work, nil
}

// foreseeable reports whether a step can be staged before the numbers of the one before are known: recorded groups, one pass over each, and
// nothing that moves from step to step.
func (g *Phase) foreseeable() bool {
	o := g.opt
	return !g.chosen.rollout.Samples && o.NumIterations == 1 && g.chosen.old.AtBatch == nil && o.KL.SyncSteps == nil &&
		!o.Temperature.Enabled && (o.KL.Controller == "fixed" || o.KL.Update == "epoch")
}

// lossTemperature returns the temperature at which the rollout was sampled. Every log-probability of its loss
// is taken there: only then is the ratio an importance weight of its samples. Nobody knows a temperature of recorded
// groups.
func (g *Phase) lossTemperature() float64 {
	if !g.chosen.rollout.Samples {
		return g.rollout.temperature
	}
	return g.opt.SampleTemp * g.rollout.temperature
}

// work is the step's on the device: the gradients of the rollout's parts add up.
func (g *Phase) work(sums *tally) *phases.Work {
	w := &phases.Work{}
	if g.opt.Temperature.Enabled {
		w.Refuse(g.name + ".temperature moves")
	}
	var passes []func() (loss torchx.Tensor, measured []torchx.Tensor)
	for from, to := range objective.Spans(g.rollout.batch.B(), g.opt.MicroBatch) {
		batch := g.rollout.batch.Part(from, to) // [B, G, T], the curriculum's top k
		if batch.NumValid() > 0 {               // the step's divisors know; where nothing at all is left, the gradient is 0
			passes = append(passes, g.part(from, batch, sums, w))
		}
	}
	w.Passes = func() (losses, measured []torchx.Tensor) {
		for _, pass := range passes {
			loss, of := pass()
			losses, measured = append(losses, loss), append(measured, of...)
		}
		return losses, measured
	}
	return w
}

// part adds to the step's upload what its queries read, which start at from in the rollout. The returned function adds the
// gradient of their part of the loss.
func (g *Phase) part(from int, batch *selector.Batch, sums *tally, w *phases.Work) func() (loss torchx.Tensor, measured []torchx.Tensor) {
	temperature := g.lossTemperature()
	in := g.stage(from, batch, temperature, w)
	sums.parts = append(sums.parts, part{from: from, batch: batch, fresh: in.fresh})
	keepRef := sums.ref != nil && g.rollout.ref == nil
	return func() (torchx.Tensor, []torchx.Tensor) {
		defer torchx.Scope()()
		ref := in.reference() // no gradient
		bonus := g.opt.EntropyWeight > 0
		forward := selector.ForwardOptions{Temperature: temperature, Reference: ref.dist, Dist: bonus && !g.text, Entropy: bonus && g.text}
		out := in.policy(forward) // with gradient, dropout off
		if g.oneKernel(out, in) {
			loss, found := g.kernelLoss(out, ref, in)
			torchx.Backward(loss)
			return torchx.Keep(torchx.Detach(loss)), measured(in, found, keepRef)
		}
		logp := g.perRatio(out.LogP) // [B, G], or [B, G, T] with ratio=token
		before := in.old(view{logp: logp, steps: out.LogP}, ref)
		old := before.logp // like logp, no gradient
		denominator := old
		if in.fresh {
			denominator = torchx.Detach(logp) // old, but for its last bits: the ratio is exactly 1
			if g.old == g.reference {
				ref.logp = denominator
			}
		}

		logRatio := g.logRatio(logp, denominator, in) // [B, G], or [B, G, T] with one ratio a token
		ratio := torchx.Exp(clampTo(logRatio, g.opt.MaxLogRatio))
		low, high := g.opt.Clip.sides()
		ppo := surrogate(ratio, in.adv, in.weight, low, high, in.minusShare)
		klTerms := g.kl(out, ref, logp, in)                              // like logp, nats, with gradient
		kl := in.share.Times(torchx.Sum(torchx.Mul(klTerms, in.weight))) // scalar
		loss := ppo
		if in.beta != nil {
			loss = torchx.Add(ppo, in.beta.Times(kl))
		}
		if bonus {
			loss = torchx.Sub(loss, torchx.Scale(g.entropyBonus(out, in), g.opt.EntropyWeight))
		}
		torchx.Backward(loss)
		if batch.Sampled == nil {
			before.steps = torchx.Tensor{}
		}
		return torchx.Keep(torchx.Detach(loss)), measured(in, found{ppo: ppo, kl: kl, klTerms: klTerms, logRatio: logRatio, logp: logp, old: old,
			ref: ref.logp, entropy: out.Entropy, oldSteps: before.steps}, keepRef)
	}
}

// klWeight is the factor of the KL in the loss.
func (g *Phase) klWeight() float64 {
	if g.chosen.loss.NoKL {
		return 0
	}
	return g.beta.Beta()
}

// EndEpoch moves β and the policy temperature by the epoch's mean KL and reports a β on its bound.
func (g *Phase) EndEpoch() phases.Measured {
	g.beta.EndEpoch()
	g.temp.EndEpoch()
	beta, o := g.beta.Beta(), g.opt.KL
	moves := o.Controller != "fixed" && (beta > 0 || o.LiftZero)
	return epochMetrics{KLBetaNext: beta, KLBetaAtBound: moves && (beta <= o.BetaMin || beta >= o.BetaMax)}
}

// Reference implements phases.Referrer. A reference that follows the policy is called synced.
func (g *Phase) Reference() (selector.Policy, string) {
	if g.opt.KL.SyncSteps != nil {
		return g.reference.Policy, "synced"
	}
	return g.reference.Policy, g.opt.KL.Reference
}
