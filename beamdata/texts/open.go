package texts

import (
	"fmt"

	"fulcrum/beamdata/conversation"
)

// Open finds the records of the files and splits them. The first CheckRecords of each set are decoded, so that
// mistakes show before anything is trained.
func Open(opt Options) (*conversation.Bundle, error) {
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("data.texts.%w", err)
	}
	return conversation.Files{
		Train: opt.Train, Val: opt.Val, Eval: opt.Test, Demos: opt.Demos, CheckRecords: opt.CheckRecords,
		TrainRatio: opt.TrainRatio, SplitSeed: opt.SplitSeed, MaxSamples: opt.MaxSamples, Open: opt.files,
	}.Bundle("texts", "test")
}
