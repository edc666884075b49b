package reward

import (
	"context"

	"fulcrum/rewardutil/text"
)

// LengthOptions configures the reward for being as long as the reference.
type LengthOptions struct {
	// weight in the total; 0 = off
	Weight float64 `koanf:"weight" range:"[0,inf)"`
}

func (LengthOptions) most() float64 { return 1 }

func (o LengthOptions) build() (Reward, error) { return o, nil }

// Score returns the LengthSimilarity of each completion's answer part to its reference's.
func (o LengthOptions) Score(_ context.Context, items []Item) ([]float64, error) {
	out := make([]float64, len(items))
	for i, it := range items {
		if it.Reference == "" {
			return nil, itemErrorf(items, i, "length similarity needs a reference completion, and the record has none")
		}
		out[i] = text.LengthSimilarity(text.Answer(it.Completion), text.Answer(it.Reference))
	}
	return out, nil
}
