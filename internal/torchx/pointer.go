package torchx

// #include "csrc/pointer.h"
import "C"

// This file has parts of a pointer's step that are one CUDA kernel each. They run where PoolRuns says so.

// WeightedLogp returns factor·Σ weight·Σ_t logp of log-probabilities [B, G, T] and weights [B, G]: a scalar.
func WeightedLogp(logp, weight Tensor, factor *Factor) Tensor {
	return made("weighted_logp", func(out *C.Tensor) *C.char {
		return C.fc_weighted_logp(logp.c(), weight.c(), factor.on.c(), out)
	}, logp, weight, factor.on)
}

// Estimate names an estimate of the KL penalty from log-ratios r to the reference that the kernel of Surrogate knows.
type Estimate int

// The estimates; Given is a penalty that was computed elsewhere.
const (
	Given      Estimate = iota
	K1                  // r
	K2                  // r²/2
	K3                  // e^-r - 1 + r
	K3Reversed          // e^r - 1 - r
)

// Surrogate is PPO's clipped surrogate of sequences with a KL penalty, as phases/grpo has it; tensors are [B, G].
type Surrogate struct {
	Old, Adv, Weight  Tensor
	Ref               Tensor // log-probabilities of the reference, for an estimate
	Penalty           Tensor // with Given: nats
	Estimate          Estimate
	Share, MinusShare *Factor // ±1/divisor of the sums
	Beta              *Factor // of the penalty; nil: it is not in the loss
	Limit             float64 // of log-ratios that are exponentiated; may be infinite
	Low, High         float64 // widths of the clip range below and above 1
}

// Losses are what Surrogate computes. Loss and its parts are scalars; the others are [B, G] without gradient.
type Losses struct{ Loss, PPO, KL, Sequences, LogRatios, Penalties Tensor }

// Loss computes the loss of log-probabilities logp [B, G, T], with gradient to logp and Penalty.
func (s Surrogate) Loss(logp Tensor) (out Losses) {
	must("surrogate", logp, s.Old, s.Adv, s.Weight, s.Share.on)
	var beta, loss, parts, sequences, ratios, penalties C.Tensor
	if s.Beta != nil {
		beta = s.Beta.on.c()
	}
	check("surrogate", C.fc_surrogate(logp.c(), s.Old.c(), s.Ref.c(), s.Penalty.c(), s.Adv.c(), s.Weight.c(), s.Share.on.c(),
		s.MinusShare.on.c(), beta, C.double(s.Limit), C.double(s.Low), C.double(s.High), C.int(s.Estimate), &loss, &parts, &sequences, &ratios,
		&penalties), logp, s.Adv)
	numbers := adopt(parts)
	part := func(i int) Tensor { return Narrow(numbers, 0, i, 1) }
	return Losses{adopt(loss), part(1), part(2), adopt(sequences), adopt(ratios), adopt(penalties)}
}

// Gate mixes states s [B, 1 or N, D] with chosen vectors c [B, N, D] and returns unit vectors: z·s + (1-z)·c, z = σ(p + q), where p is
// like s and q like c.
func Gate(s, p, c, q Tensor) Tensor {
	return made("gate", func(out *C.Tensor) *C.char { return C.fc_gate(s.c(), p.c(), c.c(), q.c(), 1e-12, out) }, s, p, c, q)
}
