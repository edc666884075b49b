// Package slurm runs the jobs of a sweep on a Slurm cluster.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
)

// slurm is the launcher: each Submit is one job array, or several where the cluster limits
// their size. Program and run folders lie on a file system that this machine and the nodes share.
//
// Two witnesses say how a job stands: Slurm's queue, which knows whether a task waits, runs or is over,
// and the record that the job's supervisor writes into its run folder, which knows how an attempt ended.
// A task that Slurm itself starts again (preemption, a failed node, scontrol requeue, a time limit) stays
// with the launcher and goes on from what it has saved.
type slurm struct {
	sweep   string
	program string
	opt     Options
	queue   *queue
	events  chan launcher.Attempt
	ctx     context.Context // of the watch
	quit    context.CancelFunc
	wake    chan struct{}
	soon    time.Duration // pause between two looks at the queue while something happens
	lag     time.Duration // how long a shared file system may hide a new file

	mu     sync.Mutex
	tasks  map[int]*task // submitted to Slurm, by job number
	cancel bool
	watch  bool // has been started
}

// task is a job that was submitted to Slurm.
type task struct {
	job     launcher.Job
	sub     *submission
	id      string // ARRAY_TASK. A Slurm that has lost its memory gives the same numbers again
	begun   int    // last attempt whose start was told, or that was before this submission
	ended   int    // last attempt whose end was told
	over    time.Time
	warned  string    // reason for which it waits, told
	stopped time.Time // was told to save its state and to end
}

// slurmMissing says that this machine has not Slurm's commands.
func slurmMissing() error {
	for _, name := range []string{"sbatch", "squeue", "scancel", "scontrol"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("this machine has no Slurm (there is no command %s), and this launcher hands its jobs to Slurm: start the "+
				"sweep on a login node of a cluster; hydra/launcher=local runs the jobs here", name)
		}
	}
	return slurmConfigured()
}

// slurmConfigured says that Slurm's commands know no cluster. A controller that does not answer is asked again later.
func slurmConfigured() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "scontrol", "show", "config").CombinedOutput()
	if err == nil || !strings.Contains(strings.ToLower(string(out)), "configuration") {
		return nil
	}
	return errors.New("this machine has Slurm's commands, but they know of no cluster (scontrol show config finds no slurm.conf): " +
		"start the sweep on a login node, or set SLURM_CONF to the cluster's slurm.conf; hydra/launcher=local runs the jobs here")
}

// Open runs jobs on the cluster of this machine.
func Open(r launcher.Request) (launcher.Open, error) {
	opt := DefaultOptions()
	if err := r.Options(&opt); err != nil {
		return nil, err
	}
	for _, dir := range []string{r.Sweep, r.Cwd} {
		if err := slurmPath(dir); err != nil {
			return nil, usage.Errorf("%v", err)
		}
	}
	if err := slurmMissing(); err != nil { // known before anything is written
		return nil, usage.Errorf("hydra/launcher=%s: %v", r.Name, err)
	}
	return func(program string) (launcher.Launcher, error) { return newSlurm(r.Sweep, program, opt), nil }, nil
}

// newSlurm returns the launcher for the jobs of a sweep, which run program.
func newSlurm(sweep, program string, opt Options) *slurm {
	ctx, quit := context.WithCancel(context.Background())
	warn := func(text string) { stdout.Message(stdout.Errors(), "warning: "+text) }
	return &slurm{
		sweep: sweep, program: program, opt: opt, queue: &queue{warn: warn, patience: time.Hour}, events: make(chan launcher.Attempt),
		ctx: ctx, quit: quit, wake: make(chan struct{}, 1), soon: time.Second, lag: 65 * time.Second, tasks: map[int]*task{},
	}
}

func (s *slurm) Outlived() bool { return true }

func (s *slurm) Events() <-chan launcher.Attempt { return s.events }

func (s *slurm) Submit(ctx context.Context, jobs []launcher.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	size, err := s.queue.arraySize(ctx)
	if err != nil {
		return err
	}
	chunks := map[int][]launcher.Job{} // by the number of the array's index 0
	for _, job := range jobs {
		if err := writeJob(job); err != nil {
			return err
		}
		offset := job.Num / size * size
		chunks[offset] = append(chunks[offset], job)
	}
	for _, offset := range slices.Sorted(maps.Keys(chunks)) {
		sub, array, err := s.submit(ctx, chunks[offset], offset)
		if err != nil {
			return err
		}
		s.take(sub, array, chunks[offset])
	}
	return nil
}

// take starts to watch the jobs of an array.
func (s *slurm) take(sub *submission, array string, jobs []launcher.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, job := range jobs {
		tries := sub.Tries[slices.Index(sub.Nums, job.Num)]
		s.tasks[job.Num] = &task{job: job, sub: sub, id: sub.task(array, job.Num), begun: tries, ended: tries}
	}
	if !s.watch {
		s.watch = true
		go s.run()
	}
	s.hurry()
}

