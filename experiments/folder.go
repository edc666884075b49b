package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"fulcrum/configs"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/filelock"
	"fulcrum/internal/usage"
)

// folderError is a folder that a run or a sweep cannot have. It is a mistake in what was asked for where the
// path is to blame.
type folderError struct {
	dir string
	err error
}

func (e *folderError) Error() string {
	return fmt.Sprintf("cannot use the folder %s: %v", e.dir, e.err)
}

func (e *folderError) Unwrap() error { return e.err }

// ExitCode is 2 unless it is the disk's fault.
func (e *folderError) ExitCode() int {
	for _, fault := range []error{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.ENOMEM, unix.EMFILE, unix.ENFILE} {
		if errors.Is(e.err, fault) {
			return 1
		}
	}
	return 2
}

// InterruptedError says that a signal ended the run and whether its state is saved. It unwraps to
// context.Canceled, which the command line turns into exit code 128 + signal.
type InterruptedError struct {
	Cause   error // of the context's end
	Dir     string
	Outlive int  // jobs of a sweep that go on without this process
	Unsaved bool // of a task that writes its file at the end
}

func (e *InterruptedError) Error() string {
	if e.Outlive > 0 {
		return fmt.Sprintf("%v; %d jobs stay in the cluster's queue, follow them with:  run attach %s", e.Cause, e.Outlive, e.Dir)
	}
	if e.Unsaved {
		return fmt.Sprintf("%v; nothing was written, start again with:  run resume %s", e.Cause, e.Dir)
	}
	return fmt.Sprintf("%v; the state is saved, go on with:  run resume %s", e.Cause, e.Dir)
}

// Unwrap returns context.Canceled.
func (e *InterruptedError) Unwrap() error { return context.Canceled }

// folder is a run folder that this process owns.
type folder struct {
	dir   string
	lock  *os.File // .lock, which other machines see too and whose holder can be asked for
	whole *os.File // the folder itself; nil where the file system cannot lock folders
}

const (
	runMarker = ".hydra/config.yaml"
	lockFile  = ".lock"
)

// claim takes dir for a run: it makes the folder and holds its locks. A folder that another process
// writes is refused. The kernel's locks die with their holder; children don't inherit them (O_CLOEXEC).
func claim(dir string) (*folder, error) {
	err := atomicfile.MkdirAll(dir)
	if errors.Is(err, os.ErrNotExist) { // a run that was refused has just removed the folder of a day
		err = atomicfile.MkdirAll(dir)
	}
	if err != nil {
		return nil, &folderError{dir, err}
	}
	f := &folder{dir: dir}
	if f.whole, err = filelock.TakeFolder(dir); err == nil {
		err = f.takeFile(os.O_CREATE)
	}
	if err != nil {
		f.release()
	}
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return nil, usage.Errorf("%s: another process is writing this run folder", dir)
	case err != nil:
		return nil, &folderError{dir, err}
	}
	return f, nil
}

// takeFile opens and locks .lock.
func (f *folder) takeFile(flags int) error {
	lock, err := os.OpenFile(filepath.Join(f.dir, lockFile), os.O_RDWR|flags, 0o644)
	if err != nil {
		return err
	}
	if err := filelock.Take(lock); err != nil {
		lock.Close()
		return filelock.ErrHeld
	}
	if f.lock != nil {
		f.lock.Close()
	}
	f.lock = lock
	return nil
}

// held makes sure that the folder is still this process's. Somebody may have removed .lock; where the folder itself
// cannot be locked, another process may then have come in. A .lock that is gone is made again.
func (f *folder) held() error {
	mine, err := f.lock.Stat()
	if err != nil {
		return err
	}
	now, err := os.Stat(filepath.Join(f.dir, lockFile))
	switch {
	case err == nil && os.SameFile(mine, now):
		return nil
	case errors.Is(err, os.ErrNotExist):
		err = f.takeFile(os.O_CREATE | os.O_EXCL)
	case err == nil && f.whole != nil:
		err = f.takeFile(0)
	case err == nil:
		err = errors.New("it is another file than the one that this process has locked")
	}
	if err != nil {
		return fmt.Errorf("%s: %w: another process may be writing this run folder", filepath.Join(f.dir, lockFile), err)
	}
	return nil
}

