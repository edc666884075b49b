package launcher

// basic runs one job after another.
func basic(r Request) (Open, error) {
	var none struct{}
	return func(program string) (Launcher, error) { return NewBasic(program), nil }, r.Options(&none)
}

// NewBasic returns the launcher that runs one job of program after another. What they print stands in their job.log.
func NewBasic(program string) Launcher {
	return newLocal(program, LocalOptions{NJobs: 1, JobsPerGPU: 1})
}
