package rewardutil

import (
	"context"
	"errors"
	"strings"
	"unicode"
)

// LengthOptions configures the reward for being as long as the reference.
type LengthOptions struct {
	// weight in the total; 0 = off
	Weight float64 `koanf:"weight" range:"[0,inf)"`
}

// Validate reports a negative weight.
func (o LengthOptions) Validate() error {
	return errors.Join(want(o.Weight >= 0, "weight", "want at least 0, got %v", o.Weight))
}

// Score returns the LengthSimilarity of each completion's answer part to its reference's.
func (o LengthOptions) Score(_ context.Context, items []TextItem) ([]float64, error) {
	out := make([]float64, len(items))
	for i, it := range items {
		if it.Reference == "" {
			return nil, itemErrorf(items, i, "length similarity needs a reference completion, and the record has none")
		}
		out[i] = LengthSimilarity(Answer(it.Completion), Answer(it.Reference))
	}
	return out, nil
}

// LengthSimilarity returns min(a, b) / max(a, b) for the numbers of words of two texts, 0 where both are
// empty. White space separates words as in Python's split: Unicode's, and the four ASCII separators.
func LengthSimilarity(a, b string) float64 {
	n, m := words(a), words(b)
	return float64(min(n, m)) / float64(max(1, n, m))
}

func words(s string) int {
	return len(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }))
}
