package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// queue speaks to Slurm through its own commands. A controller of Slurm that does not answer, because it
// is restarted say, is asked again until it does, or until patience has passed.
type queue struct {
	warn     func(string)
	patience time.Duration
	silent   time.Time // when the first question went unanswered; zero: Slurm answers
}

// SilentError ends a sweep whose cluster has not answered for an hour.
type SilentError struct {
	Waited time.Duration
	Last   error // names the command and what it said
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("Slurm has not answered for %v (%v): jobs that it has go on, and `run resume` watches them again",
		e.Waited.Round(time.Second), e.Last)
}

func (e *SilentError) Unwrap() error { return e.Last }

// slurmTask is what squeue or sacct says about one task of an array.
type slurmTask struct {
	id      string // ARRAY_TASK
	state   string
	reason  string // why it waits
	node    string
	command string // script that it runs
}

// The kinds of Slurm's job states.
const (
	slurmWaits = iota // in the queue, or back in it
	slurmRuns         // has a node; also on its way there and back
	slurmOver         // will not run again
)

func (t slurmTask) kind() int {
	switch t.state {
	case "PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD":
		return slurmWaits
	case "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "PREEMPTED", "REVOKED":
		return slurmOver
	}
	return slurmRuns // RUNNING, CONFIGURING, COMPLETING, SUSPENDED, STOPPED, SIGNALING, RESIZING, STAGE_OUT, and what is new
}

// stuck reports whether a waiting task waits for a person, and not for its turn.
func (t slurmTask) stuck() bool {
	words := []string{"held", "badconstraints", "neversatisfied", "partitiondown", "partitioninactive", "invalid", "nodelimit", "timelimit",
		"partitionconfig"}
	low := strings.ToLower(t.reason)
	return t.state == "SPECIAL_EXIT" || t.state == "REQUEUE_HOLD" ||
		slices.ContainsFunc(words, func(word string) bool { return strings.Contains(low, word) })
}

// slurmError is a command of Slurm's that failed.
type slurmError struct {
	command string
	message string // its standard error on one line
	died    bool   // by a signal
}

func (e *slurmError) Error() string { return e.command + ": " + e.message }

// unreachable reports whether the command failed for want of an answer: asking again may help, and the
// request may have been heard.
func (e *slurmError) unreachable() bool {
	texts := []string{"Unable to contact slurm controller", "Socket timed out", "Connection refused", "Connection reset",
		"Zero Bytes were transmitted", "Transport endpoint is not connected", "in standby mode", "Unexpected message received",
		"Communication connection failure", "Unable to establish control", "authentication", "Munge", timedOut}
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(e.message, text) })
}

// command prepares a command of Slurm's, which a Ctrl-C at the terminal does not reach.
func slurmCommand(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	// Without what would make Slurm's commands print something else, or take over settings of the Slurm job that the sweep itself runs in.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "SQUEUE_") || strings.HasPrefix(kv, "SACCT_") || strings.HasPrefix(kv, "SCANCEL_") ||
			strings.HasPrefix(kv, "SLURM_") && !strings.HasPrefix(kv, "SLURM_CONF=") || strings.HasPrefix(kv, "SBATCH_ARRAY")
	})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// commandLimit is how long one of Slurm's commands may take. They give up by themselves long before it, unless
// they hang.
const commandLimit = 5 * time.Minute

// once runs a command and returns what it prints.
func once(name string, args ...string) (string, error) {
	cmd := slurmCommand(name, args...)
	var out strings.Builder
	cmd.Stdout = &out
	err := runCommand(cmd, commandLimit)
	return out.String(), err
}

