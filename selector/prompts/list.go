package prompts

import "fulcrum/selector"

// List is a source over given prompts and completions, without rewards: the lines of task=score.
type List[P any] struct {
	Prompts     []P
	Completions [][]int64 // one a prompt
}

// Name returns the list's name for errors.
func (l List[P]) Name() string { return "input" }

// Len returns the number of prompts.
func (l List[P]) Len() int { return len(l.Prompts) }

// ID returns the position.
func (l List[P]) ID(i int) int64 { return int64(i) }

// Prompt returns prompt i.
func (l List[P]) Prompt(i int) (P, error) { return l.Prompts[i], nil }

// Recorded returns the completion of each prompt [B, 1, T].
func (l List[P]) Recorded(queries []int) *selector.Batch {
	t := 1
	for _, q := range queries {
		t = max(t, len(l.Completions[q]))
	}
	b := selector.NewBatch(l, queries, 1, t)
	for i, q := range queries {
		b.Set(i, 0, l.Completions[q], 0)
	}
	return b
}
