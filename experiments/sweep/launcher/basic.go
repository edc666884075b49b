package launcher

// basic runs one job after another. What they print stands in their job.log.
func basic(r Request) (Open, error) {
	var none struct{}
	return func(program string) (Launcher, error) {
		return newLocal(program, LocalOptions{NJobs: 1, JobsPerGPU: 1}), nil
	}, r.Options(&none)
}
