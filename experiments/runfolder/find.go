package runfolder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"fulcrum/internal/regular"
	"fulcrum/reports/record"
)

// maxDepth is how far below a folder runs are looked for: multirun/DATE/TIME/N, and a few folders more.
const maxDepth = 7

// Find returns the run folders at or below root, in order of their names. Hidden folders and links are left out.
func Find(root string) ([]string, error) {
	var found []string
	if target, err := filepath.EvalSymlinks(root); err == nil && IsRun(target) {
		return []string{root}, nil
	}
	root = strings.TrimSuffix(root, "/") + "/" // it may be a link
	depth := strings.Count(filepath.Clean(root), string(filepath.Separator))
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && path == root && !errors.Is(err, syscall.ENOTDIR):
			return err
		case err != nil: // a folder that may not be read, or is gone by now
			return nil
		case !entry.IsDir():
			return nil
		case path != root && strings.HasPrefix(entry.Name(), "."), strings.Count(path, string(filepath.Separator))-depth > maxDepth:
			return fs.SkipDir
		case IsRun(path):
			found = append(found, path)
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}

// Readable says which record of a run is no file, or is too large to be one; nil where all can be read, or are not there.
func Readable(dir string) error {
	for _, name := range []string{Marker, ".hydra/overrides.yaml", "metrics.jsonl", "evals.jsonl", record.SummaryFile} {
		path := filepath.Join(dir, name)
		err := regular.Check(path)
		if info, statErr := os.Stat(path); err == nil && statErr == nil && info.Size() > regular.Document && !strings.HasSuffix(name, ".jsonl") {
			_, err = regular.ReadDocument(path) // says so
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// State returns the state of a run: record.StateOf of its lock and its summary.
func State(dir string) string {
	locked := Locked(dir) // first: a process that ends in between has written its summary by then
	s, err := record.ReadSummary(dir)
	if err != nil || s == nil {
		return record.StateOf(locked, "")
	}
	return record.StateOf(locked, s.State)
}
