package launcher

// toy shows what a launcher is: this file, and one line in a table (withToy). It runs two jobs at a time.
func toy(r Request) (Open, error) {
	opt := struct {
		// jobs at a time
		Jobs int `koanf:"jobs" range:"[1,inf)"`
	}{Jobs: 2}
	err := r.Options(&opt)
	return func(program string) (Launcher, error) {
		return newLocal(program, LocalOptions{NJobs: opt.Jobs, JobsPerGPU: 1}), nil
	}, err
}
