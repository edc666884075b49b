// Package prompts lets a token policy answer conversations: a Source renders samples into prompts, turns
// recorded completions into token ids and scores completions with the composed text rewards.
//
//	src := prompts.New("train", set, processor.Prompt, prompts.Text{...}, rewards)
//	b := src.Recorded([]int{0, 1})      // target and recorded completions as token ids
//	err := src.Score(b)                 // rewards, their terms and texts
//
// P is a prompt in the form that the policy reads (token ids and images for a vision-language model, a source
// text for an encoder-decoder).
package prompts

import (
	"context"
	"fmt"
	"slices"

	"fulcrum/beamdata/conversation"
	"fulcrum/internal/torchx"
	"fulcrum/rewardutil/reward"
	"fulcrum/selector"
)

// Text says how completions become token ids and back.
type Text struct {
	Encode    func(text string) []int64
	Decode    func(ids []int64) string // without special tokens
	EOS       []int64                  // any of these ends a completion; the first ends recorded ones
	MaxTokens int                      // longest completion, the EOS included
}

// Source is a conversation set with a renderer and rewards. It implements selector.Scorer.
type Source[P any] struct {
	name    string
	set     *conversation.Set
	render  func(conversation.Sample) (P, error)
	text    Text
	rewards *reward.Rewards // nil: nothing can score
	ctx     context.Context // ends waiting for a slow scorer
	control selector.Control
}

// New returns a source over set. rewards may be nil: completions cannot be scored then. ctx ends waiting for
// external scorers.
func New[P any](ctx context.Context, name string, set *conversation.Set, render func(conversation.Sample) (P, error), text Text,
	rewards *reward.Rewards) *Source[P] {
	return &Source[P]{name: name, set: set, render: render, text: text, rewards: rewards, ctx: ctx}
}

// Controlled returns the source with other rewards of fresh completions in training. answer is what two completions share that agree.
func (s *Source[P]) Controlled(name string, seed int64, answer func(completion string) string) *Source[P] {
	out := *s
	out.control = selector.NewControl(name, seed, func(b *selector.Batch, i, g int) string { return answer(b.Texts[i*b.G+g]) })
	return &out
}

// Uncontrolled returns the source with the true rewards.
func (s *Source[P]) Uncontrolled() *Source[P] {
	out := *s
	out.control = nil
	return &out
}

func (s *Source[P]) Name() string           { return s.name }
func (s *Source[P]) Len() int               { return s.set.Len() }
func (s *Source[P]) ID(i int) int64         { return s.set.ID(i) }
func (s *Source[P]) Set() *conversation.Set { return s.set }

func (s *Source[P]) Prompt(i int) (p P, err error) {
	sample, err := s.set.Sample(i)
	if err != nil {
		return p, err
	}
	if p, err = s.render(sample); err != nil {
		err = fmt.Errorf("%s: %w", sample.Name, err)
	}
	return p, err
}

// MaxTokens is the longest completion, the EOS included.
func (s *Source[P]) MaxTokens() int { return s.text.MaxTokens }

// Recorded returns the recorded completions of these samples [B, G, T]; where none are recorded, the
// target completion with reward 1. A completion longer than MaxTokens is cut and marked truncated. A
// sample that cannot be read panics with *torchx.OpError, as failing tensor operations do.
func (s *Source[P]) Recorded(queries []int) *selector.Batch {
	groups := make([][]conversation.Recorded, len(queries))
	tokens := make([][][]int64, len(queries))
	g, t := 1, 1
	for i, q := range queries {
		sample := s.sample(q)
		groups[i] = sample.Completions
		if len(groups[i]) == 0 && sample.Reference != "" {
			groups[i] = []conversation.Recorded{{Text: sample.Reference, Reward: 1}}
		}
		g = max(g, len(groups[i]))
		for _, c := range groups[i] {
			ids := append(s.text.Encode(c.Text), s.text.EOS[0])
			tokens[i] = append(tokens[i], ids)
			t = max(t, min(len(ids), s.text.MaxTokens))
		}
	}
	b := selector.NewBatch(s, queries, g, t)
	b.Texts, b.Truncated = make([]string, len(b.Valid)), make([]bool, len(b.Valid))
	for i := range queries {
		for j, c := range groups[i] {
			at := i*g + j
			ids := tokens[i][j]
			if len(ids) > t {
				ids = ids[:t]
				b.Truncated[at] = true
			}
			b.Set(i, j, ids, c.Reward)
			b.Texts[at] = c.Text
		}
	}
	return b
}

