package pointer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/registry"
	"fulcrum/internal/tensorfile"
	"fulcrum/selector/lora"
)

// ExportFormats are the layouts that Export writes:
//
//	pt           the reference trainer's: epoch, phase, model_state_dict, kl_beta, metrics
//	ckpt         its Lightning files with the old names: layer 0 is cross_attn and attn_norm
//	v2           its v2 inference files, with the names that the v2 model really has, all layers
//	safetensors  Hugging Face's, with our metadata
func ExportFormats() []string { return []string{"ckpt", "pt", "safetensors", "v2"} }

const (
	lightningPrefix = "lever_lm.pointer_selector."
	// extraKey holds the architecture where the reference's layouts have no place for it: beside the five
	// (trainer) or four (Lightning) known entries, only when it cannot be derived from the shapes.
	extraKey = "selector"
	// startingBeta is what the reference stores before GRPO has moved the coefficient.
	startingBeta = 0.1
)

// Export writes the checkpoint in another layout, weights bit for bit. The reference's layouts hold the
// reference's selector and nothing else: parameters that its loader would drop, or miss, are refused by
// name, because it does so silently and computes something else. Numbers beside the weights are 0-dim float64
// tensors, because PyTorch before 2.0 refuses plain floats when weights_only=True. path is replaced in one step.
func (c *Checkpoint) Export(path, format string) error {
	if format == "safetensors" {
		return c.exportSafetensors(path)
	}
	if !slices.Contains(ExportFormats(), format) {
		return registry.Unknown("export format", format, ExportFormats())
	}
	if err := c.fitsReference(format); err != nil {
		return err
	}
	state := tensorfile.NewDict()
	state.Ordered = true
	for _, name := range c.Names() {
		state.Set(exportName(name, format), c.Weights[name])
	}
	if format == "v2" && !c.gated() {
		c.addOpenGate(state)
	}
	epoch, err := c.epoch()
	if err != nil {
		return err
	}
	top := tensorfile.NewDict()
	top.Set("epoch", epoch)
	if format == "pt" {
		phase, metrics, beta, err := c.progress()
		if err != nil {
			return err
		}
		top.Set("phase", phase)
		top.Set("model_state_dict", state)
		top.Set("kl_beta", tensorfile.Scalar(beta))
		top.Set("metrics", metrics)
	} else {
		hyper := tensorfile.NewDict()
		hyper.Set("lr", tensorfile.Scalar(1e-4))
		hyper.Set("weight_decay", tensorfile.Scalar(0.001))
		hyper.Set("warm_steps", tensorfile.Scalar(0.05))
		top.Set("global_step", 0)
		top.Set("pytorch-lightning_version", "2.0.0")
		top.Set("state_dict", state)
		top.Set("hyper_parameters", hyper)
	}
	if extra := c.extra(format); extra != nil {
		top.Set(extraKey, extra)
	}
	return tensorfile.WritePT(path, top)
}

// ExportAdapters writes the adapters of CLIP as a folder that PEFT reads; base, which may be empty, is the model that the folder says
// they belong to. It returns how many tensors that are.
func (c *Checkpoint) ExportAdapters(path, base string) (int, error) {
	if _, ok := c.Metadata["selector.clip.fingerprint"]; !ok {
		return 0, fmt.Errorf("%s has no adapters of CLIP (selector.clip.path trains some)", c.Path)
	}
	opt := DefaultOptions()
	for _, k := range opt.clipKeys() {
		if err := k.set(c.Metadata["selector."+k.key]); err != nil {
			return 0, fmt.Errorf("%s: metadata selector.%s: %w", c.Path, k.key, err)
		}
	}
	config := opt.Clip.Config()
	config.BaseModel = base
	names := list.Filter(c.Names(), func(name string) bool { return strings.Contains(name, ".lora_") })
	tensors := list.Map(names, func(name string) tensorfile.Tensor { return c.Weights[name] })
	return len(tensors), lora.Write(path, config, tensors)
}

func (c *Checkpoint) exportSafetensors(path string) error {
	meta := map[string]string{"policy": "pointer"}
	for key, value := range c.shapes() {
		meta["selector."+key] = value
	}
	maps.Copy(meta, c.Metadata)
	return tensorfile.WriteSafetensors(path, slices.Collect(maps.Values(c.Weights)), meta)
}

// exportName is a parameter's name in a layout.
func exportName(name, format string) string {
	switch format {
	case "pt":
		return name
	case "ckpt":
		if rest, ok := strings.CutPrefix(name, "cross_attn_layers.0."); ok {
			name = "cross_attn." + rest
		} else if rest, ok := strings.CutPrefix(name, "attn_norms.0."); ok {
			name = "attn_norm." + rest
		}
	}
	return lightningPrefix + name
}

