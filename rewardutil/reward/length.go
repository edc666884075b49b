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
	return byReference(items, "length similarity", func(completion, reference string) float64 {
		return text.LengthSimilarity(text.Answer(completion), text.Answer(reference))
	})
}
