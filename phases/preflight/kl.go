package preflight

import (
	"math"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/selector"
)

// klAgain is the share by which a KL may be off: the reference policy's log-probabilities come from passes of another shape.
const klAgain = 0.02

// nats checks the KL of a step made with the clone's weights against their distributions, or by the estimator's formula. A KL that is
// reported as half of itself lets the policy go twice as far.
func (p *probe) nats(m phases.Metrics) {
	e, ok := p.phase.(phases.Expecter)
	b := p.spy.seen
	if !ok || b == nil || p.AllowNonFinite {
		return
	}
	of := e.Expected().Policy
	if _, measured := m["kl"]; !measured || of == nil || of.MaskTruncated || float64(b.NumValid()) != number(m, "items") {
		return
	}
	reference, _ := phases.ReferenceOf(p.phase, p.env)
	want, ok := p.kl(b, reference, of.KL.Estimator, of.PerToken)
	if got := number(m, "kl"); ok && math.Abs(want) > 1e-3 {
		p.over("kl_differs", math.Abs(got-want)/math.Abs(want), klAgain, "the KL of a step is %.4g nats, and its candidates make it %.4g "+
			"(kl.estimator=%s): β, and the penalty, answer another number than the distance from the reference policy", got, want, of.KL.Estimator)
	}
}

// kl is the mean over a batch's candidates of the KL between the clone and the reference policy, in nats per sequence.
func (p *probe) kl(b *selector.Batch, reference selector.Policy, estimator string, perToken bool) (nats float64, ok bool) {
	defer torchx.NoGrad()()
	defer torchx.Scope()()
	how := selector.ForwardOptions{Temperature: p.spy.how.Temperature, Dist: estimator == "exact"}
	own, other := p.policy.Forward(b, how), reference.Forward(b, how)
	if how.Dist {
		x, y := own.Dist.Floats(), other.Dist.Floats()
		width := len(x) / max(len(b.Mask), 1)
		for i, logp := range x {
			if b.Mask[i/width] != 0 && b.Valid[i/width/b.T] && logp > -1e8 {
				nats += math.Exp(logp) * (logp - y[i])
			}
		}
		return nats / float64(max(b.NumValid(), 1)), true
	}
	estimate := map[string]func(r float64) float64{
		"k1": func(r float64) float64 { return r },
		"k2": func(r float64) float64 { return r * r / 2 },
		"k3": func(r float64) float64 { return math.Exp(-r) - 1 + r },
	}[estimator]
	if estimate == nil {
		return 0, false
	}
	x, y := own.LogP.Floats(), other.LogP.Floats()
	sequence := make([]float64, len(b.Valid))
	for i := range x {
		if b.Mask[i] == 0 || !b.Valid[i/b.T] {
			continue
		}
		if r := x[i] - y[i]; perToken {
			nats += estimate(r)
		} else {
			sequence[i/b.T] += r
		}
	}
	for at, r := range sequence {
		if !perToken && b.Valid[at] {
			nats += estimate(r)
		}
	}
	return nats / float64(max(b.NumValid(), 1)), true
}
