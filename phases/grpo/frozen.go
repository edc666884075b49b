package grpo

import (
	"fmt"
	"maps"
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/selector"
)

// frozenPolicy is an old or reference policy. Where its weights stay for the whole phase and the groups
// are recorded, its log-probabilities of them are computed once (cached) and looked up in every step.
type frozenPolicy struct {
	selector.Policy
	owned    bool            // freed with the phase
	constant bool            // nothing refreshes it within the phase
	cached   *cachedLogProbs // nil: evaluated in every step
}

// OldPolicies lists the rules that grpo.old_policy may name.
func OldPolicies() []OldPolicy {
	return []OldPolicy{
		{Name: "init", From: ofRun, Constant: true, Fresh: func(o Options, e doctor.Limits, step int) bool {
			return step == 0 && e.StartsAtInit && o.OldPolicyHeads == nil
		}},
		{Name: "phase_start", Constant: true, Fresh: func(_ Options, _ doctor.Limits, step int) bool { return step == 0 }},
		{Name: "epoch_start", AtEpoch: true, Fresh: func(_ Options, e doctor.Limits, step int) bool { return step%e.StepsPerEpoch == 0 }},
		// refreshed between batches only, never between the passes over one
		{Name: "every_n", AtBatch: func(o Options, since int) bool { return since >= o.UpdateOldAfter },
			Fresh: func(o Options, e doctor.Limits, step int) bool {
				period := (o.UpdateOldAfter + e.Passes - 1) / e.Passes * e.Passes
				return step%period == 0
			}},
		{Name: "batch", From: ofPolicy, Fresh: func(_ Options, e doctor.Limits, step int) bool { return step%e.Passes == 0 }},
	}
}

// OldPolicy is one rule for the policy in the ratio's denominator, which also samples the groups of online rollouts.
type OldPolicy struct {
	Name string
	// From says whose weights it begins with.
	From origin
	// Constant says that nothing refreshes it within the phase. It cannot sample then.
	Constant bool
	// AtEpoch refreshes it at the start of an epoch.
	AtEpoch bool
	// AtBatch reports whether it is refreshed before a batch, so many optimizer steps after it last was; nil: never.
	AtBatch func(o Options, since int) bool
	// Fresh reports whether it has the policy's weights at a step of the phase, counted from 0: the ratio is then 1.
	Fresh func(o Options, e doctor.Limits, step int) bool
}

func (p OldPolicy) named() string { return p.Name }

// origin is whose weights an old policy begins with.
type origin int

const (
	ofPhase  origin = iota // a copy of the policy at the phase's start
	ofRun                  // the policy that the run began with
	ofPolicy               // no copy: the policy itself
)

// takeOld makes the old policy at the phase's start.
func (g *Phase) takeOld() error {
	rule := g.chosen.old
	g.startsOld = true
	switch rule.From {
	case ofPolicy:
		g.old = &frozenPolicy{Policy: g.env.Policy}
	case ofPhase:
		g.old = &frozenPolicy{Policy: g.env.Policy.Clone(), constant: rule.Constant, owned: true}
	case ofRun:
		g.old = &frozenPolicy{Policy: g.env.Initial, constant: rule.Constant}
		if g.opt.OldPolicyHeads != nil {
			rebuilt, err := g.rebuilt(g.env)
			if err != nil {
				return err
			}
			g.old.Policy, g.old.owned = rebuilt, true
		}
		g.startsOld = maps.Equal(g.old.Metadata(), g.env.Policy.Metadata()) &&
			slices.Equal(g.old.Params().Values(), g.env.Policy.Params().Values())
	}
	return nil
}

// refreshOld copies the policy's weights to the old policy.
func (g *Phase) refreshOld() {
	g.old.Params().CopyFrom(g.env.Policy.Params())
	g.sinceOld = 0
}

// rebuilt returns the initial policy with the attention heads of old_policy_heads. The caller frees it.
func (g *Phase) rebuilt(env *phases.Env) (selector.Policy, error) {
	if env.WithHeads == nil {
		return nil, fmt.Errorf("%s.old_policy_heads=%d: this policy has no attention heads to choose", g.name, *g.opt.OldPolicyHeads)
	}
	p, err := env.WithHeads(env.Initial, *g.opt.OldPolicyHeads)
	if err != nil {
		return nil, fmt.Errorf("%s.old_policy_heads: %w", g.name, err)
	}
	return p, nil
}

