package phases

import "fulcrum/internal/torchx"

// Work is what a step computes on the device.
type Work struct {
	Upload torchx.Upload // the host data that Passes reads
	// Eager says why no CUDA graph can hold Passes. "" promises that they copy nothing from or to the host, and that all steps with the
	// same Key whose Upload has the same layout launch the same operations: the host's numbers must come with the Upload.
	Eager string
	// Key is what else tells one sequence of operations from another.
	Key string
	// Late stages what only the numbers of the step before decide, beside samples that were drawn while it was under way; nil: nothing.
	Late func()
	// Passes makes the forward and backward passes. It returns the parts of the loss (scalars) and what else is to be measured.
	Passes func() (losses, measured []torchx.Tensor)
}

// Refuse says why no CUDA graph can hold the step, if there is a reason and none was known before.
func (w *Work) Refuse(why string) {
	if w.Eager == "" {
		w.Eager = why
	}
}

// At names a step of a phase: step counts from 0 over the whole phase, pass over the steps on its batch.
type At struct {
	Epoch, Step, Pass int
	Queries           []int
}

// Pipeline makes the steps of a phase one after another. On CUDA the host prepares the next one before it waits for the numbers of this
// one: where that samples, it waits for samples, and the numbers have come before them. Where steps are CUDA graphs, it also launches the
// next one and stages the one after that beside it all: the device goes on while the host reads numbers, writes the row and stages. A step
// that is refused stops those behind it on the device.
type Pipeline[S any] struct {
	ahead *staged[S] // the next step, launched if it can be
	later *staged[S] // the one after it, which a goroutine stages
}

// Prepare makes the host's part of a step; S is what the phase wants to know of it when its numbers are read.
type Prepare[S any] func(At) (S, *Work, error)

// staged is a step whose host part is done.
type staged[S any] struct {
	step   int
	of     S
	work   *Work
	flight *flight // nil: not launched yet
	err    error
	done   chan struct{} // closed when it is staged
}

// Step makes a step. next are those that follow for sure, at most two, the first with nothing in between that looks at the policy. Another
// goroutine may prepare them: with a next, prepare reads nothing that a step changes.
func (p *Pipeline[S]) Step(l *Learner, at At, next []At, prepare Prepare[S]) (of S, m OptimizerMetrics, values [][]float64, err error) {
	now := p.ahead
	if p.ahead, l.env.inFlight = nil, false; now == nil {
		now = p.staged(l, at, prepare)
	}
	if now.err == nil && now.flight == nil {
		now.flight, now.err = l.launch(now.work, at.Step)
	}
	if now.err == nil && len(next) > 0 && (now.flight.pending != nil || l.env.LookAhead) {
		p.lookAhead(l, next, prepare)
	} else if p.later != nil {
		<-p.later.done // nothing is staged beside what follows
	}
	if err = now.err; err == nil {
		m, values, err = l.land(now.flight)
	}
	if err != nil {
		p.drop(l)
	}
	return now.of, m, values, err
}

// drop forgets the steps behind one that has failed.
func (p *Pipeline[S]) drop(l *Learner) {
	if p.later != nil {
		<-p.later.done
	}
	if p.ahead != nil && p.ahead.flight != nil {
		p.ahead.flight.values() // which frees them
		l.Optimizer.Refused()
	}
	p.ahead, p.later, l.env.inFlight = nil, nil, false
}

// lookAhead prepares the next step, launches it, if it can be, and has the one after it staged then.
func (p *Pipeline[S]) lookAhead(l *Learner, next []At, prepare Prepare[S]) {
	p.ahead = p.staged(l, next[0], prepare)
	if w := p.ahead.work; p.ahead.err == nil && w.Late == nil && (l.env.LookAhead || l.recorded(w) != nil) {
		p.ahead.flight, p.ahead.err = l.launch(w, next[0].Step)
		l.env.inFlight = true
	}
	if len(next) < 2 || !l.env.inFlight {
		return
	}
	later := &staged[S]{step: next[1].Step, done: make(chan struct{})}
	p.later = later
	go func() {
		defer close(later.done)
		later.make(next[1], prepare)
	}()
}

// staged returns a step with its host part done, its rates included.
func (p *Pipeline[S]) staged(l *Learner, at At, prepare Prepare[S]) *staged[S] {
	s := p.later
	if p.later = nil; s != nil {
		<-s.done
	}
	if s == nil || s.step != at.Step {
		s = &staged[S]{step: at.Step}
		s.make(at, prepare)
	}
	if s.err == nil && s.work.Late == nil {
		l.Optimizer.Stage(l.rate(at.Step), &s.work.Upload)
	}
	return s
}

func (s *staged[S]) make(at At, prepare Prepare[S]) {
	s.err = torchx.Try(func() (err error) {
		s.of, s.work, err = prepare(at)
		return err
	})
}

// flight is a step that was launched.
type flight struct {
	lr      float64
	steps   int             // of the optimizer, with this one
	read    [][]float64     // its numbers
	pending *torchx.Pending // they are under way, on CUDA
	graph   bool            // it was launched as one
}

// values waits for the numbers. sync
func (f *flight) values() [][]float64 {
	if f.pending == nil {
		return f.read
	}
	return f.pending.Read()
}

// launch makes a step, or has its graph make it.
func (l *Learner) launch(w *Work, step int) (*flight, error) {
	f := &flight{lr: l.rate(step)}
	if w.Late != nil {
		w.Late()
		l.Optimizer.Stage(f.lr, &w.Upload)
	}
	err := l.compute(w, f)
	f.steps = l.Optimizer.Steps()
	return f, err
}

// eager sends what the passes read and makes them. On CUDA nobody waits for their numbers here.
func (l *Learner) eager(w *Work, f *flight) error {
	defer torchx.Scope()()
	w.Upload.Send(l.Params.Flat())
	numbers, err := l.descend(w, f.lr)
	if err != nil {
		return err
	}
	if !l.Params.Flat().OnCUDA() {
		f.read = torchx.Read(numbers...)
		return nil
	}
	packed, layout := torchx.Pack(numbers...)
	f.pending = layout.Send(packed)
	return nil
}
