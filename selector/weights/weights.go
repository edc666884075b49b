// Package weights keeps the tensors of models from Hugging Face folders: the frozen ones, the trained ones of a checkpoint,
// and the forms of both in files.
//
//	f := weights.NewFrozen(folder)                   // one copy for a policy and its clones
//	f.Place("model.norm.weight", tensor, torchx.Float32, "cpu")
//	err := weights.Assign(params, checkpoint)        // the trained tensors
//
// It knows names, shapes and types, no model.
package weights

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"fulcrum/internal/hffolder"
	"fulcrum/internal/hostmem"
	"fulcrum/internal/list"
	"fulcrum/internal/registry"
	"fulcrum/internal/rng"
	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
)

// Frozen holds the frozen weights: one copy for a policy and its clones.
type Frozen struct {
	Tensors map[string]torchx.Tensor
	AtFree  func() // called when the last policy releases them; may be nil

	folder *hffolder.Folder // stays open while tensors share its memory; nil otherwise
	mapped bool             // some tensors share the folder's memory
	users  int              // number of policies that hold the weights
}

// NewFrozen returns an empty set of weights, held by one policy. Place takes them from folder; nil = no folder.
func NewFrozen(folder *hffolder.Folder) *Frozen {
	return &Frozen{Tensors: map[string]torchx.Tensor{}, folder: folder, users: 1}
}

func (f *Frozen) Hold() { f.users++ }

// Free releases the weights when the last policy lets go of them, and closes the folder that they share memory with.
func (f *Frozen) Free() {
	if f.users--; f.users > 0 {
		return
	}
	if f.AtFree != nil {
		f.AtFree()
	}
	for _, t := range f.Tensors {
		t.Free()
	}
	if f.folder != nil {
		f.folder.Close()
	}
}

// Placed ends the loading: it closes the folder unless a tensor shares its memory.
func (f *Frozen) Placed() {
	if !f.mapped && f.folder != nil {
		f.folder.Close()
		f.folder = nil
	}
}

// Disown leaves closing the folder to the caller.
func (f *Frozen) Disown() { f.folder = nil }

// Place puts a file's tensor on the device in dtype. On the CPU it shares the mapped file's memory if the type is the
// same, or stays, and the address is aligned.
func (f *Frozen) Place(name string, t tensorfile.Tensor, dtype torchx.DType, device string) {
	defer torchx.Scope()()
	from := map[tensorfile.DType]torchx.DType{tensorfile.F32: torchx.Float32, tensorfile.F16: torchx.Float16,
		tensorfile.BF16: torchx.BFloat16}[t.DType]
	if len(t.Shape) > 1 && stays(from == torchx.BFloat16, dtype, device) {
		dtype = from
	}
	p := unsafe.Pointer(unsafe.SliceData(t.Data))
	var x torchx.Tensor
	if uintptr(p)%uintptr(from.Size()) == 0 {
		x = torchx.FromMapped(t.Data, from, t.Shape...)
		f.mapped = f.mapped || from == dtype && device == "cpu"
	} else {
		x = torchx.FromBytes(p, from, t.Len(), t.Shape)
	}
	f.Tensors[name] = torchx.Own(x.To(dtype).ToDevice(device))
}

// Join concatenates tensors to [Σ rows, …], makes each of them a view of the result, and returns it.
func (f *Frozen) Join(names ...string) torchx.Tensor {
	key := strings.Join(names, "+")
	if all, ok := f.Tensors[key]; ok {
		return all
	}
	defer torchx.Scope()()
	parts := list.Map(names, func(name string) torchx.Tensor { return f.Tensors[name] })
	all, at := torchx.Own(torchx.Cat(0, parts...)), 0
	for i, name := range names {
		n := parts[i].Shape()[0]
		f.Tensors[name] = torchx.Own(torchx.Narrow(all, 0, at, n))
		parts[i].Free()
		at += n
	}
	f.Tensors[key] = all
	return all
}

