package beamdata

import (
	"fmt"

	"fulcrum/beamdata/conversation"
	"fulcrum/beamdata/texts"
)

// LoadConversations reads what opt names for a token policy: files of conversations or of sources with
// targets, the built-in questions about rendered scenes, or the built-in reports to summarise.
func LoadConversations(opt Options) (*conversation.Bundle, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if f := opt.Reward.Field; f != nil {
		return nil, fmt.Errorf("data.reward.field=%s: it names a number of the trajectories of an RL file; the completions of data.name=%s have their reward in reward", *f, opt.Name)
	}
	c := opt.Conversations
	c.Root, c.TrainRatio, c.SplitSeed, c.MaxSamples = deref(opt.Root), opt.TrainRatio, opt.SplitSeed, opt.MaxSamples
	t := opt.Texts
	t.TrainRatio, t.SplitSeed, t.MaxSamples = opt.TrainRatio, opt.SplitSeed, opt.MaxSamples
	switch opt.Name {
	case "texts":
		return texts.Open(t)
	case "summaries":
		return texts.Summaries(opt.Summaries, t)
	case "shapes":
		return conversation.Shapes(opt.Shapes, c)
	case "conversations":
		return conversation.Open(c)
	}
	return nil, fmt.Errorf("data.name=%s: a token policy reads conversations, texts, summaries or shapes", opt.Name)
}
