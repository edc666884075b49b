package record

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/regular"
)

const eventResume = "resume"

// Position is the point in a run that a saved state stands for. The zero Position is the start.
// Rows, Evals and Completions, from Log.Mark, decide what belongs to the state; the rest is for readers.
type Position struct {
	Phase       string
	Epoch       int
	Step        int // of the phase
	GlobalStep  int
	Rows        int // lines of metrics.jsonl, resume events not counted
	Evals       int // lines of evals.jsonl
	Completions int // lines of completions.jsonl
	// Passed says what was damaged and passed over to come to this position, for the report.
	Passed []string
}

// truncate cuts off what a run folder recorded behind the state at: rows of metrics.jsonl, lines of evals.jsonl and
// completions.jsonl, and torn ends of them, of run.log and of TensorBoard's events. Events of earlier resumes stay.
// Event files for TensorBoard stay too, since the next one tells it which steps to forget, unless the run starts over.
func truncate(dir string, at Position) error {
	for _, file := range []struct {
		name string
		keep int
	}{{MetricsFile, at.Rows}, {EvalsFile, at.Evals}, {CompletionsFile, at.Completions}} {
		if err := truncateFile(filepath.Join(dir, file.name), file.keep); err != nil {
			return err
		}
	}
	if err := filterLines(filepath.Join(dir, RunLogFile), func([]byte) bool { return true }); err != nil {
		return err
	}
	old, err := regular.Glob(dir, EventFilesPattern)
	if err != nil {
		return err
	}
	for _, path := range old {
		if at.Phase == "" && at.GlobalStep == 0 && at.Rows == 0 {
			err = os.Remove(path)
		} else {
			err = cutTornRecord(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cutTornRecord cuts off what a file of events holds behind its last whole record.
func cutTornRecord(path string) error {
	data, err := regular.ReadFile(path)
	if err != nil {
		return err
	}
	rest := data
	for len(rest) > 0 {
		if _, next, torn := wholeRecord(rest); torn == nil {
			rest = next
			continue
		}
		f, err := regular.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return errors.Join(f.Truncate(int64(len(data)-len(rest))), f.Sync())
	}
	return nil
}

// truncateFile keeps the first lines of a file, and events of resumes wherever they stand.
func truncateFile(path string, keep int) error {
	seen := 0
	err := filterLines(path, func(line []byte) bool {
		if isResumeLine(line) {
			return true
		}
		seen++
		return seen <= keep
	})
	if err == nil && seen < keep {
		return fmt.Errorf("%s: %d lines, the saved state knows %d: records are missing", path, seen, keep)
	}
	return err
}

// countRows counts the lines that truncateFile counts.
func countRows(path string) (int, error) {
	n := 0
	err := EachLine(path, func(line []byte) error {
		if !isResumeLine(line) {
			n++
		}
		return nil
	})
	return n, err
}

// isResumeLine recognises a resume event by the bytes that appendRow writes, without parsing them.
func isResumeLine(line []byte) bool {
	return bytes.HasPrefix(line, []byte(`{"kind":"event"`)) && bytes.Contains(line, []byte(`,"event":"resume"`))
}

// filterLines replaces the file by those of its whole lines that keep accepts. An absent file stays
// absent and an unchanged one is not written.
func filterLines(path string, keep func(line []byte) bool) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	out, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer out.Abort()
	w := bufio.NewWriterSize(out, 1<<16)
	kept := int64(0)
	_, err = readLines(path, 0, func(_ int, _ int64, line []byte) error {
		if !keep(line) {
			return nil
		}
		kept += int64(len(line))
		if _, err := w.Write(line); err != nil {
			return fmt.Errorf("cannot write %s: %w", path, err)
		}
		return nil
	})
	if err != nil || kept == info.Size() { // else lines go, or a torn one: the process died while writing it
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return out.Commit()
}
