package pointer

import (
	"fmt"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"fulcrum/internal/tensorfile"
)

// OpenOptions says how Open builds a policy from a checkpoint.
type OpenOptions struct {
	Options    Options
	Overridden func(key string) bool // was selector.<key> set on the command line? nil = never
	Dim        int                   // width of the embeddings
	Seed       int64                 // of parameters that the file lacks (not strict)
	Device     string
	Strict     bool // unknown or missing parameters are errors
}

// ConflictError is an override that contradicts the checkpoint that it is given with.
type ConflictError struct{ Key, Value, Path, Trained string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s=%s contradicts %s, which was trained with %s", e.Key, e.Value, e.Path, e.Trained)
}

// Checkpoint is a file's parameters under their names in a trainer state dict, and its metadata.
type Checkpoint struct {
	Path     string
	Metadata map[string]string // of our own files; empty otherwise
	Weights  map[string]tensorfile.Tensor
	close    func() error
}

// Close releases the file; the weights must not be used any more.
func (c *Checkpoint) Close() error { return c.close() }

// ReadCheckpoint opens ours (.safetensors), the reference trainer's .pt, Lightning's .ckpt with the old
// key names, or a bare state dict (parity spec §1.8). Nothing in the file is executed.
func ReadCheckpoint(path string) (*Checkpoint, error) {
	c := &Checkpoint{Path: path, Metadata: map[string]string{}, Weights: map[string]tensorfile.Tensor{}}
	if strings.EqualFold(filepath.Ext(path), ".safetensors") {
		f, err := tensorfile.ReadSafetensors(path)
		if err != nil {
			return nil, err
		}
		c.Metadata, c.close = f.Metadata, f.Close
		for _, t := range f.Tensors {
			c.Weights[stateName(t.Name)] = t
		}
		return c, nil
	}
	f, err := tensorfile.ReadPT(path)
	if err != nil {
		return nil, err
	}
	c.close = f.Close
	dict, ok := f.Value.(*tensorfile.Dict)
	if !ok {
		f.Close()
		return nil, fmt.Errorf("%s: holds a %s, want a state dict", path, tensorfile.TypeName(f.Value))
	}
	for _, key := range []string{"model_state_dict", "state_dict"} {
		if inner, ok := dict.Get(key); ok {
			if d, ok := inner.(*tensorfile.Dict); ok {
				dict = d
				break
			}
		}
	}
	for i, key := range dict.Keys {
		name, isName := key.(string)
		t, isTensor := dict.Values[i].(tensorfile.Tensor)
		if !isName || !isTensor {
			f.Close()
			return nil, fmt.Errorf("%s: entry %v is a %s, want only named tensors", path, key, tensorfile.TypeName(dict.Values[i]))
		}
		c.Weights[stateName(name)] = t
	}
	if len(c.Weights) == 0 {
		f.Close()
		return nil, fmt.Errorf("%s: holds no parameters", path)
	}
	return c, nil
}

// stateName maps Lightning's names to the trainer's, in the reference's order (parity spec §1.8).
func stateName(name string) string {
	name = strings.TrimPrefix(name, "lever_lm.")
	name = strings.TrimPrefix(name, "pointer_selector.")
	if rest, ok := strings.CutPrefix(name, "cross_attn."); ok {
		return "cross_attn_layers.0." + rest
	}
	if rest, ok := strings.CutPrefix(name, "attn_norm."); ok {
		return "attn_norms.0." + rest
	}
	return name
}

