package reward

import (
	"context"
	"errors"
	"math"
	"slices"

	"fulcrum/internal/option"
	"fulcrum/rewardutil/text"
)

// RougeOptions configures the reward for sharing words and sequences with the reference.
type RougeOptions struct {
	// weight in the total; 0 = off
	Weight float64 `koanf:"weight" range:"[0,inf)"`
	// measures to average
	Types []string `koanf:"types" enum:"rouge1,rouge2,rougeL,rougeLsum"`
	// share of each of types in their average (empty = equal); their sum divides it
	Shares []float64 `koanf:"shares"`
	// part of each measure
	Measure string `koanf:"measure" enum:"f1,precision,recall"`
	// compare Porter stems
	Stem bool `koanf:"stem"`

	// sentences of rougeLsum: lines, or split: found by Punkt's rules where a text has no line break
	Sentences string `koanf:"sentences" enum:"lines,split"`
}

// setDefaults sets the mean of the stemmed ROUGE-1, 2 and L F1; the term is off.
func (o *RougeOptions) setDefaults() {
	*o = RougeOptions{Types: []string{"rouge1", "rouge2", "rougeL"}, Shares: []float64{}, Measure: "f1", Stem: true,
		Sentences: text.SentencesSplit}
}

// Validate reports an average of nothing, and shares that do not fit it.
func (o RougeOptions) Validate() error {
	errs := []error{
		option.Want(len(o.Types) > 0, "types", "want at least one of rouge1, rouge2, rougeL, rougeLsum"),
	}
	if len(o.Shares) > 0 {
		sum := 0.0
		for _, s := range o.Shares {
			errs = append(errs, option.Want(s >= 0 && !math.IsInf(s, 0), "shares", "want numbers of at least 0, got %v", s))
			sum += s
		}
		errs = append(errs,
			option.Want(len(o.Shares) == len(o.Types), "shares", "want one for each of the %d types, got %d", len(o.Types), len(o.Shares)),
			option.Want(sum > 0, "shares", "want at least one above 0"))
	}
	return errors.Join(errs...)
}

func (o RougeOptions) weight() float64 { return o.Weight }

func (RougeOptions) most() float64 { return 1 }

func (o RougeOptions) build() (Reward, error) { return o, o.Validate() }

// Score returns the mean, weighted by Shares, of the chosen measures (Rouge) of each completion's answer part against its
// reference's, in [0, 1].
func (o RougeOptions) Score(_ context.Context, items []Item) ([]float64, error) {
	out := make([]float64, len(items))
	shares := o.Shares
	if len(shares) == 0 {
		shares = slices.Repeat([]float64{1}, len(o.Types))
	}
	sum := 0.0
	for _, s := range shares {
		sum += s
	}
	way := text.SentencesByLine
	if slices.Contains(o.Types, "rougeLsum") {
		way = o.Sentences
	}
	for i, it := range items {
		if it.Reference == "" {
			return nil, itemErrorf(items, i, "ROUGE needs a reference completion, and the record has none")
		}
		scores := text.RougeBySentences(text.Answer(it.Reference), text.Answer(it.Completion), o.Stem, way)
		for k, name := range o.Types {
			out[i] += o.part(scores.Named(name)) * shares[k] / sum
		}
	}
	return out, nil
}

func (o RougeOptions) part(s text.RougeScore) float64 {
	switch o.Measure {
	case "precision":
		return s.Precision
	case "recall":
		return s.Recall
	}
	return s.F1
}
