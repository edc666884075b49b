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
	return hostmem.Need(fmt.Sprintf("selector.hidden_dim=%d, selector.num_layers=%d, selector.candidate_layers=%d: training %.3g "+
		"parameters (the largest, %s, is %v)",
		opt.HiddenDim, opt.NumLayers, opt.CandidateEncoder.Layers, n, largest.Name, largest.Shape), 6*4*n)
}

// numel counts the parameters and finds the largest. In float64, and with two layers of each kind standing for all:
// a size typed wrong must not overflow or fill memory before it is seen.
func numel(opt Options, d int) (n float64, largest torchx.Spec) {
	layers := []*int{&opt.NumLayers, &opt.CandidateEncoder.Layers}
	wanted := make([]int, len(layers))
	for i, l := range layers {
		wanted[i], *l = *l, 1
	}
	one, largest := total(Specs(opt, d))
	n = one
	for i, l := range layers {
		*l = 2
		two, _ := total(Specs(opt, d))
		n += (two - one) * float64(wanted[i]-1)
		*l = 1
	}
	return n, largest
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
