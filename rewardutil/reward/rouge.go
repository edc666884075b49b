package reward

import (
	"context"
	"errors"
	"math"
	"slices"

	"fulcrum/internal/option"
	"fulcrum/internal/stat"
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
}

// setDefaults sets the mean of ROUGE-1, 2 and L; the term is off.
func (o *RougeOptions) setDefaults() {
	*o = RougeOptions{Types: []string{"rouge1", "rouge2", "rougeL"}, Shares: []float64{}}
}

// Validate reports an average of nothing, and shares that do not fit it.
func (o RougeOptions) Validate() error {
	errs := []error{option.Want(len(o.Types) > 0, "types", "want at least one of rouge1, rouge2, rougeL, rougeLsum")}
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

func (RougeOptions) most() float64 { return 1 }

func (o RougeOptions) build() (Reward, error) { return o, o.Validate() }

// Score returns the mean, weighted by Shares, of the F1 of the chosen measures (Rouge) of each completion's answer part against
// its reference's, in [0, 1]. Words are compared by their Porter stems, as the published scores of summaries are.
func (o RougeOptions) Score(_ context.Context, items []Item) ([]float64, error) {
	shares := o.Shares
	if len(shares) == 0 {
		shares = slices.Repeat([]float64{1}, len(o.Types))
	}
	sum, way := stat.Sum(shares), text.SentencesByLine
	if slices.Contains(o.Types, "rougeLsum") {
		way = text.SentencesSplit // by Punkt's rules where a text has no line break
	}
	return byReference(items, "ROUGE", func(completion, reference string) (mean float64) {
		scores := text.RougeBySentences(text.Answer(reference), text.Answer(completion), true, way)
		for k, name := range o.Types {
			mean += scores.Named(name).F1 * shares[k] / sum
		}
		return mean
	})
}
