package selector

import "fulcrum/internal/torchx"

// This file declares what some policies can do beside Policy. A type assertion finds it.

// TokenPolicy is a Policy whose actions are tokens of a vocabulary and whose candidates are texts. The vocabulary is
// too large for Output.Dist.
type TokenPolicy interface {
	Policy
	// KL returns KL(π ‖ reference) of every step [B, G, T] in nats, summed over the whole vocabulary: without gradient, 0
	// where masked.
	KL(b *Batch, reference Policy) torchx.Tensor
	// HalfPrecision reports whether the policy computes in 16 bits: log-probabilities of equal weights then agree to two
	// digits only, where the shapes of their batches differ.
	HalfPrecision() bool
}

// Stopper is a Policy that may have an action which ends a candidate: the last one of Output.Dist, behind those of the
// pool.
type Stopper interface {
	Policy
	MayStop() bool
}
