package pointer

import (
	"fmt"

	"fulcrum/internal/hostmem"
	"fulcrum/internal/torchx"
)

// fits refuses a selector over d-wide embeddings that this machine could not train: weights, gradients,
// two moments, and the frozen start with its gradients, in float32.
func fits(opt Options, d int) error {
	n, largest := numel(opt, d)
	return hostmem.Need(fmt.Sprintf("selector.hidden_dim=%d, selector.num_layers=%d: training %.3g parameters (the largest, %s, is %v)",
		opt.HiddenDim, opt.NumLayers, n, largest.Name, largest.Shape), 6*4*n)
}

// numel counts the parameters and finds the largest. In float64, and with two layers standing for all:
// a size typed wrong must not overflow or fill memory before it is seen.
func numel(opt Options, d int) (n float64, largest torchx.Spec) {
	layers := opt.NumLayers
	opt.NumLayers = 1
	one, largest := total(Specs(opt, d))
	opt.NumLayers = 2
	two, _ := total(Specs(opt, d))
	return one + (two-one)*float64(layers-1), largest
}

func total(specs []torchx.Spec) (n float64, largest torchx.Spec) {
	top := 0.0
	for _, s := range specs {
		size := 1.0
		for _, side := range s.Shape {
			size *= float64(side)
		}
		if n += size; size > top {
			top, largest = size, s
		}
	}
	return n, largest
}
