package reward

import (
	"context"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
)

// FormatOptions configures the reward for answering as asked: <think>…</think><answer>…</answer>.
type FormatOptions struct {
	// weight in the total; 0 = off
	Weight float64 `koanf:"weight" range:"[0,inf)"`
	// share for a <think> that a </think> follows
	Think float64 `koanf:"think" range:"[0,1]" constant:"true"`
	// share for an <answer> that an </answer> follows
	Answer float64 `koanf:"answer" range:"[0,1]" constant:"true"`
	// share for both pairs, the answer after the thought: the order is the harder part
	Order float64 `koanf:"order" range:"[0,1]" constant:"true"`
	// each of the four tags at most once, and nothing but white space outside the pairs; else 0
	Strict bool `koanf:"strict"`
}

// setDefaults sets the shares of the Qwen-VL recipe; the term is off.
func (o *FormatOptions) setDefaults() { *o = FormatOptions{Think: 0.3, Answer: 0.3, Order: 0.4} }

// Validate reports shares that could only give 0.
func (o FormatOptions) Validate() error {
	return option.Want(o.Weight == 0 || o.Think+o.Answer+o.Order > 0, "order", "all shares are 0: every reward would be 0")
}

func (o FormatOptions) most() float64 { return o.Think + o.Answer + o.Order }

func (o FormatOptions) build() (Reward, error) { return o, o.Validate() }

// Score returns, for each completion, the sum of the shares it earns, in [0, Think+Answer+Order]:
//
//	Think    a <think> has a </think> somewhere after it
//	Answer   an <answer> has an </answer> somewhere after it
//	Order    the tags <think>, </think>, <answer>, </answer> follow each other, with any text between them
//
// Tags are compared as they stand: lower case, no blanks. A completion that was cut off before a closing
// tag earns its share.
func (o FormatOptions) Score(_ context.Context, items []Item) ([]float64, error) {
	return list.Map(items, func(it Item) float64 { return o.score(it.Completion) }), nil
}

func (o FormatOptions) score(s string) float64 {
	if o.Strict && !strictFormat(s) {
		return 0
	}
	sum := 0.0
	if inOrder(s, "<think>", "</think>") {
		sum += o.Think
	}
	if inOrder(s, "<answer>", "</answer>") {
		sum += o.Answer
	}
	if inOrder(s, "<think>", "</think>", "<answer>", "</answer>") {
		sum += o.Order
	}
	return sum
}

func inOrder(s string, tags ...string) bool {
	for _, tag := range tags {
		var found bool
		if _, s, found = strings.Cut(s, tag); !found {
			return false
		}
	}
	return true
}

// strictFormat reports a completion of the pairs alone, each at most once.
func strictFormat(s string) bool {
	around := s
	for _, pair := range [...][2]string{{"<think>", "</think>"}, {"<answer>", "</answer>"}} {
		if n := strings.Count(s, pair[0]); n > 1 || strings.Count(s, pair[1]) != n {
			return false
		}
		if before, rest, found := strings.Cut(around, pair[0]); found {
			_, after, closed := strings.Cut(rest, pair[1])
			if !closed {
				return false
			}
			around = before + " " + after
		}
	}
	return strings.TrimSpace(around) == ""
}
