package configs

import "slices"

// HydraValues are the resolved values of the hydra node that running needs.
type HydraValues struct {
	SweepDir    string   // hydra.sweep.dir
	SweepSubdir string   // hydra.sweep.subdir; "" outside a job of a sweep
	Chdir       bool     // hydra.job.chdir
	Env         []string // hydra.job.env_set with the variables of env_copy as they were when the job was composed: KEY=VALUE, sorted
	Launcher    string   // chosen option of hydra/launcher
	Sweeper     string   // chosen option of hydra/sweeper
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
	for _, path := range []string{"run.dir", "output_subdir", "job.name", "job.id", "verbose"} { // a fault there is one of the run
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
	return h, faults.err()
}

// HydraIdle says of the settings of the hydra node that work in Hydra and not here, why, one sentence each.
func (c *Composed) HydraIdle() (said []string) {
	verbose, _ := c.hydraValue("verbose")
	if verbose == nil { // a run folder that was saved without the hydra node
		return nil
	}
	if n, _ := c.hydraValue("output_subdir"); n == nil || n.pyStr() != ".hydra" {
		said = append(said, "hydra.output_subdir has no effect: a resume and reports read the configuration in .hydra")
	}
	if verbose.pyStr() != "False" {
		said = append(said, "hydra.verbose has no effect: run.log always holds all there is")
	}
	if n, _ := c.hydraValue("callbacks"); n != nil && len(n.Keys) > 0 {
		said = append(said, "hydra.callbacks has no effect: its classes are Python; on_end.command is called at the end")
	}
	for _, group := range []string{"hydra/job_logging", "hydra/hydra_logging"} {
		if choice := c.Choice(group); choice != "" && choice != "default" {
			said = append(said, group+"="+choice+" has no effect: logging.progress=false leaves the progress out")
		}
	}
	return said
}
