package pointer

import "testing"

func TestNumel(t *testing.T) {
	for _, layers := range []int{0, 1, 3} {
		opt := DefaultOptions()
		opt.HiddenDim, opt.NumLayers, opt.CandidateEncoder.Layers, opt.Skip.Enabled = 12, layers, 2*layers, true
		want := 0
		for _, s := range Specs(opt, 20) {
			n := 1
			for _, side := range s.Shape {
				n *= side
			}
			want += n
		}
		if got, _ := numel(opt, 20); got != float64(want) || want < 12*12 {
			t.Errorf("%d layers: %v parameters, want %d", layers, got, want)
		}
	}
}
