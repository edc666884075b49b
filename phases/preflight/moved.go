package preflight

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/selector"
)

// moved checks that the trained tensors have moved since the start, and no frozen one. It returns those that have
// not, where others have: a branch behind a scale that starts at 0 has hardly a gradient yet.
func (p *probe) moved(m phases.Metrics) (idle []string) {
	p.checks += 3
	idle, astray := p.stayed(p.start)
	if len(astray) > 0 {
		p.find("frozen_move", "%s moved although %s.freeze names it: its learning rate is not 0", firstOf(astray), p.Name)
	}
	trained := list.Count(p.policy.Params().Names(), func(name string) bool { return !p.frozen(name) })
	if len(idle) == 0 || len(idle) < trained {
		p.sawMoves(trained, len(idle))
		return idle
	}
	if norm := number(m, "grad_norm"); norm > 0 {
		p.found(p.Name, "parameters_do_not_move", p.Name+".lr", float64(len(idle)), 0, "no weight moved in %d steps although the gradient "+
			"norm is %.4g: the optimizer makes no step, or %s.lr is too small for float32 (it was %.3g in the first step)", p.steps, norm, p.Name,
			m["lr"])
	} else {
		p.found(p.Name, "gradient_missing", "", float64(len(idle)), 0, "no weight has a gradient in this phase (norm %.3g): the "+
			"log-probabilities are cut off from the weights, or nothing of the loss depends on them", norm)
	}
	return nil
}

// sawMoves says which tensor moved the farthest.
func (p *probe) sawMoves(trained, idle int) {
	params, now := p.policy.Params(), p.policy.Params().Values()
	most, where := 0.0, ""
	for _, name := range params.Names() {
		from, to := params.Range(name)
		if d := farthest(now[from:to], p.start[from:to]); d > most {
			most, where = d, name
		}
	}
	p.Saw(p.Name, "parameters_do_not_move", "%d of %d tensors moved in %d steps, a weight of %s the farthest, by %.3g", trained-idle, trained,
		p.steps, where, most)
	if frozen := len(params.Names()) - trained; frozen > 0 {
		p.Saw(p.Name, "frozen_move", "of the tensors %d stayed, which %s.freeze names", frozen, p.Name)
	}
}

// stayed lists the trained tensors that have not moved (idle) and the frozen ones that have (astray).
func (p *probe) stayed(were []float32) (idle, astray []string) {
	params, now := p.policy.Params(), p.policy.Params().Values()
	for _, name := range params.Names() {
		from, to := params.Range(name)
		switch frozen, moved := p.frozen(name), farthest(now[from:to], were[from:to]) > nowhere; {
		case frozen && moved:
			astray = append(astray, name)
		case !frozen && !moved:
			idle = append(idle, name)
		}
	}
	return idle, astray
}

// nowhere is the largest change at which a weight counts as unmoved. It is tiny, since a weight of 0 takes any step, however small.
const nowhere = 1e-12

// farthest is the largest difference of two lists of weights.
func farthest(a, b []float32) float64 {
	d := 0.0
	for i := range a {
		d = math.Max(d, math.Abs(float64(a[i]-b[i])))
	}
	return d
}

// leftOut reports idle tensors: with a gradient from the log-probabilities at these weights, without one, or unused in the batch.
func (p *probe) leftOut(idle []string, weights []float32) {
	if len(idle) == 0 {
		return
	}
	b := p.part.last
	reached := p.reached(b, weights)
	var unmoved, without, unused []string
	why := ""
	for _, name := range idle {
		reason := p.unused(b, name)
		switch {
		case reached[name]:
			unmoved = append(unmoved, name)
		case reason != "":
			unused, why = append(unused, name), reason
		default:
			without = append(without, name)
		}
	}
	say := func(most doctor.Severity, check string, names []string, format, why string) {
		if n := len(names); n > 0 {
			p.add(p.Name, most, doctor.Finding{Check: check, Value: float64(n), Message: fmt.Sprintf(format, firstOf(names), p.steps, why)})
		}
	}
	say(doctor.Warning, "parameters_do_not_move", unmoved, "%s did not move in %d steps although the log-probabilities have a gradient %s",
		"there: the phase leaves that out")
	say(doctor.Warning, "gradient_missing", without, "%s got no gradient in %d steps: %s",
		"the log-probabilities do not depend on what should be trained there")
	say(doctor.Note, "gradient_missing", unused, "%s got no gradient in %d steps, because %s", why)
}

// unused says why a tensor may have no part in the log-probabilities of a batch; "" where it should have.
func (p *probe) unused(b *selector.Batch, name string) string {
	longest := 0
	for at, ok := range b.Valid {
		if ok {
			longest = max(longest, len(b.Scored(at/b.G, at%b.G)))
		}
	}
	if longest < 2 {
		return "the candidates have one step each: what acts between steps is never used"
	}
	if p.Unused != nil {
		return p.Unused(b, name)
	}
	return ""
}

func (p *probe) frozen(name string) bool {
	return slices.ContainsFunc(p.Freeze, func(part string) bool { return strings.Contains(name, part) })
}

// reached reports which tensors the log-probabilities of a batch have a gradient to, whatever the phase does.
func (p *probe) reached(b *selector.Batch, weights []float32) map[string]bool {
	// different weights: a sum over all actions has no gradient
	w := list.Make(len(b.Valid), func(at int) float64 { return float64(1 + at%7) })
	grad := p.gradient(b, w, weights)
	reached := map[string]bool{}
	params := p.policy.Params()
	for _, name := range params.Names() {
		from, to := params.Range(name)
		reached[name] = slices.ContainsFunc(grad[from:to], func(g float32) bool { return g != 0 })
	}
	return reached
}

// gradient is that of Σ w·log π over the candidates of a batch. It is taken on a clone of its own: the phase's
// gradients are left alone.
func (p *probe) gradient(b *selector.Batch, w []float64, weights []float32) []float32 {
	defer torchx.Scope()()
	twin := p.Policy.Clone()
	defer twin.Free()
	twin.Params().SetValues(weights)
	how := p.spy.how // dropout too, where the phase trains with it: the masks are the same
	out := twin.Forward(b, selector.ForwardOptions{Temperature: how.Temperature, Train: how.Train, DropoutSeed: how.DropoutSeed})
	perStep := list.Make(len(b.Mask), func(i int) float32 { return b.Mask[i] * float32(w[i/b.T]) })
	torchx.Backward(torchx.Sum(torchx.Mul(out.LogP, torchx.ToLike(torchx.From(perStep, b.B(), b.G, b.T), out.LogP))))
	return torchx.Data[float32](twin.Params().Grad())
}

func firstOf(names []string) string {
	const show = 3
	if len(names) <= show {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:show], ", "), len(names)-show)
}

// unmoved checks that the reference policy has not moved.
func (p *probe) unmoved(weights []float32) {
	reference, name := phases.ReferenceOf(p.phase, p.env)
	if reference == nil || name == "synced" {
		return
	}
	p.checks++
	if slices.Equal(reference.Params().Values(), weights) {
		p.Saw(p.Name, "frozen_move", "all %d numbers of the reference policy stayed", len(weights))
	} else {
		p.find("frozen_move", "the reference policy of the KL moves with the policy: it shares its weights, so that the KL is always 0")
	}
}
