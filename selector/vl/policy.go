package vl

import (
	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/processor"
)

// Policy is a model whose actions are tokens: a candidate is a completion, with the token that ended it. It implements
// selector.Policy and selector.TokenPolicy.
type Policy struct{ model *Model }

// NewPolicy returns the policy of a model, which it owns.
func NewPolicy(m *Model) *Policy { return &Policy{m} }

// Model returns the model.
func (p *Policy) Model() *Model { return p.model }

// fail is tokens.Fail of an operation of this package.
func fail(op, format string, args ...any) {
	tokens.Fail("vl."+op, format, args...)
}

// groups is tokens.Groups of an operation of this package.
func groups(op string, b *selector.Batch) ([]Group, []int64) {
	return tokens.Groups[*processor.Prompt]("vl."+op, b)
}

// spread puts one number a token [n] where the batch has its steps [B, G, T], 0 elsewhere.
func (p *Policy) spread(b *selector.Batch, x torchx.Tensor, index []int64) torchx.Tensor {
	return tokens.Spread(b, x, index, p.model.params.Flat())
}

// Forward returns the log-probabilities of the batch's tokens, the images' features included. Prompts whose
// candidates are all padding are computed all the same, but cost nothing in the head.
func (p *Policy) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	if opt.Dist || !opt.Reference.Nil() {
		fail("forward", "Dist and its exact KL would hold %d log-probabilities a token: policies over tokens offer selector.TokenPolicy instead", p.model.cfg.Vocab)
	}
	gs, index := groups("forward", b)
	logp, entropy := p.model.score("forward", gs, tokens.Temperature(opt), p.model.pass(b, opt))
	if !opt.Entropy && !entropy.Nil() {
		entropy = torchx.Detach(entropy)
	}
	return selector.Output{LogP: p.spread(b, logp, index), Entropy: p.spread(b, entropy, index)}
}

// pass says how layers compute: with dropout on the adapters' input in training, where they have any.
func (m *Model) pass(b *selector.Batch, opt selector.ForwardOptions) *lora.Pass {
	if !opt.Train || m.adapted == nil || m.adapted.Dropout == 0 {
		return &lora.Pass{}
	}
	return &lora.Pass{Dropout: m.adapted.Dropout, Seed: opt.DropoutSeed, Generator: m.masks(), Queries: b.Queries}
}

// score returns log-probability and entropy of every token of every completion, in order [n]; no tensors when there
// are none.
func (m *Model) score(op string, gs []Group, temperature float64, how *lora.Pass) (logp, entropy torchx.Tensor) {
	hidden, s, err := m.hidden(gs, how)
	if err != nil {
		fail(op, "%v", err)
	}
	if len(s.rows) == 0 {
		return logp, entropy
	}
	hidden = torchx.IndexSelect(hidden, 0, m.int64s(s.rows)) // [n, H]
	return torchx.TokenLogp(hidden, m.as(m.text.head), m.int64s(s.targets), temperature)
}

// LogProbs returns the log-probability of every token of every completion at temperature 1, without gradient: of
// groups[i], completion j, token k at [i][j][k].
func (m *Model) LogProbs(groups []Group) (out [][][]float64, err error) {
	defer torchx.Recover(&err)
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	logp, _ := m.score("score", groups, 1, &lora.Pass{})
	var all []float64
	if !logp.Nil() {
		all = logp.Floats()
	}
	return tokens.ByCompletion(groups, all), nil
}

// KL returns KL(π ‖ reference) of every step, summed over the whole vocabulary at temperature 1.
func (p *Policy) KL(b *selector.Batch, reference selector.Policy) torchx.Tensor {
	other, ok := reference.(*Policy)
	if !ok || other.model.cfg.Vocab != p.model.cfg.Vocab {
		fail("kl", "the reference policy is no model with the same vocabulary")
	}
	defer torchx.NoGrad()()
	gs, index := groups("kl", b)
	var kl torchx.Tensor
	at := func(m *Model) torchx.Tensor {
		hidden, s, err := m.hidden(gs, &lora.Pass{})
		if err != nil {
			fail("kl", "%v", err)
		}
		return torchx.IndexSelect(hidden, 0, m.int64s(s.rows))
	}
	if hasTokens(gs) {
		mine, theirs := at(p.model), at(other.model)
		kl = torchx.TokenKL(mine, p.model.as(p.model.text.head), theirs, other.model.as(other.model.text.head))
	}
	return p.spread(b, kl, index)
}

func hasTokens(gs []Group) bool {
	for _, g := range gs {
		for _, ids := range g.Completions {
			if len(ids) > 0 {
				return true
			}
		}
	}
	return false
}

// Sample draws g completions of at most t tokens for each query, with vl.generation's top-p, top-k and repetition
// penalty. A completion's draws depend on the seed, its query and its place in the group alone.
func (p *Policy) Sample(src selector.Source, queries []int, g, t int, temperature float64, seed uint64) *selector.Batch {
	how := GenerateOptions{SamplingOptions: p.model.opt.Generation, Seed: seed, Streams: queries}
	how.MaxNewTokens, how.Temperature = t, temperature
	b, _ := tokens.Batch(src, queries, p.answers("sample", src, queries, g, how))
	return b
}

// Decode answers each query greedily; no other width than 1 is offered. The scores [B] are log-probabilities.
func (p *Policy) Decode(src selector.Source, queries []int, t, width int) (b *selector.Batch, scores []float64) {
	if width != 1 {
		fail("decode", "width %d: want 1, completions are decoded greedily", width)
	}
	how := GenerateOptions{SamplingOptions: DefaultSampling(), scored: true}
	how.MaxNewTokens, how.Temperature = t, 0
	return tokens.Batch(src, queries, p.answers("decode", src, queries, 1, how))
}

// answers generates, or panics as tensor operations do.
func (p *Policy) answers(op string, src selector.Source, queries []int, g int, how GenerateOptions) [][]Completion {
	answers, err := p.model.Generate(tokens.Prompts[*processor.Prompt]("vl."+op, src, queries), g, how)
	if err != nil {
		fail(op, "%v", err)
	}
	return answers
}

// Params returns the trained parameters.
func (p *Policy) Params() *torchx.Params { return p.model.params }

// Clone returns a policy with its own copy of the trained weights; the frozen ones are shared.
func (p *Policy) Clone() selector.Policy { return &Policy{p.model.Clone()} }

// Metadata describes the policy for a checkpoint.
func (p *Policy) Metadata() map[string]string { return p.model.Metadata() }

// HalfPrecision reports whether the model computes in 16 bits: the same weights then agree on a log-probability to
// two digits only where the shapes of their batches differ.
func (p *Policy) HalfPrecision() bool { return p.model.dtype != torchx.Float32 }

// Free releases the weights.
func (p *Policy) Free() { p.model.Free() }
