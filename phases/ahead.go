package phases

import (
	"context"

	"fulcrum/internal/torchx"
)

// On CUDA the host collects the next batch before it reads the numbers of this step; a phase that samples waits for its samples, and the
// numbers arrive before them. If steps are CUDA graphs (record.go), the host also launches the next step, and a goroutine collects the one
// after it: the device works on while the host reads numbers and writes the row. A refused step stops the steps behind it on the device.

// Foreseer is an Algorithm that can collect a batch before the numbers of the previous step are read.
type Foreseer interface {
	// Foreseen returns which of at.Next these are; another goroutine may collect them. inputs says that Inputs needs no such number, either.
	Foreseen(at At) (next []At, inputs bool)
}

// planned is a step under way.
type planned[R any] struct {
	step   int
	batch  R
	err    error
	work   *work   // nil: its inputs wait for the numbers of the previous step
	flight *flight // nil: not launched yet
	done   chan struct{}
}

// settle waits for the goroutine that collects: no batch is collected beside the following code.
func (s *Steps[R, I]) settle() {
	if s.later != nil {
		<-s.later.done
	}
}

// drop forgets the steps behind a failed one.
func (s *Steps[R, I]) drop() {
	s.settle()
	if s.ahead != nil && s.ahead.flight != nil {
		s.ahead.flight.values() // which frees them
		s.learn.Optimizer.Refused()
	}
	s.ahead, s.later, s.learn.env.inFlight = nil, nil, false
}

// take returns the step that was planned ahead, or plans it now.
func (s *Steps[R, I]) take(ctx context.Context, at At) *planned[R] {
	p := s.ahead
	if s.ahead, s.learn.env.inFlight = nil, false; p == nil {
		p = s.plan(ctx, at, true)
	}
	return p
}

// lookAhead collects the step after now, launches it if it can, and lets a goroutine collect the one after it.
func (s *Steps[R, I]) lookAhead(ctx context.Context, at At, now *planned[R]) {
	next, inputs := s.foreseen(at, now)
	if len(next) == 0 {
		s.settle()
		return
	}
	s.ahead = s.plan(ctx, next[0], inputs)
	if p := s.ahead; p.err == nil && p.work != nil && (s.learn.env.LookAhead || s.learn.recorded(p.work) != nil) {
		s.launch(p)
		s.learn.env.inFlight = true
	}
	if len(next) < 2 || !s.learn.env.inFlight {
		return
	}
	later := &planned[R]{step: next[1].Step, done: make(chan struct{})}
	s.later = later
	go func() {
		defer close(later.done)
		s.collect(ctx, later, next[1], inputs)
	}()
}

// foreseen returns the steps behind now that can be collected before its numbers are read, and whether their inputs can be staged.
func (s *Steps[R, I]) foreseen(at At, now *planned[R]) (next []At, inputs bool) {
	f, ok := s.of.(Foreseer)
	if !ok || len(at.Next) == 0 || now.err != nil || now.flight.pending == nil && !s.learn.env.LookAhead {
		return nil, false
	}
	return f.Foreseen(at)
}

// plan returns a step with its batch and, if wanted now, its inputs.
func (s *Steps[R, I]) plan(ctx context.Context, at At, inputs bool) *planned[R] {
	p := s.later
	if s.later = nil; p != nil {
		<-p.done
	}
	if p == nil || p.step != at.Step {
		p = &planned[R]{step: at.Step}
		s.collect(ctx, p, at, inputs)
	}
	if p.err == nil && p.work != nil {
		s.learn.stage(p.work, p.step)
	}
	return p
}

func (s *Steps[R, I]) collect(ctx context.Context, p *planned[R], at At, inputs bool) {
	p.err = torchx.Try(func() (err error) {
		if p.batch, err = s.of.Collect(ctx, at); err == nil && inputs {
			s.inputs(p)
		}
		return err
	})
}

// launch starts a step on the device unless it has started.
func (s *Steps[R, I]) launch(p *planned[R]) {
	if p.err != nil || p.flight != nil {
		return
	}
	if p.work == nil {
		s.inputs(p)
		s.learn.stage(p.work, p.step)
	}
	p.flight, p.err = s.learn.launch(p.work, p.step)
}
