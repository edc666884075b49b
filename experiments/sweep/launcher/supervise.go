package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fulcrum/experiments/runfolder"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/filelock"
	"fulcrum/internal/program"
	"fulcrum/internal/regular"
	"fulcrum/reports/record"
)

// TaskVerb is the command that ends a batch script of Slurm: run sweep-job SWEEP NUM.
const TaskVerb = "sweep-job"

// SupervisedEnv is set for a run that gets each signal of a queue twice, from the queue and from the supervisor: a second signal
// does not end the run at once.
const SupervisedEnv = "FULCRUM_SUPERVISED"

// tailLines is how many of a job's last lines the record of an attempt keeps, and lineBytes how much of each.
const (
	tailLines = 20
	lineBytes = 500
)

// Patience is how long a job that is told to end may take to save its state.
const Patience = 5 * time.Minute

// jobLog collects what a job's processes print; the supervisor of a job holds the lock of attemptLock.
const jobLog, attemptLock = "job.log", ".attempt"

// ErrBusy says that another process supervises the job.
var ErrBusy = errors.New("another process is running this job")

// Supervision is how an attempt runs; the zero value is right.
type Supervision struct {
	Program string        // default: this program
	By      []string      // command that starts the job's processes, such as srun with its arguments; none: the job is one process
	ID      string        // hydra.job.id; default: the number of the job
	Env     []string      // beside the job's own: what the launcher shares out
	Started func(Attempt) // called when the process runs
}

// Supervise makes one attempt at a job: a new run, or a resume of one that an earlier attempt left
// unfinished. It returns when the process has ended. When ctx ends the process is told to save its state.
// A job that has ended well before is not run again. The attempt is recorded in the job's run folder at
// its start and at its end; the process dies with its supervisor.
func Supervise(ctx context.Context, job Job, s Supervision) (Attempt, error) {
	if err := atomicfile.MkdirAll(job.Dir); err != nil {
		return Attempt{}, err
	}
	lock, err := regular.OpenFile(filepath.Join(job.Dir, attemptLock), os.O_CREATE|os.O_RDWR, 0o644) // until the process ends
	if err != nil {
		return Attempt{}, err
	}
	defer lock.Close()
	if filelock.Take(lock) != nil {
		return Attempt{}, ErrBusy
	}
	earlier, err := Attempts(job.Dir)
	if err != nil {
		return Attempt{}, err
	}
	a := Attempt{Num: job.Num, Try: 1, Host: hostname(), Started: time.Now()}
	if n := len(earlier); n > 0 {
		last := earlier[n-1]
		if a.Try = last.Try + 1; Ended(last.State) && last.State != Failed && last.State == standing(job.Dir) {
			return last, nil
		}
	} // a run that is done without a record of it is resumed: it writes what is missing and says so
	notBegun := Attempt{Num: job.Num, Host: a.Host, State: Interrupted, ExitCode: -1, Started: a.Started} // told to end before it began
	if err := free(ctx, job.Dir); ctx.Err() != nil {
		return notBegun, nil
	} else if err != nil {
		return a, err
	}
	if a.ID = s.ID; a.ID == "" {
		a.ID = strconv.Itoa(job.Num)
	}
	args := append(slices.Clone(job.Args), "hydra.job.id='"+a.ID+"'") // quoted: 12_3 alone is the number 123
	if a.Resumed = Begun(job.Dir); a.Resumed {
		args = []string{"resume", job.Dir}
	}
	out, err := regular.OpenFile(filepath.Join(job.Dir, jobLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return a, err
	}
	defer out.Close()
	tail := &tail{to: out}
	cmd, err := s.command(ctx, job, args, tail)
	if err != nil {
		return a, err
	}
	runtime.LockOSThread() // the parent-death signal follows the thread that started the child
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); ctx.Err() != nil && cmd.Process == nil {
		return notBegun, nil
	} else if err != nil {
		a.State, a.ExitCode, a.Cause, a.Ended = Failed, -1, err.Error(), time.Now()
		return a, Keep(job.Dir, a)
	}
	a.State, a.PID = Running, cmd.Process.Pid
	if err := Keep(job.Dir, a); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return a, err
	}
	if s.Started != nil {
		s.Started(a)
	}
	cmd.Wait() // the process's state says all
	tail.keep(string(tail.open))
	a.Ended, a.Tail = time.Now(), tail.kept
	a.ExitCode = cmd.ProcessState.ExitCode()
	a.State, a.Cause = outcome(job.Dir, cmd.ProcessState, ctx.Err() != nil, a.Tail)
	if a.State == Done || a.State == Pruned {
		a.Tail = nil // job.log has it
	}
	return a, Keep(job.Dir, a)
}

