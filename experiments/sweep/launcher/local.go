package launcher

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/stat"
)

// LocalOptions is hydra.launcher of hydra/launcher=local.
type LocalOptions struct {
	// jobs at a time; -1 = as many as the cores and GPUs serve
	NJobs int `koanf:"n_jobs" range:"[-1,inf)"`
	// minutes that an attempt may take; null = no limit
	TimeoutMin *float64 `koanf:"timeout_min" range:"(0,inf)"`
	// GPUs to share out, as in CUDA_VISIBLE_DEVICES; null = all
	GPUs *[]string `koanf:"gpus"`
	// jobs that share a GPU
	JobsPerGPU int `koanf:"jobs_per_gpu" range:"[1,inf)"`
}

// DefaultLocalOptions returns the defaults.
func DefaultLocalOptions() LocalOptions { return LocalOptions{NJobs: -1, JobsPerGPU: 1} }

// Validate checks what one key's range cannot.
func (o LocalOptions) Validate() error {
	return option.Want(o.NJobs != 0, "n_jobs", "want a number of jobs from 1, or -1 for as many as the cores serve, got 0")
}

// local runs jobs as processes of this machine. They die with it.
type local struct {
	opt     LocalOptions
	ctx     context.Context
	cancel  context.CancelFunc
	program string // of the jobs
	cores   int
	events  chan Attempt

	mu      sync.Mutex
	stopped bool
	queue   []Job
	running int
	threads int            // that the running jobs keep busy
	gpus    map[string]int // free places on each
	turn    chan struct{}  // closed when the job before has started
	wg      sync.WaitGroup
}

// basic runs one job after another. What they print stands in their job.log.
func basic(r Request) (Open, error) {
	var none struct{}
	return func(program string) (Launcher, error) {
		return newLocal(program, LocalOptions{NJobs: 1, JobsPerGPU: 1}), nil
	}, r.Options(&none)
}

// openLocal runs several jobs at a time on this machine.
func openLocal(r Request) (Open, error) {
	opt := DefaultLocalOptions()
	err := r.Options(&opt)
	return func(program string) (Launcher, error) { return NewLocal(program, opt) }, err
}

// NewLocal returns the launcher that runs several jobs of program at a time on this machine and shares out
// its cores and GPUs.
func NewLocal(program string, opt LocalOptions) (Launcher, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	return newLocal(program, opt), nil
}

func newLocal(program string, opt LocalOptions) *local {
	ctx, cancel := context.WithCancel(context.Background())
	l := &local{opt: opt, program: program, ctx: ctx, cancel: cancel, cores: runtime.NumCPU(), events: make(chan Attempt),
		gpus: map[string]int{}}
	for _, name := range option.Or(opt.GPUs, visibleGPUs()) {
		l.gpus[name] = opt.JobsPerGPU
	}
	return l
}

// visibleGPUs names the GPUs that a process started here may use.
func visibleGPUs() []string {
	if named, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		return strings.FieldsFunc(named, func(r rune) bool { return r == ',' || r == ' ' })
	}
	found, _ := filepath.Glob("/proc/driver/nvidia/gpus/*")
	return list.Map(stat.Indices(len(found)), strconv.Itoa)
}

func (l *local) Submit(_ context.Context, jobs []Job) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, jobs...)
	slices.SortStableFunc(l.queue, func(a, b Job) int { return a.Num - b.Num }) // what could start only now is not last for that
	l.fill()
	return nil
}

// Adopt implements Launcher: jobs of a process that is gone are gone with it.
func (l *local) Adopt(context.Context, []Job) ([]int, error) { return nil, nil }

func (l *local) Outlived() bool { return false }

func (l *local) Events() <-chan Attempt { return l.events }

// Stop implements Launcher: all jobs end, whatever cancel says. Their last events are still sent, so the
// controller goes on receiving until the channel is closed.
func (l *local) Stop(bool) {
	l.mu.Lock()
	l.stopped, l.queue = true, nil
	l.mu.Unlock()
	l.cancel()
	go func() {
		l.wg.Wait()
		close(l.events)
	}()
}

// fill starts the first jobs of the queue while there is room; l.mu is held. A job waits for its turn:
// a later one that needs less does not overtake it, so the order of a sweep does not depend on timing.
func (l *local) fill() {
	for len(l.queue) > 0 && !l.stopped {
		job := l.queue[0]
		gpus, ok := l.room(job)
		if !ok {
			return
		}
		l.queue = l.queue[1:]
		l.running++
		l.threads += job.Threads
		for _, gpu := range gpus {
			l.gpus[gpu]--
		}
		l.wg.Add(1)
		before, started := l.turn, make(chan struct{})
		l.turn = started
		go l.run(job, gpus, before, sync.OnceFunc(func() { close(started) }))
	}
}

// room reports whether a job can start now, and on which GPUs. A job that wants more than there is runs alone.
func (l *local) room(job Job) (gpus []string, ok bool) {
	if l.opt.NJobs > 0 && l.running >= l.opt.NJobs || l.opt.NJobs < 0 && l.running > 0 && l.threads+job.Threads > l.cores {
		return nil, false
	}
	names := slices.SortedFunc(maps.Keys(l.gpus), func(a, b string) int { // the emptiest first, then by name
		return cmp.Or(l.gpus[b]-l.gpus[a], strings.Compare(a, b))
	})
	gpus = names[:min(job.GPUs, len(names))]
	return gpus, !slices.ContainsFunc(gpus, func(name string) bool { return l.gpus[name] == 0 })
}

// run supervises a job. It starts behind the job before it, so that a sweep's log is in order, and calls
// next when it has started.
func (l *local) run(job Job, gpus []string, before <-chan struct{}, next func()) {
	defer l.wg.Done()
	defer next()
	if before != nil {
		<-before
	}
	ctx, limit := l.ctx, time.Duration(0)
	if l.opt.TimeoutMin != nil {
		limit = time.Duration(*l.opt.TimeoutMin * float64(time.Minute))
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	s := Supervision{Program: l.program, Started: func(a Attempt) {
		l.events <- a
		next()
	}}
	if l.opt.NJobs != 1 { // beside others: Go's own helper threads keep to the job's share
		s.Env = append(s.Env, fmt.Sprintf("GOMAXPROCS=%d", max(job.Threads, 2)))
	}
	if len(gpus) > 0 {
		s.Env = append(s.Env, "CUDA_VISIBLE_DEVICES="+strings.Join(gpus, ","))
	}
	a, err := Supervise(ctx, job, s)
	switch {
	case err != nil:
		a.Num, a.State, a.Cause, a.Ended = job.Num, Failed, err.Error(), time.Now()
	case a.State == Interrupted && l.ctx.Err() == nil && ctx.Err() != nil:
		a.State, a.Cause = Failed, fmt.Sprintf("stopped after %v (hydra.launcher.timeout_min); its state is saved", limit)
	}
	l.mu.Lock()
	l.running--
	l.threads -= job.Threads
	for _, gpu := range gpus {
		l.gpus[gpu]++
	}
	l.fill()
	l.mu.Unlock()
	l.events <- a
}
