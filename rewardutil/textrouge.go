package rewardutil

import (
	"context"
	"errors"
)

// RougeOptions configures the reward for saying what the reference says.
type RougeOptions struct {
	Weight  float64  `koanf:"weight" help:"weight in the total; 0 = off" range:"[0,inf)"`
	Types   []string `koanf:"types" help:"measures to average" enum:"rouge1,rouge2,rougeL,rougeLsum"`
	Measure string   `koanf:"measure" help:"part of each measure" enum:"f1,precision,recall"`
	Stem    bool     `koanf:"stem" help:"compare Porter stems"`
}

// DefaultRougeOptions returns the mean of the stemmed ROUGE-1, 2 and L F1; the term is off.
func DefaultRougeOptions() RougeOptions {
	return RougeOptions{Types: []string{"rouge1", "rouge2", "rougeL"}, Measure: "f1", Stem: true}
}

// Validate reports unknown names.
func (o RougeOptions) Validate() error {
	errs := []error{
		want(o.Weight >= 0, "weight", "want at least 0, got %v", o.Weight),
		oneOf("measure", o.Measure, "f1", "precision", "recall"),
		want(len(o.Types) > 0, "types", "want at least one of rouge1, rouge2, rougeL, rougeLsum"),
	}
	for _, name := range o.Types {
		errs = append(errs, oneOf("types", name, "rouge1", "rouge2", "rougeL", "rougeLsum"))
	}
	return errors.Join(errs...)
}

// Score returns the mean of the chosen measures (Rouge) of each completion's answer part against its
// reference's, in [0, 1].
func (o RougeOptions) Score(_ context.Context, items []TextItem) ([]float64, error) {
	out := make([]float64, len(items))
	for i, it := range items {
		if it.Reference == "" {
			return nil, itemErrorf(items, i, "ROUGE needs a reference completion, and the record has none")
		}
		scores := Rouge(Answer(it.Reference), Answer(it.Completion), o.Stem)
		for _, name := range o.Types {
			out[i] += o.part(scores.named(name)) / float64(len(o.Types))
		}
	}
	return out, nil
}

func (o RougeOptions) part(s RougeScore) float64 {
	switch o.Measure {
	case "precision":
		return s.Precision
	case "recall":
		return s.Recall
	}
	return s.F1
}

func (s RougeScores) named(name string) RougeScore {
	switch name {
	case "rouge1":
		return s.Rouge1
	case "rouge2":
		return s.Rouge2
	case "rougeL":
		return s.RougeL
	}
	return s.RougeLsum
}
