// Package grpo trains by group-relative policy optimisation.
//
// Step in grpo.go is the algorithm. It reads in this order: grpo.go, rollout.go (the batch and its advantages), loss.go (losses, KL
// estimators and what they read), frozen.go (the old and the reference policy), metrics.go (what a row reports). Four files can
// be left out: kernel.go (the loss as one CUDA kernel), options.go (options and their checks), cache.go (log-probabilities computed
// before the first step), state.go (what a resume needs).
package grpo

import (
	"context"
	"errors"

	"fulcrum/internal/option"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/control"
	"fulcrum/rewardutil/schedule"
	"fulcrum/selector"
)

// Phase is group-relative policy optimisation (Shao et al. 2024, arXiv:2402.03300, eq. 3), with one ratio
// per sequence or one per token. Advantages are taken over the whole group and the curriculum's top k
// afterwards; the KL penalty is exact where the policy gives whole distributions. On recorded groups
// nobody knows the probability of sampling them: the ratio is then a trust region around the old policy,
// not an importance weight.
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
	pipeline  phases.Pipeline[*tally]
	beta      *control.Controller
	temp      *control.Controller
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
	if opt.OldPolicy == "every_n" && opt.UpdateOldAfter <= opt.NumIterations {
		opt.OldPolicy = "batch" // the same policy, without a copy of its weights
	}
	chosen, _ := opt.choose() // Check reports an unknown name
	return &Phase{name: name, opt: opt, chosen: chosen, optim: optim, sched: sched, src: src,
		batchSize: option.Or(opt.BatchSize, batch)}
}

// Info implements phases.Phase.
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
	return err
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

// Step makes one GRPO update.
func (g *Phase) Step(_ context.Context, epoch, step, pass int, queries []int) (phases.Measured, error) {
	defer torchx.Scope()()
	if stale := g.chosen.old.AtBatch; pass == 0 && stale != nil && stale(g.opt, g.sinceOld) {
		g.refreshOld()
	}
	refreshed := step - g.sinceOld // the step at which the old policy had the policy's weights
	at := phases.At{Epoch: epoch, Step: step, Pass: pass, Queries: queries}
	sums, optimizer, values, err := g.pipeline.Step(g.learn, at, g.foreseeable(), func(at phases.At) (*tally, *phases.Work, error) {
		return g.prepare(at, at.Step == refreshed)
	})
	if sums != nil && pass == 0 {
		err = errors.Join(err, g.keepCompletions(at, sums.rollout.drawn))
	}
	if err != nil {
		return nil, err
	}
	m := g.measure(optimizer, sums, values)
	g.rollout = sums.rollout
	g.beta.Step(m.KL)
	g.temp.Step(m.KL)
	g.sinceOld++
	g.syncReference(step)
	return m, nil
}

// prepare makes the host's part of a step: the rollout, at the first pass over its queries, and what the passes read. It changes nothing
// of the phase, since a foreseeable step is prepared beside the one before. refreshed: the old policy was just refreshed.
func (g *Phase) prepare(at phases.At, refreshed bool) (sums *tally, w *phases.Work, err error) {
	sums, w = &tally{}, &phases.Work{}
	if at.Pass > 0 {
		sums.rollout = g.rollout
		sums.rollout.fresh = false
		g.work(sums, w)
		return sums, w, nil
	}
	if sums.rollout, err = g.collect(at); err != nil {
		return nil, nil, err
	}
	sums.rollout.fresh = g.chosen.old.From == ofPolicy || refreshed && g.startsOld
	if g.chosen.rollout.Samples {
		w.Late = func() { g.work(sums, w) }
	} else {
		g.work(sums, w)
	}
	return sums, w, nil
}

// foreseeable returns which of the following steps can be prepared before the numbers of this one are known: on recorded groups all, with
// one pass over each and nothing that moves from step to step; else the next samples.
func (g *Phase) foreseeable() []phases.At {
	o, stale, next := g.opt, g.chosen.old.AtBatch, g.env.Next
	switch {
	case len(next) == 0 || o.Temperature.Enabled:
	case g.chosen.rollout.Samples:
		if next[0].Pass == 0 && (stale == nil || !stale(o, g.sinceOld+1)) {
			return next[:1]
		}
	case o.NumIterations == 1 && stale == nil && o.KL.SyncSteps == nil && (o.KL.Controller == "fixed" || o.KL.Update == "epoch"):
		return next
	}
	return nil
}

