package pointer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
	trained "fulcrum/selector/weights"
)

// OpenOptions configures how Open builds a policy from a checkpoint.
type OpenOptions struct {
	Options    Options
	Overridden func(key string) bool // was selector.<key> set on the command line? nil = never
	Dim        int                   // width of the embeddings
	RowLength  float64               // their median length, for a file without a relation; 0 = 1
	Seed       int64                 // of parameters that the file lacks (not strict)
	Device     string
	Strict     bool // unknown or missing parameters are errors
	// Fresh, where it is set (training), lets a file whose choices do not move the query state (v2) start a selector whose
	// choices do (v3), if an override asks for that, and is told the parameters that the file lacks.
	Fresh func(names []string)
	// Reference builds the selector as the Python reference would, which knows v3 alone: a v2 file starts a v3 selector, and taken
	// follows the configuration. It is for training only: Fresh is set.
	Reference bool
	Warn      func(string) // called with the parameters dropped, or kept at their initial values, when not strict; may be nil
	// Clip opens the model that computes the embeddings, with the adapters that the file has, else those that Options asks for.
	// nil = a table holds them
	Clip func(ClipOptions) (Embedder, error)
}

// ConflictError is an override that contradicts its checkpoint.
type ConflictError struct{ Key, Value, Path, Trained string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s=%s contradicts %s, which was trained with %s", e.Key, e.Value, e.Path, e.Trained)
}

