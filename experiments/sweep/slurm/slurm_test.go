package slurm

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/slurmtest"
)

// standin is the program that stands in for ours, once TestOnSlurm has built it.
var standin string

// rig is a sweep's folder with a Slurm launcher.
type rig struct {
	t       *testing.T
	sweep   string
	opt     Options
	l       *slurm
	mu      sync.Mutex
	events  []launcher.Attempt
	closed  chan struct{}
	warning string
}

func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	opt := DefaultOptions()
	if change != nil {
		change(&opt)
	}
	r := &rig{t: t, sweep: filepath.Join(t.TempDir(), "a sweep%j"), opt: opt}
	r.open()
	return r
}

// open makes a launcher, as a new controller does, and collects its events.
func (r *rig) open() {
	r.t.Helper()
	l := newSlurm(r.sweep, standin, r.opt)
	r.l = l
	r.l.soon, r.l.lag = 200*time.Millisecond, 500*time.Millisecond
	r.l.queue.patience = 2 * time.Minute
	r.l.queue.warn = func(text string) { r.mu.Lock(); r.warning += text + "\n"; r.mu.Unlock() }
	r.events, r.closed = nil, make(chan struct{})
	go func(l *slurm, closed chan struct{}) {
		defer close(closed)
		for a := range l.Events() {
			r.mu.Lock()
			r.events = append(r.events, a)
			r.mu.Unlock()
		}
	}(r.l, r.closed)
	r.t.Cleanup(func() { l.Stop(false) })
}

func (r *rig) job(num, steps int, kind string) launcher.Job {
	dir := filepath.Join(r.sweep, strconv.Itoa(num))
	return launcher.Job{Num: num, Sweep: r.sweep, Dir: dir, Cwd: r.t.TempDir(), Threads: 1, Args: []string{strconv.Itoa(steps), kind, dir}}
}

func (r *rig) submit(jobs ...launcher.Job) {
	r.t.Helper()
	for i := range jobs { // the stand-in keeps its arguments as words
		link := filepath.Join(r.t.TempDir(), "run")
		if err := os.MkdirAll(jobs[i].Dir, 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.Symlink(jobs[i].Dir, link); err != nil {
			r.t.Fatal(err)
		}
		jobs[i].Args[2] = link
	}
	if err := r.l.Submit(context.Background(), jobs); err != nil {
		r.t.Fatal(err)
	}
}

// told returns the events of a job so far, in short: "running 1", "done 1".
func (r *rig) told(num int) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, a := range r.events {
		if a.Num == num {
			word := a.State
			if a.Requeued {
				word = "requeued"
			}
			out = append(out, fmt.Sprintf("%s %d", word, a.Try))
		}
	}
	return out
}

func (r *rig) last(num int) launcher.Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range slices.Backward(r.events) {
		if a.Num == num {
			return a
		}
	}
	return launcher.Attempt{}
}

func (r *rig) until(what string, ready func() bool) {
	r.t.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ready() {
			return
		}
	}
	r.t.Fatalf("%s does not come; events: %+v", what, r.events)
}

// ended waits until the launcher has told its last event.
func (r *rig) ended() {
	r.t.Helper()
	select {
	case <-r.closed:
	case <-time.After(3 * time.Minute):
		r.t.Fatalf("the launcher does not stop; events: %+v", r.events)
	}
}

// ends waits for the end of jobs and checks their events.
func (r *rig) ends(want map[int]string) {
	r.t.Helper()
	for _, num := range slices.Sorted(maps.Keys(want)) {
		r.until(fmt.Sprintf("the end of job %d", num), func() bool {
			a := r.last(num)
			return len(r.told(num)) > strings.Count(want[num], ",") && a.State != launcher.Running && !a.Requeued
		})
		if got := strings.Join(r.told(num), ", "); got != want[num] {
			r.t.Errorf("job %d: told %q, want %q (%s)", num, got, want[num], r.last(num).Cause)
		}
	}
}

