package weights

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"fulcrum/internal/registry"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
)

// Assign copies a checkpoint's tensors into the trained ones: all of them, and no others.
func Assign(params *torchx.Params, file *tensorfile.File) error {
	for _, t := range file.Tensors {
		if !params.Has(t.Name) {
			return registry.Unknown("tensor", t.Name, params.Names())
		}
	}
	for _, name := range params.Names() {
		t, ok := file.Get(name)
		if !ok {
			return fmt.Errorf("tensor %s is missing", name)
		}
		if err := Set(params, "tensor", t); err != nil {
			return err
		}
	}
	return nil
}

// Set copies a file's tensor into the parameter of its name. Errors call the tensor kind.
func Set(params *torchx.Params, kind string, t tensorfile.Tensor) error {
	if want := params.Shape(t.Name); !slices.Equal(t.Shape, want) {
		return fmt.Errorf("%s %s has shape %v, want %v", kind, t.Name, t.Shape, want)
	}
	values, err := t.Float32s()
	if err != nil {
		return err
	}
	for i, v := range values {
		if v-v != 0 {
			return fmt.Errorf("%s %s holds %v at %d, want finite numbers", kind, t.Name, v, i)
		}
	}
	return params.Set(t.Name, values)
}

// Portable returns config.json for a checkpoint's metadata, without the path of its folder.
func Portable(raw []byte) string {
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return Compact(raw)
	}
	delete(all, "_name_or_path")
	out, err := json.Marshal(all)
	if err != nil {
		return Compact(raw)
	}
	return string(out)
}

// Compact returns JSON without white space; other text unchanged.
func Compact(raw []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}
