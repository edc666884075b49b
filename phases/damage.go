package phases

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/digest"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/regular"
)

// sumsFile lists the SHA-256 of every file that a resume from a state reads, the checkpoints beside the
// folder included, as sha256sum does: `cd rce_epoch1.state && sha256sum -c SHA256SUMS`. The digests are taken of the bytes in
// memory, before a disk can change them.
const sumsFile = "SHA256SUMS"

// leastSums is the least number of files of a state: itself, the optimizer's, the weights, the initial weights.
const leastSums = 4

// damageError reports damage that makes a state useless for a resume. Other reading errors may leave the file whole.
type damageError struct{ error }

func damaged(format string, args ...any) error { return &damageError{fmt.Errorf(format, args...)} }

// states are the saved states of a run folder.
type states struct {
	ckpt   string
	found  []*Saved // in order of time
	broken []error  // one for each folder whose state.json is not a state
	files  digest.Files
}

// FindState returns the furthest state of the run folder dir, from which a resume starts, or nil if there is no state. It reads
// all files of all states and returns an error that names the first damaged one, the furthest state's before others.
func FindState(dir string) (*Saved, error) {
	_, whole, faults, err := furthest(dir)
	if err == nil && len(faults) > 0 {
		return nil, faults[0]
	}
	return whole, err
}

// FindWhole is FindState for checkpoint.on_damage=previous: it returns the furthest state that needs no damaged file. If there
// are states and none is whole, it returns an error.
func FindWhole(dir string) (*Saved, error) {
	s, whole, faults, err := furthest(dir)
	switch {
	case err != nil || whole == nil && len(faults) == 0:
		return nil, err
	case whole == nil:
		return nil, fmt.Errorf("%w (checkpoint.on_damage=previous: no state before it is whole)", faults[0])
	}
	for _, err := range faults {
		what, _, _ := strings.Cut(err.Error(), "; ") // the rest is advice
		whole.Passed = append(whole.Passed, strings.ReplaceAll(what, s.ckpt+string(filepath.Separator), ""))
	}
	slices.Sort(whole.Passed)
	whole.Passed = slices.Compact(whole.Passed)
	return whole, nil
}

// furthest reads the states of a run folder and returns the furthest that needs no damaged file, nil if there is none, and all damage.
func furthest(dir string) (s states, whole *Saved, faults []error, err error) {
	if s, err = readStates(dir); err != nil {
		return s, nil, nil, err
	}
	faults = s.broken
	for i := len(s.found) - 1; i >= 0; i-- {
		err := s.verify(i)
		if err == nil && whole == nil {
			err = s.verifyRivals(i)
		}
		if _, ok := errors.AsType[*damageError](err); err != nil && !ok {
			return s, nil, nil, err
		}
		if err != nil {
			faults = append(faults, err)
		} else if whole == nil {
			whole = s.found[i]
		}
	}
	return s, whole, faults, nil
}

// States returns the saved states of the run folder dir, in order of time.
func States(dir string) ([]*Saved, error) {
	s, err := readStates(dir)
	return s.found, err
}

// Written returns the digests of the checkpoints of the run folder dir, by path in it, at the time of writing.
func Written(dir string) map[string]string {
	out := map[string]string{}
	s, err := readStates(dir)
	if err != nil {
		return out // a resume reports the error
	}
	for _, saved := range s.found {
		for name, sum := range saved.pos.Written {
			out["checkpoints/"+name] = sum
		}
	}
	return out
}

// readStates reads the positions of the states of a run folder, no weights.
func readStates(dir string) (states, error) {
	s := states{ckpt: checkpointDir(dir), files: digest.Files{}}
	entries, err := os.ReadDir(s.ckpt)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasSuffix(e.Name(), stateSuffix) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		of := &Saved{Dir: filepath.Join(s.ckpt, e.Name())}
		path := filepath.Join(of.Dir, "state.json")
		text, err := regular.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		if err == nil {
			err = jsonwords.Unmarshal(text, &of.pos)
		}
		switch {
		case err != nil:
			s.broken = append(s.broken, damaged("%s: damaged state: %w; %s", path, err, dropState(of.Dir)))
		case of.pos.FormatVersion != formatVersion:
			return s, fmt.Errorf("%s: saved in format %q, this version reads %q", path, of.pos.FormatVersion, formatVersion)
		default:
			s.found = append(s.found, of)
		}
	}
	slices.SortFunc(s.found, func(x, y *Saved) int {
		a, b := x.pos, y.pos
		return cmp.Or(cmp.Compare(a.GlobalStep, b.GlobalStep), cmp.Compare(a.PhaseIndex, b.PhaseIndex),
			cmp.Compare(b.EpochSteps, a.EpochSteps)) // the end of an epoch stands behind a state saved at its last step
	})
	return s, nil
}

