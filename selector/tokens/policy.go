package tokens

import (
	"cmp"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/lora"
)

// Policy is the policy of a model whose actions are tokens: a candidate is a completion with its end token. It
// implements selector.TokenPolicy.
type Policy[P any] struct {
	model    Model[P]
	sampling SamplingOptions
	first    []int64
}

// NewPolicy returns the policy of a model, which it owns. Rollouts are drawn by sampling; if first is not empty they begin
// with one of its tokens.
func NewPolicy[P any](m Model[P], sampling SamplingOptions, first []int64) *Policy[P] {
	return &Policy[P]{m, sampling, first}
}

func (p *Policy[P]) Model() Model[P]   { return p.model }
func (p *Policy[P]) weights() *Weights { return p.model.Tensors() }

// groups returns the batch's prompts with their completions, and the index for Steps.
func (p *Policy[P]) groups(op string, b *selector.Batch) ([]Group[P], []int64) {
	return Groups[P](p.weights().op(op), b)
}

// steps puts one number a token [n] where the batch has its steps [B, G, T], 0 elsewhere.
func (p *Policy[P]) steps(b *selector.Batch, x torchx.Tensor, index []int64) torchx.Tensor {
	return Steps(b, x, index, p.weights().params.Flat())
}

// Forward returns the log-probabilities of the batch's tokens. Each prompt is computed once for all its candidates, with
// gradient.
func (p *Policy[P]) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	if opt.Dist || !opt.Reference.Nil() {
		p.weights().fail("forward", "Dist and its exact KL would hold %d log-probabilities a token: selector.TokenPolicy has KL instead",
			p.weights().Vocab)
	}
	groups, index := p.groups("forward", b)
	logp, entropy := score(p.model, "forward", groups, cmp.Or(opt.Temperature, 1), p.weights().pass(b, opt))
	if !opt.Entropy && !entropy.Nil() {
		entropy = torchx.Detach(entropy)
	}
	return selector.Output{LogP: p.steps(b, logp, index), Entropy: p.steps(b, entropy, index)}
}

// KL returns KL(π ‖ reference) of every step [B, G, T] at temperature 1, summed over the whole vocabulary, without
// gradient.
func (p *Policy[P]) KL(b *selector.Batch, reference selector.Policy) torchx.Tensor {
	other, ok := reference.(*Policy[P])
	if !ok {
		p.weights().fail("kl", "the reference is a policy of another kind (%T)", reference)
	}
	if mine, theirs := p.weights().Vocab, other.weights().Vocab; mine != theirs {
		p.weights().fail("kl", "the reference model has %d tokens, the policy %d: their KL is not defined", theirs, mine)
	}
	defer torchx.NoGrad()()
	groups, index := p.groups("kl", b)
	hidden := func(m Model[P]) (torchx.Tensor, int) {
		hidden, targets, err := m.Hidden(groups, &lora.Pass{})
		if err != nil {
			p.weights().fail("kl", "%v", err)
		}
		return hidden, len(targets)
	}
	var kl torchx.Tensor
	if mine, n := hidden(p.model); n > 0 {
		theirs, _ := hidden(other.model)
		kl = p.weights().tokenKL(mine, other.weights(), theirs)
	}
	return p.steps(b, kl, index)
}

// Sample draws g completions of at most t tokens for each query. A completion's draws depend on the seed, its query and
// its place in the group alone.
func (p *Policy[P]) Sample(src selector.Source, queries []int, g, t int, temperature float64, seed uint64) *selector.Batch {
	how := GenerateOptions{SamplingOptions: p.sampling, Seed: seed, Streams: queries}
	how.MaxNewTokens, how.Temperature = t, temperature
	b, _ := Batch(src, queries, p.answers("sample", src, queries, g, how))
	return b
}

// Decode answers each query greedily; width must be 1. The scores [B] are log-probabilities.
func (p *Policy[P]) Decode(src selector.Source, queries []int, t, width int) (b *selector.Batch, scores []float64) {
	if width != 1 {
		p.weights().fail("decode", "width %d: want 1, completions are decoded greedily", width)
	}
	how := GenerateOptions{SamplingOptions: DefaultSampling(t), scored: true}
	how.Temperature, how.Slots, how.Kernel = 0, p.sampling.Slots, p.sampling.Kernel
	return Batch(src, queries, p.answers("decode", src, queries, 1, how))
}

// foreseer is a source that can begin to score a completion while others are drawn; nil: it has no such reward.
type foreseer interface {
	Foresee() func(query int, ids []int64)
}

// answers generates, or panics as tensor operations do. The last token is not forced: a cut completion shows that it is cut.
func (p *Policy[P]) answers(op string, src selector.Source, queries []int, g int, how GenerateOptions) [][]Completion {
	how.First, how.Last = append([]int64{}, p.first...), []int64{}
	if f, ok := src.(foreseer); ok {
		if foresee := f.Foresee(); foresee != nil {
			how.Ended = func(prompt int, ids []int64) { foresee(queries[prompt], ids) }
		}
	}
	answers, err := Generate(p.model, Prompts[P](p.weights().op(op), src, queries), g, how)
	if err != nil {
		p.weights().fail(op, "%v", err)
	}
	return answers
}

func (p *Policy[P]) Params() *torchx.Params { return p.weights().params }

// Clone returns a policy with its own copy of the trained weights; the frozen ones are shared.
func (p *Policy[P]) Clone() selector.Policy {
	return &Policy[P]{p.model.Clone(), p.sampling, p.first}
}

func (p *Policy[P]) Metadata() map[string]string { return p.weights().Metadata() }

// HalfPrecision reports whether the model computes in 16 bits: the same weights then agree on a log-probability to
// two digits only where the shapes of their batches differ.
func (p *Policy[P]) HalfPrecision() bool { return p.weights().DType != torchx.Float32 }

func (p *Policy[P]) Free() { p.weights().Free() }