// Pad makes a tensor a view of a larger one of this shape, filled up with zeros, and returns the larger one.
func (f *Frozen) Pad(name string, shape ...int) torchx.Tensor {
	key := name + " padded"
	if all, ok := f.Tensors[key]; ok {
		return all
	}
	defer torchx.Scope()()
	old := f.Tensors[name]
	all := old
	for dim, n := range shape {
		if more := all.Shape(); n > more[dim] {
			more[dim] = n - more[dim]
			all = torchx.Cat(dim, all, torchx.FullLike(all, 0, all.DType(), more...))
		}
	}
	if slices.Equal(all.Shape(), old.Shape()) {
		return old
	}
	part := all
	for dim, n := range old.Shape() {
		part = torchx.Narrow(part, dim, 0, n)
	}
	f.Tensors[name], f.Tensors[key] = torchx.Own(part), torchx.Own(all)
	old.Free()
	return f.Tensors[key]
}

// stays reports whether matrices stay bfloat16 under a computation in float32. The CPU's products read them so: half the
// memory, no time to load, and half the time for a generated token.
func stays(bfloat16 bool, dtype torchx.DType, device string) bool {
	return bfloat16 && dtype == torchx.Float32 && device == "cpu"
}

// As returns a weight, which may be undefined, in the type of computation. Only trained weights can have another type, and
// frozen matrices under float32, which products read unchanged.
func As(w torchx.Tensor, dtype torchx.DType) torchx.Tensor {
	if dtype == torchx.Float32 || w.Nil() {
		return w
	}
	return w.To(dtype)
}

// FitHost refuses a model that the host cannot hold: frozen weights that must be converted, and trained ones with
// gradients and two moments in float32. all are the model's weights, in the file bfloat16 or not; dtype is the type of
// the computation. Elsewhere than on the CPU nothing is refused.
func FitHost(all, trained []torchx.Spec, bfloat16 bool, dtype torchx.DType, device string) error {
	if device != "cpu" {
		return nil
	}
	n, train := float64(Numel(all...)), float64(Numel(trained...))
	what := fmt.Sprintf("a model of %.3g parameters, %.3g of them trained", n, train)
	bytes := float64(dtype.Size())
	if stays(bfloat16, dtype, device) {
		bytes = 2
	}
	return hostmem.Need(what, n*bytes+16*train)
}

func Numel(specs ...torchx.Spec) (n int) {
	for _, s := range specs {
		x := 1
		for _, d := range s.Shape {
			x *= d
		}
		n += x
	}
	return n
}

// Start fills a fresh tensor as Hugging Face's initialisation does: norms 1, biases 0, everything else normal with this standard
// deviation. It depends on the seed and the name alone.
func Start(s torchx.Spec, std float64, seed int64) []float32 {
	if len(s.Shape) == 1 && !strings.HasSuffix(s.Name, ".bias") {
		return slices.Repeat([]float32{1}, Numel(s))
	}
	values := make([]float32, Numel(s))
	if !strings.HasSuffix(s.Name, ".bias") {
		r := rng.New(seed, "init "+s.Name)
		for i := range values {
			values[i] = float32(std * r.NormFloat64())
		}
	}
	return values
}

// FileType resolves the torch_dtype that a folder is to be written in.
func FileType(name string) (torchx.DType, error) {
	dtype, ok := map[string]torchx.DType{"float32": torchx.Float32, "bfloat16": torchx.BFloat16, "float16": torchx.Float16}[name]
	if !ok {
		return 0, fmt.Errorf("dtype %q: want float32, bfloat16 or float16", name)
	}
	return dtype, nil
}

// InFile returns a weight as stored in a file, rounded to dtype (float32, bfloat16 or float16).
func InFile(s torchx.Spec, w torchx.Tensor, dtype torchx.DType) tensorfile.Tensor {
	file := map[torchx.DType]tensorfile.DType{torchx.Float32: tensorfile.F32, torchx.BFloat16: tensorfile.BF16,
		torchx.Float16: tensorfile.F16}[dtype]
	return tensorfile.Tensor{Name: s.Name, DType: file, Shape: s.Shape, Data: w.To(dtype).ToDevice("cpu").Bytes()}
}

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
