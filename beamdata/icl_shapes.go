package beamdata

import (
	"fulcrum/beamdata/conversation"
	"fulcrum/beamdata/iclshapes"
)

// iclShapesData makes the built-in episodes of made-up names, from which a small model learns to use demonstrations.
func iclShapesData() Dataset {
	return Dataset{
		Name:          "icl_shapes",
		conversations: func(o Options) (*conversation.Bundle, error) { return iclshapes.Episodes(o.ICLShapes) },
	}
}
