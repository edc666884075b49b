package seq2seq

import (
	"fmt"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
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

// pack lays groups out as rows: the sources of groups with tokens to predict, and the completions shifted right,
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
	r.at = append(r.at, list.Convert[int64](stat.Indices(len(ids)))...)
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
	return m.Known(ids, " of the "+what)
}

// CheckSource and CheckCompletion say what the model cannot read or score, so that bad lines of a file are named before
// anything is computed.
func (m *Model) CheckSource(ids []int64) error     { return m.fits(ids, "source") }
func (m *Model) CheckCompletion(ids []int64) error { return m.fits(ids, "completion") }

// Hidden returns the decoder's rows for these groups [N, d], in the type of computation and ready for the head, and
// the token that each predicts; undefined where there is nothing to predict.
func (m *Model) Hidden(groups []Group, p *lora.Pass) (hidden torchx.Tensor, targets []int64, err error) {
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
