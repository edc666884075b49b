// Package hffolder reads and writes model folders as Hugging Face's from_pretrained and save_pretrained
// do: config.json, generation_config.json and the weights in one safetensors file or in shards with an
// index; older folders hold pytorch_model.bin instead, which is read where it stands alone. It knows names
// and bytes of tensors, no architecture.
//
//	folder, err := hffolder.Open("Qwen2.5-VL-3B-Instruct")
//	err = folder.Check(wanted, nil)                            // every tensor there, with the right shape
//	t, ok := folder.Tensor("model.layers.0.input_layernorm.weight")
package hffolder

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"fulcrum/internal/digest"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/registry"
	"fulcrum/internal/regular"
	"fulcrum/internal/tensorfile"
)

const (
	configName     = "config.json"
	generationName = "generation_config.json"
	singleName     = "model.safetensors"
	indexName      = "model.safetensors.index.json"
	pickleName     = "pytorch_model.bin"
)

// Folder is an opened model folder. Its tensors are mapped from the files: read-only, valid until Close.
type Folder struct {
	Path       string
	Config     []byte // config.json as it stands in the folder
	Generation []byte // generation_config.json, nil where the folder has none

	tensors map[string]stored // by canonical name
	files   []io.Closer
}

// stored is a tensor and where it was found.
type stored struct {
	tensor tensorfile.Tensor // under its name in the file
	file   string
}

var parts = regexp.MustCompile(`(model[^/]*\.(safetensors|bin)|(config|index|vocab|token\w*|template)\.json|merges.txt|\.(model|jinja))$`)

// Part reports whether a file has the name of a part of a model.
func Part(path string) bool { return parts.MatchString(path) }