// Open builds a selector from a checkpoint. The architecture follows the file: our metadata, else the
// shapes of the weights; an override that contradicts it is an error.
func Open(path string, o OpenOptions) (*Policy, error) {
	c, err := ReadCheckpoint(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	opt, grown, err := c.architecture(o)
	if err != nil {
		return nil, err
	}
	opt.Relation.Choose(o.Dim, o.RowLength)
	model, adapted, err := c.adapted(o, opt)
	if err != nil {
		return nil, err
	}
	p, err := NewOver(model, opt, o.Dim, o.Seed, o.Device)
	if err != nil {
		return nil, err
	}
	var fresh, told []string
	if grown {
		fresh = list.Map(updateWeights(opt, opt.HiddenDim), func(w weight) string { return w.name })
		told = fresh
	}
	if model != nil && !adapted {
		fresh = append(fresh, list.Map(model.Specs(), func(s torchx.Spec) string { return s.Name })...)
		told = append(told, "the adapters of selector.clip")
	}
	if err := p.assign(c, o, fresh); err != nil {
		p.Free()
		return nil, err
	}
	if len(told) > 0 {
		o.Fresh(told)
	}
	return p, nil
}

// adapted opens the model that computes the embeddings, if there is one, and reports whether the file has its adapters. Training
// may start adapters that the file lacks.
func (c *Checkpoint) adapted(o OpenOptions, opt Options) (model Embedder, has bool, err error) {
	of, has := c.Metadata["selector.clip.fingerprint"]
	switch {
	case has && o.Clip == nil:
		return nil, has, fmt.Errorf("%s: trained with adapters of CLIP: give selector.clip.path=DIR, the folder that they belong to, and "+
			"data.records_icl", c.Path)
	case o.Clip == nil:
		return nil, has, nil
	case !has && o.Fresh == nil:
		return nil, has, fmt.Errorf("%s: trained on a table of embeddings, without adapters of CLIP: leave selector.clip.path out", c.Path)
	}
	if model, err = o.Clip(opt.Clip); err == nil && has && model.Fingerprint() != of {
		return nil, has, fmt.Errorf("%s: its adapters belong to another CLIP than selector.clip.path=%s", c.Path, *opt.Clip.Path)
	}
	return model, has, err
}

// named says what is with parameters; nothing where there are none.
func named(what string, names []string, then string) []string {
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s [%s]%s", what, strings.Join(names, ", "), then)}
}

// assign copies the file's weights into the policy; fresh ones keep their start.
func (p *Policy) assign(c *Checkpoint, o OpenOptions, fresh []string) error {
	unknown := slices.DeleteFunc(slices.Sorted(maps.Keys(c.Weights)), p.params.Has)
	missing := list.Filter(p.params.Names(), func(name string) bool {
		_, ok := c.Weights[name]
		return !ok && name != "skip_scale" && name != "learned_scale" && !slices.Contains(fresh, name)
	})
	slices.Sort(missing)
	dropped, kept := " were dropped", " keep their initial values"
	if o.Strict {
		dropped, kept = "", ""
	}
	switch what := slices.Concat(named("unknown parameters", unknown, dropped), named("missing parameters", missing, kept)); {
	case len(what) > 0 && o.Strict:
		return fmt.Errorf("%s: %s (init.strict=false ignores the unknown and keeps the initial values of the missing)", c.Path,
			strings.Join(what, ", "))
	case len(what) > 0 && o.Warn != nil:
		o.Warn(fmt.Sprintf("%s: %s (init.strict=false)", c.Path, strings.Join(what, ", ")))
	}
	for _, name := range p.params.Names() {
		if t, ok := c.Weights[name]; ok {
			if err := trained.Set(p.params, "parameter", t); err != nil {
				return fmt.Errorf("%s: %w", c.Path, err)
			}
		}
	}
	return nil
}

// grows reports whether an override asks for the file's selector with a state update that the file lacks: a v2 checkpoint
// starts a v3 selector. Sizes follow the file.
func (o OpenOptions) grows(found map[string]string) bool {
	if o.Fresh == nil || found["state_update"] != "none" || o.Options.StateUpdate == "none" {
		return false
	}
	asked := o.Overridden != nil && (o.Overridden("selector.variant") || o.Overridden("selector.state_update"))
	if !asked && !o.Reference {
		return false
	}
	if (o.Options.NumLayers == 0) != (found["num_layers"] == "0") {
		return false
	}
	for _, k := range o.Options.keys() {
		switch k.key {
		case "head", "decoder", "diversity", "candidate_layers", "coarse_top_m", "stop", "skip":
			if found[k.key] != k.get() {
				return false
			}
		}
	}
	return true
}

// architecture merges the configured options with what the file says. grown: the file has no state update, the selector does.
func (c *Checkpoint) architecture(o OpenOptions) (opt Options, grown bool, err error) {
	opt = o.Options
	found := c.shapes()
	if found["variant"] == "v2" && !o.Strict && !o.Reference { // as the reference: a gate that the file lacks starts fresh
		found["variant"], found["state_update"] = "v3", "gate"
	}
	for key, value := range c.Metadata {
		if rest, ok := strings.CutPrefix(key, "selector."); ok {
			found[rest] = value
		}
	}
	if _, ok := found["relation.scale"]; ok && found[rowLength] == "" {
		found[rowLength] = "1"
	}
	if grown = o.grows(found); grown {
		delete(found, "state_update")
		delete(found, "variant")
	}
	if o.Reference {
		delete(found, "taken")
	}
	if kind, ok := c.Metadata["policy"]; ok && kind != "pointer" {
		return opt, false, fmt.Errorf("%s: a checkpoint of policy %s, want pointer", c.Path, kind)
	}
	if d, ok := found["d_model"]; ok && d != strconv.Itoa(o.Dim) {
		return opt, false, fmt.Errorf("%s: made for embeddings of %s columns, and those of this run (data, data.embeddings) have %d: want the "+
			"table, or one of the same encoder, that its .hydra/config.yaml names", c.Path, d, o.Dim)
	}
	if text, ok := found["shot_num"]; ok && opt.ShotNum == nil {
		shots, err := strconv.Atoi(text)
		if err != nil {
			return opt, false, fmt.Errorf("%s: metadata selector.shot_num=%s: %w", c.Path, text, err)
		}
		opt.ShotNum = &shots // any number can be asked of a trained selector, so a configured one is no contradiction
	}
	for _, set := range slices.Concat(opt.keys(), opt.Transformer.keys(), opt.clipKeys(), opt.Features.keys()) {
		value, ok := found[set.key]
		if !ok {
			continue
		}
		overridden := o.Overridden != nil && o.Overridden("selector."+set.key)
		if _, stated := c.Metadata["selector."+set.key]; overridden && !stated && !o.Strict {
			continue // as the reference: what the file lacks keeps its initial values
		}
		before := set.get()
		if err := set.set(value); err != nil {
			return opt, false, fmt.Errorf("%s: metadata selector.%s=%s: %w", c.Path, set.key, value, err)
		}
		if chosen := before == "null" && strings.HasPrefix(set.key, "relation."); overridden && !chosen && before != set.get() {
			return opt, false, &ConflictError{Key: "selector." + set.key, Value: before, Path: c.Path, Trained: set.get()}
		}
	}
	if _, has := found["features"]; has && found["scorer"] == "" && opt.Features.Scorer {
		return opt, false, &ConflictError{Key: "selector.scorer", Value: "true", Path: c.Path, Trained: "false"}
	}
	if _, has := found["features"]; opt.Features.enabled() && !has {
		return opt, false, &ConflictError{Key: "selector.features", Value: strings.Join(opt.Features.Names, ","), Path: c.Path, Trained: "none"}
	}
	return opt, grown, nil
}

// Chosen fills in the relation's null options and the scaling of features with the values that a checkpoint of ours holds.
func (o *Options) Chosen(path string) error {
	c, err := ReadCheckpoint(path)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, k := range o.keys() {
		if strings.HasPrefix(k.key, "relation.") && k.get() == "null" {
			err = errors.Join(err, k.set(cmp.Or(c.Metadata["selector."+k.key], "1")))
		}
	}
	for _, k := range o.Features.keys() {
		if text, ok := c.Metadata["selector."+k.key]; ok {
			err = errors.Join(err, k.set(text))
		}
	}
	return err
}

// rowLength stands in the metadata only if it is not 1, which is the value in files without the key.
const rowLength = "relation.row_length"

// key is one architecture option: its name, and where it is.
type key struct {
	key string
	at  any // *string, *[]string, or what JSON writes
}

// keys lists the options that decide the architecture and stand in a checkpoint's metadata.
func (o *Options) keys() []key {
	return []key{
		{"variant", &o.Variant}, {"hidden_dim", &o.HiddenDim}, {"num_layers", &o.NumLayers}, {"num_heads", &o.NumHeads},
		{"temperature", &o.Temperature}, {"state_update", &o.StateUpdate}, {"distinct_steps", &o.DistinctSteps},
		{"head", &o.Head}, {"decoder", &o.Decoder},
		{"diversity", &o.Diversity.Kind}, {"diversity_prototypes", &o.Diversity.Prototypes}, {"diversity_ridge", &o.Diversity.Ridge},
		{"candidate_layers", &o.CandidateEncoder.Layers}, {"candidate_heads", &o.CandidateEncoder.Heads},
		{"candidate_ffn_dim", &o.CandidateEncoder.FFNDim},
		{"coarse_top_m", &o.Coarse.TopM}, {"coarse_dim", &o.Coarse.Dim}, {"stop", &o.Stop.Enabled}, {"min_shots", &o.Stop.MinShots},
		{"taken", &o.Taken}, {"skip", &o.Skip.Enabled}, {"skip_scale", &o.Skip.Scale},
		{"relation.scale", &o.Relation.Scale}, {rowLength, &o.Relation.RowLength}, {"relation.bilinear", &o.Relation.Bilinear},
		{"relation.gate_dim", &o.Relation.GateDim}, {"relation.product_dim", &o.Relation.ProductDim},
	}
}

// clipKeys are those of the adapters of CLIP.
func (o *Options) clipKeys() []key {
	c := &o.Clip
	return []key{{"clip.modality", &c.Modality}, {"clip.lora.rank", &c.LoRA.Rank}, {"clip.lora.alpha", &c.LoRA.Alpha},
		{"clip.lora.rslora", &c.LoRA.RSLoRA}, {"clip.lora.target_modules", &c.LoRA.TargetModules}}
}

// get returns the option as text.
func (k key) get() string {
	v := reflect.ValueOf(k.at).Elem()
	switch {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return "null"
	case v.Kind() == reflect.Pointer:
		v = v.Elem()
	case v.Kind() == reflect.Slice:
		if words, ok := v.Interface().([]string); ok {
			return strings.Join(words, ",")
		}
		text, _ := json.Marshal(v.Interface()) // finite numbers
		return string(text)
	}
	if v.Kind() == reflect.Float64 {
		return number(v.Float())
	}
	return fmt.Sprint(v.Interface())
}

// set is the inverse of get.
func (k key) set(text string) error {
	switch at := k.at.(type) {
	case *string:
		*at = text
	case *[]string:
		*at = strings.Split(text, ",")
	default:
		reflect.ValueOf(at).Elem().SetZero() // what an optional option points at belongs to others too
		return jsonwords.Unmarshal([]byte(text), at)
	}
	return nil
}