// verify reads all files that a resume from state number i needs. The error names the first file that has changed since it was
// saved, and the remedy.
func (s states) verify(i int) error {
	dir := s.found[i].Dir
	remedy := dropState(dir)
	if i < len(s.found)-1 {
		remedy = "a resume from a later state does not need it: remove " + dir
	}
	sums, err := digest.ReadSums(filepath.Join(dir, sumsFile), leastSums)
	if isFailure(err) {
		return err
	}
	if err != nil {
		return damaged("damaged state: %w; %s", err, remedy)
	}
	all, err := sums.Damaged(dir, s.files)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if len(all) == 0 {
		return nil
	}
	bad := all[0]
	if filepath.Base(bad.Name) == InitialCheckpoint {
		remedy = "every state needs it; " + startOver(s.ckpt)
	}
	if bad.Got == "" {
		return damaged("%s needs %s: no such file; %s", dir, filepath.Join(dir, bad.Name), remedy)
	}
	return damaged("%s: damaged (its content is not what was saved); %s", filepath.Join(dir, bad.Name), remedy)
}

// dropState and startOver are remedies of a damaged file.
func dropState(dir string) string { return "remove " + dir + " to resume from the state before it" }

func startOver(ckpt string) string {
	return fmt.Sprintf("remove %s, and a resume starts over in %s", ckpt, filepath.Dir(ckpt))
}

// verifyRivals checks the digests of the checkpoints that competed for best up to state number i: the run ends by loading one of
// them. Checkpoints that checkpoint.keep has removed are not missed.
func (s states) verifyRivals(i int) error {
	pos := s.found[i].pos
	for _, c := range pos.History {
		path := filepath.Join(s.ckpt, c.File)
		isBest := c.File == pos.Best.Candidate.File
		err := s.verifyCheckpoint(path, pos.Written[c.File])
		switch {
		case !c.Saved || err == nil || !isBest && errors.Is(err, fs.ErrNotExist):
		case isFailure(err):
			return err
		case !isBest:
			return damaged("%w; it is not the best so far: remove it%s to resume without it", err, s.andState(path))
		default:
			return damaged("%w; it is the best so far, with which the run would end: %s", err, s.beforeIt(i, c))
		}
	}
	return nil
}

// verifyCheckpoint compares a file with the digest at writing.
func (s states) verifyCheckpoint(path, want string) error {
	got, err := s.files.Of(path)
	switch {
	case err != nil:
		return err
	case got == "":
		return &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case got != want:
		return fmt.Errorf("%s: damaged (its content is not what was saved)", path)
	}
	return nil
}

// isFailure reports an error of reading, as opposed to a file that is missing or holds something else.
func isFailure(err error) bool {
	_, failed := errors.AsType[*fs.PathError](err)
	return failed && !errors.Is(err, fs.ErrNotExist)
}

// andState names the state that needs a checkpoint of its epoch; "": no state does.
func (s states) andState(checkpoint string) string {
	dir := strings.TrimSuffix(checkpoint, ".safetensors") + stateSuffix
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return " and " + dir
}

// beforeIt says how to resume from the last state up to number i that does not know a checkpoint.
func (s states) beforeIt(i int, c bestCandidate) string {
	var newer []string
	for _, of := range slices.Backward(s.found[:i+1]) {
		if !slices.ContainsFunc(of.pos.History, func(h bestCandidate) bool { return h.File == c.File }) {
			return fmt.Sprintf("remove %s to resume from %s, before it was trained", strings.Join(newer, " and "), of.Dir)
		}
		newer = append(newer, of.Dir)
	}
	return startOver(s.ckpt)
}
