package record

import "path/filepath"

// SystemFile holds what a run has in use, a line every ten seconds of training. It has nothing that equal runs have equal.
const SystemFile = "system.jsonl"

// System is a line of system.jsonl: memory in bytes.
type System struct {
	Time       float64 `json:"time"` // seconds since 1970
	Phase      string  `json:"phase"`
	GlobalStep int     `json:"global_step"`
	Memory     float64 `json:"memory_bytes"`      // of the process
	MemoryPeak float64 `json:"memory_peak_bytes"` // since the process began, or the preflight measured a step
	GPU        float64 `json:"gpu_bytes,omitempty"`
	GPUPeak    float64 `json:"gpu_peak_bytes,omitempty"`
	GPUFree    float64 `json:"gpu_free_bytes,omitempty"` // of the device, whoever uses it
}

// ReadSystem reads system.jsonl; a run without it has no lines.
func ReadSystem(dir string) (out []System, err error) {
	err = EachJSON(filepath.Join(dir, SystemFile), func(s System) error {
		out = append(out, s)
		return nil
	})
	return out, err
}
