package grpo

import (
	"encoding/json"
	"fmt"

	"fulcrum/internal/jsonwords"
	"fulcrum/phases"
	"fulcrum/rewardutil/control"
	"fulcrum/selector"
)

type grpoValues struct {
	Beta        control.State `json:"beta"`
	Temperature control.State `json:"temperature"`
	SinceOld    int           `json:"since_old"`
}

// Keeps implements phases.Keeper: how many policies unsaved returns.
func (g *Phase) Keeps() (n int) {
	kl, reference := g.opt.KL, g.asksReference()
	if reference && g.leavesInitial() {
		n++
	}
	shared := reference && kl.Reference == g.opt.OldPolicy && g.chosen.old.Constant && kl.SyncSteps == nil
	if !shared && g.chosen.old.From == ofPhase {
		n++
	}
	return n
}

// leavesInitial reports whether the reference is, or becomes, another than the run's initial policy, which has a file.
func (g *Phase) leavesInitial() bool {
	return g.opt.KL.Reference != "init" || g.opt.KL.SyncSteps != nil
}

// unsaved returns the frozen policies that no checkpoint file holds, by role: they go into the saved state.
func (g *Phase) unsaved() map[string]selector.Policy {
	k := map[string]selector.Policy{}
	if g.reference != nil && g.leavesInitial() {
		k["reference"] = g.reference.Policy
	}
	if g.old != g.reference && g.chosen.old.From == ofPhase {
		k["old"] = g.old.Policy
	}
	return k
}

// looksUp returns the constant policies by role, whose log-probabilities of recorded groups go into the saved state.
func (g *Phase) looksUp() map[string]*frozenPolicy {
	f := map[string]*frozenPolicy{"old": g.old}
	if g.reference != nil && g.reference != g.old {
		f["reference"] = g.reference
	}
	return f
}

// State returns the optimizer, the controllers, the frozen policies and what was looked up of them.
func (g *Phase) State() phases.PhaseState {
	s := g.learn.State()
	s.Values, _ = json.Marshal(grpoValues{g.beta.State(), g.temp.State(), g.sinceOld})
	for role, p := range g.unsaved() {
		s.Frozen[role] = p.Params().Values()
	}
	for role, f := range g.looksUp() {
		if f.cached == nil || f.cached.dist != nil {
			continue
		}
		if logp, at := f.cached.kept(); len(at) > 0 {
			s.Frozen[role+"_logp"], s.Frozen[role+"_logp_at"] = logp, at
		}
	}
	return s
}

func (g *Phase) Restore(s phases.PhaseState) error {
	var v grpoValues
	if err := jsonwords.Unmarshal(s.Values, &v); err != nil {
		return fmt.Errorf("%s: saved state: %w", g.name, err)
	}
	if err := g.beta.Restore(v.Beta); err != nil {
		return fmt.Errorf("%s: saved state: %w", g.name, err)
	}
	if err := g.temp.Restore(v.Temperature); err != nil {
		return fmt.Errorf("%s: saved state: %w", g.name, err)
	}
	g.sinceOld = v.SinceOld
	for role, p := range g.unsaved() {
		if err := s.RestorePolicy(role, p); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	for role, f := range g.looksUp() {
		if at := s.Frozen[role+"_logp_at"]; len(at) > 0 {
			f.cached = newCache(g.src.Len(), false)
			if err := f.cached.restore(s.Frozen[role+"_logp"], at); err != nil {
				return fmt.Errorf("%s: saved state: %w", g.name, err)
			}
		}
	}
	return g.learn.Restore(s)
}

func (g *Phase) End() {
	g.learn.Free()
	if g.old != g.reference {
		g.old.free()
	}
	g.reference.free()
	g.rollout = nil
}
