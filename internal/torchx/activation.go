package torchx

import (
	"maps"
	"slices"

	"fulcrum/internal/registry"
)

// Activations are the functions between the layers of a feed-forward network, by transformers' names of them.
func Activations() map[string]func(Tensor) Tensor {
	return map[string]func(Tensor) Tensor{
		"silu": SiLU, "swish": SiLU, "relu": ReLU, "tanh": Tanh, "sigmoid": Sigmoid,
		"gelu": GELU, "gelu_python": GELU,
		"quick_gelu": func(z Tensor) Tensor { return Mul(z, Sigmoid(Scale(z, 1.702))) }, // CLIP's
		"gelu_new":   geluTanh, "gelu_fast": geluTanh, "gelu_accurate": geluTanh, "gelu_pytorch_tanh": geluTanh, "gelu_python_tanh": geluTanh,
	}
}

// KnownActivation refuses the name of a function that Activations lacks; key is where a configuration has it.
func KnownActivation(key, name string) error {
	known := Activations()
	if _, ok := known[name]; !ok {
		return registry.Unknown(key, name, slices.Sorted(maps.Keys(known)))
	}
	return nil
}

// Gated returns act(gate)·up, all of one shape.
func Gated(act string, gate, up Tensor) Tensor {
	if act == "silu" || act == "swish" {
		return SwiGLU(gate, up) // in one pass
	}
	return Mul(Activations()[act](gate), up)
}

// GatedPair is Gated of the halves of rows x [N, 2F].
func GatedPair(act string, x Tensor) Tensor {
	if act == "silu" || act == "swish" {
		return SwiGLUPair(x)
	}
	f := x.Shape()[1] / 2
	return Gated(act, Narrow(x, 1, 0, f), Narrow(x, 1, f, f))
}

// geluTanh is ½·z·(1 + tanh(√(2/π)·(z + 0.044715·z³))) (Hendrycks & Gimpel 2016), written as z·sigmoid(2·…), which is
// the same and takes fewer passes.
func geluTanh(z Tensor) Tensor {
	const outer = 2 * 0.7978845608028654 // 2·√(2/π)
	inner := AddScalar(Scale(Square(z), outer*0.044715), outer)
	return Mul(z, Sigmoid(Mul(z, inner)))
}
