package beamdata

import (
	"fmt"

	"fulcrum/beamdata/conversation"
	"fulcrum/beamdata/texts"
	"fulcrum/internal/option"
)

// wordKeys are the keys that all data of conversations reads.
var wordKeys = []string{"conversations.system", "conversations.prefix", "conversations.suffix", "conversations.demos"}

func conversationsData() Dataset {
	return Dataset{
		Name: "conversations",
		Reads: append([]string{"root", "train_ratio", "conversations.train", "conversations.val", "conversations.eval", "conversations.sft",
			"conversations.split_by", "conversations.video", "max_skipped_share"}, wordKeys...),
		Files: func(o Options) []*string {
			c := o.Conversations
			return []*string{c.Train, c.Val, c.Eval, c.SFT}
		},
		Check: func(o Options) error {
			return option.Want(o.Conversations.Train != nil, "conversations.train",
				"data=conversations needs a file: data.conversations.train=FILE.json")
		},
		Conversations: func(o Options) (*conversation.Bundle, error) { return conversation.Open(o.conversation()) },
	}
}

// conversation returns the section conversations, completed from the keys of data.
func (o Options) conversation() conversation.Options {
	c := o.Conversations
	c.Root, c.TrainRatio, c.SplitSeed, c.MaxSamples = option.Or(o.Root, ""), o.TrainRatio, o.SplitSeed, o.MaxSamples
	return c
}

// LoadConversations reads the data named by opt for a token policy.
func LoadConversations(opt Options) (*conversation.Bundle, error) {
	d, err := opt.validate()
	if err != nil {
		return nil, err
	}
	if f := opt.Reward.Field; f != nil {
		return nil, fmt.Errorf("data.reward.field=%s: it names a number of the trajectories of an RL file; "+
			"the completions of data.name=%s have their reward in reward", *f, opt.Name)
	}
	if d.Conversations == nil {
		return nil, fmt.Errorf("data.name=%s: a token policy reads conversations, texts, summaries or shapes", opt.Name)
	}
	return d.Conversations(opt)
}

// published is the data of a folder of published files.
func published(name, files string, read func(conversation.Options) (*conversation.Bundle, error)) Dataset {
	return Dataset{
		Name:  name,
		Reads: append([]string{"root", "train_ratio", "max_skipped_share", "conversations.split_by"}, wordKeys...),
		Files: func(o Options) []*string { return []*string{o.Root} },
		Check: func(o Options) error {
			return option.Want(o.Root != nil, "root", "data=%s needs the folder of %s: data.root=DIR", name, files)
		},
		Conversations: func(o Options) (*conversation.Bundle, error) { return read(o.conversation()) },
	}
}

func textsData() Dataset {
	return Dataset{
		Name: "texts",
		Reads: []string{"train_ratio", "texts.train", "texts.val", "texts.test", "texts.source", "texts.target", "texts.id", "texts.prefix",
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
	return Dataset{
		Name: "summaries", Reads: []string{"summaries", "texts.prefix", "texts.demos"},
		Conversations: func(o Options) (*conversation.Bundle, error) { return texts.Summaries(o.Summaries, o.texts()) },
	}
}
