// Package runfolder is the folder of a run: who owns it, what makes it a run, its saved configuration, and what a
// process that was killed left in it. A sweep's folder is claimed the same way.
package runfolder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"fulcrum/configs"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/filelock"
	"fulcrum/internal/interrupt"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/regular"
	"fulcrum/internal/usage"
	"fulcrum/reports/record"
)

// Folder is the folder of a run or sweep that this process owns.
type Folder struct {
	Dir   string
	lock  *os.File // .lock, which other machines see too and whose holder can be asked for
	whole *os.File // the folder itself; nil where the file system cannot lock folders
	link  string   // hydra.output_subdir where that is not .hydra
}

const (
	lockFile = ".lock"
	// Marker is the file that makes a folder a run.
	Marker = ".hydra/config.yaml"
	// ModelFolder is where a run from random weights keeps config.json, tokenizer and preprocessor.
	ModelFolder = "model"
)

// Claim takes dir for a run: it makes the folder and holds its locks. A folder that another process
// writes is refused. The kernel's locks die with their holder; children don't inherit them (O_CLOEXEC).
func Claim(dir string) (*Folder, error) {
	err := atomicfile.MkdirAll(dir)
	if errors.Is(err, os.ErrNotExist) { // a run that was refused has just removed the folder of a day
		err = atomicfile.MkdirAll(dir)
	}
	if err != nil {
		return nil, &Error{dir, err}
	}
	f := &Folder{Dir: dir}
	if f.whole, err = filelock.TakeFolder(dir); err == nil {
		err = f.takeFile(os.O_CREATE)
	}
	if err == nil {
		err = f.lock.Truncate(0) // it may name the machines of earlier processes
	}
	if err != nil {
		f.Release()
	}
	switch {
	case errors.Is(err, filelock.ErrHeld):
		return nil, usage.Errorf("%s: another process is writing this run folder", dir)
	case err != nil:
		return nil, &Error{dir, err}
	}
	return f, nil
}

