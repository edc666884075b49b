package launcher

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

// submititLocal runs jobs as Hydra's submitit plugin does without a cluster.
func submititLocal(r Request) (Open, error) {
	var given submititLocalOptions
	if err := r.Options(&given); err != nil {
		return nil, err
	}
	defaults := submititLocalOptions{Folder: given.Folder, Timeout: given.Timeout, Tasks: 1, Nodes: 1, Name: given.Name,
		ToStdout: given.ToStdout}
	if err := refuseOthers(given, defaults, "submitit_local"); err != nil {
		return nil, err
	}
	opt := DefaultLocalOptions()
	opt.TimeoutMin = given.Timeout
	return func(program string) (Launcher, error) { return NewLocal(program, opt) }, nil
}
