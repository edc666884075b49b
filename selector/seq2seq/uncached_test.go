package seq2seq

import (
	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
)

// stepwise is a model that may decode without a cache, and tells what tokens are drawn from.
type stepwise struct {
	tokens.Model[[]int64]
	of      *Model
	noCache bool
	observe func(step int, logits torchx.Tensor) // may be nil
}

// uncachedOr returns the model itself, or one that computes everything again for each token.
func uncachedOr(m *Model, noCache bool) tokens.Model[[]int64] {
	if !noCache {
		return m
	}
	return stepwise{m, m, true, nil}
}

func (s stepwise) Begin(sources [][]int64, all []*tokens.Sequence, opt *GenerateOptions) (tokens.Step, error) {
	step, err := s.of.Begin(sources, all, opt)
	if s.noCache {
		step = func(live []*tokens.Sequence) (torchx.Tensor, error) { return s.of.uncached(sources, live), nil }
	}
	return func(live []*tokens.Sequence) (torchx.Tensor, error) {
		logits, err := step(live)
		if err == nil && s.observe != nil {
			s.observe(len(live[0].IDs), logits)
		}
		return logits, err
	}, err
}

// uncached computes sources and completions from the start.
func (m *Model) uncached(sources [][]int64, live []*tokens.Sequence) torchx.Tensor {
	in := &packed{sources: &rows{side: "encoder"}, completions: &rows{side: "decoder"}}
	dec := in.completions
	var last []int64
	for _, s := range live {
		source := in.sources.add(sources[s.Prompt], false)
		first := dec.add(append([]int64{m.generation.Start}, s.IDs...), true)
		dec.cross = append(dec.cross, torchx.Span{Q: first, QLen: len(s.IDs) + 1, Own: source, OwnLen: len(sources[s.Prompt])})
		last = append(last, int64(len(dec.ids)-1))
	}
	hidden := m.run(dec, m.run(in.sources, torchx.Tensor{}, &lora.Pass{}), &lora.Pass{})
	return m.Logits(m.scaled(torchx.IndexSelect(hidden, 0, m.Int64s(last))))
}
