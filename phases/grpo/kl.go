package grpo

import (
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// Estimators lists the estimators that grpo.kl.estimator may name.
func Estimators() []Estimator {
	return []Estimator{klExact(), klK1(), klK2(), klK3(), klK3Reversed()}
}

// Estimator is one way to compute KL(π ‖ ref), the penalty, with gradient. The sampled ones take one log-ratio a candidate
// or token, r = log π - log ref (Schulman 2020, "Approximating KL divergence"). As a penalty, only k2's gradient is that of
// the KL on samples of π; k1's is 0 in expectation and k3's that of the reversed KL.
type Estimator struct {
	Name string
	// Sampled estimates the KL from log-ratios, which limit bounds before they are exponentiated. nil: exact, summed over
	// the distributions of every step.
	Sampled func(logRatio torchx.Tensor, limit float64) torchx.Tensor
	// Signed says that an estimate may be below 0.
	Signed bool
	// Kernel names the estimate for the kernel of the whole loss; Given: there is none for it.
	Kernel torchx.Estimate
}

func (e Estimator) named() string { return e.Name }

func klExact() Estimator { return Estimator{Name: "exact"} }

// klK1 is r.
func klK1() Estimator {
	return Estimator{Name: "k1", Kernel: torchx.K1, Signed: true, Sampled: func(r torchx.Tensor, _ float64) torchx.Tensor { return r }}
}

// klK2 is r²/2.
func klK2() Estimator {
	return Estimator{Name: "k2", Kernel: torchx.K2, Sampled: func(r torchx.Tensor, _ float64) torchx.Tensor {
		return torchx.Scale(torchx.Square(r), 0.5)
	}}
}

// klK3 is e^-r - 1 + r.
func klK3() Estimator {
	return Estimator{Name: "k3", Kernel: torchx.K3, Sampled: func(r torchx.Tensor, limit float64) torchx.Tensor {
		r = clampTo(r, limit)
		return torchx.AddScalar(torchx.Add(torchx.Exp(torchx.Neg(r)), r), -1)
	}}
}

// klK3Reversed is the Python reference's e^r - 1 - r, which estimates KL(ref ‖ π) from samples of ref.
func klK3Reversed() Estimator {
	return Estimator{Name: "k3_reversed", Kernel: torchx.K3Reversed, Sampled: func(r torchx.Tensor, limit float64) torchx.Tensor {
		r = clampTo(r, limit)
		return torchx.Sub(torchx.AddScalar(torchx.Exp(r), -1), r)
	}}
}

// kl is the penalty, like logp: nats per sequence, or per step with ratio=token; with gradient.
func (g *Phase) kl(out selector.Output, ref view, logp torchx.Tensor, in *staged) torchx.Tensor {
	switch {
	case g.chosen.kl.Sampled != nil:
		return g.chosen.kl.Sampled(torchx.Sub(logp, ref.logp), g.opt.MaxLogRatio)
	case g.opt.Ratio == "token":
		return out.KL
	}
	perStep := out.KL
	if !in.mask.Nil() {
		perStep = torchx.Mul(perStep, in.mask)
	}
	return torchx.Sum(perStep, 2)
}