// takeFile opens and locks .lock.
func (f *Folder) takeFile(flags int) error {
	lock, err := regular.OpenFile(filepath.Join(f.Dir, lockFile), os.O_RDWR|flags, 0o644)
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

// Held makes sure that the folder is still this process's. Somebody may have removed .lock; where the folder itself
// cannot be locked, another process may then have come in. A .lock that is gone is made again.
func (f *Folder) Held() error {
	mine, err := f.lock.Stat()
	if err != nil {
		return err
	}
	now, err := os.Stat(filepath.Join(f.Dir, lockFile))
	switch {
	case err == nil && os.SameFile(mine, now):
		return nil
	case errors.Is(err, os.ErrNotExist):
		err = f.takeFile(os.O_CREATE | os.O_EXCL)
	case err == nil && f.whole != nil:
		err = f.takeFile(0)
	case err == nil:
		err = errors.New("it is not the file that this process has locked")
	}
	if err != nil {
		return fmt.Errorf("%s: %w: another process may be writing this run folder", filepath.Join(f.Dir, lockFile), err)
	}
	return nil
}

func (f *Folder) Release() {
	for _, lock := range []*os.File{f.lock, f.whole} {
		if lock != nil {
			lock.Close()
		}
	}
}

// Share writes the machines of the run's processes, by rank, into the file that this one has locked.
func (f *Folder) Share(hosts []string) error {
	_, err := f.lock.WriteAt([]byte(strings.Join(hosts, "\n")), 0)
	return err
}

// Hosts returns the machines of the processes that write dir, by rank; none where it is one process.
func Hosts(dir string) []string {
	text, _ := regular.ReadFile(filepath.Join(dir, lockFile)) // a run that has just ended and begun anew elsewhere: none
	return strings.Fields(string(text))
}

// Locked reports whether a process is writing dir.
func Locked(dir string) bool { return filelock.Held(filepath.Join(dir, lockFile)) }

// Holder returns the process of this machine that is writing dir, 0 where there is none that can be seen.
func Holder(dir string) (pid int, err error) { return filelock.Holder(filepath.Join(dir, lockFile)) }

// IsRun reports whether dir holds a run.
func IsRun(dir string) bool {
	return slices.ContainsFunc([]string{Marker, "metrics.jsonl", "summary.json"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// Entries returns the names in dir, nil when there is no such folder.
func Entries(dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &Error{dir, err}
	}
	return list.SetBy(entries, fs.DirEntry.Name), nil
}

// Unstarted reports whether names are all that a run leaves that was killed before its configuration was written.
func Unstarted(names map[string]bool) bool {
	for name := range names {
		if name != lockFile && name != ".hydra" {
			return false
		}
	}
	return true
}

// RefuseForeign refuses a folder that holds a run, unless the task, which does not train, may replace the files of an earlier
// run of its own kind there.
func RefuseForeign(dir, task string, trains bool) error {
	if !IsRun(dir) || !trains && TaskOf(dir) == task {
		return nil
	}
	return usage.Errorf("%s already holds a run: name another hydra.run.dir, go on with it: %s, or repeat it elsewhere: %s", dir,
		program.OnFolder("resume", dir), program.Command("--rerun", dir, "hydra.run.dir=NEW_FOLDER"))
}

// TaskOf returns the task of the run in dir, "" when that cannot be read.
func TaskOf(dir string) string {
	var c struct {
		Task string `yaml:"task"`
	}
	text, err := regular.ReadDocument(filepath.Join(dir, Marker))
	if err != nil || yaml.Unmarshal(text, &c) != nil {
		return ""
	}
	return c.Task
}

// ours are the folders in a run folder with temporary files of this program alone.
func ours() []string {
	return []string{".hydra", "plots", "checkpoints", "pictures", "stages", ".board", "wandb", ModelFolder}
}

// Clean removes the temporary files of a process that was killed. The folder holds a run: in any other, what looks like a temporary
// file is somebody else's.
func (f *Folder) Clean() error {
	for _, sub := range ours() {
		if err := cleanBelow(filepath.Join(f.Dir, sub)); err != nil {
			return err
		}
	}
	return clean(f.Dir)
}

// CleanConfig is Clean for a folder that does not hold a run yet, and may hold something else: a process may have been killed while it
// wrote the configuration.
func (f *Folder) CleanConfig() error { return cleanBelow(filepath.Join(f.Dir, ".hydra")) }

// CleanSweep is Clean for the folder of a sweep. Its jobs, which may be at work, clean their own.
func (f *Folder) CleanSweep() error {
	for _, sub := range []string{"", ".hydra", "plots", ".sweep", ".board"} {
		if err := clean(filepath.Join(f.Dir, sub)); err != nil {
			return err
		}
	}
	return nil
}

// clean removes the temporary files and folders in dir, which may not exist.
func clean(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if atomicfile.IsTemp(e.Name()) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// cleanBelow is clean for dir and all folders below it.
func cleanBelow(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !e.IsDir():
			return nil
		}
		return clean(path)
	})
}

// recorded are the files in which a run says what it was and did.
func recorded() []string {
	return []string{".hydra", "metrics.jsonl", "evals.jsonl", "completions.jsonl", "system.jsonl", "summary.json", "manifest.json",
		record.LooksFile, "report.md", "report.html"}
}

// written are all files and folders of a run that it alone writes; others have options that name them.
func written() []string {
	return append(recorded(), record.RunLogFile, "mlflow.json", "wandb", "plots", "checkpoints", ModelFolder, record.EventFilesPattern,
		lockFile)
}

// Writes reports whether path is, or lies in, what a run writes into its folder: no place for another file.
func Writes(path string) bool {
	own := append(written(), "infer.json", "selections.jsonl", "near_duplicates.jsonl")
	return slices.ContainsFunc([]string{path, filepath.Dir(path)}, func(path string) bool {
		like := func(pattern string) bool { ok, _ := filepath.Match(pattern, filepath.Base(path)); return ok }
		return IsRun(filepath.Dir(path)) && slices.ContainsFunc(own, like)
	})
}

// Reuse takes what an earlier run of the same kind recorded out of the way, until end removes it, or puts it back.
func (f *Folder) Reuse() (end func(back bool), err error) {
	aside, remove, err := interrupt.Folder(f.Dir, ".before.tmp*")
	log := filepath.Join(f.Dir, record.RunLogFile) // goes on
	logged, _ := os.Stat(log)
	end = func(back bool) {
		defer remove()
		if back && logged != nil {
			os.Truncate(log, logged.Size())
		}
		entries, _ := os.ReadDir(aside)
		for _, entry := range entries {
			if at := filepath.Join(f.Dir, entry.Name()); back && os.RemoveAll(at) == nil {
				os.Rename(filepath.Join(aside, entry.Name()), at)
			}
		}
	}
	for _, name := range recorded() {
		if err == nil {
			err = os.Rename(filepath.Join(f.Dir, name), filepath.Join(aside, name))
		}
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		end(true)
	}
	return end, err
}

// FirstMissing returns the outermost folder on the way to dir that does not exist, absolute; "" where dir is there.
func FirstMissing(dir string) string {
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

// Forget removes all that this process wrote beside the files that were there before: nothing was run. The folders
// from made ("": none) to this one go too where they are empty.
func (f *Folder) Forget(before map[string]bool, made string) {
	for _, pattern := range written() {
		old, _ := regular.Glob(f.Dir, pattern)
		for _, path := range old {
			if !before[filepath.Base(path)] {
				os.RemoveAll(path)
			}
		}
	}
	for link := f.link; link != "" && link != "." && os.Remove(filepath.Join(f.Dir, link)) == nil; link = filepath.Dir(link) {
	}
	path, err := filepath.Abs(f.Dir)
	if err != nil || made == "" {
		return
	}
	for ; os.Remove(path) == nil && path != made; path = filepath.Dir(path) {
	}
}

// Snapshot writes what Hydra writes: .hydra/config.yaml, hydra.yaml, overrides.yaml. The marker that
// makes the folder a run comes last.
func (f *Folder) Snapshot(c *configs.Composed) error {
	dir := filepath.Join(f.Dir, ".hydra")
	if err := atomicfile.MkdirAll(dir); err != nil {
		return err
	}
	hydra, err := c.YAML("hydra", false, "")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, "hydra.yaml"), []byte(hydra), 0o644); err != nil {
		return err
	}
	overrides, err := yaml.Marshal(c.TaskOverrides())
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, "overrides.yaml"), overrides, 0o644); err != nil {
		return err
	}
	return f.Renew(c)
}

