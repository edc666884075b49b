package configs

import (
	"path/filepath"
	"sort"
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
	get := func(path string) any {
		n, err := c.hydraValue(path)
		if err != nil {
			e, ok := err.(*Error)
			if !ok {
				e = errorf("hydra.%s: %v", path, err)
			}
			faults = append(faults, e)
		}
		if n == nil {
			return nil
		}
		return n.value()
	}
	text := func(path string) string {
		n, err := c.hydraValue(path)
		if err != nil || n == nil {
			get(path) // records the fault
			return ""
		}
		return n.pyStr()
	}
	h.RunDir, h.SweepDir = text("run.dir"), text("sweep.dir")
	h.OutputSubdir, h.JobName, h.JobID = text("output_subdir"), text("job.name"), text("job.id")
	if n, ok := get("job.num").(int); ok {
		h.JobNum = n
		h.SweepSubdir = text("sweep.subdir")
	}
	h.Chdir, _ = get("job.chdir").(bool)
	h.EnvSet = map[string]string{}
	if n, err := c.hydraValue("job.env_set"); err != nil || n == nil || n.Kind != Map {
		get("job.env_set") // records the fault
	} else {
		for i, k := range n.Keys {
			h.EnvSet[k.Text] = n.Vals[i].pyStr()
		}
	}
	h.Verbose = get("verbose")
	return h, faults.err()
}

// Env is what a launcher sets in the environment of a job, as sorted KEY=VALUE pairs:
// hydra.job.env_set, with the variables of hydra.job.env_copy as they were when the job was composed.
func (h *HydraValues) Env() []string {
	out := make([]string, 0, len(h.EnvSet))
	for k, v := range h.EnvSet {
		out = append(out, k+"="+v)
	}
	sort.Strings(out)
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

// WithOutputDir returns a copy whose hydra.runtime.output_dir is dir.
func (c *Composed) WithOutputDir(dir string) *Composed {
	out := *c
	out.tree = c.tree.setPath([]string{"hydra", "runtime", "output_dir"}, plainString(dir))
	return &out
}

// withMode returns a copy with hydra.mode set, as Hydra records it when it runs.
func (c *Composed) withMode(mode string) *Composed {
	out := *c
	out.tree = c.tree.setPath([]string{"hydra", "mode"}, plainString(mode))
	if n := c.tree.Find("hydra.overrides.hydra"); n != nil && n.Kind == List {
		items := append(n.Vals[:len(n.Vals):len(n.Vals)], plainString("hydra.mode="+mode))
		out.tree = out.tree.setPath([]string{"hydra", "overrides", "hydra"}, newList(items...))
	}
	return &out
}

// RunFiles are the files of the .hydra folder: config.yaml, hydra.yaml and overrides.yaml.
func (c *Composed) RunFiles() (map[string][]byte, error) {
	job, err := c.YAML("job", false, "")
	if err != nil {
		return nil, err
	}
	hydra, err := c.withMode("RUN").YAML("hydra", false, "")
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"config.yaml":    []byte(job),
		"hydra.yaml":     []byte(hydra),
		"overrides.yaml": []byte(stringList(c.TaskOverrides()).toYAML()),
	}, nil
}

// MultirunYAML is the multirun.yaml of a sweep's folder: the composed primary config.
func (c *Composed) MultirunYAML() (string, error) {
	return c.withMode("MULTIRUN").YAML("all", false, "")
}
