package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"gopkg.in/yaml.v3"

	"fulcrum/configs"
	"fulcrum/internal/atomicfile"
)

// UsageError is a mistake in what was asked for: exit code 2.
type UsageError struct{ Msg string }

func (e *UsageError) Error() string { return e.Msg }

// ExitCode is 2: nothing was run.
func (e *UsageError) ExitCode() int { return 2 }

func usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// InterruptedError says that a signal ended the run and its state is saved. It unwraps to
// context.Canceled, which the command line turns into exit code 128 + signal.
type InterruptedError struct {
	Cause error // of the context's end
	Dir   string
}

func (e *InterruptedError) Error() string {
	return fmt.Sprintf("%v; the state is saved, go on with:  run resume %s", e.Cause, e.Dir)
}

// Unwrap returns context.Canceled.
func (e *InterruptedError) Unwrap() error { return context.Canceled }

// folder is a run folder that this process owns.
type folder struct {
	dir  string
	lock *os.File
}

const runMarker = ".hydra/config.yaml"

// claim takes dir for a run: it makes the folder and holds its lock. A folder that another process
// writes is refused.
func claim(dir string) (*folder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("hydra.run.dir=%s: %w", dir, err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("hydra.run.dir=%s: %w", dir, err)
	}
	// The kernel's lock dies with its holder; children don't inherit it (O_CLOEXEC).
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, usagef("%s: another process is writing this run folder", dir)
	}
	return &folder{dir, lock}, nil
}

func (f *folder) release() { f.lock.Close() }

// isRun reports whether dir holds a run.
func isRun(dir string) bool {
	for _, name := range []string{runMarker, "metrics.jsonl", "summary.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// empty reports whether dir is absent or has nothing in it but a lock.
func empty(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("hydra.run.dir=%s: %w", dir, err)
	}
	for _, e := range entries {
		if e.Name() != ".lock" {
			return false, nil
		}
	}
	return true, nil
}

// snapshot writes what Hydra writes: .hydra/config.yaml, hydra.yaml, overrides.yaml. The marker that
// makes the folder a run comes last.
func (f *folder) snapshot(c *configs.Composed) error {
	dir := filepath.Join(f.dir, ".hydra")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, file := range []struct{ name, which string }{{"hydra.yaml", "hydra"}, {"config.yaml", "job"}} {
		text, err := c.YAML(file.which, false, "")
		if err != nil {
			return err
		}
		if file.which == "job" { // overrides first: a folder with a config has all three
			overrides, err := yaml.Marshal(c.TaskOverrides())
			if err != nil {
				return err
			}
			if err := atomicfile.Write(filepath.Join(dir, "overrides.yaml"), overrides, 0o644); err != nil {
				return err
			}
		}
		if err := atomicfile.Write(filepath.Join(dir, file.name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
