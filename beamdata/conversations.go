package beamdata

import (
	"fmt"

	"fulcrum/beamdata/conversation"
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
