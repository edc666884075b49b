package vl

import (
	"fmt"
	"slices"

	"fulcrum/selector/lora"
)

// Size is the number of the model's weights, trained or not, adapters included.
func (m *Model) Size() int {
	n := 0
	for _, s := range m.cfg.weightNames() {
		x := 1
		for _, d := range s.Shape {
			x *= d
		}
		n += x
	}
	for _, a := range m.modules {
		n += a.Rank * (a.In + a.Out)
	}
	return n
}

// Reads reports whether a tensor has a part in prompts with or without images: the vision tower has none in text.
func Reads(tensor string, images bool) bool { return images || !isVisual(tensor) }

// CheckAdapter compares the model's adapters with the folder that they were loaded from (vl.adapter): every tensor
// of the file stands in the model as it is there, and no other module has one.
func (m *Model) CheckAdapter() error {
	if m.opt.Adapter == nil {
		return nil
	}
	a, err := lora.Read(*m.opt.Adapter)
	if err != nil {
		return err
	}
	if len(a.A) != len(m.modules) {
		return fmt.Errorf("%s adapts %d modules, the model %d", *m.opt.Adapter, len(a.A), len(m.modules))
	}
	all := m.params.Values()
	for name := range m.modules {
		for _, of := range []struct {
			key  string
			want []float32
		}{{lora.KeyA(name), a.A[name]}, {lora.KeyB(name), a.B[name]}} {
			from, to := m.params.Range(of.key)
			if !slices.Equal(all[from:to], of.want) {
				return fmt.Errorf("%s: tensor %s was not loaded: the model has other values", *m.opt.Adapter, of.key)
			}
		}
	}
	return nil
}
