package vl

import (
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/tokens"
	"fulcrum/selector/vl/processor"
)

// stepwise is a model that decodes without a cache, or tells what tokens are drawn from.
type stepwise struct {
	tokens.Model[*processor.Prompt]
	of      *Model
	noCache bool
	observe func(logits torchx.Tensor) // may be nil
}

// uncachedOr returns the model itself, or one that computes everything again for each token.
func uncachedOr(m *Model, noCache bool) tokens.Model[*processor.Prompt] {
	if !noCache {
		return m
	}
	return stepwise{m, m, true, nil}
}

func (s stepwise) Begin(prompts []*processor.Prompt, all []*tokens.Sequence, opt *GenerateOptions) (tokens.Step, error) {
	if s.noCache {
		s.of.settle(prompts, all, opt)
		return func(live []*tokens.Sequence) (torchx.Tensor, error) { return s.of.uncached(prompts, live) }, nil
	}
	step, err := s.of.Begin(prompts, all, opt)
	return func(live []*tokens.Sequence) (torchx.Tensor, error) {
		logits, err := step(live)
		if err == nil {
			s.observe(logits)
		}
		return logits, err
	}, err
}

// uncached computes prompts and completions from the start.
func (m *Model) uncached(prompts []*processor.Prompt, live []*tokens.Sequence) (torchx.Tensor, error) {
	groups := make([]Group, len(prompts))
	for i, p := range prompts {
		groups[i].Prompt = p
	}
	at := make([]int, len(live)) // of a sequence among the completions of its prompt
	for i, s := range live {
		at[i] = len(groups[s.Prompt].Completions)
		groups[s.Prompt].Completions = append(groups[s.Prompt].Completions, append(slices.Clone(s.IDs), 0))
	}
	in, err := m.pack(groups, 0)
	if err != nil {
		return torchx.Tensor{}, err
	}
	m.fillMedia(in, &lora.Pass{})
	last := make([]int64, len(live))
	for i, s := range live {
		from := in.prompts[s.Prompt]
		if len(s.IDs) > 0 {
			from = in.answers[s.Prompt][at[i]]
		}
		last[i] = int64(from.first + from.n - 1)
	}
	return m.Logits(torchx.IndexSelect(m.forward(&in.rows, &lora.Pass{}), 0, m.Int64s(last))), nil
}
