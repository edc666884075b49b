// Package tokens is what policies share whose actions are tokens: a candidate is a completion, with the token that ended
// it. It turns batches into prompts with the completions to score, and numbers and completions back into batches.
//
//	gs, index := tokens.Groups[P]("vl.forward", batch)   // no padding: what a model computes
//	out := tokens.Steps(batch, logp, index, like)       // [B, G, T]
//
// P is what the policy reads of a prompt, as in package prompts.
package tokens

import (
	"fmt"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
	"fulcrum/selector/lora"
)

// PromptSource is a Source whose queries are prompts. (prompts.Source[P] is one.)
type PromptSource[P any] interface {
	selector.Source
	Prompt(i int) (P, error)
}

// Group is a prompt and its completions: token ids, each with its end token where there is one.
type Group[P any] struct {
	Prompt      P
	Completions [][]int64
}

// Completion is what a prompt was answered with.
type Completion struct {
	IDs      []int64 // with the token that ended it
	Finished bool    // false: cut at the length limit, without an end token or with a forced one
	LogP     float64 // of its tokens at temperature 1, where asked for
	// Sampled is the log-probability of each token at the temperature that it was drawn at, in the model's own distribution;
	// NaN for a forced one, nil where tokens are greedy.
	Sampled []float64
	Kept    float64 // of the model's distributions, what its tokens were drawn from; 1 = all, and where it is greedy
}

// Fail ends an operation as libtorch's errors do: the border of a step makes an ordinary error of it.
func Fail(op, format string, args ...any) {
	panic(&torchx.OpError{Op: op, Msg: fmt.Sprintf(format, args...)})
}

func Prompts[P any](op string, src selector.Source, queries []int) []P {
	source, ok := src.(PromptSource[P])
	if !ok {
		Fail(op, "source %s has no prompts for this policy", src.Name())
	}
	out := make([]P, len(queries))
	for i, q := range queries {
		p, err := source.Prompt(q)
		if err != nil {
			Fail(op, "%s: query %d: %v", src.Name(), src.ID(q), err)
		}
		out[i] = p
	}
	return out
}

// Groups returns a batch's prompts with their scored completions, and for every step of the batch [B*G*T] the number of
// its token in that order; steps that are not scored have the number of tokens.
func Groups[P any](op string, b *selector.Batch) (out []Group[P], index []int64) {
	ps := Prompts[P](op, b.Source, b.Queries)
	index = make([]int64, b.B()*b.G*b.T)
	n := int64(0)
	for i := range b.Queries {
		g := Group[P]{Prompt: ps[i]}
		for j, at := range b.Candidates(i) {
			ids := b.Scored(i, j)
			for t := range ids {
				index[at*b.T+t] = n + 1 // 0 stands for nothing until n is known
				n++
			}
			g.Completions = append(g.Completions, ids)
		}
		out = append(out, g)
	}
	for k := range index {
		if index[k]--; index[k] < 0 {
			index[k] = n
		}
	}
	return out, index
}

// Steps puts one number a token x [n], undefined where n is 0, to the steps of the batch [B, G, T] by the index of
// Groups; 0 elsewhere. The result lies on the device of like.
func Steps(b *selector.Batch, x torchx.Tensor, index []int64, like torchx.Tensor) torchx.Tensor {
	all := torchx.FullLike(like, 0, torchx.Float32, 1)
	if !x.Nil() {
		all = torchx.Cat(0, x, all)
	}
	return torchx.Reshape(torchx.IndexSelect(all, 0, torchx.ToLike(torchx.From(index, len(index)), like)), b.B(), b.G, b.T)
}

// ByCompletion cuts one number a token [n] up: of groups[i], completion j, token k at [i][j][k].
func ByCompletion[P any](groups []Group[P], all []float64) (out [][][]float64) {
	for _, g := range groups {
		var of [][]float64
		for _, ids := range g.Completions {
			of = append(of, all[:len(ids):len(ids)])
			all = all[len(ids):]
		}
		out = append(out, of)
	}
	return out
}

// Batch puts completions into a batch as long as the longest, and returns it with their log-probabilities [B*G].
func Batch(src selector.Source, queries []int, answers [][]Completion) (b *selector.Batch, logp []float64) {
	g, longest := len(answers[0]), 1
	for _, group := range answers {
		for _, c := range group {
			longest = max(longest, len(c.IDs))
		}
	}
	b = selector.NewBatch(src, queries, g, longest)
	b.Truncated, b.Kept = make([]bool, len(b.Valid)), make([]float64, len(b.Valid))
	for i, group := range answers {
		for j, c := range group {
			b.Set(i, j, c.IDs, 0)
			b.Truncated[i*g+j], b.Kept[i*g+j] = !c.Finished, c.Kept
			if c.Sampled != nil {
				if b.Sampled == nil {
					b.Sampled = make([]float64, len(b.Actions))
				}
				copy(b.Sampled[(i*g+j)*longest:], c.Sampled)
			}
			logp = append(logp, c.LogP)
		}
	}
	return b, logp
}

// Model is a network whose actions are tokens. P is a prompt in the form that the network reads.
type Model[P any] interface {
	// Tensors returns the model's weights.
	Tensors() *Weights
	// Hidden returns the rows [n, width] that predict the tokens of all completions, in order and ready for the head, and
	// those tokens. Without any token to predict it may return an undefined tensor.
	Hidden(groups []Group[P], pass *lora.Pass) (hidden torchx.Tensor, targets []int64, err error)
	// Begin checks the prompts and fills the options that opt leaves to the model. It returns the function that computes the
	// logits of the next tokens; all lists the sequences, prompt by prompt.
	Begin(prompts []P, all []*Sequence, opt *GenerateOptions) (Step, error)
	// Clone returns a model with its own copy of the trained tensors. It shares the others.
	Clone() Model[P]
}

// LogProbs returns the log-probability of every token of every completion at temperature 1, without gradient: of
// groups[i], completion j, token k at [i][j][k].
func LogProbs[P any](m Model[P], groups []Group[P]) (out [][][]float64, err error) {
	defer torchx.Recover(&err)
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	logp, _ := score(m, "score", groups, 1, &lora.Pass{})
	var all []float64
	if !logp.Nil() {
		all = logp.Floats()
	}
	return ByCompletion(groups, all), nil
}

// score returns log-probability and entropy of every token of every completion [n]; undefined for n = 0.
func score[P any](m Model[P], op string, groups []Group[P], temperature float64, pass *lora.Pass) (logp, entropy torchx.Tensor) {
	hidden, targets, err := m.Hidden(groups, pass)
	if err != nil {
		m.Tensors().fail(op, "%v", err)
	}
	if len(targets) == 0 {
		return logp, entropy
	}
	return m.Tensors().TokenLogp(hidden, targets, temperature)
}
