package launcher

// basic runs one job after another and shows what they print.
func basic(r Request) (Open, error) {
	var none struct{}
	return func(program string) (Launcher, error) { return NewBasic(program), nil }, r.Options(&none)
}

// Quiet keeps what jobs print to their run.log, for whoever shows them otherwise. It is called before the first Submit.
func (l *local) Quiet() { l.echo = false }

// NewBasic returns the launcher that runs one job of program after another and shows what they print.
func NewBasic(program string) Launcher {
	l := newLocal(program, LocalOptions{NJobs: 1, JobsPerGPU: 1})
	l.echo = true
	return l
}