// command prepares the process of a job. What it prints goes to log.
func (s Supervision) command(ctx context.Context, job Job, args []string, log io.Writer) (*exec.Cmd, error) {
	path := s.Program
	if path == "" {
		var err error
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	words := slices.Concat(s.By, []string{path}, args)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	stop := syscall.SIGUSR1 // srun passes it on; at SIGTERM it kills its tasks
	if len(s.By) == 0 {
		stop = syscall.SIGTERM
		cmd.Args[0] = program.Called() // in the commands that the job prints: a sweep's kept program goes with its end
	}
	cmd.Dir = job.Cwd
	cmd.Env = slices.Concat(os.Environ(), s.Env, job.Env)
	cmd.Stdout, cmd.Stderr = log, log // equal: os/exec writes from one goroutine
	cmd.Cancel = func() error { return cmd.Process.Signal(stop) }
	cmd.WaitDelay = Patience
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

// outcome says how an attempt ended. A clean exit counts only with a summary that says so: what a job
// reports and what it left on disk must agree.
func outcome(dir string, p *os.ProcessState, stopped bool, tail []string) (state, cause string) {
	status := p.Sys().(syscall.WaitStatus)
	switch code := p.ExitCode(); {
	case status.Signaled():
		cause = "killed by " + unix.SignalName(status.Signal())
		if status.CoreDump() {
			cause += ", core dumped"
		}
		if stopped {
			return Interrupted, cause
		}
		return Failed, cause
	case code == 0:
		if state := standing(dir); state == Done || state == Pruned {
			return state, ""
		}
		return Failed, "the process exited with 0 and its summary.json does not say that the run is done"
	case code == 128+int(syscall.SIGINT), code == 128+int(syscall.SIGTERM), code == 128+int(syscall.SIGHUP):
		return Interrupted, "interrupted, state saved"
	case stopped && code == 128+int(syscall.SIGKILL): // srun ends the last of its tasks so, once the first has ended
		return Interrupted, "killed by SIGKILL"
	default:
		for i := len(tail) - 1; i >= 0; i-- {
			if text, ok := strings.CutPrefix(tail[i], "run: "); ok {
				return Failed, text
			}
		}
		if n := len(tail); n > 0 {
			return Failed, tail[n-1]
		}
		return Failed, fmt.Sprintf("exit code %d without a word", code)
	}
}

// standing returns Done or Pruned when the run in dir has ended well, "" otherwise.
func standing(dir string) string {
	s, err := record.ReadSummary(dir)
	if err != nil || s == nil {
		return ""
	}
	switch s.State {
	case record.StateDone:
		return Done
	case record.StatePruned:
		return Pruned
	}
	return ""
}

// Begun reports whether dir holds a run that can be gone on with: its configuration is the first file
// that a run writes.
func Begun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, runfolder.Marker))
	return err == nil
}

// Supervised reports whether some process is at work on the job in dir: a supervisor, or a run that a user
// has started there by hand.
func Supervised(dir string) bool {
	if filelock.Held(filepath.Join(dir, attemptLock)) {
		return true
	}
	orphan := orphaned(dir) // before the lock, which it lets go of before it is gone
	return runfolder.Locked(dir) && !orphan
}

// orphaned reports whether the process of the last attempt in dir, which nobody supervises any more, is still
// there: it dies with its supervisor, but not in the same instant.
func orphaned(dir string) bool {
	all, err := Attempts(dir)
	if err != nil || len(all) == 0 {
		return false
	}
	last := all[len(all)-1]
	return last.State == Running && last.Host == hostname() && processAlive(last.PID)
}

// processAlive reports whether a process of this machine has not ended. One that has, and that its parent has not
// asked about yet, is alive no more; its first thread may end before the others.
func processAlive(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil || len(threads) > 1 {
		return err == nil
	}
	stat, err := regular.ReadDocument(fmt.Sprintf("/proc/%d/stat", pid)) // 12 (name) S …
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return err == nil && !bytes.HasPrefix(state, []byte("Z")) && !bytes.HasPrefix(state, []byte("X"))
}

// free waits until nobody holds the lock of the run in dir: the process of a supervisor that was killed dies with
// it, but not in the same instant.
func free(ctx context.Context, dir string) error {
	for end := time.Now().Add(10 * time.Second); runfolder.Locked(dir); time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: another process is writing this run folder", dir)
		}
	}
	return nil
}

func hostname() string { name, _ := os.Hostname(); return name }

// tail keeps the last lines written to it. A carriage return begins its line anew, as on a terminal.
type tail struct {
	to   io.Writer // gets all that is written; on a full disk the job says so itself, and goes on
	kept []string
	open []byte
}

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	t.to.Write(p)
	for len(p) > 0 {
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			t.open = append(t.open, p...)
			break
		}
		t.open = append(t.open, p[:i]...)
		if p[i] == '\n' {
			t.keep(string(t.open))
			t.open = t.open[:0]
		} else if i+1 < len(p) && p[i+1] != '\n' {
			t.open = t.open[:0]
		}
		p = p[i+1:]
	}
	const long = 4096
	if len(t.open) > long {
		t.open = t.open[:long]
	}
	return n, nil
}

func (t *tail) keep(line string) {
	if line = strings.TrimSpace(strings.ToValidUTF8(line, "�")); line == "" {
		return
	}
	if len(line) > lineBytes {
		line = strings.ToValidUTF8(line[:lineBytes], "") + "…"
	}
	if t.kept = append(t.kept, line); len(t.kept) > tailLines {
		t.kept = t.kept[1:]
	}
}
