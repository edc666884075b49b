package hffolder

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"fulcrum/internal/jsonwords"
)

// Keys says what becomes of the keys of a JSON file of a model folder, or of an object in one. A key that it does not list is one that
// transformers does not have either: scripts/peers/test_keys.py compares the lists with transformers' own classes.
type Keys struct {
	Of    string              // the part of which file: "vision_config of config.json"
	Class string              // transformers' class of it
	Used  []string            // what is read
	Idle  []string            // what changes no number that is computed here
	Want  map[string][]string // refused but with one of these values, written in JSON; null is always one
	Alias map[string]string   // other names of used keys: refused but with the same value
}

// Refusal is a key with a value that would change numbers, in a way that is not done here.
type Refusal struct {
	Key, Value string
	Want       string // what the value may be
}

func (r Refusal) String() string { return r.Key + "=" + r.Value }

// Refused lists what is refused of an object, in alphabetical order; raw may be nil.
func (k Keys) Refused(raw []byte) ([]Refusal, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var said map[string]json.RawMessage
	if err := jsonwords.Unmarshal(raw, &said); err != nil {
		return nil, err
	}
	var out []Refusal
	for _, key := range slices.Sorted(maps.Keys(said)) {
		value := said[key]
		if want, ok := k.Want[key]; ok && !sameAsOne(value, slices.Concat(want, []string{"null"})) {
			out = append(out, Refusal{key, Short(value), cmp.Or(strings.Join(want, " or "), "null")})
		}
		if of, ok := k.Alias[key]; ok && !sameAsOne(value, []string{"null", string(said[of])}) {
			out = append(out, Refusal{key, Short(value), "it equal to " + of})
		}
	}
	return out, nil
}

// Check names the first key of an object that is refused, behind a prefix.
func (k Keys) Check(prefix string, raw []byte) error {
	refused, err := k.Refused(raw)
	if err != nil || len(refused) == 0 {
		return err
	}
	r := refused[0]
	return fmt.Errorf("%s%s = %s is not supported, want %s", prefix, r.Key, r.Value, r.Want)
}

// sameAsOne reports whether value is the same JSON as one of several texts.
func sameAsOne(value json.RawMessage, of []string) bool {
	return slices.ContainsFunc(of, func(text string) bool {
		var a, b any
		return json.Unmarshal(value, &a) == nil && json.Unmarshal([]byte(text), &b) == nil && reflect.DeepEqual(a, b)
	})
}

// Short shows a value on one line.
func Short(value json.RawMessage) string {
	const most = 60
	text := []rune(strings.Join(strings.Fields(string(value)), " "))
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}

// Tags returns the JSON names of the fields of structs: what reading into them reads.
func Tags(structs ...any) []string {
	var keys []string
	for _, s := range structs {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(s)) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				keys = append(keys, name)
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// EveryConfig adds what becomes of the keys that every config.json of transformers may have.
func (k Keys) EveryConfig() Keys {
	k.Idle = append(k.Idle, "transformers_version", "model_type", "architectures", "dtype", "torch_dtype",
		"output_hidden_states", "output_attentions", "return_dict", "chunk_size_feed_forward", "id2label", "label2id", "num_labels",
		"problem_type", "name_or_path", "_name_or_path", "_commit_hash", "auto_map", "attn_implementation", "experts_implementation",
		"use_cache", "tokenizer_class", "torchscript", "task_specific_params", "finetuning_task", "prefix",
		"bos_token_id", "pad_token_id", "sep_token_id")
	k.Idle = slices.DeleteFunc(k.Idle, func(key string) bool { return slices.Contains(k.Used, key) })
	want := map[string][]string{"quantization_config": nil, "per_layer_config": nil, "pruned_heads": {"{}"}, "tie_encoder_decoder": {"false"},
		"add_cross_attention": {"false"}}
	maps.Copy(want, k.Want)
	k.Want = want
	return k
}