// keepCompletions keeps what was drawn for a batch that is seen first, where it is wanted.
func (g *Phase) keepCompletions(at phases.At, drawn *selector.Batch) error {
	show := g.opt.Completions.Due(g.showNext, at.Step, g.opt.NumIterations)
	g.showNext = false
	if !g.text || !show {
		return nil
	}
	return g.opt.Completions.Record(g.env.Rec, g.name, at.Epoch, at.Step, drawn, g.opt.Advantage)
}

// work stages what the parts of the rollout read (grpo.micro_batch). Their gradients add up.
func (g *Phase) work(sums *tally, w *phases.Work) {
	if g.opt.Temperature.Enabled {
		w.Refuse(g.name + ".temperature moves")
	}
	var parts []*staged
	for from, to := range objective.Spans(sums.rollout.batch.B(), g.opt.MicroBatch) {
		part := sums.rollout.part(from, to)
		if part.batch.NumValid() > 0 { // the step's divisors know; where nothing at all is left, the gradient is 0
			sums.parts = append(sums.parts, part)
			parts = append(parts, g.stage(part, w))
		}
	}
	w.Passes = func() (losses, numbers []torchx.Tensor) {
		for _, in := range parts {
			loss, read := g.backward(in)
			losses, numbers = append(losses, loss), append(numbers, read...)
		}
		return losses, numbers
	}
}

// backward adds the gradient of a part's share of the loss. It returns that share and the tensors of readout, detached.
func (g *Phase) backward(in *staged) (loss torchx.Tensor, numbers []torchx.Tensor) {
	defer torchx.Scope()()
	ref, bonus := in.reference(), g.opt.EntropyWeight > 0 // no gradient
	forward := selector.ForwardOptions{Temperature: in.temperature, Reference: ref.dist, Dist: bonus && !g.text, Entropy: bonus && g.text}
	out := in.policy(forward) // with gradient, dropout off
	compute := g.loss
	if g.chosen.fused(g.opt) && !in.part.fresh && objective.OneKernel(out.LogP) {
		compute = g.kernelLoss
	}
	loss, m := compute(out, ref, in)
	torchx.Backward(loss)
	for _, x := range m.all() {
		if !x.Nil() {
			*x = torchx.Keep(torchx.Detach(*x))
		}
		numbers = append(numbers, *x)
	}
	return torchx.Keep(torchx.Detach(loss)), numbers
}

// loss computes a part's share of the loss, a scalar with gradient, and what is read of it.
func (g *Phase) loss(out selector.Output, ref view, in *staged) (loss torchx.Tensor, m readout[torchx.Tensor]) {
	logp := g.perRatio(out.LogP) // [B, G], or [B, G, T] with ratio=token
	old := in.old(view{logp: logp, steps: out.LogP}, ref)
	denominator := old.logp // like logp, no gradient
	if in.part.fresh {
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
	loss = ppo
	if in.beta != nil {
		loss = torchx.Add(ppo, in.beta.Times(kl))
	}
	if g.opt.EntropyWeight > 0 {
		loss = torchx.Sub(loss, torchx.Scale(g.entropyBonus(out, in), g.opt.EntropyWeight))
	}

	m = readout[torchx.Tensor]{ppo: ppo, kl: kl, klSequence: kl, logRatio: logRatio, logp: logp, old: old.logp, entropy: out.Entropy}
	if g.opt.Ratio == "token" {
		m.klSequence = in.perCandidate.Times(torchx.Sum(torchx.Mul(klTerms, in.mask)))
	}
	if in.part.keepsRef() {
		m.ref = ref.logp
	}
	if in.part.batch.Sampled != nil {
		m.oldSteps = old.steps
	}
	return loss, m
}

// EndEpoch moves β and the policy temperature by the epoch's mean KL and reports a β on its bound.
func (g *Phase) EndEpoch() phases.Measured {
	g.beta.EndEpoch()
	g.temp.EndEpoch()
	beta, o := g.beta.Value(), g.opt.KL
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
