package reports

import (
	"bufio"
	"bytes"
	"encoding/json"
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
// Sizes, from Log.Sync, decide exactly what belongs to the state. A Position without them is judged
// by its steps: right whenever all about an epoch is recorded before its state is saved.
type Position struct {
	Phase      string           `json:"phase"`
	Epoch      int              `json:"epoch"` // last finished epoch of Phase, 0 before the first
	GlobalStep int              `json:"global_step"`
	Sizes      map[string]int64 `json:"sizes"` // bytes of metrics.jsonl and evals.jsonl
}

// atStart says that nothing of the run is left: it begins anew.
func (p Position) atStart() bool { return p.GlobalStep == 0 && p.Sizes == nil }

// Truncate cuts off what a run folder recorded behind the state at: rows of metrics.jsonl, lines of
// evals.jsonl and torn last lines. Events of earlier resumes stay. Event files for TensorBoard stay
// too, since the next one tells it which steps to forget, unless the run starts over.
func Truncate(dir string, at Position) error {
	if err := truncateFile(dir, metricsFile, at, rowBehind(at)); err != nil {
		return err
	}
	if err := truncateFile(dir, evalsFile, at, evalBehind(at)); err != nil {
		return err
	}
	if !at.atStart() {
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

// truncateFile cuts a file at the state's size of it, or without one from the first line behind it.
func truncateFile(dir, name string, at Position, behind func(line []byte) (bool, error)) error {
	path := filepath.Join(dir, name)
	limit, known := at.Sizes[name]
	if info, err := os.Stat(path); known && limit > 0 && (err != nil || info.Size() < limit) {
		return fmt.Errorf("%s: shorter than the %d bytes that the saved state knows: records are missing", path, limit)
	}
	var offset int64
	cut := at.atStart()
	return filterLines(path, func(line []byte) (bool, error) {
		offset += int64(len(line)) + 1
		switch {
		case isResumeLine(line):
			return true, nil
		case known:
			return offset <= limit, nil
		case !cut:
			var err error
			if cut, err = behind(line); err != nil {
				return false, err
			}
		}
		return !cut, nil
	})
}

// rowBehind says which row of metrics.jsonl is the first behind a state known by its steps.
func rowBehind(at Position) func([]byte) (bool, error) {
	return func(line []byte) (bool, error) {
		r, err := parseRow(line)
		return r.GlobalStep > at.GlobalStep || r.Phase == at.Phase && r.Kind != KindStep && r.Epoch > at.Epoch, err
	}
}

// evalBehind is rowBehind for evals.jsonl.
func evalBehind(at Position) func([]byte) (bool, error) {
	return func(line []byte) (bool, error) {
		var e struct {
			Phase string `json:"phase"`
			Epoch int    `json:"epoch"`
		}
		err := json.Unmarshal(line, &e)
		return e.Phase == at.Phase && e.Epoch > at.Epoch, err
	}
}

// isResumeLine recognises a resume event by the bytes that appendRow writes, without parsing them.
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
