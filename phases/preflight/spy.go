package preflight

import (
	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// spy is the policy that a phase trains in a trial. It hands batches of a part through to the source behind
// it, and remembers the first forward pass that the phase made.
type spy struct {
	selector.Policy
	seen *selector.Batch         // of the first forward pass since reset
	how  selector.ForwardOptions // its options
	logp []float64               // [B*G*T] its log-probabilities

	noise *noise // that this policy and its clones have drawn since heard
}

// heard returns the random numbers that were drawn since it was last asked.
func (s *spy) heard() noise {
	out := *s.noise
	*s.noise = noise{}
	return out
}

// Clone returns a clone that samples on the source behind a part too, and has a memory of its own but for the noise.
func (s *spy) Clone() selector.Policy {
	of, seen := watch(s.Policy.Clone())
	of.noise = s.noise
	return seen
}

func (s *spy) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	out := s.Policy.Forward(b, opt)
	if opt.Train {
		s.noise.masks = append(s.noise.masks, opt.DropoutSeed)
	}
	if s.seen == nil {
		s.seen, s.how, s.logp = b, opt, out.LogP.Floats()
	}
	return out
}

// Sample is the policy's, on the source behind a part. Where most completions were cut at the length limit, as those of
// a policy that has learnt nothing yet are, all count as whole: mask_truncated would leave a trial nothing to look at.
func (s *spy) Sample(src selector.Source, queries []int, g, t int, temperature float64, seed uint64) *selector.Batch {
	p := partOf(src)
	if p == nil {
		return s.Policy.Sample(src, queries, g, t, temperature, seed)
	}
	b := s.Policy.Sample(p.inner, p.at(queries), g, t, temperature, seed)
	s.noise.draws = append(s.noise.draws, draw{b: b, truncated: b.Truncated, seed: seed})
	if 2*list.Count(b.Truncated, func(cut bool) bool { return cut }) > len(b.Truncated) {
		b.Truncated = nil
	}
	return p.padded(b)
}

func (s *spy) MayStop() bool {
	m, ok := s.Policy.(selector.Stopper)
	return ok && m.MayStop()
}

type tokenSpy struct {
	*spy
	tokens selector.TokenPolicy
}

func (s tokenSpy) KL(b *selector.Batch, reference selector.Policy) torchx.Tensor {
	return s.tokens.KL(b, reference)
}

func (s tokenSpy) HalfPrecision() bool { return s.tokens.HalfPrecision() }

// watch returns a spy on a policy, and what a phase sees of it: the policy's optional powers included.
func watch(p selector.Policy) (*spy, selector.Policy) {
	s := &spy{Policy: p, noise: &noise{}}
	if tokens, ok := p.(selector.TokenPolicy); ok {
		return s, tokenSpy{s, tokens}
	}
	return s, s
}
