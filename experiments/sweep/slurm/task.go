package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
)

// What a batch script tells its supervisor.
const (
	maxTimeoutsEnv = "FULCRUM_MAX_NUM_TIMEOUT"
	limitEnv       = "FULCRUM_TIMEOUT_MIN"
)

// timeLimit begins the cause of an attempt that met its time limit.
const timeLimit = "time limit"

// TaskError is an attempt that came to nothing, with the exit code that tells Slurm.
type TaskError struct {
	Code int
	Msg  string
}

func (e *TaskError) Error() string { return e.Msg }

// ExitCode implements the program's mapping of errors to exit codes.
func (e *TaskError) ExitCode() int { return e.Code }

// RunTask makes one attempt at a job of a sweep, as a task of a Slurm array: args are the sweep's folder, the job's number and the
// command that starts the job's processes, such as srun; none: the job is one process.
// SIGTERM (a preemption, a requeue, scancel) makes the job save its state. So does SIGUSR1, which comes when the time limit is near,
// and then the task queues itself again, as often as hydra.launcher.max_num_timeout allows. Further signals change nothing: Slurm
// ends with SIGKILL who does not end in time. The program must not end the process on signals itself.
func RunTask(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return usage.Errorf("want run %s SWEEP_FOLDER JOB_NUMBER [COMMAND]", launcher.TaskVerb)
	}
	num, err := strconv.Atoi(args[1])
	if err != nil {
		return usage.Errorf("%s %s: want the number of a job", launcher.TaskVerb, args[1])
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1)
	defer signal.Stop(signals)
	job, err := readJob(args[0], num)
	if err != nil {
		return err
	}
	id := ""
	if array := os.Getenv("SLURM_ARRAY_JOB_ID"); array != "" {
		id = array + "_" + os.Getenv("SLURM_ARRAY_TASK_ID")
	}
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	go func() { // ends with the process
		for s := range signals {
			stop(&stopSignal{s.(syscall.Signal)}) // the first counts
		}
	}()
	a, err := attempt(ctx, job, launcher.Supervision{ID: id, By: args[2:], Env: []string{launcher.SupervisedEnv + "=1"}})
	if err != nil {
		return err
	}
	by, _ := errors.AsType[*stopSignal](context.Cause(ctx))
	switch {
	case a.State == launcher.Done || a.State == launcher.Pruned:
		return nil
	case a.State != launcher.Interrupted || by == nil:
		return &TaskError{max(a.ExitCode, 1), fmt.Sprintf("job %d: %s: %s", num, a.State, a.Cause)}
	case by.signal != syscall.SIGUSR1 || id == "":
		a.Cause = by.Error() + ", state saved"
		return errors.Join(launcher.Keep(job.Dir, a), &TaskError{128 + int(syscall.SIGTERM), fmt.Sprintf("job %d: %s", num, a.Cause)})
	}
	return nearLimit(job, a)
}

// stopSignal is the signal that ends a task.
type stopSignal struct{ signal syscall.Signal }

func (e *stopSignal) Error() string { return "stopped by " + unix.SignalName(e.signal) }

// attempt supervises the job once nobody else does: where a node has failed, Slurm may start a task again
// while its first process still lives.
func attempt(ctx context.Context, job launcher.Job, s launcher.Supervision) (launcher.Attempt, error) {
	for said := false; ; said = true {
		a, err := launcher.Supervise(ctx, job, s)
		if !errors.Is(err, launcher.ErrBusy) {
			return a, err
		}
		if !said {
			fmt.Fprintf(stdout.Errors(), "job %d: %v; waiting for its end\n", job.Num, err)
		}
		select {
		case <-ctx.Done():
			return a, &TaskError{128 + int(syscall.SIGTERM), fmt.Sprintf("job %d: %v", job.Num, context.Cause(ctx))}
		case <-time.After(time.Second):
		}
	}
}

// nearLimit ends an attempt that has saved its state because its time limit is near: it queues the task
// again, or gives the job up.
func nearLimit(job launcher.Job, a launcher.Attempt) error {
	all, err := launcher.Attempts(job.Dir)
	if err != nil {
		return err
	}
	limit, met := os.Getenv(limitEnv), 1+list.Count(all, func(b launcher.Attempt) bool {
		return b.ID == a.ID && b.Try != a.Try && strings.HasPrefix(b.Cause, timeLimit)
	})
	allowed, _ := strconv.Atoi(os.Getenv(maxTimeoutsEnv))
	if met > allowed {
		a.State, a.Ended = launcher.Failed, time.Now()
		a.Cause = fmt.Sprintf("%s of %s minutes met %s (hydra.launcher.timeout_min, hydra.launcher.max_num_timeout=%d); its state "+
			"is saved", timeLimit, limit, times(met), allowed)
		return errors.Join(launcher.Keep(job.Dir, a), &TaskError{1, fmt.Sprintf("job %d: %s", job.Num, a.Cause)})
	}
	a.Cause = fmt.Sprintf("%s of %s minutes met %s of %d, state saved, queued again", timeLimit, limit, times(met), allowed)
	if err := launcher.Keep(job.Dir, a); err != nil {
		return err
	}
	fmt.Fprintf(stdout.Errors(), "job %d: %s\n", job.Num, a.Cause)
	for { // until Slurm hears it; the limit ends the loop
		_, err := once("scontrol", "requeue", a.ID)
		if e, ok := errors.AsType[*slurmError](err); !ok || !e.unreachable() {
			return err
		}
		time.Sleep(time.Second)
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// jobFile returns where a job's description lies for processes that are not the controller's.
func jobFile(sweep string, num int) string {
	return filepath.Join(sweep, ".sweep", "jobs", strconv.Itoa(num)+".json")
}

// writeJob stores a job's description in its sweep folder.
func writeJob(j launcher.Job) error {
	path := jobFile(j.Sweep, j.Num)
	if err := atomicfile.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	return atomicfile.WriteJSON(path, j)
}

// readJob reads what writeJob stored.
func readJob(sweep string, num int) (launcher.Job, error) {
	var j launcher.Job
	text, err := regular.ReadDocument(jobFile(sweep, num))
	if err != nil {
		return j, err
	}
	if err := jsonwords.Unmarshal(text, &j); err != nil {
		return j, fmt.Errorf("%s: %w", jobFile(sweep, num), err)
	}
	return j, nil
}