// Renew writes the configuration of the run alone, with which it goes on.
func (f *Folder) Renew(c *configs.Composed) error {
	text, err := c.YAML("job", false, "")
	if err != nil {
		return err
	}
	if err := f.writeResolved(c, text); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(f.Dir, Marker), []byte(text), 0o644)
}

// writeResolved keeps what interpolations stand for now: readers of the folder compare numbers.
func (f *Folder) writeResolved(c *configs.Composed, composed string) error {
	path := filepath.Join(f.Dir, record.ResolvedFile)
	if !strings.Contains(composed, "${") {
		return os.RemoveAll(path)
	}
	resolved, err := c.YAML("job", true, "")
	if err != nil {
		return err
	}
	var before, after any
	if err := errors.Join(yaml.Unmarshal([]byte(composed), &before), yaml.Unmarshal([]byte(resolved), &after)); err != nil {
		return err
	}
	values := record.Resolved(before, after)
	if values == nil {
		return os.RemoveAll(path)
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, text, 0o644)
}

// Link makes a folder of another name, hydra.output_subdir, lead to .hydra: one configuration, which a resume reads.
func (f *Folder) Link(name string) error {
	if name == "" || name == ".hydra" {
		return nil
	}
	link := filepath.Join(f.Dir, name)
	target, err := filepath.Rel(filepath.Dir(link), filepath.Join(f.Dir, ".hydra"))
	if err != nil {
		return err
	}
	if is, err := os.Readlink(link); err == nil && is == target {
		return nil
	}
	first, _, _ := strings.Cut(name, "/")
	if _, err := os.Lstat(link); err == nil || slices.Contains(ours(), first) {
		return usage.Errorf("hydra.output_subdir=%s: a run has that name for something else: want another", name)
	}
	if err := atomicfile.MkdirAll(filepath.Dir(link)); err != nil {
		return err
	}
	f.link = name
	return os.Symlink(target, link)
}
