package preflight

import (
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/doctor"
	"fulcrum/selector"
)

// moved checks that every trained tensor has moved since the start, and no frozen one. A tensor that has not is
// asked for its gradient: where the log-probabilities have one, the phase leaves it out.
func (p *probe) moved(m phases.Metrics) {
	p.checks += 3
	params, now := p.policy.Params(), p.policy.Params().Values()
	var idle, astray []string
	trained := 0
	for _, name := range params.Names() {
		from, to := params.Range(name)
		moved := !slices.Equal(now[from:to], p.start[from:to])
		switch frozen := p.frozen(name); {
		case frozen && moved:
			astray = append(astray, name)
		case frozen:
		case moved:
			trained++
		default:
			idle = append(idle, name)
		}
	}
	if len(astray) > 0 {
		p.find("frozen_move", "%s moved although %s.freeze names it: its learning rate is not 0", list(astray), p.Name)
	}
	switch norm := number(m, "grad_norm"); {
	case len(idle) == 0:
	case trained > 0:
		p.leftOut(idle)
	case norm > 0:
		p.add(p.Name, doctor.Stop, doctor.Finding{Check: "parameters_do_not_move", Key: p.Name + ".lr", Value: float64(len(idle)),
			Message: fmt.Sprintf("no weight moved in %d steps although the gradient norm is %.4g: the optimizer makes no step, or %s.lr is too small for float32 (it was %.3g in the first step)", p.opt.Steps, norm, p.Name, m["lr"])})
	default:
		p.add(p.Name, doctor.Stop, doctor.Finding{Check: "gradient_missing", Value: float64(len(idle)),
			Message: fmt.Sprintf("no weight has a gradient in this phase (norm %.3g): the log-probabilities are cut off from the weights, or nothing of the loss depends on them", norm)})
	}
}

// leftOut says which of some tensors that did not move the log-probabilities have a gradient to.
func (p *probe) leftOut(idle []string) {
	b := p.part.last
	reached := p.reached(b)
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
	if len(unmoved) > 0 {
		p.add(p.Name, doctor.Warning, doctor.Finding{Check: "parameters_do_not_move", Value: float64(len(unmoved)),
			Message: fmt.Sprintf("%s did not move in %d steps although the log-probabilities have a gradient there: the phase leaves that out", list(unmoved), p.opt.Steps)})
	}
	if len(without) > 0 {
		p.add(p.Name, doctor.Warning, doctor.Finding{Check: "gradient_missing", Value: float64(len(without)),
			Message: fmt.Sprintf("%s got no gradient in %d steps: the log-probabilities do not depend on what should be trained there", list(without), p.opt.Steps)})
	}
	if len(unused) > 0 {
		p.add(p.Name, doctor.Note, doctor.Finding{Check: "gradient_missing", Value: float64(len(unused)),
			Message: fmt.Sprintf("%s got no gradient in %d steps, because %s", list(unused), p.opt.Steps, why)})
	}
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
func (p *probe) reached(b *selector.Batch) map[string]bool {
	w := make([]float64, len(b.Valid))
	for at := range w {
		w[at] = float64(1 + at%7) // different weights: a sum over all actions has no gradient
	}
	grad := p.gradient(b, w)
	reached := map[string]bool{}
	params := p.policy.Params()
	for _, name := range params.Names() {
		from, to := params.Range(name)
		reached[name] = slices.ContainsFunc(grad[from:to], func(g float32) bool { return g != 0 })
	}
	return reached
}

// gradient is that of Σ w·log π over the candidates of a batch, with the weights as they are.
func (p *probe) gradient(b *selector.Batch, w []float64) []float32 {
	defer torchx.Scope()()
	params := p.policy.Params()
	params.ZeroGrad()
	out := p.policy.Forward(b, selector.ForwardOptions{Temperature: p.spy.how.Temperature})
	perStep := make([]float32, len(b.Mask))
	for i, m := range b.Mask {
		perStep[i] = m * float32(w[i/b.T])
	}
	torchx.Backward(torchx.Sum(torchx.Mul(out.LogP, torchx.ToLike(torchx.From(perStep, b.B(), b.G, b.T), out.LogP))))
	grad := torchx.Data[float32](params.Grad())
	params.ZeroGrad()
	return grad
}

// still checks that the reference policy has not moved.
func (p *probe) still(reference []float32) {
	if n, ok := p.phase.(interface{ ReferenceName() string }); ok && n.ReferenceName() == "synced" {
		return
	}
	p.checks++
	if !slices.Equal(p.phase.Reference().Params().Values(), reference) {
		p.find("frozen_move", "the reference policy of the KL moves with the policy: it shares its weights, so that the KL is always 0")
	}
}

// list names some tensors.
func list(names []string) string {
	const show = 3
	if len(names) <= show {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:show], ", "), len(names)-show)
}