// Open maps a model folder and checks that index and shards agree: every tensor of the index stands in the shard
// that it names, and no shard holds another one.
func Open(path string) (*Folder, error) {
	f := &Folder{Path: path, tensors: map[string]stored{}}
	var err error
	if f.Config, err = regular.ReadFile(filepath.Join(path, configName)); err != nil {
		return nil, fmt.Errorf("%s: not a model folder: %w", path, err)
	}
	if f.Generation, err = regular.ReadFile(filepath.Join(path, generationName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := f.openWeights(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// openWeights prefers the single file, as Hugging Face does.
func (f *Folder) openWeights() error {
	if _, err := os.Stat(filepath.Join(f.Path, singleName)); err == nil {
		return f.openFile(singleName, nil)
	}
	raw, err := regular.ReadFile(filepath.Join(f.Path, indexName))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(f.Path, pickleName)); err == nil {
			return f.openPickle()
		}
		return fmt.Errorf("%s: found neither %s nor %s nor %s (weights in other formats must be saved as safetensors first)", f.Path,
			singleName, indexName, pickleName)
	}
	if err != nil {
		return err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	at := filepath.Join(f.Path, indexName)
	if err := jsonwords.Unmarshal(raw, &index); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if len(index.WeightMap) == 0 {
		return fmt.Errorf("%s: want weight_map with the file of every tensor", at)
	}
	shards := map[string]map[string]bool{} // file → names that the index places there
	for name, file := range index.WeightMap {
		if file != filepath.Base(file) {
			return fmt.Errorf("%s: tensor %s lies in %q, want a file of the same folder", at, name, file)
		}
		if shards[file] == nil {
			shards[file] = map[string]bool{}
		}
		shards[file][name] = true
	}
	for _, file := range slices.Sorted(maps.Keys(shards)) {
		if err := f.openFile(file, shards[file]); err != nil {
			return err
		}
	}
	return nil
}

// openPickle reads what torch.save wrote: a state dict. What is no tensor in it is not looked at.
func (f *Folder) openPickle() error {
	path := filepath.Join(f.Path, pickleName)
	file, err := tensorfile.ReadPT(path)
	if err != nil {
		return err
	}
	f.files = append(f.files, file)
	dict, ok := file.Value.(*tensorfile.Dict)
	if !ok {
		return fmt.Errorf("%s: holds a %s, want a dict of tensors", path, tensorfile.TypeName(file.Value))
	}
	for i, value := range dict.Values {
		t, isTensor := value.(tensorfile.Tensor)
		key, isText := dict.Keys[i].(string)
		if !isTensor || !isText {
			continue
		}
		t.Name = key
		name := Canonical(key)
		if other, dup := f.tensors[name]; dup {
			return fmt.Errorf("%s: tensor %s is there already, as %s", path, key, other.tensor.Name)
		}
		f.tensors[name] = stored{t, pickleName}
	}
	return nil
}

// openFile maps one file of weights; indexed, where there is an index, are the names that it must hold.
func (f *Folder) openFile(file string, indexed map[string]bool) error {
	path := filepath.Join(f.Path, file)
	mapped, err := tensorfile.ReadSafetensors(path)
	if err != nil {
		return err
	}
	f.files = append(f.files, mapped)
	for _, t := range mapped.Tensors {
		if indexed != nil && !indexed[t.Name] {
			return fmt.Errorf("%s: holds tensor %s, which %s does not place there", path, t.Name, indexName)
		}
		name := Canonical(t.Name)
		if other, dup := f.tensors[name]; dup {
			return fmt.Errorf("%s: tensor %s is there already, in %s as %s", path, t.Name, other.file, other.tensor.Name)
		}
		f.tensors[name] = stored{t, file}
	}
	for _, name := range slices.Sorted(maps.Keys(indexed)) {
		if _, ok := mapped.Get(name); !ok {
			return fmt.Errorf("%s: tensor %s is missing (%s places it there)", path, name, indexName)
		}
	}
	return nil
}

// Canonical returns the name under which the published checkpoints hold a tensor. transformers 4.52 and later save
// model.language_model.* for model.*, and model.visual.* for visual.*.
func Canonical(name string) string {
	if rest, ok := strings.CutPrefix(name, "model.language_model."); ok {
		return "model." + rest
	}
	if rest, ok := strings.CutPrefix(name, "model.visual."); ok {
		return "visual." + rest
	}
	return name
}

// Newer returns what a module of Qwen2.5-VL is called since transformers 4.52, for adapters: PEFT has forgotten the
// canonical names.
func Newer(module string) string {
	if strings.HasPrefix(module, "visual.") {
		return "model." + module
	}
	if rest, ok := strings.CutPrefix(module, "model."); ok {
		return "model.language_model." + rest
	}
	return module
}

// Tensor returns the tensor with a canonical name.
func (f *Folder) Tensor(name string) (tensorfile.Tensor, bool) {
	s, ok := f.tensors[name]
	return s.tensor, ok
}

// Differ reports whether the folder holds both tensors, with different bytes.
func (f *Folder) Differ(a, b string) bool {
	x, ok := f.tensors[a]
	y, both := f.tensors[b]
	return ok && both && !bytes.Equal(x.tensor.Data, y.tensor.Data)
}

// Names returns the canonical names in alphabetical order.
func (f *Folder) Names() []string { return slices.Sorted(maps.Keys(f.tensors)) }

// MaxLayers is the most layers that a stack of any model may have: the list of its tensors is made before one is read.
const MaxLayers = 10_000

// CheckLayers refuses a number of layers, with the key that gives it, that the folder's tensors cannot make up: every
// layer has several.
func (f *Folder) CheckLayers(key string, layers int) error {
	if n := len(f.tensors); layers > n {
		return fmt.Errorf("%s: %s = %d, but the weights are %d tensors", filepath.Join(f.Path, configName), key, layers, n)
	}
	return nil
}

// Want is a tensor that a model needs.
type Want struct {
	Name  string // canonical
	Shape []int
}

// Check compares the folder's tensors with those that a model needs: missing and unexpected ones are listed,
// wrong shapes and types named. Names for which ignore, which may be nil, is true may be there or not.
func (f *Folder) Check(want []Want, ignore func(name string) bool) error {
	needed := map[string]bool{}
	var missing []string
	for _, w := range want {
		needed[w.Name] = true
		s, ok := f.tensors[w.Name]
		if !ok {
			missing = append(missing, w.Name)
			continue
		}
		at := filepath.Join(f.Path, s.file)
		if !slices.Equal(s.tensor.Shape, w.Shape) {
			return fmt.Errorf("%s: tensor %s has shape %v, want %v (from %s)", at, s.tensor.Name, s.tensor.Shape, w.Shape, configName)
		}
		if d := s.tensor.DType; d != tensorfile.F32 && d != tensorfile.F16 && d != tensorfile.BF16 {
			return fmt.Errorf("%s: tensor %s has type %s, want F32, F16 or BF16", at, s.tensor.Name, d)
		}
	}
	unexpected := slices.DeleteFunc(f.Names(), func(name string) bool { return needed[name] || ignore != nil && ignore(name) })
	if len(missing) == 0 && len(unexpected) == 0 {
		return nil
	}
	return fmt.Errorf("%s: the weights do not fit %s: %s", f.Path, configName, mismatch(missing, unexpected))
}

// mismatch words the difference of two sets of names, with the likely partner of the first unexpected one.
func mismatch(missing, unexpected []string) string {
	var parts []string
	if n := len(missing); n > 0 {
		parts = append(parts, fmt.Sprintf("%d missing (%s)", n, list(missing)))
	}
	if n := len(unexpected); n > 0 {
		text := fmt.Sprintf("%d unexpected (%s)", n, list(unexpected))
		if near, ok := registry.Nearest(unexpected[0], missing); ok {
			text += fmt.Sprintf(", is %s meant to be %s?", unexpected[0], near)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " and ")
}

// list shows the first few names.
func list(names []string) string {
	const shown = 4
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:shown], ", ") + ", …"
}

// Fingerprint identifies the weights: SHA-256 over the canonical name, type and shape of every tensor and the first
// and last 4 KiB of its bytes. It does not depend on how the tensors are spread over files, and reads megabytes of a
// model of many gigabytes.
func (f *Folder) Fingerprint() string {
	h := digest.New()
	for _, name := range f.Names() {
		t := f.tensors[name].tensor
		fmt.Fprintf(h, "%s %s %v\n", name, t.DType, t.Shape)
		const part = 4096
		h.Write(t.Data[:min(part, len(t.Data))])
		h.Write(t.Data[max(0, len(t.Data)-part):])
	}
	return h.Hex()[:32]
}

// Close unmaps the files: no tensor may be in use any more.
func (f *Folder) Close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	f.files, f.tensors = nil, nil
	return errors.Join(errs...)
}