func (f *folder) release() {
	for _, lock := range []*os.File{f.lock, f.whole} {
		if lock != nil {
			lock.Close()
		}
	}
}

// locked reports whether a process is writing dir.
func locked(dir string) bool { return filelock.Held(filepath.Join(dir, lockFile)) }

// isRun reports whether dir holds a run.
func isRun(dir string) bool {
	for _, name := range []string{runMarker, "metrics.jsonl", "summary.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// entries are the names in dir, nil when there is no such folder.
func entries(dir string) (map[string]bool, error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &folderError{dir, err}
	}
	names := map[string]bool{}
	for _, e := range list {
		names[e.Name()] = true
	}
	return names, nil
}

// unstarted reports whether names are all that a run leaves that was killed before its configuration
// was written.
func unstarted(names map[string]bool) bool {
	for name := range names {
		if name != lockFile && name != ".hydra" {
			return false
		}
	}
	return true
}

// refuseForeign refuses a folder that holds a run, unless the task may replace the files of an earlier
// run of its own kind there.
func refuseForeign(dir string, cfg *Config) error {
	if !isRun(dir) || cfg.Task != "train" && taskOf(dir) == cfg.Task {
		return nil
	}
	return usage.Errorf("%s already holds a run: go on with it (run resume %s), repeat it elsewhere (run --rerun %s hydra.run.dir=…) or name another hydra.run.dir", dir, dir, dir)
}

// taskOf returns the task of the run in dir, "" when that cannot be read.
func taskOf(dir string) string {
	var c struct {
		Task string `yaml:"task"`
	}
	text, err := os.ReadFile(filepath.Join(dir, runMarker))
	if err != nil || yaml.Unmarshal(text, &c) != nil {
		return ""
	}
	return c.Task
}

// clean removes the temporary files of a process that was killed. The folder holds a run or a sweep: in
// any other, what looks like a temporary file is somebody else's.
func (f *folder) clean() error {
	for _, sub := range []string{"", ".hydra", "plots", "checkpoints", modelFolder} {
		entries, err := os.ReadDir(filepath.Join(f.dir, sub))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if atomicfile.IsTemp(e.Name()) {
				if err := os.RemoveAll(filepath.Join(f.dir, sub, e.Name())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// reuse removes what an earlier run of the same kind recorded.
func (f *folder) reuse() error {
	for _, name := range []string{"summary.json", "manifest.json", "metrics.jsonl", "evals.jsonl", "completions.jsonl"} {
		if err := os.RemoveAll(filepath.Join(f.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// globLiteral makes a path mean itself in a pattern.
func globLiteral(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// firstMissing returns the outermost folder on the way to dir that does not exist, absolute; "" where dir is there.
func firstMissing(dir string) string {
	path, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	missing := ""
	for ; path != filepath.Dir(path); path = filepath.Dir(path) {
		if _, err := os.Lstat(path); err == nil {
			break
		}
		missing = path
	}
	return missing
}

// forget removes all that this process wrote beside the files that were there before: nothing was run. The folders
// from made ("": none) to this one go too where they are empty.
func (f *folder) forget(before map[string]bool, made string) {
	for _, pattern := range []string{".hydra", "metrics.jsonl", "evals.jsonl", "completions.jsonl", "summary.json", "manifest.json", "report.md", "report.html", "run.log", "mlflow.json", "plots", "checkpoints", "model", "events.out.tfevents.*", ".lock"} {
		old, _ := filepath.Glob(filepath.Join(globLiteral(f.dir), pattern))
		for _, path := range old {
			if !before[filepath.Base(path)] {
				os.RemoveAll(path)
			}
		}
	}
	path, err := filepath.Abs(f.dir)
	if err != nil || made == "" {
		return
	}
	for ; os.Remove(path) == nil && path != made; path = filepath.Dir(path) {
	}
}

// snapshot writes what Hydra writes: .hydra/config.yaml, hydra.yaml, overrides.yaml. The marker that
// makes the folder a run comes last.
func (f *folder) snapshot(c *configs.Composed) error {
	dir := filepath.Join(f.dir, ".hydra")
	if err := atomicfile.MkdirAll(dir); err != nil {
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
