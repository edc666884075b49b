package iclshapes

import (
	"fulcrum/beamdata"
	"fulcrum/beamdata/conversation"
)

// Options is the section data.icl_shapes of the configuration.
type Options = beamdata.ICLShapesOptions

// Data makes the built-in episodes of made-up names, from which a small model learns to use demonstrations.
func Data() beamdata.Dataset {
	return beamdata.Dataset{
		Name: "icl_shapes", Reads: []string{"icl_shapes"},
		Conversations: func(o beamdata.Options) (*conversation.Bundle, error) { return Episodes(o.ICLShapes), nil },
	}
}
