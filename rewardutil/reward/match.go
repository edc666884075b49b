package reward

import (
	"context"
	"regexp"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/rewardutil/text"
)

// MatchOptions configures the reward for a text or a regular expression that an answer must have.
type MatchOptions struct {
	// weight in the total; 0 = off
	Weight float64 `koanf:"weight" range:"[0,inf)"`
	// contains: the text stands somewhere in it; regexp: the expression (RE2) matches somewhere, ^ and $ are its ends
	By string `koanf:"by" enum:"contains,regexp"`
	// text or expression (null = each record's own reference answer); capitals count in an expression with (?-i)
	Text *string `koanf:"text"`
}

// setDefaults sets a term that is off: the answer contains the reference's.
func (o *MatchOptions) setDefaults() { *o = MatchOptions{By: "contains"} }

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

// expression returns the compiled pattern of the text or expression; capital and small letters are the same. White
// space counts literally in an expression and any run of it as a blank in a text.
func (o MatchOptions) expression(text string) (*regexp.Regexp, error) {
	if o.By == "contains" {
		text = strings.Join(list.Map(strings.Fields(text), regexp.QuoteMeta), `\s+`)
	}
	return regexp.Compile("(?i)" + text)
}

type match struct {
	opt   MatchOptions
	fixed *regexp.Regexp // nil: each record's reference
}

func (MatchOptions) most() float64 { return 1 }

func (o MatchOptions) build() (Reward, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Text == nil {
		return match{opt: o}, nil
	}
	fixed, err := o.expression(*o.Text)
	return match{o, fixed}, err
}

// Score returns 1 for each completion whose answer part matches, else 0.
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
		if x.MatchString(text.Answer(it.Completion)) {
			out[i] = 1
		}
	}
	return out, nil
}
