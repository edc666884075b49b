package runreport

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fulcrum/reports/record"
)

// Plotter redraws a run's plots beside the training. It reads the run folder, never the training's state, and works in
// its own low-priority thread: a training step neither waits for it nor shares anything with it.
type Plotter struct {
	dir    string
	every  time.Duration
	report func(error)
	ask    chan struct{}
	stop   chan struct{}
	done   sync.WaitGroup
	once   sync.Once
	last   error
}

// StartPlotter starts redrawing the plots of the run folder dir. Two drawings are at least every apart, the first from
// the start, so that a run of seconds is drawn once, at its end, and drawing takes at most a tenth of a processor.
// Errors, a full disk say, go to report, each message once; the training goes on.
func StartPlotter(dir string, every time.Duration, report func(error)) *Plotter {
	p := &Plotter{dir: dir, every: every, report: report, ask: make(chan struct{}, 1), stop: make(chan struct{})}
	p.done.Go(p.loop)
	return p
}

// Redraw asks for a drawing with what is recorded so far and returns at once. Requests that come
// while one is waiting are the same request.
func (p *Plotter) Redraw() {
	select {
	case p.ask <- struct{}{}:
	default:
	}
}

// Close ends the thread, draws a last time with everything recorded, and returns that drawing's error.
func (p *Plotter) Close() error {
	p.once.Do(func() {
		close(p.stop)
		p.done.Wait()
		run, err := record.ReadRun(p.dir)
		if err == nil {
			err = DrawPlots(run)
		}
		p.last = err
	})
	return p.last
}

func (p *Plotter) loop() {
	runtime.LockOSThread() // never unlocked: the thread with its low priority ends with this goroutine
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 10)
	run := &record.Run{Dir: p.dir}
	var offset int64
	said, rest := "", p.every
	for {
		select {
		case <-p.stop:
			return
		case <-time.After(rest):
		}
		select {
		case <-p.stop:
			return
		case <-p.ask:
		}
		begin := time.Now()
		var err error
		if offset, err = run.ReadRows(offset); err == nil { // the rows recorded since the last time
			err = run.ReadRest()
		}
		if err == nil {
			err = DrawPlots(run)
		}
		if err != nil && err.Error() != said && p.report != nil {
			said = err.Error()
			p.report(err)
		}
		rest = max(p.every, 9*time.Since(begin))
	}
}
