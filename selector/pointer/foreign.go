package pointer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"fulcrum/internal/tensorfile"
)

// Checkpoint is a file's parameters under their names in a trainer state dict, and what it says about them.
type Checkpoint struct {
	Path     string
	Metadata map[string]string // as in our own files; a foreign file gives epoch (1-based), phase, metrics, selector.*
	Weights  map[string]tensorfile.Tensor
	close    func() error
}

// Close releases the file; the weights must not be used any more.
func (c *Checkpoint) Close() error { return c.close() }

// ReadCheckpoint opens a checkpoint of ours (.safetensors), the reference trainer's .pt, Lightning's .ckpt with
// the old key names, or a bare state dict (parity spec §1.8). Nothing in the file is executed.
func ReadCheckpoint(path string) (*Checkpoint, error) {
	c := &Checkpoint{Path: path, Metadata: map[string]string{}, Weights: map[string]tensorfile.Tensor{}}
	var err error
	if strings.EqualFold(filepath.Ext(path), ".safetensors") {
		err = c.readSafetensors()
	} else {
		err = c.readPT()
	}
	if err == nil && len(c.Weights) == 0 {
		err = fmt.Errorf("%s: holds no parameters", path)
	}
	if err != nil {
		if c.close != nil {
			c.close()
		}
		return nil, err
	}
	return c, nil
}

func (c *Checkpoint) readSafetensors() error {
	f, err := tensorfile.ReadSafetensors(c.Path)
	if err != nil {
		return err
	}
	c.Metadata, c.close = f.Metadata, f.Close
	for _, t := range f.Tensors {
		if err := c.add(t.Name, t); err != nil {
			return err
		}
	}
	return nil
}

func (c *Checkpoint) readPT() error {
	f, err := tensorfile.ReadPT(c.Path)
	if err != nil {
		return err
	}
	c.close = f.Close
	dict, ok := f.Value.(*tensorfile.Dict)
	if !ok {
		return fmt.Errorf("%s: holds a %s, want a state dict", c.Path, tensorfile.TypeName(f.Value))
	}
	for _, key := range []string{"model_state_dict", "state_dict"} { // the reference's trainer, Lightning
		inner, ok := dict.Get(key)
		if !ok {
			continue
		}
		weights, ok := inner.(*tensorfile.Dict)
		if !ok {
			return fmt.Errorf("%s: %s is a %s, want a dict of parameters", c.Path, key, tensorfile.TypeName(inner))
		}
		if err := c.facts(dict); err != nil {
			return err
		}
		dict = weights
		break
	}
	for i, key := range dict.Keys {
		name, isName := key.(string)
		t, isTensor := dict.Values[i].(tensorfile.Tensor)
		if !isName || !isTensor {
			return fmt.Errorf("%s: entry %s is a %s, want only named tensors", c.Path, tensorfile.Show(key),
				tensorfile.TypeName(dict.Values[i]))
		}
		if err := c.add(name, t); err != nil {
			return err
		}
	}
	if c.Metadata["selector.state_update"] == "none" { // written by Export, with a gate that leaves the state as it is
		delete(c.Weights, gateName+".weight")
		delete(c.Weights, gateName+".bias")
	}
	return nil
}

// add stores a tensor under its name in a trainer state dict.
func (c *Checkpoint) add(name string, t tensorfile.Tensor) error {
	if len(name) > 200 || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%s: %.60q is no name of a parameter", c.Path, name)
	}
	short := stateName(name)
	if _, twice := c.Weights[short]; twice {
		return fmt.Errorf("%s: two entries for parameter %s (%s is one)", c.Path, short, name)
	}
	t.Name = short
	c.Weights[short] = t
	return nil
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