// runCommand runs a command of Slurm's. One that is not done within limit is killed and counts as unanswered.
func runCommand(cmd *exec.Cmd, limit time.Duration) error {
	var errOut strings.Builder
	cmd.Stderr = &errOut
	cmd.WaitDelay = time.Second // a child may hold its output open
	name := filepath.Base(cmd.Args[0])
	if err := cmd.Start(); err != nil {
		return failure(name, err, "")
	}
	late := time.AfterFunc(limit, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err := cmd.Wait()
	switch {
	case !late.Stop() && err != nil:
		return &slurmError{name, fmt.Sprintf("%s: it did not end within %v", timedOut, limit), true}
	case err != nil:
		return failure(name, err, errOut.String())
	}
	return nil
}

// timedOut begins the message of a command that was killed because it hung.
const timedOut = "no answer"

// failure returns the error of a command that printed stderr.
func failure(name string, err error, stderr string) *slurmError {
	var lines []string
	for _, line := range strings.Split(stderr, "\n") {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{name + ": ", "error: ", "fatal: "} {
			line = strings.TrimPrefix(line, prefix)
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		lines = []string{err.Error()}
	}
	exit, ok := err.(*exec.ExitError)
	return &slurmError{name, strings.Join(lines, "; "), ok && exit.ExitCode() < 0}
}

// ask runs a command until Slurm's controller answers, patience has passed, or ctx ends.
func (q *queue) ask(ctx context.Context, name string, args ...string) (string, error) {
	for {
		out, err := once(name, args...)
		e, _ := err.(*slurmError)
		if e == nil || !e.unreachable() {
			q.answered()
			return out, err
		}
		if err := q.wait(ctx, e); err != nil {
			return "", err
		}
	}
}

// wait passes the time until Slurm is asked again, and says once that it does not answer. It returns a SilentError
// when patience has passed since the first question without an answer.
func (q *queue) wait(ctx context.Context, e *slurmError) error {
	if q.silent.IsZero() {
		q.silent = time.Now()
		q.warn(fmt.Sprintf("Slurm does not answer (%v); asking again for %v: jobs go on", e, q.patience))
	}
	if waited := time.Since(q.silent); waited > q.patience {
		return &SilentError{waited, e}
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w (%v)", ctx.Err(), e)
	case <-time.After(min(2*time.Second, q.patience)):
		return nil
	}
}

func (q *queue) answered() {
	if !q.silent.IsZero() {
		q.silent = time.Time{}
		q.warn("Slurm answers again")
	}
}

// list returns all tasks of this user that Slurm remembers, ended ones too.
func (q *queue) list(ctx context.Context) (map[string]slurmTask, error) {
	out, err := q.ask(ctx, "squeue", "--user="+strconv.Itoa(os.Getuid()), "--array", "--noheader", "--states=all", "--format=%i|%T|%r|%N|%o")
	if err != nil {
		return nil, err
	}
	tasks := map[string]slurmTask{}
	for _, line := range strings.Split(out, "\n") {
		if f := strings.SplitN(line, "|", 5); len(f) == 5 {
			tasks[f[0]] = slurmTask{f[0], f[1], f[2], f[3], f[4]}
		}
	}
	return tasks, nil
}

// account asks the accounting, where a cluster has one, about tasks that squeue has forgotten, and who
// cancelled those that were. The answers may be empty.
func (q *queue) account(ids []string) map[string]slurmTask {
	tasks := map[string]slurmTask{}
	for chunk := range slices.Chunk(ids, 500) {
		out, err := once("sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State,Reason,NodeList", "--jobs="+
			strings.Join(chunk, ","))
		if err != nil {
			continue // no accounting here
		}
		for _, line := range strings.Split(out, "\n") {
			if f := strings.SplitN(line, "|", 4); len(f) == 4 {
				state, by, _ := strings.Cut(f[1], " ") // CANCELLED by 1000
				tasks[f[0]] = slurmTask{id: f[0], state: state, reason: by, node: f[3]}
			}
		}
	}
	return tasks
}

// cancel ends tasks; with a signal it only sends it, to the batch process alone.
func (q *queue) cancel(ids []string, signal string) error {
	var args []string
	if signal != "" {
		args = []string{"--signal=" + signal, "--batch"}
	}
	for chunk := range slices.Chunk(ids, 500) {
		if _, err := once("scancel", slices.Concat(args, chunk)...); err != nil {
			return err
		}
	}
	return nil
}

// arraySize returns the number of indices that an array may have: they end before it.
func (q *queue) arraySize(ctx context.Context) (int, error) {
	out, err := q.ask(ctx, "scontrol", "show", "config")
	if e, ok := errors.AsType[*slurmError](err); ok && !e.unreachable() {
		return 0, fmt.Errorf("no Slurm cluster answers this machine's commands (%w): start the sweep on a login node, or use "+
			"hydra/launcher=local", err)
	}
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(out, "\n") {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == "MaxArraySize" {
			if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && n > 0 {
				return n, nil
			}
		}
	}
	return 1001, nil // Slurm's default
}

// ranges writes sorted numbers as sbatch reads them: 0-3,7.
func ranges(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(numbers[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(numbers[j]))
		}
		i = j + 1
	}
	return b.String()
}
