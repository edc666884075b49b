package configs

import (
	"path/filepath"
	"slices"

	"fulcrum/internal/list"
)

// HydraValues are the resolved values of the hydra node that running needs.
type HydraValues struct {
	SweepDir    string   // hydra.sweep.dir
	SweepSubdir string   // hydra.sweep.subdir; "" outside a job of a sweep
	Chdir       bool     // hydra.job.chdir
	Env         []string // hydra.job.env_set with the variables of env_copy as they were when the job was composed: KEY=VALUE, sorted
	Launcher    string   // chosen option of hydra/launcher
	Sweeper     string   // chosen option of hydra/sweeper

	OutputSubdir string   // hydra.output_subdir: where the configuration is found too, within the run folder
	Verbose      []string // hydra.verbose: names of loggers; "": all
	OnJobEnd     []string // shell commands of hydra.callbacks, in the order of their calls
	OnMultirun   []string // the same at a sweep's end
}

// Hydra resolves the values of the hydra node. Values that are still ??? stay zero.
func (c *Composed) Hydra() (*HydraValues, error) {
	h := &HydraValues{Launcher: c.Choice("hydra/launcher"), Sweeper: c.Choice("hydra/sweeper")}
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
	for _, path := range []string{"run.dir", "job.name", "job.id"} { // a fault there is one of the run
		get(path)
	}
	h.SweepDir = text("sweep.dir")
	if get("job.num").Kind == Int {
		h.SweepSubdir = text("sweep.subdir")
	}
	h.Chdir = get("job.chdir").Bool
	set := get("job.env_set")
	for i, k := range set.Keys {
		h.Env = append(h.Env, k.Text+"="+set.Vals[i].pyStr())
	}
	slices.Sort(h.Env)
	ck := &checker{}
	if n := c.tree.Find("hydra.output_subdir"); n != nil { // a folder may have been saved without the hydra node
		h.OutputSubdir = filepath.Clean(text("output_subdir"))
		if h.OutputSubdir == "." || !filepath.IsLocal(h.OutputSubdir) {
			ck.fault(n, "hydra.output_subdir", "want the name of a folder in the run folder, got %s: resume and reports read the run's "+
				"configuration there; use hydra.output_subdir=.hydra", shown(n))
		}
	}
	switch v := get("verbose"); {
	case v.Kind == Bool && v.Bool:
		h.Verbose = []string{""}
	case v.Kind == List:
		h.Verbose = list.Map(v.Vals, (*Node).pyStr)
	case v.Kind == String:
		h.Verbose = []string{v.Text}
	case v.Kind != Bool && v.Kind != Null:
		ck.fault(v, "hydra.verbose", "want true, false or a list of phases, got %s", shown(v))
	}
	h.callbacks(ck, get("callbacks"))
	return h, append(faults, ck.faults...).err()
}

// callbacks reads hydra.callbacks. The one that was named last is called first, as Hydra calls them at an end.
func (h *HydraValues) callbacks(ck *checker, all *Node) {
	events := map[string]*[]string{"on_job_end": &h.OnJobEnd, "on_multirun_end": &h.OnMultirun}
	for i, v := range slices.Backward(all.Vals) {
		path := "hydra.callbacks." + all.Keys[i].Text
		if v.Kind != Map && v.Kind != Null {
			ck.fault(v, path, "want a mapping {on_job_end: COMMAND}, got %s", shown(v))
			continue
		}
		for j, k := range v.Keys {
			commands := events[k.Text]
			if commands == nil || v.Vals[j].Kind != String {
				ck.fault(v.Vals[j], path+"."+k.Text, "a callback is a shell command here, not a class of Python: want %s.on_job_end=COMMAND (of each "+
					"run and job) or on_multirun_end; it reads the summary as JSON", path)
				break
			}
			*commands = append(*commands, v.Vals[j].Text)
		}
	}
}

// HydraIdle says of the settings of the hydra node that work in Hydra and not here, why, one sentence each.
func (c *Composed) HydraIdle() (said []string) {
	for _, group := range []string{"hydra/job_logging", "hydra/hydra_logging"} {
		if choice := c.Choice(group); choice != "" && choice != "default" {
			said = append(said, group+"="+choice+" has no effect: logging.progress=false leaves the progress out")
		}
	}
	return said
}
