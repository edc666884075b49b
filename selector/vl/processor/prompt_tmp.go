package processor

import "fulcrum/selector/vl/pixels"

// Prompt is a placeholder until the text+pixels branch lands.
type Prompt struct {
	IDs            []int64
	Images, Videos []pixels.Patches
}
