package tokens

import (
	"strings"

	"fulcrum/internal/torchx"
	"fulcrum/selector/lora"
	"fulcrum/selector/weights"
)

// Random makes random weights for benchmarks, drawn on the device: trained ones (adapters too) in float32, frozen ones in
// options.DType. Norms are 1, biases 0, matrices normal with this standard deviation. They depend on the seed and the kind of
// device, whose generators differ.
func Random(layout Layout, options Options, device string, std float64, seed int64) (*Weights, error) {
	options = Options{DType: options.DType, LoRA: options.LoRA, GradientCheckpointing: options.GradientCheckpointing}
	w := &Weights{Layout: layout, options: options, device: device, slow: new(int), Joined: strings.HasPrefix(device, "cuda")}
	specs, _, err := w.prepare(nil)
	if err != nil {
		return nil, err
	}
	err = torchx.Try(func() error {
		defer torchx.Scope()()
		w.params, w.frozen = torchx.NewParams(specs, device), weights.NewFrozen(nil)
		g := torchx.NewGenerator(uint64(seed), device)
		defer g.Free()
		for _, s := range w.All {
			w.draw(s, g, std)
		}
		return lora.Start(w.params, w.Linears, w.modules, nil, seed)
	})
	if err != nil && w.params != nil {
		w.Free()
	}
	return w, err
}

func (w *Weights) draw(s torchx.Spec, g *torchx.Generator, std float64) {
	defer torchx.Scope()()
	like := w.params.Flat()
	var x torchx.Tensor
	switch {
	case strings.HasSuffix(s.Name, ".bias"):
		x = torchx.FullLike(like, 0, torchx.Float32, s.Shape...)
	case len(s.Shape) == 1:
		x = torchx.FullLike(like, 1, torchx.Float32, s.Shape...)
	default:
		x = g.Normal(like, 0, std, s.Shape...)
	}
	if w.params.Has(s.Name) {
		torchx.Copy(w.params.Get(s.Name), x)
		return
	}
	w.frozen.Tensors[s.Name] = torchx.Own(x.To(w.DType))
}