// hurry has the queue looked at soon.
func (s *slurm) hurry() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// submit hands one array to Slurm and returns its number.
func (s *slurm) submit(ctx context.Context, jobs []launcher.Job, offset int) (*submission, string, error) {
	path, err := nextSubmission(s.sweep)
	if err != nil {
		return nil, "", err
	}
	sub := &submission{path: path, Offset: offset}
	var indices []int
	for _, job := range jobs {
		all, err := launcher.Attempts(job.Dir)
		if err != nil {
			return nil, "", err
		}
		tries := 0
		if n := len(all); n > 0 {
			tries = all[n-1].Try
		}
		sub.Nums, sub.Tries = append(sub.Nums, job.Num), append(sub.Tries, tries)
		indices = append(indices, job.Num-offset)
	}
	slices.Sort(indices)
	out := filepath.Join(strings.ReplaceAll(slurmFolder(s.sweep), "%", "%%"), "%A_%a")
	sub.Sbatch = []string{
		"--parsable", fmt.Sprintf("--array=%s%%%d", ranges(indices), s.opt.ArrayParallelism), "--requeue", "--open-mode=append", "--export=ALL",
		fmt.Sprintf("--signal=B:USR1@%d", s.opt.SignalDelayS), "--chdir=" + jobs[0].Cwd, "--output=" + out + ".out",
	}
	if !s.opt.StderrToStdout {
		sub.Sbatch = append(sub.Sbatch, "--error="+out+".err")
	}
	sub.Sbatch = append(sub.Sbatch, s.opt.resources()...)
	if err := sub.write(s.script(sub)); err != nil {
		return nil, "", err
	}
	for {
		err := sub.submit()
		var e *slurmError
		if err == nil {
			s.queue.answered()
			array, err := sub.array()
			return sub, array, err
		}
		if !errors.As(err, &e) {
			return nil, "", err
		}
		if e.unreachable() {
			if err := s.queue.wait(ctx, e); err != nil {
				return nil, "", err
			}
		}
		if e.unreachable() || e.died { // an answer that was lost is not a request that was lost
			if array, err := s.find(ctx, sub); err != nil || array != "" {
				return sub, array, err
			}
		}
		if !e.unreachable() {
			for _, end := range []string{".json", ".id", ".sh"} {
				os.Remove(sub.path + end)
			}
			return nil, "", fmt.Errorf("the jobs cannot be submitted: %w%s", e, blame(e.message))
		}
	}
}

// find looks for an array in Slurm's queue, and notes what it finds.
func (s *slurm) find(ctx context.Context, sub *submission) (string, error) {
	tasks, err := s.queue.list(ctx)
	if err != nil {
		return "", err
	}
	array := sub.arrayIn(tasks)
	if array == "" {
		return "", nil
	}
	return array, sub.found(array)
}

// script returns the batch script of an array: every task makes one attempt at its job. Everything in it is a
// quoted word on one line, comments included. Only the setup lines are shell, as their key says.
func (s *slurm) script(sub *submission) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#!/bin/bash\n# Jobs of the sweep in %s, submitted by\n#   sbatch", shellQuote(s.sweep))
	for _, arg := range sub.Sbatch {
		b.WriteString(" " + shellQuote(arg))
	}
	fmt.Fprintf(&b, " %s\n", shellQuote(sub.script()))
	if s.opt.Setup != nil {
		for _, line := range *s.opt.Setup {
			b.WriteString(line + "\n")
		}
	}
	fmt.Fprintf(&b, "export %s=%d %s=%d\n", maxTimeoutsEnv, s.opt.MaxNumTimeout, limitEnv, s.opt.TimeoutMin)
	fmt.Fprintf(&b, "exec %s %s %s $((%d + SLURM_ARRAY_TASK_ID))", shellQuote(s.program), launcher.TaskVerb, shellQuote(s.sweep), sub.Offset)
	for _, word := range s.opt.srun() {
		b.WriteString(" " + shellQuote(word))
	}
	return b.String() + "\n"
}

func (s *slurm) Adopt(ctx context.Context, jobs []launcher.Job) ([]int, error) {
	subs, err := submissions(s.sweep)
	if err != nil || len(subs) == 0 {
		return nil, err
	}
	arrays := make([]string, len(subs))
	for i, sub := range subs { // first, as it waits for an sbatch that is still at work
		if arrays[i], err = sub.array(); err != nil {
			return nil, err
		}
	}
	queue, err := s.queue.list(ctx)
	if err != nil {
		return nil, err
	}
	open := map[int]launcher.Job{}
	for _, job := range jobs {
		open[job.Num] = job
	}
	var nums []int
	for i, sub := range slices.Backward(subs) { // a job's last submission counts
		if arrays[i] == "" { // its controller and its sbatch died before the answer was noted
			if arrays[i] = sub.arrayIn(queue); arrays[i] == "" {
				continue
			}
			if err := sub.found(arrays[i]); err != nil {
				return nil, err
			}
		}
		var mine []launcher.Job
		for _, num := range sub.Nums {
			job, ok := open[num]
			delete(open, num)
			now := queue[sub.task(arrays[i], num)]
			if ok && now.command == sub.script() && now.kind() != slurmOver {
				mine, nums = append(mine, job), append(nums, num)
			}
		}
		if len(mine) > 0 {
			s.take(sub, arrays[i], mine)
		}
	}
	slices.Sort(nums)
	return nums, nil
}

func (s *slurm) Stop(cancel bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.watch {
		s.watch = true
		close(s.events)
		return
	}
	s.cancel = cancel
	if !cancel {
		s.quit()
	}
	s.hurry()
}
