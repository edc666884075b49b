package reward

import (
	"context"
	"regexp"
	"strings"

	"fulcrum/internal/option"
	"fulcrum/rewardutil/text"
)

// MatchOptions configures the reward for a text or a regular expression that an answer must have.
type MatchOptions struct {
	// weight in the total; 0 = off
	Weight float64 `koanf:"weight" range:"[0,inf)"`
	// contains: the text stands somewhere in it; regexp: the expression (RE2) matches somewhere, ^ and $ are
	// its ends
	By string `koanf:"by" enum:"contains,regexp"`
	// text or expression (null = each record's own reference answer)
	Text *string `koanf:"text"`
	// what is searched: the answer part, or the whole completion
	In string `koanf:"in" enum:"answer,completion"`
	// capital and small letters are the same
	IgnoreCase bool `koanf:"ignore_case"`
}

// setDefaults sets a term that is off: the answer contains the reference's, in any case.
func (o *MatchOptions) setDefaults() {
	*o = MatchOptions{By: "contains", In: "answer", IgnoreCase: true}
}

// Validate reports an empty text and an expression that cannot be read.
func (o MatchOptions) Validate() error {
	if o.Text != nil && strings.TrimSpace(*o.Text) == "" {
		return option.Errorf("text", "an empty text is in every answer: want a text, or null for the reference")
	}
	if o.Text != nil && o.By == "regexp" {
		_, err := o.expression(*o.Text)
		return option.Want(err == nil, "text", "want a regular expression (RE2 syntax): %v", err)
	}
	return nil
}

// expression returns the compiled pattern of the text or expression. White space counts literally in an expression
// and any run of it as a blank in a text.
func (o MatchOptions) expression(text string) (*regexp.Regexp, error) {
	if o.By == "contains" {
		words := strings.Fields(text)
		for i, w := range words {
			words[i] = regexp.QuoteMeta(w)
		}
		text = strings.Join(words, `\s+`)
	}
	if o.IgnoreCase {
		text = "(?i)" + text
	}
	return regexp.Compile(text)
}

// match is the Reward.
type match struct {
	opt   MatchOptions
	fixed *regexp.Regexp // nil: each record's reference
}

func (o MatchOptions) weight() float64 { return o.Weight }

func (MatchOptions) most() float64 { return 1 }

func (o MatchOptions) build() (Reward, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	m := match{opt: o}
	if o.Text != nil {
		var err error
		if m.fixed, err = o.expression(*o.Text); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Score returns 1 for each completion that matches, else 0.
func (m match) Score(_ context.Context, items []Item) ([]float64, error) {
	out := make([]float64, len(items))
	for i, it := range items {
		x := m.fixed
		if x == nil {
			reference := text.Answer(it.Reference)
			if reference == "" {
				return nil, itemErrorf(items, i, "match needs a text or a reference completion, and the record has none")
			}
			var err error
			if x, err = m.opt.expression(reference); err != nil {
				return nil, itemErrorf(items, i, "the reference %q is no regular expression (RE2 syntax): %v", reference, err)
			}
		}
		searched := it.Completion
		if m.opt.In == "answer" {
			searched = text.Answer(searched)
		}
		if x.MatchString(searched) {
			out[i] = 1
		}
	}
	return out, nil
}