func (r *rig) steps(num int) int {
	text, _ := os.ReadFile(filepath.Join(r.sweep, strconv.Itoa(num), "steps"))
	return len(text)
}

// counting waits until a job has done some steps.
func (r *rig) counting(num, steps int) {
	r.t.Helper()
	r.until(fmt.Sprintf("step %d of job %d", steps, num), func() bool { return r.steps(num) >= steps })
}

func (r *rig) id(num int) string {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	return r.l.tasks[num].id
}

func (r *rig) attempts(num int) []launcher.Attempt {
	r.t.Helper()
	all, err := launcher.Attempts(filepath.Join(r.sweep, strconv.Itoa(num)))
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// TestOnSlurm runs jobs on a real one-node cluster.
func TestOnSlurm(t *testing.T) {
	c := slurmtest.Start(t)
	standin = filepath.Join(t.TempDir(), "standin")
	if out, err := exec.Command("go", "build", "-o", standin, "./testdata/standin").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	t.Run("an array: jobs end as they do, a few at a time", func(t *testing.T) {
		r := newRig(t, func(o *Options) {
			o.ArrayParallelism, o.Setup, o.MemGB = 2, &[]string{"echo 'set up' $SLURM_ARRAY_TASK_ID"}, ptr(0.25)
		})
		r.submit(r.job(0, 10, "count"), r.job(3, 4, "fail"), r.job(4, 4, "kill"), r.job(5, 10, "count"))
		most := 0
		r.until("the end", func() bool {
			running := strings.Fields(c.Run("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i"))
			most = max(most, len(running))
			return r.last(5).State == launcher.Done
		})
		if most > 2 {
			t.Errorf("%d jobs at a time, want 2", most)
		}
		r.ends(map[int]string{0: "running 1, done 1", 3: "running 1, failed 1", 4: "running 1, failed 1", 5: "running 1, done 1"})
		if a := r.last(3); a.Cause != "boom" || a.ExitCode != 1 {
			t.Errorf("job 3: %+v", a)
		}
		if a := r.last(4); !strings.Contains(a.Cause, "SIGKILL") || a.ExitCode != -1 {
			t.Errorf("job 4: %+v", a)
		}
		log, _ := os.ReadFile(filepath.Join(r.sweep, "0", "job.log"))
		if id := r.last(0).ID; !strings.HasSuffix(id, "_0") || !strings.Contains(string(log), "hydra.job.id='"+id+"'") {
			t.Errorf("hydra.job.id %s is not in\n%s", id, log)
		}
		if text, err := os.ReadFile(filepath.Join(r.sweep, "5", "slurm-"+r.last(5).ID+".out")); err != nil || string(text) != "set up 5\n" {
			t.Errorf("Slurm's output: %q, %v", text, err)
		}
		// Submitted again: what is done stays done.
		r.submit(r.job(0, 10, "count"))
		r.ends(map[int]string{0: "running 1, done 1, running 1, done 1"})
	})

	t.Run("scontrol requeue, a node's daemon killed, Slurm's controller restarted", func(t *testing.T) {
		r := newRig(t, nil)
		r.submit(r.job(1, 60, "count"), r.job(2, 100, "count"))
		r.counting(1, 10)
		r.until("the start", func() bool { return r.last(1).State == launcher.Running })
		c.Run("scontrol", "requeue", r.id(1))
		c.Release(r.id(1))
		r.until("the second attempt", func() bool { return len(r.attempts(1)) == 2 })
		c.KillNode()
		time.Sleep(300 * time.Millisecond)
		c.StartNode()
		c.StopController()
		r.until("a warning", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return strings.Contains(r.warning, "does not answer") })
		c.StartController()
		r.ends(map[int]string{1: "running 1, requeued 1, running 2, done 2", 2: "running 1, done 1"})
		if n := r.steps(1); n != 60 {
			t.Errorf("job 1 did %d steps, want 60", n)
		}
		all := r.attempts(1)
		if len(all) != 2 || all[0].State != launcher.Interrupted || !all[1].Resumed || all[0].ID != all[1].ID {
			t.Errorf("attempts: %+v", all)
		}
		if strings.Count(r.warning, "\n") != 2 {
			t.Errorf("warned: %s", r.warning)
		}
	})

	t.Run("cancelled from outside; its supervisor killed", func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.ArrayParallelism = 2 })
		r.submit(r.job(0, 1000, "count"), r.job(1, 1000, "count"), r.job(2, 1000, "count"))
		r.counting(0, 3)
		r.counting(1, 3)
		c.Run("scancel", r.id(2))
		c.Run("scancel", r.id(0))
		syscall.Kill(parent(t, r.attempts(1)[0].PID), syscall.SIGKILL)
		r.ends(map[int]string{0: "running 1, failed 1", 1: "running 1, lost 1", 2: "failed 0"})
		for _, num := range []int{0, 2} {
			if a := r.last(num); !strings.Contains(a.Cause, "cancelled") {
				t.Errorf("job %d: %s", num, a.Cause)
			}
		}
		if all := r.attempts(0); all[0].State != launcher.Interrupted {
			t.Errorf("job 0 did not save its state: %+v", all)
		}
		if pid := r.attempts(1)[0].PID; golden.Alive(pid) {
			t.Errorf("process %d of job 1 outlives its supervisor", pid)
		}
	})

	t.Run("the time limit is near: the state is saved and the task queued again", func(t *testing.T) {
		for _, srun := range []*[]string{nil, {"--cpu-bind=none"}} {
			if testing.Short() && srun != nil {
				continue
			}
			r := newRig(t, func(o *Options) { o.MaxNumTimeout, o.SrunArgs = 1, srun })
			r.submit(r.job(0, 1000, "count"))
			id := r.id(0)
			for try := range 2 {
				r.until("an attempt", func() bool { all := r.attempts(0); return len(all) == try+1 && all[try].State == launcher.Running })
				r.counting(0, 5*(try+1))
				c.Run("scancel", "--batch", "--signal=USR1", id) // as --signal=B:USR1 does it
				if try == 0 {
					c.Release(id)
				}
			}
			r.ends(map[int]string{0: "running 1, requeued 1, running 2, failed 2"})
			if a := r.last(0); !strings.Contains(a.Cause, "time limit of 60 minutes met 2 times") {
				t.Errorf("cause: %s", a.Cause)
			}
		}
	})

	t.Run("the controller dies and another one takes over", func(t *testing.T) {
		r := newRig(t, nil)
		jobs := []launcher.Job{r.job(0, 100, "count"), r.job(1, 10, "count"), r.job(2, 1000, "count"), r.job(3, 60, "count")}
		r.submit(jobs[:3]...) // the fourth was never submitted
		r.counting(2, 3)
		ids := []string{r.id(0), r.id(1), r.id(2)}
		r.l.Stop(false)
		r.ended()
		c.Run("scancel", ids[2])
		r.until("the end of two jobs", func() bool {
			over := strings.Fields(c.Run("squeue", "--noheader", "--array", "--states=CANCELLED,COMPLETED", "--format=%i"))
			return slices.Contains(over, ids[1]) && slices.Contains(over, ids[2])
		})
		os.Truncate(filepath.Join(slurmFolder(r.sweep), "000001.id"), 0) // sbatch's answer was lost with the machine
		r.open()
		nums, err := r.l.Adopt(context.Background(), jobs)
		if err != nil || !slices.Equal(nums, []int{0}) { // the records of the others say what became of them
			t.Fatalf("adopted %v, %v", nums, err)
		}
		if got := r.id(0); got != ids[0] {
			t.Errorf("id %s, want %s", got, ids[0])
		}
		r.ends(map[int]string{0: "running 1, done 1"})
		if a, b := r.attempts(1), r.attempts(2); len(a) != 1 || a[0].State != launcher.Done || len(b) != 1 || b[0].State != launcher.Interrupted {
			t.Errorf("attempts: %+v, %+v", a, b)
		}
	})

	t.Run("stopped with its jobs", func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.ArrayParallelism = 1 })
		r.submit(r.job(0, 1000, "count"), r.job(1, 1000, "count"))
		r.counting(0, 3)
		r.l.Stop(true)
		r.ended()
		if got := strings.Join(append(r.told(0), r.told(1)...), ", "); got != "running 1, interrupted 1, interrupted 0" {
			t.Errorf("told %s", got)
		}
		if all := r.attempts(0); all[0].State != launcher.Interrupted || all[0].ExitCode != 143 {
			t.Errorf("attempts: %+v", all)
		}
		if left := c.Run("squeue", "--noheader", "--array", "--format=%i %T %o"); strings.Contains(left, r.sweep) {
			t.Errorf("left in the queue: %s", left)
		}
	})

	t.Run("more jobs than an array takes", func(t *testing.T) {
		r := newRig(t, nil)
		r.submit(r.job(1, 1, "count"), r.job(slurmtest.MaxArraySize-1, 1, "count"), r.job(slurmtest.MaxArraySize, 1, "count"),
			r.job(3*slurmtest.MaxArraySize+7, 1, "count"))
		if id := r.id(3*slurmtest.MaxArraySize + 7); !strings.HasSuffix(id, "_7") {
			t.Errorf("id %s", id)
		}
		r.ends(map[int]string{1: "running 1, done 1", 100: "running 1, done 1", 101: "running 1, done 1", 310: "running 1, done 1"})
	})

	t.Run("a job that can never start", func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.CPUsPerTask = ptr(9) })
		r.submit(r.job(0, 1, "count"))
		r.until("a warning", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return strings.Contains(r.warning, "PartitionConfig") })
		r.l.Stop(true)
		r.ended()
		if got := strings.Join(r.told(0), ", "); got != "interrupted 0" {
			t.Errorf("told %s", got)
		}
	})

	t.Run("the program does not start", func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Setup = &[]string{"echo no such module >&2; exit 1"} })
		r.submit(r.job(0, 1, "count"))
		r.ends(map[int]string{0: "failed 0"})
		if a := r.last(0); !strings.Contains(a.Cause, "no such module") {
			t.Errorf("cause: %s", a.Cause)
		}
	})

	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"partition", func(o *Options) { o.Partition = ptr("nope") },
			"invalid partition specified: nope; Batch job submission failed: Invalid partition name specified (hydra.launcher.partition)"},
		{"GPUs", func(o *Options) { o.GPUsPerNode = ptr(1) }, "hydra.launcher.gpus_per_node"},
		{"constraint", func(o *Options) { o.Constraint = ptr("a100") }, "Invalid feature specification (hydra.launcher.constraint)"},
		{"memory", func(o *Options) { o.MemGB = ptr(4000.0) }, "hydra.launcher.mem_gb"},
		{"an option", func(o *Options) { o.AdditionalParameters = map[string]any{"nonsense": 1} }, "hydra.launcher.additional_parameters"},
	} {
		t.Run("refused: "+tc.name, func(t *testing.T) {
			r := newRig(t, tc.change)
			err := r.l.Submit(context.Background(), []launcher.Job{r.job(0, 1, "count")})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("\n got %v\nwant %s", err, tc.want)
			}
			if subs, _ := submissions(r.sweep); len(subs) > 0 {
				t.Errorf("%d submissions are left", len(subs))
			}
		})
	}

	t.Run("the real time limit", func(t *testing.T) {
		if testing.Short() {
			t.Skip("takes two minutes")
		}
		r := newRig(t, func(o *Options) { o.TimeoutMin, o.SignalDelayS, o.MaxNumTimeout = 1, 10, 1 })
		r.submit(r.job(0, 10000, "count"))
		id := r.id(0)
		r.until("the requeue", func() bool { return len(r.told(0)) >= 2 })
		c.Release(id)
		r.ends(map[int]string{0: "running 1, requeued 1, running 2, failed 2"})
	})
}
