package reward

import (
	"context"

	"fulcrum/rewardutil/text"
	"fulcrum/rewardutil/vqa"
)

// VQAOptions configures the VQA accuracy of answers.
type VQAOptions struct {
	// weight in the total; 0 = off
	Weight float64 `koanf:"weight" range:"[0,inf)"`
	// normalise strings even where all annotators agree; the official evaluation does not
	Normalize bool `koanf:"normalize"`
}

func (VQAOptions) most() float64 { return 1 }

func (o VQAOptions) build() (Reward, error) { return o, nil }

// Score returns the official VQA accuracy (vqa.Accuracy) of each completion's answer part, in [0, 1].
func (o VQAOptions) Score(_ context.Context, items []Item) ([]float64, error) {
	out := make([]float64, len(items))
	for i, it := range items {
		if len(it.Answers) == 0 {
			return nil, itemErrorf(items, i, "VQA accuracy needs the annotators' answers, and the record has none")
		}
		out[i] = vqa.Accuracy(text.Answer(it.Completion), it.Answers, o.Normalize)
	}
	return out, nil
}
