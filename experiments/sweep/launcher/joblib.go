package launcher

import (
	"fmt"
	"reflect"

	"fulcrum/internal/usage"
)

// joblibOptions is hydra.launcher of Hydra's joblib plugin, with its defaults.
type joblibOptions struct {
	NJobs      int      `koanf:"n_jobs" range:"[-1,inf)"`
	Timeout    *float64 `koanf:"timeout" range:"(0,inf)"` // seconds
	Backend    any      `koanf:"backend"`
	Prefer     any      `koanf:"prefer"`
	Require    any      `koanf:"require"`
	Verbose    any      `koanf:"verbose"`
	PreDisp    any      `koanf:"pre_dispatch"`
	BatchSize  any      `koanf:"batch_size"`
	TempFolder any      `koanf:"temp_folder"`
	MaxNBytes  any      `koanf:"max_nbytes"`
	MmapMode   any      `koanf:"mmap_mode"`
	Threads    any      `koanf:"inner_max_num_threads"`
}

// joblib runs jobs as Hydra's joblib plugin does: as processes of this machine.
func joblib(r Request) (Open, error) {
	given := joblibOptions{NJobs: -1}
	if err := r.Options(&given); err != nil {
		return nil, err
	}
	defaults := joblibOptions{
		NJobs: given.NJobs, Timeout: given.Timeout, Prefer: "processes", Verbose: given.Verbose, PreDisp: "2*n_jobs",
		BatchSize: "auto", MmapMode: "r",
	}
	if given.Backend == "loky" || given.Backend == "multiprocessing" { // processes in either case
		given.Backend = nil
	}
	if err := refuseOthers(given, defaults, "joblib"); err != nil {
		return nil, err
	}
	opt := DefaultLocalOptions()
	opt.NJobs = given.NJobs
	if given.Timeout != nil {
		opt.TimeoutMin = new(*given.Timeout / 60)
	}
	return func(program string) (Launcher, error) { return NewLocal(program, opt) }, nil
}

// refuseOthers refuses the keys of a plugin's options that differ from the plugin's defaults: what is set
// and does nothing would mislead.
func refuseOthers(given, defaults any, plugin string) error {
	g, d := reflect.ValueOf(given), reflect.ValueOf(defaults)
	for i := range g.NumField() {
		a, b := g.Field(i).Interface(), d.Field(i).Interface()
		if !reflect.DeepEqual(a, b) && fmt.Sprint(a) != fmt.Sprint(b) {
			key := g.Type().Field(i).Tag.Get("koanf")
			return usage.Errorf("hydra.launcher.%s=%v: hydra/launcher=%s runs as hydra/launcher=local here (n_jobs, timeout_min, "+
				"gpus, jobs_per_gpu), which has nothing like it", key, a, plugin)
		}
	}
	return nil
}