func (s *Source[P]) sample(q int) conversation.Sample {
	sample, err := s.set.Sample(q)
	if err != nil {
		panic(&torchx.OpError{Op: "data", Msg: err.Error()})
	}
	return sample
}

func (s *Source[P]) CanScore() bool { return s.rewards != nil }

// Score fills b.Rewards with the composed reward of every valid completion, as Controlled has them, b.Terms with its terms and b.Texts
// with the completions as text.
func (s *Source[P]) Score(b *selector.Batch) error {
	if s.rewards == nil {
		return fmt.Errorf("%s: no reward can score new completions: give a term of rewards a weight", s.name)
	}
	b.Texts = make([]string, len(b.Valid))
	var items []reward.Item
	var at []int
	for i, q := range b.Queries {
		sample, err := s.set.Sample(q)
		if err != nil {
			return err
		}
		for g, k := range b.Candidates(i) {
			it := s.item(sample, b.Scored(i, g))
			b.Texts[k], items, at = it.Completion, append(items, it), append(at, k)
		}
	}
	total, terms, err := s.rewards.Score(s.ctx, items)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	b.Terms = map[string][]float64{}
	for name := range terms {
		b.Terms[name] = make([]float64, len(b.Valid))
	}
	for n, k := range at {
		b.Rewards[k] = total[n]
		for name, values := range terms {
			b.Terms[name][k] = values[n]
		}
	}
	if s.control != nil {
		s.control(b)
	}
	return nil
}

func (s *Source[P]) item(of conversation.Sample, ids []int64) reward.Item {
	return reward.Item{Name: of.Name, Prompt: of.Text(), Completion: s.text.Decode(s.withoutEOS(ids)), Reference: of.Reference,
		Answers: of.Answers, Images: of.Images(), Meta: of.Meta, Root: of.Root}
}

// Foresee returns what lets other programs score a completion at once, while others are drawn; nil: no reward comes from one. Score waits
// for them.
func (s *Source[P]) Foresee() func(query int, ids []int64) {
	if s.rewards == nil {
		return nil
	}
	foresee := s.rewards.Foresee()
	if foresee == nil {
		return nil
	}
	return func(query int, ids []int64) {
		if sample, err := s.set.Sample(query); err == nil { // or Score says it
			foresee(s.ctx, s.item(sample, ids))
		}
	}
}

// Accuracy is Score and returns the accuracy term of every candidate [B*G]; nil where no such term has a weight.
func (s *Source[P]) Accuracy(b *selector.Batch) ([]float64, error) {
	if err := s.Score(b); err != nil {
		return nil, err
	}
	for _, name := range []string{"vqa", "accuracy"} { // the official one first
		if values, ok := b.Terms[name]; ok {
			return values, nil
		}
	}
	return nil, nil
}

func (s *Source[P]) withoutEOS(ids []int64) []int64 {
	if n := len(ids); n > 0 && s.Ends(ids[n-1]) {
		return ids[:n-1]
	}
	return ids
}

// Ends reports whether a token ends a completion.
func (s *Source[P]) Ends(id int64) bool { return slices.Contains(s.text.EOS, id) }

// List is a source over given prompts and completions, without rewards: the lines of task=score.
type List[P any] struct {
	Prompts     []P
	Completions [][]int64 // one a prompt
}

func (l List[P]) Name() string            { return "input" }
func (l List[P]) Len() int                { return len(l.Prompts) }
func (l List[P]) ID(i int) int64          { return int64(i) }
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
