package sweep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
)

// controllerLog is what a detached controller prints.
const controllerLog = "controller.log"

// Attach follows a sweep that another process controls until it ends, and takes over one that nobody controls.
func Attach(ctx context.Context, runs Runs, dir string) error {
	if err := LostLedger(dir); err != nil {
		return err
	}
	if !ledger.Exists(dir) {
		return usage.Errorf("%s: no sweep here: %s is missing", dir, ledger.FileName)
	}
	if !runfolder.Locked(dir) {
		stdout.Println("nobody controls this sweep: this process takes over")
		return Resume(ctx, runs, dir, Resumption{})
	}
	defer interrupt.Hold(func(cause error) error {
		return fmt.Errorf("%w; no longer following; the sweep goes on", cause)
	}).Release()
	log := &follower{path: filepath.Join(dir, controllerLog), out: stdout.Writer(), states: map[int]string{}}
	for runfolder.Locked(dir) {
		if err := log.follow(dir); err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond)
	}
	if err := log.follow(dir); err != nil {
		return err
	}
	return sweepOutcome(dir)
}

// follower prints what a detached controller appends to its log. One that runs in some terminal has none:
// then it prints the jobs' states as they change in the ledger.
type follower struct {
	path   string
	at     int64
	out    io.Writer
	states map[int]string // printed
}

func (f *follower) follow(dir string) error {
	file, err := regular.Open(f.path)
	if os.IsNotExist(err) {
		return f.changes(dir)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(f.at, io.SeekStart); err != nil {
		return err
	}
	n, err := io.Copy(f.out, file)
	f.at += n
	return err
}

// changes prints the jobs whose states are not those that were printed last.
func (f *follower) changes(dir string) error {
	_, jobs, err := ledger.Load(dir)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		if f.states[job.Num] == job.State || job.State == launcher.Queued {
			continue
		}
		f.states[job.Num] = job.State
		line := fmt.Sprintf("#%-4d %s", job.Num, job.State)
		for _, o := range job.Objectives {
			line += fmt.Sprintf("  %s %.4g", o.Name, float64(o.Value))
		}
		if job.Cause != "" {
			line += ": " + job.Cause
		}
		if _, err := fmt.Fprintf(f.out, "%s  %s\n", line, strings.Join(job.Overrides, " ")); err != nil {
			return err
		}
	}
	return nil
}

// sweepOutcome is the error that a sweep without a controller stands for.
func sweepOutcome(dir string) error {
	_, jobs, err := ledger.Load(dir)
	if err != nil {
		return err
	}
	counts := list.Tally(list.Map(jobs, func(j ledger.Job) string { return j.State }))
	if bad := len(jobs) - counts[launcher.Done] - counts[launcher.Pruned]; bad > 0 {
		return fmt.Errorf("%d of %d jobs failed or are missing; go on with %s", bad, len(jobs), program.OnFolder("resume", dir))
	}
	stdout.Printf("all %d jobs are done\nreport: %s\n", len(jobs), filepath.Join(dir, "report.md"))
	return nil
}

// Background starts this program in a session of its own, which no terminal's end reaches, and waits until it owns dir (owned), until it
// has ended, or for limit. What it prints goes to log.
func Background(ctx context.Context, dir string, log *os.File, limit time.Duration, args ...string) (pid int, owned bool, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, false, err
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, false, err
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	for deadline := time.After(limit); !runfolder.Locked(dir); {
		select {
		case err := <-gone: // a short one may have ended already
			return cmd.Process.Pid, false, err
		case <-ctx.Done():
			return cmd.Process.Pid, false, context.Cause(ctx)
		case <-deadline:
			return cmd.Process.Pid, false, ErrSlow
		case <-time.After(10 * time.Millisecond):
		}
	}
	return cmd.Process.Pid, true, nil
}

// ErrSlow says that a process in the background does nothing yet.
var ErrSlow = errors.New("it does not take over")

// detach leaves the sweep in dir to a process of its own and waits until that owns it.
func detach(ctx context.Context, dir string) error {
	log, err := regular.OpenFile(filepath.Join(dir, controllerLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	// Not by attach: it says that it takes over, to whoever follows the log, and leaves what has failed.
	pid, owned, err := Background(ctx, dir, log, time.Minute, "resume", dir)
	switch {
	case owned:
		stdout.Printf("sweep → %s\nprocess %d controls it; follow: %s, look: %s, stop: `kill %[2]d`\n", dir, pid,
			program.OnFolder("attach", dir), program.Command("status", dir))
		return nil
	case errors.Is(err, ErrSlow):
		return fmt.Errorf("the detached controller (process %d) does not take over: see %s", pid, log.Name())
	case ctx.Err() != nil:
		return err
	}
	text, _ := regular.ReadDocument(log.Name())
	stdout.Print(string(text))
	if err != nil {
		return fmt.Errorf("the detached sweep ended: %w (%s)", err, log.Name())
	}
	return nil
}
