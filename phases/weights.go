package phases

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// formatVersion is the version of checkpoint files and saved states.
const formatVersion = "1"

// saveWeights writes a policy's parameters in safetensors' HF layout. The metadata holds no times, paths
// or machine facts: equal runs give equal bytes. It returns the file's SHA-256.
func saveWeights(path string, p selector.Policy, phase string, epoch int, configHash string, metrics Metrics) (sum string, err error) {
	meta := p.Metadata()
	meta["format_version"] = formatVersion
	meta["phase"], meta["epoch"], meta["config_hash"] = phase, strconv.Itoa(epoch), configHash
	text, err := json.Marshal(metrics.numbers())
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	meta["metrics"] = string(text)
	params := p.Params()
	values := params.Values() // one copy to the host, not one a parameter
	tensors := make([]tensorfile.Tensor, 0, len(params.Names()))
	for _, name := range params.Names() {
		from, to := params.Range(name)
		tensors = append(tensors, tensorfile.FromFloat32s(name, params.Shape(name), values[from:to]))
	}
	return tensorfile.WriteDigested(path, tensors, meta)
}

// loadWeights reads a checkpoint that saveWeights wrote into a policy of the same layout.
func loadWeights(path string, p selector.Policy) error {
	f, err := tensorfile.ReadSafetensors(path)
	if err != nil {
		return err
	}
	defer f.Close()
	params := p.Params()
	all := make([]float32, params.Numel())
	for _, name := range params.Names() {
		t, ok := f.Get(name)
		if !ok {
			return fmt.Errorf("%s: no parameter %s", path, name)
		}
		values, err := t.Float32s()
		from, to := params.Range(name)
		if err == nil && len(values) != to-from {
			err = fmt.Errorf("got %d values, want shape %v", len(values), params.Shape(name))
		}
		if err != nil {
			return fmt.Errorf("%s: parameter %s: %w", path, name, err)
		}
		copy(all[from:], values)
	}
	params.SetValues(all)
	return nil
}

// saveFlat writes named flat float32 vectors: optimizer moments, frozen policies. It returns the file's SHA-256.
func saveFlat(path string, vectors map[string][]float32) (sum string, err error) {
	tensors := make([]tensorfile.Tensor, 0, len(vectors))
	for name, v := range vectors {
		tensors = append(tensors, tensorfile.FromFloat32s(name, []int{len(v)}, v))
	}
	return tensorfile.WriteDigested(path, tensors, map[string]string{"format_version": formatVersion})
}

func loadFlat(path string) (map[string][]float32, error) {
	f, err := tensorfile.ReadSafetensors(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string][]float32{}
	for _, t := range f.Tensors {
		v, err := t.Float32s()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out[t.Name] = slices.Clone(v) // the file is unmapped on return
	}
	return out, nil
}

// finite refuses weights that must not reach a checkpoint, unless the run allows any.
func finite(env *Env) error {
	if !env.AllowNonFinite && !torchx.AllFinite(env.Policy.Params().Flat()) {
		return fmt.Errorf("the weights hold NaN or infinity: no checkpoint was written")
	}
	return nil
}

func checkpointName(phase string, epoch int) string {
	return fmt.Sprintf("%s_epoch%d.safetensors", phase, epoch)
}

func checkpointDir(dir string) string { return filepath.Join(dir, "checkpoints") }
