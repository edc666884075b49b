package sweep

import (
	"fmt"
	"reflect"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/registry"
	"fulcrum/internal/usage"
)

// launcherMaker reads hydra.launcher and returns what opens the launcher.
type launcherMaker func(p *plan) (openLauncher, error)

// openLauncher opens the launcher of the sweep in dir, whose jobs run program.
type openLauncher func(dir, program string) (launcher.Launcher, error)

// Launchers returns what hydra/launcher may name: ours, and Hydra's plugins by the one of ours that runs
// their jobs.
func Launchers() *registry.Table[launcherMaker] {
	t := registry.New[launcherMaker]("launcher")
	t.Add("basic", basicLauncher)
	t.Add("local", localLauncher)
	t.Add("joblib", joblibLauncher)
	t.Add("submitit_local", submititLocalLauncher)
	t.Add("slurm", slurmLauncher)
	t.Add("submitit_slurm", slurmLauncher)
	return t
}

func basicLauncher(p *plan) (openLauncher, error) {
	var none struct{}
	return func(_, program string) (launcher.Launcher, error) { return launcher.NewBasic(program), nil },
		p.master.DecodeHydra("launcher", &none)
}

func localLauncher(p *plan) (openLauncher, error) {
	opt := launcher.DefaultLocalOptions()
	err := p.master.DecodeHydra("launcher", &opt)
	return func(_, program string) (launcher.Launcher, error) { return launcher.NewLocal(program, opt) }, err
}

func slurmLauncher(p *plan) (openLauncher, error) {
	opt := launcher.DefaultSlurmOptions()
	if err := p.master.DecodeHydra("launcher", &opt); err != nil {
		return nil, err
	}
	for _, dir := range []string{p.dir, p.cwd} {
		if err := launcher.SlurmFolder(dir); err != nil {
			return nil, usage.Errorf("%v", err)
		}
	}
	if err := launcher.SlurmMissing(); err != nil { // known before anything is written
		return nil, usage.Errorf("hydra/launcher=%s: %v", p.hydra.Launcher, err)
	}
	return func(dir, program string) (launcher.Launcher, error) { return launcher.NewSlurm(dir, program, opt) }, nil
}

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

func joblibLauncher(p *plan) (openLauncher, error) {
	given := joblibOptions{NJobs: -1}
	if err := p.master.DecodeHydra("launcher", &given); err != nil {
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
	opt := launcher.DefaultLocalOptions()
	opt.NJobs = given.NJobs
	if given.Timeout != nil {
		minutes := *given.Timeout / 60
		opt.TimeoutMin = &minutes
	}
	return func(_, program string) (launcher.Launcher, error) { return launcher.NewLocal(program, opt) }, nil
}

// submititLocalOptions is hydra.launcher of Hydra's submitit plugin on one machine.
type submititLocalOptions struct {
	Folder   any      `koanf:"submitit_folder"`
	Timeout  *float64 `koanf:"timeout_min" range:"(0,inf)"`
	CPUs     any      `koanf:"cpus_per_task"`
	GPUs     any      `koanf:"gpus_per_node"`
	Tasks    any      `koanf:"tasks_per_node"`
	Memory   any      `koanf:"mem_gb"`
	Nodes    any      `koanf:"nodes"`
	Name     any      `koanf:"name"`
	ToStdout any      `koanf:"stderr_to_stdout"`
}

func submititLocalLauncher(p *plan) (openLauncher, error) {
	var given submititLocalOptions
	if err := p.master.DecodeHydra("launcher", &given); err != nil {
		return nil, err
	}
	defaults := submititLocalOptions{Folder: given.Folder, Timeout: given.Timeout, Tasks: 1, Nodes: 1, Name: given.Name,
		ToStdout: given.ToStdout}
	if err := refuseOthers(given, defaults, "submitit_local"); err != nil {
		return nil, err
	}
	opt := launcher.DefaultLocalOptions()
	opt.TimeoutMin = given.Timeout
	return func(_, program string) (launcher.Launcher, error) { return launcher.NewLocal(program, opt) }, nil
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