// Open builds a selector from a checkpoint. The architecture follows the file: our metadata, else the
// shapes of the weights; an override that contradicts it is an error.
func Open(path string, o OpenOptions) (*Policy, error) {
	c, err := ReadCheckpoint(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	opt, err := c.architecture(o)
	if err != nil {
		return nil, err
	}
	p, err := New(opt, o.Dim, o.Seed, o.Device)
	if err != nil {
		return nil, err
	}
	if err := p.assign(c, o.Strict); err != nil {
		p.Free()
		return nil, err
	}
	return p, nil
}

// assign copies the file's weights into the policy.
func (p *Policy) assign(c *Checkpoint, strict bool) error {
	var unknown, missing []string
	for name := range c.Weights {
		if !p.params.Has(name) {
			unknown = append(unknown, name)
		}
	}
	for _, name := range p.params.Names() {
		if _, ok := c.Weights[name]; !ok && name != "skip_scale" && name != "learned_scale" {
			missing = append(missing, name)
		}
	}
	sort.Strings(unknown)
	if strict && len(unknown)+len(missing) > 0 {
		return fmt.Errorf("%s: unknown parameters [%s], missing parameters [%s] (init.strict=false ignores the unknown and keeps the initial values of the missing)",
			c.Path, strings.Join(unknown, ", "), strings.Join(missing, ", "))
	}
	for _, name := range p.params.Names() {
		t, ok := c.Weights[name]
		if !ok {
			continue
		}
		if want := p.params.Shape(name); !equalShape(t.Shape, want) {
			return fmt.Errorf("%s: parameter %s has shape %v, want %v", c.Path, name, t.Shape, want)
		}
		values, err := t.Float32s()
		if err != nil {
			return fmt.Errorf("%s: parameter %s: %w", c.Path, name, err)
		}
		for i, v := range values {
			if v-v != 0 {
				return fmt.Errorf("%s: parameter %s holds %v at %d, want finite numbers", c.Path, name, v, i)
			}
		}
		if err := p.params.Set(name, values); err != nil {
			return fmt.Errorf("%s: %w", c.Path, err)
		}
	}
	return nil
}

func equalShape(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// architecture merges the configured options with what the file says.
func (c *Checkpoint) architecture(o OpenOptions) (Options, error) {
	opt := o.Options
	found := map[string]string{}
	for key, value := range c.Metadata {
		if rest, ok := strings.CutPrefix(key, "selector."); ok {
			found[rest] = value
		}
	}
	if kind, ok := c.Metadata["policy"]; ok && kind != "pointer" {
		return opt, fmt.Errorf("%s: a checkpoint of policy %s, want pointer", c.Path, kind)
	}
	if len(found) == 0 {
		found = c.shapes()
	}
	if d, ok := found["d_model"]; ok && d != strconv.Itoa(o.Dim) {
		return opt, fmt.Errorf("%s: made for embeddings of %s columns, data.embeddings has %d", c.Path, d, o.Dim)
	}
	if text, ok := found["shot_num"]; ok && opt.ShotNum == nil {
		shots, err := strconv.Atoi(text)
		if err != nil {
			return opt, fmt.Errorf("%s: metadata selector.shot_num=%s: %w", c.Path, text, err)
		}
		opt.ShotNum = &shots // any number can be asked of a trained selector, so a configured one is no contradiction
	}
	for _, set := range opt.keys() {
		value, ok := found[set.key]
		if !ok {
			continue
		}
		before := set.get()
		if err := set.set(value); err != nil {
			return opt, fmt.Errorf("%s: metadata selector.%s=%s: %w", c.Path, set.key, value, err)
		}
		if o.Overridden != nil && o.Overridden("selector."+set.key) && before != set.get() {
			return opt, &ConflictError{Key: "selector." + set.key, Value: before, Path: c.Path, Trained: set.get()}
		}
	}
	return opt, nil
}

// shapes derives the architecture from a foreign state dict.
func (c *Checkpoint) shapes() map[string]string {
	found := map[string]string{}
	if t, ok := c.Weights["query_proj.weight"]; ok && len(t.Shape) == 2 {
		found["hidden_dim"] = strconv.Itoa(t.Shape[0])
		found["d_model"] = found["hidden_dim"]
	}
	if t, ok := c.Weights["input_proj.weight"]; ok && len(t.Shape) == 2 {
		found["d_model"] = strconv.Itoa(t.Shape[1])
	}
	layers := 0
	for {
		if _, ok := c.Weights[fmt.Sprintf("cross_attn_layers.%d.in_proj_weight", layers)]; !ok {
			break
		}
		layers++
	}
	if layers > 0 {
		found["num_layers"] = strconv.Itoa(layers)
	}
	if _, ok := c.Weights["query_update_gate.weight"]; ok {
		found["state_update"] = "gate"
	}
	return found
}

// key is one architecture option as text.
type key struct {
	key string
	get func() string
	set func(string) error
}

// keys lists the options that decide the architecture and stand in a checkpoint's metadata.
func (o *Options) keys() []key {
	return []key{
		textKey("variant", &o.Variant), intKey("hidden_dim", &o.HiddenDim), intKey("num_layers", &o.NumLayers), intKey("num_heads", &o.NumHeads),
		floatKey("temperature", &o.Temperature), textKey("state_update", &o.StateUpdate), textKey("taken", &o.Taken), boolKey("skip.enabled", &o.Skip.Enabled), floatKey("skip.scale", &o.Skip.Scale),
		textKey("encoder", &o.Encoder), floatKey("relation.scale", &o.Relation.Scale), textKey("relation.bilinear", &o.Relation.Bilinear),
		intKey("relation.gate_dim", &o.Relation.GateDim), intKey("relation.product_dim", &o.Relation.ProductDim),
	}
}

func textKey(name string, p *string) key {
	return key{name, func() string { return *p }, func(s string) error { *p = s; return nil }}
}

func intKey(name string, p *int) key {
	return key{name, func() string { return strconv.Itoa(*p) }, func(s string) (err error) { *p, err = strconv.Atoi(s); return }}
}

func floatKey(name string, p *float64) key {
	return key{name, func() string { return number(*p) }, func(s string) (err error) { *p, err = strconv.ParseFloat(s, 64); return }}
}

func boolKey(name string, p *bool) key {
	return key{name, func() string { return strconv.FormatBool(*p) }, func(s string) (err error) { *p, err = strconv.ParseBool(s); return }}
}
