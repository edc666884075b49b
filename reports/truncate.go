package reports

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"fulcrum/internal/atomicfile"
)

const eventResume = "resume"

// Position is the point in a run that a saved state stands for. The zero Position is the start.
//
// Rows and Evals, from Log.Mark, decide exactly what belongs to the state. A Position without them is
// judged by its steps: right whenever everything about an epoch is recorded before its state is saved.
type Position struct {
	Phase      string `json:"phase"`
	Epoch      int    `json:"epoch"` // last finished epoch of Phase, 0 before the first
	GlobalStep int    `json:"global_step"`
	Rows       int    `json:"rows"`  // lines of metrics.jsonl, resume events not counted
	Evals      int    `json:"evals"` // lines of evals.jsonl
}

func (p Position) counted() bool { return p.Rows > 0 || p == (Position{}) }

// Truncate cuts off what a run folder recorded behind the state at: rows of metrics.jsonl, lines of
// evals.jsonl and torn last lines. Events of earlier resumes stay. Event files for TensorBoard stay
// too, since the next one tells it which steps to forget, unless the run starts over.
func Truncate(dir string, at Position) error {
	if err := truncateRows(dir, at); err != nil {
		return err
	}
	if err := truncateEvals(dir, at); err != nil {
		return err
	}
	if at != (Position{}) {
		return nil
	}
	old, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

func truncateRows(dir string, at Position) error {
	path := filepath.Join(dir, metricsFile)
	kept := 0
	behind := false // a row of at.Phase behind the state has been seen
	return filterLines(path, func(line []byte) (bool, error) {
		if isResumeLine(line) {
			return true, nil
		}
		if at.counted() {
			kept++
			return kept <= at.Rows, nil
		}
		r, err := parseRow(line)
		if err != nil {
			return false, err
		}
		behind = behind || r.GlobalStep > at.GlobalStep || r.Phase == at.Phase && r.Kind != KindStep && r.Epoch > at.Epoch
		return !behind, nil
	})
}

func isResume(r Row) bool { return r.Kind == KindEvent && r.Text("event") == eventResume }

// isResumeLine is isResume on the bytes that appendRow writes, without the cost of parsing them.
func isResumeLine(line []byte) bool {
	return bytes.HasPrefix(line, []byte(`{"kind":"event"`)) && bytes.Contains(line, []byte(`,"event":"resume"`))
}

// filterLines replaces the file by those of its whole lines that keep accepts. An absent file stays
// absent and an unchanged one is not written.
func filterLines(path string, keep func(line []byte) (bool, error)) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	out, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer out.Abort()
	w := bufio.NewWriterSize(out, 1<<16)
	in := bufio.NewReaderSize(f, 1<<16)
	changed := false
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			changed = changed || len(line) > 0 // a torn line: the process died while writing it
			break
		}
		if err != nil {
			return err
		}
		ok, err := keep(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			return fmt.Errorf("%s:%d: damaged line: %w", path, n, err)
		}
		if !ok {
			changed = true
			continue
		}
		if _, err := w.Write(line); err != nil {
			return fmt.Errorf("cannot write %s: %w", path, err)
		}
	}
	if !changed {
		return nil
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return out.Commit()
}

// countRows counts the rows of metrics.jsonl that are no resume events, after dropping a torn line.
func countRows(dir string) (int, error) {
	n := 0
	err := filterLines(filepath.Join(dir, metricsFile), func(line []byte) (bool, error) {
		if !isResumeLine(line) {
			n++
		}
		return true, nil
	})
	return n, err
}
