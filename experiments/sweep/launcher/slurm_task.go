package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fulcrum/internal/stdout"
	"golang.org/x/sys/unix"
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

// RunTask makes one attempt at job num of a sweep, as a task of a Slurm array. SIGTERM (a preemption, a
// requeue, scancel) makes the job save its state. So does SIGUSR1, which comes when the time limit is
// near, and then the task queues itself again, as often as hydra.launcher.max_num_timeout allows.
// Further signals change nothing: Slurm ends with SIGKILL who does not end in time. The program must not
// end the process on signals itself.
func RunTask(ctx context.Context, sweep string, num int) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1)
	defer signal.Stop(signals)
	job, err := ReadJob(sweep, num)
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
	a, err := attempt(ctx, job, id)
	if err != nil {
		return err
	}
	by, _ := errors.AsType[*stopSignal](context.Cause(ctx))
	switch {
	case a.State == Done || a.State == Pruned:
		return nil
	case a.State != Interrupted || by == nil:
		return &TaskError{max(a.ExitCode, 1), fmt.Sprintf("job %d: %s: %s", num, a.State, a.Cause)}
	case by.signal != syscall.SIGUSR1 || id == "":
		a.Cause = by.Error() + ", state saved"
		return errors.Join(keep(job.Dir, a), &TaskError{128 + int(syscall.SIGTERM), fmt.Sprintf("job %d: %s", num, a.Cause)})
	}
	return nearLimit(job, a)
}

// stopSignal is the signal that ends a task.
type stopSignal struct{ signal syscall.Signal }

func (e *stopSignal) Error() string { return "stopped by " + unix.SignalName(e.signal) }

// attempt supervises the job once nobody else does: where a node has failed, Slurm may start a task again
// while its first process still lives.
func attempt(ctx context.Context, job Job, id string) (Attempt, error) {
	for said := false; ; said = true {
		a, err := Supervise(ctx, job, Supervision{ID: id, Env: []string{SupervisedEnv + "=1"}})
		if !errors.Is(err, ErrBusy) {
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
func nearLimit(job Job, a Attempt) error {
	all, err := Attempts(job.Dir)
	if err != nil {
		return err
	}
	met, limit := 1, os.Getenv(limitEnv)
	for _, b := range all {
		if b.ID == a.ID && b.Try != a.Try && strings.HasPrefix(b.Cause, timeLimit) {
			met++
		}
	}
	allowed, _ := strconv.Atoi(os.Getenv(maxTimeoutsEnv))
	if met > allowed {
		a.State, a.Ended = Failed, time.Now()
		a.Cause = fmt.Sprintf("%s of %s minutes met %s (hydra.launcher.timeout_min, hydra.launcher.max_num_timeout=%d); its state "+
			"is saved", timeLimit, limit, times(met), allowed)
		return errors.Join(keep(job.Dir, a), &TaskError{1, fmt.Sprintf("job %d: %s", job.Num, a.Cause)})
	}
	a.Cause = fmt.Sprintf("%s of %s minutes met %s of %d, state saved, queued again", timeLimit, limit, times(met), allowed)
	if err := keep(job.Dir, a); err != nil {
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
