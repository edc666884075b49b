package grpo

import (
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/selector"
)

// frozenPolicy is an old or reference policy. If its weights stay for the whole phase and the groups are
// recorded, its log-probabilities are computed once (cached) and looked up in every step.
type frozenPolicy struct {
	selector.Policy
	owned    bool            // freed with the phase
	constant bool            // not refreshed within the phase
	cached   *cachedLogProbs // nil: evaluated in every step
}

func (g *Phase) refreshOld() {
	g.old.Params().CopyFrom(g.env.Policy.Params())
	g.sinceOld = 0
}

// syncReference moves the reference towards the policy after every kl.sync_steps optimizer steps; step
// counts from 0. (TR-DPO, arXiv:2404.09656, eq. 10 and 11: soft and hard updates.)
func (g *Phase) syncReference(step int) {
	n, mix := g.opt.KL.SyncSteps, g.opt.KL.SyncMix
	if n == nil || g.reference == nil || (step+1)%*n != 0 {
		return
	}
	g.rollout.refKnown = false // later passes over the batch ask the moved reference
	if mix == 1 {
		g.reference.Params().CopyFrom(g.env.Policy.Params())
		return
	}
	defer torchx.Scope()()
	to := g.reference.Params().Flat()
	torchx.Copy(to, torchx.Add(torchx.Scale(g.env.Policy.Params().Flat(), mix), torchx.Scale(to, 1-mix)))
}

// view holds a frozen policy's log-probabilities of the rollout, without gradient.
type view struct {
	logp torchx.Tensor // [B, G], or [B, G, T] with ratio=token
	dist torchx.Tensor // [B, G, T, A]; undefined if not needed

	steps torchx.Tensor // [B, G, T] log-probabilities of the steps; undefined where logp was looked up
}

// frozenInput gives a loss the log-probabilities of a part under a frozen policy: looked up or evaluated.
type frozenInput struct {
	view                                                  // looked up
	forward func(selector.ForwardOptions) selector.Output // evaluated; nil: looked up
	opt     selector.ForwardOptions
}

// frozen returns log-probabilities of a part, without gradient.
func (g *Phase) frozen(in *frozenInput) view {
	if in.forward == nil {
		return in.view
	}
	defer torchx.NoGrad()()
	out := in.forward(in.opt)
	return view{g.perRatio(out.LogP), out.Dist, out.LogP}
}

// input stages a frozen policy's log-probabilities of a part of the rollout.
func (g *Phase) input(f *frozenPolicy, part *rollout, opt selector.ForwardOptions, up *phases.Inputs) *frozenInput {
	b := part.batch
	if f.cached == nil {
		return &frozenInput{forward: up.Forward(f.Policy, b, opt), opt: opt}
	}
	in := g.known(f.cached.logProbs(b, part.index, g.width(b)), b, up)
	if opt.Dist {
		a := 0
		for _, q := range b.Queries {
			a = max(a, f.cached.actions[q])
		}
		torchx.Put(&up.Upload, &in.dist, f.cached.distributions(b, part.index, a), b.B(), b.G, b.T, a)
	}
	return in
}

// known stages log-probabilities of an earlier pass, shaped like logp.
func (g *Phase) known(values []float32, b *selector.Batch, up *phases.Inputs) *frozenInput {
	in := &frozenInput{}
	torchx.Put(&up.Upload, &in.logp, values, g.shape(b, b.T)...)
	return in
}

// oldInput stages the old policy's log-probabilities of a part; nil where the policy or the staged reference has them.
func (g *Phase) oldInput(in *inputs, up *phases.Inputs) *frozenInput {
	switch {
	case in.part.known:
		return g.known(in.part.old, in.part.batch, up)
	case g.chosen.old.From == ofPolicy || g.old == g.reference && in.reference != nil:
		return nil
	}
	return g.input(g.old, &in.part, selector.ForwardOptions{Temperature: in.temperature}, up)
}

// oldOf returns the old policy's log-probabilities of a part; now and ref are the policy's own and the reference's.
func (g *Phase) oldOf(in *inputs, now, ref view) view {
	switch {
	case in.old != nil:
		return g.frozen(in.old)
	case g.chosen.old.From == ofPolicy:
		return view{logp: torchx.Detach(now.logp), steps: now.steps}
	}
	return ref
}

func (f *frozenPolicy) free() {
	if f != nil && f.owned {
		f.Free()
	}
}
