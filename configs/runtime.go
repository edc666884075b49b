package configs

import (
	"path/filepath"
	"slices"
)

// HydraValues are the resolved values of the hydra node that running needs.
type HydraValues struct {
	RunDir       string // hydra.run.dir
	SweepDir     string // hydra.sweep.dir
	SweepSubdir  string // hydra.sweep.subdir; "" outside a job of a sweep
	OutputSubdir string // "" = none
	JobName      string
	JobNum       int // -1 outside sweeps
	JobID        string
	Chdir        bool
	EnvSet       map[string]string
	Mode         string // RUN, MULTIRUN or ""
	Launcher     string // chosen option of hydra/launcher
	Sweeper      string // chosen option of hydra/sweeper

	Verbose any // false, true, a logger's name or a list of names
}

// Hydra resolves the values of the hydra node. Values that are still ??? stay zero.
func (c *Composed) Hydra() (*HydraValues, error) {
	h := &HydraValues{JobNum: -1, Mode: c.Mode(), Launcher: c.Choice("hydra/launcher"), Sweeper: c.Choice("hydra/sweeper")}
	var faults Errors
	get := func(path string) *Node { // null where there is none
		n, err := c.hydraValue(path)
		if err != nil {
			e, ok := err.(*Error)
			if !ok {
				e = errorf("hydra.%s: %v", path, err)
			}
			faults = append(faults, e)
		}
		if err != nil || n == nil {
			return newNull()
		}
		return n
	}
	text := func(path string) string {
		if n := get(path); n.Kind != Null {
			return n.pyStr()
		}
		return ""
	}
	h.RunDir, h.SweepDir = text("run.dir"), text("sweep.dir")
	h.OutputSubdir, h.JobName, h.JobID = text("output_subdir"), text("job.name"), text("job.id")
	if n, ok := get("job.num").value().(int); ok {
		h.JobNum = n
		h.SweepSubdir = text("sweep.subdir")
	}
	h.Chdir = get("job.chdir").Bool
	h.EnvSet = map[string]string{}
	set := get("job.env_set")
	for i, k := range set.Keys {
		h.EnvSet[k.Text] = set.Vals[i].pyStr()
	}
	h.Verbose = get("verbose").value()
	return h, faults.err()
}

// Env is what a launcher sets in the environment of a job, as sorted KEY=VALUE pairs:
// hydra.job.env_set, with the variables of hydra.job.env_copy as they were when the job was composed.
func (h *HydraValues) Env() []string {
	var out []string
	for k, v := range h.EnvSet {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// OutputDir is the folder of this job: hydra.run.dir, or sweep.dir/subdir inside a sweep. It is
// relative to the start directory unless configured absolute.
func (h *HydraValues) OutputDir() string {
	if h.JobNum >= 0 {
		return filepath.Join(h.SweepDir, h.SweepSubdir)
	}
	return h.RunDir
}
