package lora

import (
	"fmt"
	"slices"

	"fulcrum/internal/torchx"
)

// Check compares a model's adapters with the folder that they were loaded from: every tensor of the file stands among
// the model's parameters as it is there, and no other module has one. A folder of nil has nothing to compare.
func Check(folder *string, modules map[string]Module, params *torchx.Params) error {
	if folder == nil {
		return nil
	}
	a, err := Read(*folder)
	if err != nil {
		return err
	}
	if n := len(a.Tensors) / 2; n != len(modules) { // A and B
		return fmt.Errorf("%s adapts %d modules, the model %d", *folder, n, len(modules))
	}
	all := params.Values()
	for name := range modules {
		for _, key := range []string{KeyA(name), KeyB(name)} {
			from, to := params.Range(key)
			if !slices.Equal(all[from:to], a.Tensors[key].Values) {
				return fmt.Errorf("%s: tensor %s was not loaded: the model has other values", *folder, key)
			}
		}
	}
	return nil
}
