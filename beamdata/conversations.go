package beamdata

import (
	"fmt"

	"fulcrum/beamdata/conversation"
)

// LoadConversations reads the conversations that opt names, for a token policy: explicit files, or the
// built-in questions about rendered scenes.
func LoadConversations(opt Options) (*conversation.Bundle, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	c := opt.Conversations
	c.Root, c.TrainRatio, c.SplitSeed, c.MaxSamples = deref(opt.Root), opt.TrainRatio, opt.SplitSeed, opt.MaxSamples
	switch opt.Name {
	case "shapes":
		return conversation.Shapes(opt.Shapes, c)
	case "conversations":
		return conversation.Open(c)
	}
	return nil, fmt.Errorf("data.name=%s: a token policy reads conversations or shapes", opt.Name)
}
