package seq2seq

import (
	"fulcrum/internal/registry"
	"fulcrum/internal/torchx"
)

// activations are Hugging Face's names of the functions between the layers of a feed-forward network.
func activations() map[string]func(torchx.Tensor) torchx.Tensor {
	return map[string]func(torchx.Tensor) torchx.Tensor{
		"relu": torchx.ReLU, "gelu": torchx.GELU, "gelu_new": geluTanh, "gelu_pytorch_tanh": geluTanh,
		"silu": torchx.SiLU, "swish": torchx.SiLU, "tanh": torchx.Tanh, "sigmoid": torchx.Sigmoid,
	}
}

func knownActivation(key, name string) error {
	known := activations()
	if _, ok := known[name]; !ok {
		return registry.Unknown(key, name, sortedKeys(known))
	}
	return nil
}

// geluTanh is ½·z·(1 + tanh(√(2/π)·(z + 0.044715·z³))) (Hendrycks & Gimpel 2016), written as z·sigmoid(2·…), which is
// the same and takes fewer passes.
func geluTanh(z torchx.Tensor) torchx.Tensor {
	const outer = 2 * 0.7978845608028654 // 2·√(2/π)
	inner := torchx.AddScalar(torchx.Scale(torchx.Square(z), outer*0.044715), outer)
	return torchx.Mul(z, torchx.Sigmoid(torchx.Mul(z, inner)))
}