// facts turns the entries beside a foreign state dict into our metadata.
func (c *Checkpoint) facts(dict *tensorfile.Dict) error {
	if v, ok := dict.Get("epoch"); ok {
		epoch, ok := v.(int64)
		if !ok {
			return fmt.Errorf("%s: epoch is a %s, want an integer", c.Path, tensorfile.TypeName(v))
		}
		c.Metadata["epoch"] = strconv.FormatInt(epoch+1, 10) // the reference counts from 0
	}
	if phase, ok := get[string](dict, "phase"); ok {
		c.Metadata["phase"] = phase
	}
	metrics := map[string]any{}
	if inner, ok := get[*tensorfile.Dict](dict, "metrics"); ok {
		for i, key := range inner.Keys {
			name, isName := key.(string)
			if x, ok := asNumber(inner.Values[i]); ok && isName {
				metrics[ourMetric(name)] = x
			}
		}
	}
	v, _ := dict.Get("kl_beta")
	if x, ok := asNumber(v); ok {
		metrics["kl_beta"] = x
	}
	if len(metrics) > 0 {
		text, err := json.Marshal(metrics)
		if err != nil {
			return err
		}
		c.Metadata["metrics"] = string(text)
	}
	inner, ok := get[*tensorfile.Dict](dict, extraKey)
	if !ok {
		return nil
	}
	for i, key := range inner.Keys { // written by Export
		name, isName := key.(string)
		text, isText := inner.Values[i].(string)
		if !isName || !isText {
			return fmt.Errorf("%s: %s: want text under text", c.Path, extraKey)
		}
		c.Metadata["selector."+name] = text
	}
	return nil
}

func get[T any](d *tensorfile.Dict, key string) (T, bool) {
	v, _ := d.Get(key)
	x, ok := v.(T)
	return x, ok
}

// asNumber returns a number as our metadata holds it: text where JSON has none.
func asNumber(v any) (any, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case *big.Int:
		return v.String(), true
	case bool:
		return v, true
	case tensorfile.Tensor: // how Export spells a number
		if x, err := v.Float64s(); err == nil && len(x) == 1 {
			return asNumber(x[0])
		}
	case float64:
		if v-v != 0 {
			return strings.ToLower(strings.TrimPrefix(number(v), "+")), true
		}
		return v, true
	}
	return nil, false
}

// ourMetric and referenceMetric translate the only metric that has another name there.
func ourMetric(name string) string {
	if name == "rce_loss" || name == "grpo_loss" {
		return "loss"
	}
	return name
}

func referenceMetric(name, phase string) string {
	if name == "loss" {
		if strings.HasPrefix(phase, "grpo") {
			return "grpo_loss"
		}
		return "rce_loss"
	}
	return name
}

// shapes derives the options that follow from names and shapes of the weights. Without skip terms it is the reference's
// selector: v3, or v2 without a gate. The number of heads and the cost of a choice (taken) leave no trace in shapes.
func (c *Checkpoint) shapes() map[string]string {
	found := map[string]string{}
	t, ok := c.Weights["query_proj.weight"]
	if !ok || len(t.Shape) != 2 {
		return found
	}
	if _, skip := c.Weights["skip_scale"]; !skip {
		v3 := DefaultOptions()
		for _, k := range v3.keys() {
			found[k.key] = k.get()
		}
		delete(found, "num_heads")
		delete(found, "taken")
		if _, gate := c.Weights[gateName+".weight"]; !gate {
			found["variant"], found["state_update"] = "v2", "none"
		}
	}
	found["hidden_dim"] = strconv.Itoa(t.Shape[0])
	found["d_model"] = found["hidden_dim"]
	if t, ok := c.Weights["input_proj.weight"]; ok && len(t.Shape) == 2 {
		found["d_model"] = strconv.Itoa(t.Shape[1])
	}
	if layers := c.layers(); layers > 0 {
		found["num_layers"] = strconv.Itoa(layers)
	}
	return found
}

// layers counts the attention layers, from 0 without a gap.
func (c *Checkpoint) layers() int {
	for n := 0; ; n++ {
		if _, ok := c.Weights[fmt.Sprintf("cross_attn_layers.%d.in_proj_weight", n)]; !ok {
			return n
		}
	}
}

// Names returns the names of the parameters in the reference's order, others after them by name.
func (c *Checkpoint) Names() []string {
	rank := map[string]int{}
	for i, name := range referenceNames(c.layers()) {
		rank[name] = i - 1<<20
	}
	return slices.SortedFunc(maps.Keys(c.Weights), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b))
	})
}

// referenceNames lists the parameters of the reference's selector with that many attention layers.
func referenceNames(layers int) []string {
	names := []string{"input_proj.weight"}
	for i := range layers {
		for _, part := range []string{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"} {
			names = append(names, fmt.Sprintf("cross_attn_layers.%d.%s", i, part))
		}
	}
	for i := range layers {
		names = append(names, fmt.Sprintf("attn_norms.%d.weight", i), fmt.Sprintf("attn_norms.%d.bias", i))
	}
	return append(names, "query_proj.weight", "cand_proj.weight", gateName+".weight", gateName+".bias")
}
