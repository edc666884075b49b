package selector

import "fulcrum/internal/torchx"

// This file declares optional powers of policies, found by type assertion.

// Stager is a Policy whose forward pass has two parts: the host's and the device's.
type Stager interface {
	Policy
	// Stage adds what Forward reads of a batch to up. The returned function is Forward once up was sent.
	Stage(b *Batch, up *torchx.Upload) (forward func(ForwardOptions) Output)
	// Eager returns the reason why no CUDA graph can hold that function, a transfer from the host; "": a graph can.
	Eager(opt ForwardOptions) string
}

// Stage calls the policy's Stage; of other policies it stages Forward. eager is the reason why no CUDA graph can hold the function, or "".
func Stage(p Policy, b *Batch, up *torchx.Upload, opt ForwardOptions) (forward func(ForwardOptions) Output, eager string) {
	if s, ok := p.(Stager); ok {
		return s.Stage(b, up), s.Eager(opt)
	}
	return func(opt ForwardOptions) Output { return p.Forward(b, opt) }, "each batch has a shape of its own"
}

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

// Stopper is a Policy that may have an action that ends a candidate: the last one of Output.Dist, after the pool's
// actions.
type Stopper interface {
	Policy
	MayStop() bool
}
