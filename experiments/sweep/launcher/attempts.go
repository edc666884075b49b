package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/regular"
)

const attemptsFile = "attempts.jsonl"

// Attempts reads the attempts that were recorded in a job's run folder, one each. One without an end
// has State Running. A line that is no attempt, as a crash or a full disk leaves it, is left out.
func Attempts(dir string) ([]Attempt, error) {
	text, err := regular.ReadDocument(filepath.Join(dir, attemptsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Attempt
	for line := range bytes.Lines(text) {
		var a Attempt
		if json.Unmarshal(line, &a) != nil || a.Try < 1 || a.State == "" {
			continue
		}
		if n := len(all); n > 0 && all[n-1].Try == a.Try {
			all[n-1] = a
			continue
		}
		all = append(all, a)
	}
	return all, nil
}

// Keep appends an attempt to the file in its job's run folder and waits until it is on disk.
func Keep(dir string, a Attempt) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	f, err := regular.OpenFile(filepath.Join(dir, attemptsFile), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err != nil {
		return err
	} else if size > 0 { // a line that a crash cut short must not swallow this one
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			text = append([]byte{'\n'}, text...)
		}
	}
	if _, err := f.Write(append(text, '\n')); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return atomicfile.SyncDir(dir) // the file may be new
}
