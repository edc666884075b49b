package pointer

import (
	"math"
	"math/rand/v2"

	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
)

// weight is one parameter of a selector: its name in the state dict, its shape and how it starts.
type weight struct {
	name  string
	shape []int
	start start
	// stream names the random stream of the start when it is not the parameter's own: equal streams, equal starts.
	stream string
}

// start fills a fresh parameter; out is zeros.
type start func(r *rand.Rand, shape []int, out []float32)

// Specs lists the parameters of a selector over d-wide embeddings: the reference's under its state-dict names
// (parity spec §1.8), then ours.
func Specs(opt Options, d int) []torchx.Spec {
	ws := weights(opt, d)
	return list.Map(ws, func(w weight) torchx.Spec { return torchx.Spec{Name: w.name, Shape: w.shape} })
}

func zeros(*rand.Rand, []int, []float32) {}

// each draws the values one after the other.
func each(value func(r *rand.Rand) float64) start {
	return func(r *rand.Rand, _ []int, out []float32) {
		for i := range out {
			out[i] = float32(value(r))
		}
	}
}

func constant(v float64) start { return each(func(*rand.Rand) float64 { return v }) }

func uniform(bound float64) start {
	return each(func(r *rand.Rand) float64 { return (2*r.Float64() - 1) * bound })
}

func normal(std float64) start {
	return each(func(r *rand.Rand) float64 { return std * r.NormFloat64() })
}

// xavier is Xavier-uniform (Glorot & Bengio 2010).
func xavier(r *rand.Rand, shape []int, out []float32) {
	uniform(math.Sqrt(6/float64(shape[0]+shape[1])))(r, shape, out)
}

// kaiming is PyTorch's default for linear layers: uniform, bound 1/√(inputs).
func kaiming(r *rand.Rand, shape []int, out []float32) {
	uniform(1/math.Sqrt(float64(shape[len(shape)-1])))(r, shape, out)
}

// nearIdentity is the identity and a little noise.
func nearIdentity(r *rand.Rand, shape []int, out []float32) {
	normal(0.01)(r, shape, out)
	for i := range shape[0] {
		out[i*shape[1]+i]++
	}
}