// takeReference makes the reference policy, after the old one, which serves as both where they are the same.
func (g *Phase) takeReference() {
	follows := g.opt.KL.SyncSteps != nil // it is then a copy of its own
	switch ref := g.opt.KL.Reference; {
	case ref == g.opt.OldPolicy && g.old.constant && !follows:
		g.reference = g.old
	case ref == "init" && !follows:
		g.reference = &frozenPolicy{Policy: g.env.Initial, constant: true}
	case ref == "init":
		g.reference = &frozenPolicy{Policy: g.env.Initial.Clone(), owned: true}
	default:
		g.reference = &frozenPolicy{Policy: g.env.Policy.Clone(), constant: ref == "phase_start" && !follows, owned: true}
	}
}

// syncReference moves the reference towards the policy after every kl.sync_steps optimizer steps; step
// counts from 0. (TR-DPO, arXiv:2404.09656, eq. 10 and 11: soft and hard updates.)
func (g *Phase) syncReference(step int) {
	n, mix := g.opt.KL.SyncSteps, g.opt.KL.SyncMix
	if n == nil || (step+1)%*n != 0 {
		return
	}
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
	dist torchx.Tensor // [B, G, T, A]; no tensor where nobody asked

	steps torchx.Tensor // [B, G, T] what logp is, or is the sum of; no tensor where that was looked up
}

// view stages a frozen policy's log-probabilities of a part of the rollout: looked up, or evaluated.
func (g *Phase) view(f *frozenPolicy, part *rollout, forward selector.ForwardOptions, w *phases.Work) func() view {
	b := part.batch
	if f.cached == nil {
		evaluate, eager := selector.Stage(f.Policy, b, &w.Upload, forward)
		w.Refuse(eager)
		return func() view {
			defer torchx.NoGrad()()
			out := evaluate(forward)
			return view{g.perRatio(out.LogP), out.Dist, out.LogP}
		}
	}
	v := &view{}
	torchx.Put(&w.Upload, &v.logp, f.cached.logProbs(b, part.index, g.width(b)), g.shape(b, b.T)...)
	if forward.Dist {
		a := 0
		for _, q := range b.Queries {
			a = max(a, f.cached.actions[q])
		}
		torchx.Put(&w.Upload, &v.dist, f.cached.distributions(b, part.index, a), b.B(), b.G, b.T, a)
	}
	return func() view { return *v }
}

// kept stages log-probabilities that the first pass over a part kept, like logp.
func (g *Phase) kept(values []float32, b *selector.Batch, w *phases.Work) *view {
	v := &view{}
	torchx.Put(&w.Upload, &v.logp, values, g.shape(b, b.T)...)
	return v
}

// oldView stages the old policy's log-probabilities of a part. The returned function gets the policy's own and the reference's.
func (g *Phase) oldView(in *staged, w *phases.Work) func(now, ref view) view {
	switch {
	case in.part.known:
		kept := g.kept(in.part.old, in.part.batch, w)
		return func(view, view) view { return *kept }
	case g.chosen.old.From == ofPolicy:
		return func(now, _ view) view { return view{logp: torchx.Detach(now.logp), steps: now.steps} }
	case g.old == g.reference:
		return func(_, ref view) view { return ref }
	}
	of := g.view(g.old, &in.part, selector.ForwardOptions{Temperature: in.temperature}, w)
	return func(view, view) view { return of() }
}

// referenceView stages the reference policy's log-probabilities of a part.
func (g *Phase) referenceView(in *staged, w *phases.Work) func() view {
	if in.part.known && in.part.ref != nil {
		kept := g.kept(in.part.ref, in.part.batch, w)
		return func() view { return *kept }
	}
	return g.view(g.reference, &in.part, selector.ForwardOptions{Temperature: in.temperature, Dist: g.chosen.kl.Sampled == nil}, w)
}

func (f *frozenPolicy) free() {
	if f != nil && f.owned {
		f.Free()
	}
}