// fitsReference refuses what the reference's selector does not have.
func (c *Checkpoint) fitsReference(format string) error {
	want := list.Set(referenceNames(max(c.layers(), 1)))
	var extra, missing []string
	for _, name := range c.Names() {
		if want[name] {
			continue
		}
		if strings.Contains(name, ".lora_") {
			name = "adapters of CLIP"
		}
		if !slices.Contains(extra, name) {
			extra = append(extra, name)
		}
	}
	found := c.shapes()
	if format != "pt" && !c.gated() { // a v2 run
		delete(want, gateName+".weight")
		delete(want, gateName+".bias")
	}
	for name := range want {
		if _, ok := c.Weights[name]; !ok && !(name == "input_proj.weight" && found["d_model"] == found["hidden_dim"]) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	if len(extra)+len(missing) > 0 {
		what := slices.Concat(named("has no place for", extra, ""), named("needs", missing, ""))
		takes := "format safetensors holds any selector"
		if len(extra) == 0 && !c.gated() {
			takes = "want format v2, which has no gate, or safetensors"
		}
		return fmt.Errorf("%s: not the reference's selector: format %s %s: %s", c.Path, format, strings.Join(what, " and "), takes)
	}
	if t, ok := c.Metadata["selector.temperature"]; ok && t != "0.1" {
		return fmt.Errorf("%s: selector.temperature=%s, and the reference divides by 0.1 whatever the file says (format safetensors keeps it)",
			c.Path, t)
	}
	return nil
}

// FitsReference reports what of the policy the reference's layouts cannot hold; nil when its checkpoints can be
// exported as pt, ckpt and v2.
func (p *Policy) FitsReference() error {
	c := &Checkpoint{Path: "this selector", Metadata: p.Metadata(), Weights: map[string]tensorfile.Tensor{}}
	for _, name := range p.params.Names() {
		c.Weights[name] = tensorfile.Tensor{Name: name, DType: tensorfile.F32, Shape: p.params.Shape(name)}
	}
	return c.fitsReference("pt")
}

// gated reports whether choices move the query state, as in v3; in v2 they do not.
func (c *Checkpoint) gated() bool {
	_, weight := c.Weights[gateName+".weight"]
	_, bias := c.Weights[gateName+".bias"]
	return weight || bias || c.Metadata["selector.state_update"] != "none" && c.Metadata["selector.state_update"] != ""
}

// openGate is a bias whose sigmoid is 1 in float32.
const openGate = 20

// addOpenGate gives a v2 selector the gate that the reference's v2 model has and would start at random: weights 0 and a
// bias that keeps the state as it is, whatever is chosen.
func (c *Checkpoint) addOpenGate(state *tensorfile.Dict) {
	h := c.Weights["query_proj.weight"].Shape[0]
	bias := slices.Repeat([]float32{openGate}, h)
	state.Set(exportName(gateName+".weight", "v2"), tensorfile.FromFloat32s(gateName+".weight", []int{h, 2 * h}, make([]float32, 2*h*h)))
	state.Set(exportName(gateName+".bias", "v2"), tensorfile.FromFloat32s(gateName+".bias", []int{h}, bias))
}

// epoch is the file's epoch as the reference counts it, from 0.
func (c *Checkpoint) epoch() (int, error) {
	text := cmp.Or(c.Metadata["epoch"], "0")
	epoch, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s: metadata epoch=%q: want an integer", c.Path, text)
	}
	return max(epoch-1, 0), nil
}

// progress returns what a trainer file says beside the weights. The reference's SFT files name no phase.
func (c *Checkpoint) progress() (phase string, metrics *tensorfile.Dict, beta float64, err error) {
	phase, metrics, beta = cmp.Or(c.Metadata["phase"], "sft"), tensorfile.NewDict(), startingBeta
	values := map[string]any{}
	if err := jsonwords.Unmarshal([]byte(cmp.Or(c.Metadata["metrics"], "{}")), &values); err != nil {
		return "", nil, 0, fmt.Errorf("%s: metadata metrics: %w", c.Path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		x, ok := values[name].(float64)
		if text, isText := values[name].(string); isText {
			x, err = strconv.ParseFloat(text, 64)
			ok = err == nil
		}
		switch {
		case !ok: // no number
		case name == "kl_beta":
			beta = x
		default:
			metrics.Set(referenceMetric(name, phase), tensorfile.Scalar(x))
		}
	}
	return phase, metrics, beta, nil
}

// extra is the architecture that a reader cannot derive from the shapes; nil for the reference's own, with
// one head, and a gate that is the selector's.
func (c *Checkpoint) extra(format string) *tensorfile.Dict {
	d := tensorfile.NewDict()
	neutral := format == "v2" && !c.gated()
	if heads, ok := c.Metadata["selector.num_heads"]; (!ok || heads == "1") && !neutral {
		return nil
	}
	if neutral {
		d.Set("state_update", "none")
		d.Set("variant", "v2")
	}
	for _, key := range slices.Sorted(maps.Keys(c.Metadata)) {
		if name, ok := strings.CutPrefix(key, "selector."); ok {
			d.Set(name, c.Metadata[key])
		}
	}
	return d
}
