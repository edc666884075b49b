package lora

import (
	"fmt"
	"strings"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
)

// Specs lists the tensors of adapters among a model's trained ones: A [r, in] and B [out, r] of each module.
func Specs(modules []Module) (specs []torchx.Spec) {
	for _, m := range modules {
		specs = append(specs, torchx.Spec{Name: KeyA(m.Name), Shape: []int{m.Rank, m.In}},
			torchx.Spec{Name: KeyB(m.Name), Shape: []int{m.Out, m.Rank}})
	}
	return specs
}

// Start fills the adapters with those of a folder or, if from is nil, with fresh ones: A random and B zero, so that the model's
// output does not change. layers are the model's, in its order.
func Start(params *torchx.Params, layers []Linear, modules map[string]Module, from *Adapter, seed int64) error {
	if from != nil {
		adapted := make([]Module, 0, len(modules))
		for _, l := range layers {
			if m, ok := modules[l.Name]; ok {
				adapted = append(adapted, m)
			}
		}
		if err := from.Check(adapted); err != nil {
			return err
		}
	}
	for name, m := range modules {
		values := InitA(m, seed)
		if from != nil {
			values = from.Tensors[KeyA(name)].Values
			if err := params.Set(KeyB(name), from.Tensors[KeyB(name)].Values); err != nil {
				return err
			}
		}
		if err := params.Set(KeyA(name), values); err != nil {
			return err
		}
	}
	return nil
}

// Save writes a model's adapters as a PEFT folder. base, which may be empty, is the name of the base model in the folder. It
// refuses a model without adapters (c is nil) and a model with other trained weights, for which the folder has no place.
// called, which may be nil, maps module names to the names in the folder.
func Save(path string, c *Config, base string, modules map[string]Module, params *torchx.Params, called func(module string) string) error {
	if c == nil {
		return fmt.Errorf("%s: the model has no adapters", path)
	}
	config := *c
	config.BaseModel = base
	ours := map[string]string{} // names in the folder
	for name := range modules {
		public := name
		if called != nil {
			public = called(name)
		}
		ours[KeyA(name)], ours[KeyB(name)] = KeyA(public), KeyB(public)
	}
	var tensors []tensorfile.Tensor
	values := params.Values()
	for _, name := range params.Names() {
		if ours[name] == "" {
			return fmt.Errorf("%s: %s is trained too, and an adapter folder has no place for it: export the merged model", path, name)
		}
		lo, hi := params.Range(name)
		tensors = append(tensors, tensorfile.FromFloat32s(ours[name], params.Shape(name), values[lo:hi]))
	}
	return Write(path, config, tensors)
}

// Merge returns W + scale·B·A in float32 if the weight w is the matrix of an adapted module; other weights unchanged.
func Merge(w torchx.Tensor, name string, modules map[string]Module, params *torchx.Params) torchx.Tensor {
	module, ok := strings.CutSuffix(name, ".weight")
	m, adapted := modules[module]
	if !ok || !adapted {
		return w
	}
	low := torchx.MatMul(params.Get(KeyB(m.Name)), params.Get(KeyA(m.Name)))
	return torchx.Add(w.To(torchx.Float32), torchx.Scale(low, m.Scale))
}
