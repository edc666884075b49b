package seq2seq

import (
	"fmt"

	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// Group is a source, the prompt, and its completions.
type Group = tokens.Group[[]int64]

// packed are the inputs of both stacks for some groups, and the tokens that the decoder's rows predict.
type packed struct {
	sources, completions *rows
	targets              []int64 // [N] of the decoder's rows, group by group
	sourceRows           []int   // how many rows of the encoder each group has
	completionRows       []int   // and of the decoder
}

// pack lays groups out as rows: the sources of those that have something to predict, and the completions shifted right,
// so that the row of each token predicts it. The completions of a group see its source.
func (m *Model) pack(groups []Group) (*packed, error) {
	out := &packed{sources: &rows{side: "encoder"}, completions: &rows{side: "decoder"}}
	dec := out.completions
	for i, g := range groups {
		first := len(dec.ids)
		for j, ids := range g.Completions {
			if len(ids) == 0 {
				continue
			}
			if err := m.fits(ids, "completion"); err != nil {
				return nil, fmt.Errorf("source %d, completion %d: %w", i, j, err)
			}
			dec.add(append([]int64{m.generation.Start}, ids[:len(ids)-1]...), true)
			out.targets = append(out.targets, ids...)
		}
		out.sourceRows, out.completionRows = append(out.sourceRows, 0), append(out.completionRows, len(dec.ids)-first)
		if len(dec.ids) == first {
			continue
		}
		if err := m.fits(g.Prompt, "source"); err != nil {
			return nil, fmt.Errorf("source %d: %w", i, err)
		}
		at := out.sources.add(g.Prompt, false)
		out.sourceRows[i] = len(g.Prompt)
		dec.cross = append(dec.cross, torchx.Span{Q: first, QLen: len(dec.ids) - first, Own: at, OwnLen: len(g.Prompt)})
	}
	return out, nil
}

// add appends a sequence, which sees itself, and returns its first row.
func (r *rows) add(ids []int64, causal bool) int {
	first := len(r.ids)
	r.ids = append(r.ids, ids...)
	for i := range ids {
		r.at = append(r.at, int64(i))
	}
	r.self = append(r.self, torchx.Span{Q: first, QLen: len(ids), Own: first, OwnLen: len(ids), Causal: causal})
	return first
}

// fits refuses sequences that the model has no rows for: ids outside the vocabulary, which libtorch would not catch on
// every device, and more tokens than positions.
func (m *Model) fits(ids []int64, what string) error {
	if len(ids) == 0 {
		return fmt.Errorf("the %s is empty", what)
	}
	if n := m.cfg.Positions; n > 0 && len(ids) > n {
		return fmt.Errorf("the %s has %d tokens, but the model only %d positions", what, len(ids), n)
	}
	for i, id := range ids {
		if id < 0 || id >= int64(m.cfg.Vocab) {
			return fmt.Errorf("token %d of the %s has id %d, want 0 … %d", i, what, id, m.cfg.Vocab-1)
		}
	}
	return nil
}

// CheckSource and CheckCompletion say what the model cannot read or score, so that bad lines of a file are named before
// anything is computed.
func (m *Model) CheckSource(ids []int64) error     { return m.fits(ids, "source") }
func (m *Model) CheckCompletion(ids []int64) error { return m.fits(ids, "completion") }

// hidden returns the decoder's rows for these groups [N, d], in the type of computation and ready for the head, and
// the token that each predicts; no tensor where there is nothing to predict.
func (m *Model) hidden(groups []Group, p *lora.Pass) (hidden torchx.Tensor, targets []int64, err error) {
	in, err := m.pack(groups)
	if err != nil || len(in.targets) == 0 {
		return hidden, nil, err
	}
	encoder := p.Over(in.sourceRows)
	memory := m.run(in.sources, torchx.Tensor{}, encoder)
	return m.scaled(m.run(in.completions, memory, p.Over(in.completionRows).With(encoder))), in.targets, nil
}

// scaled are the decoder's rows as the head wants them.
func (m *Model) scaled(x torchx.Tensor) torchx.Tensor {
	if m.headScale == 1 {
		return x
	}
	return torchx.Scale(x, m.headScale)
}

// logits returns the scores of all tokens [N, V] float32 for rows of hidden.
func (m *Model) logits(hidden torchx.Tensor) torchx.Tensor {
	z := torchx.Linear(hidden, m.as(m.head), torchx.Tensor{}).To(torchx.Float32)
	if m.headBias.Nil() {
		return z
	}
	return torchx.Add(z, m.headBias)
}

// tokenLogp returns log-probability and entropy of each row's target [N] float32.
func (m *Model) tokenLogp(hidden torchx.Tensor, targets []int64, temperature float64) (logp, entropy torchx.Tensor) {
	if m.headBias.Nil() {
		return torchx.TokenLogp(hidden, m.as(m.head), m.int64s(targets), temperature)
	}
	all := torchx.LogSoftmax(torchx.Scale(m.logits(hidden), 1/temperature), 1)
	logp = torchx.Squeeze(torchx.Gather(all, 1, torchx.Reshape(m.int64s(targets), -1, 1)), 1)
	return logp, torchx.Neg(torchx.Sum(torchx.Mul(torchx.Exp(all), all), 1))
}

// tokenKL returns KL(π ‖ reference) of each row's distribution [N] float32 at temperature 1, without gradient.
func (m *Model) tokenKL(hidden torchx.Tensor, reference *Model, theirs torchx.Tensor) torchx.Tensor {
	if m.headBias.Nil() && reference.headBias.Nil() {
		return torchx.TokenKL(hidden, m.as(m.head), theirs, reference.as(reference.head))
	}
	p, q := torchx.LogSoftmax(m.logits(hidden), 1), torchx.LogSoftmax(reference.logits(theirs), 1)
	return torchx.Sum(torchx.Mul(torchx.Exp(p), torchx.Sub(p, q)), 1)
}
