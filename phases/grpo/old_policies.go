package grpo

import (
	"fmt"
	"maps"
	"slices"

	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/selector"
)

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
	// From names the policy whose weights it begins with.
	From origin
	// Constant: nothing refreshes it within the phase. It then cannot sample.
	Constant bool
	// AtEpoch refreshes it at the start of an epoch.
	AtEpoch bool
	// AtBatch reports whether it is refreshed before a batch, given the optimizer steps since the last refresh; nil: never.
	AtBatch func(o Options, since int) bool
	// Fresh reports whether it has the policy's weights at a step of the phase (from 0): the ratio is then 1.
	Fresh func(o Options, e doctor.Limits, step int) bool
}

func (p OldPolicy) named() string { return p.Name }

// origin names the policy whose weights an old policy begins with.
type origin int

const (
	ofPhase  origin = iota // a copy of the policy at the phase's start
	ofRun                  // the policy that the run began with
	ofPolicy               // no copy: the policy itself
)

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

// rebuilt returns the initial policy with the attention heads of old_policy_heads. The caller frees it.
func (g *Phase) rebuilt(env *phases.Env) (selector.Policy, error) {
	if env.WithHeads == nil {
		return nil, fmt.Errorf("%s.old_policy_heads=%d: the number of attention heads of this policy is fixed", g.name, *g.opt.OldPolicyHeads)
	}
	p, err := env.WithHeads(env.Initial, *g.opt.OldPolicyHeads)
	if err != nil {
		return nil, fmt.Errorf("%s.old_policy_heads: %w", g.name, err)
	}
	return p, nil
}

// asksReference reports whether the KL or the advantages ask for a reference policy.
func (g *Phase) asksReference() bool { return g.opt.KL.MeasureEvery > 0 || g.opt.Advantage.Anchored() }

// takeReference makes the reference policy, after the old one; where both have the same weights one policy serves as both, and where
// neither the KL nor the advantages ask for it there is none.
func (g *Phase) takeReference() {
	if g.reference = nil; !g.asksReference() {
		return
	}
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
