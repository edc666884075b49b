package beamdata

import (
	"fulcrum/beamdata/conversation"
	"fulcrum/beamdata/texts"
	"fulcrum/internal/option"
)

func textsData() Dataset {
	return Dataset{
		Name: "texts",
		Reads: []string{"train_ratio", "texts.train", "texts.val", "texts.test", "texts.source", "texts.target", "texts.prefix",
			"texts.demos", "max_skipped_share"},
		Files: func(o Options) []*string { return []*string{o.Texts.Train, o.Texts.Val, o.Texts.Test} },
		Check: func(o Options) error {
			return option.Want(o.Texts.Train != nil, "texts.train", "data=texts needs a file: data.texts.train=FILE.jsonl")
		},
		Conversations: func(o Options) (*conversation.Bundle, error) { return texts.Open(o.texts()) },
	}
}

// texts returns the section texts with what the keys of data add to it.
func (o Options) texts() texts.Options {
	t := o.Texts
	t.TrainRatio, t.SplitSeed, t.MaxSamples = o.TrainRatio, o.SplitSeed, o.MaxSamples
	return t
}

// summariesData makes the built-in reports with their summaries.
func summariesData() Dataset {
	return Dataset{Name: "summaries", Reads: []string{"summaries", "texts.prefix", "texts.demos"},
		Conversations: func(o Options) (*conversation.Bundle, error) { return texts.Summaries(o.Summaries, o.texts()) }}
}
