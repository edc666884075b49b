package workload

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/internal/hffolder"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/program"
	"fulcrum/internal/regular"
	"fulcrum/selector/tokens"
)

// InspectModel says what a model folder, a file of its weights or a checkpoint holds and what reads it; false where path is none.
func InspectModel(path string) (in beamdata.Inspection, is bool) {
	if policy, err := PolicyOf(path); err == nil && policy != "" {
		in = beamdata.Inspection{Path: path, Format: "checkpoint"}
		in.Facts = []beamdata.Fact{{Name: "policy", Value: policy}, {Name: "read by", Value: program.Command("checkpoint", "inspect", path)}}
		return in, true
	}
	folder := path
	if name := filepath.Base(path); strings.HasSuffix(name, ".safetensors") || strings.HasPrefix(name, "pytorch_model") {
		folder = filepath.Dir(path)
	}
	config, err := regular.ReadFile(filepath.Join(folder, "config.json"))
	var f struct {
		Architectures []string `json:"architectures"`
		ModelType     string   `json:"model_type"`
	}
	if err != nil || jsonwords.Unmarshal(config, &f) != nil || len(f.Architectures) == 0 && f.ModelType == "" {
		return in, false
	}
	in = beamdata.Inspection{Path: folder, Format: "model folder"}
	add := func(name, format string, args ...any) {
		in.Facts = append(in.Facts, beamdata.Fact{Name: name, Value: fmt.Sprintf(format, args...)})
	}
	if len(f.Architectures) > 0 {
		add("architecture", "%s", strings.Join(f.Architectures, ", "))
	}
	add("model_type", "%s", f.ModelType)
	weights, err := hffolder.Open(folder)
	if err != nil {
		in.Fault = err
		return in, true
	}
	defer weights.Close()
	types, parameters := map[string]bool{}, 0
	for _, name := range weights.Names() {
		t, _ := weights.Tensor(name)
		types[string(t.DType)], parameters = true, parameters+t.Len()
	}
	add("weights", "%d tensors, %d parameters, %s", len(weights.Names()), parameters, strings.Join(slices.Sorted(maps.Keys(types)), ", "))
	if f.ModelType == "clip" {
		add("read by", "encoder.path=%s (task=embed, exp=icl_loop)", folder)
		return in, true
	}
	for _, policy := range textPolicies().Names() {
		if _, err = tokens.ModelType(policy, config); err == nil {
			add("read by", "policy=%s %s.path=%s", policy, sectionOf(policy), folder)
			return in, true
		}
	}
	add("read by", "nothing here: %v", err)
	return in, true
}
