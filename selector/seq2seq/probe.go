package seq2seq

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

// CheckAdapter compares the model's adapters with the folder that they were loaded from (seq2seq.adapter).
func (m *Model) CheckAdapter() error { return lora.Check(m.opt.Adapter, m.modules, m.params) }
