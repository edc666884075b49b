package vl

import (
	"fulcrum/selector/lora"
	"fulcrum/selector/weights"
)

// Size is the number of the model's weights, trained or not, adapters included.
func (m *Model) Size() int {
	n := weights.Numel(m.cfg.weightNames()...)
	for _, a := range m.modules {
		n += a.Rank * (a.In + a.Out)
	}
	return n
}

// Reads reports whether a tensor has a part in prompts with or without images: the vision tower has none in text.
func Reads(tensor string, images bool) bool { return images || !isVisual(tensor) }

// CheckAdapter compares the model's adapters with the folder that they were loaded from (vl.adapter).
func (m *Model) CheckAdapter() error { return lora.Check(m.opt.Adapter, m.modules, m.params) }
