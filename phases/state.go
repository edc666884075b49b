package phases

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/digest"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/tensorfile"
)

// position is where a run stands: all that a resume needs besides weights, optimizer and frozen
// policies. It is saved as JSON; Go prints float64 so that reading gives the same bits.
type position struct {
	FormatVersion string `json:"format_version"`
	ConfigHash    string `json:"config_hash"`
	DataHash      string `json:"data_hash,omitempty"`

	PhaseIndex int    `json:"phase_index"`
	Phase      string `json:"phase"`
	Epoch      int    `json:"epoch"`            // finished epochs of the phase
	EpochSteps int    `json:"epoch_steps"`      // optimizer steps of the next epoch already done
	Step       int    `json:"step"`             // optimizer steps of the phase
	GlobalStep int    `json:"global_step"`      // optimizer steps of the run
	PhaseDone  bool   `json:"phase_done"`       // the phase ended here, by its epochs or by patience
	Pruned     string `json:"pruned,omitempty"` // why the run ended here

	Sums        sums            `json:"sums"` // of the epoch in progress
	Best        best            `json:"best"`
	History     []bestCandidate `json:"history"`               // every epoch that competes for best
	Rows        int             `json:"rows"`                  // of metrics.jsonl
	Evals       int             `json:"evals"`                 // of evals.jsonl
	Completions int             `json:"completions,omitempty"` // of completions.jsonl

	Doctor json.RawMessage `json:"doctor,omitempty"` // what its next findings depend on

	Weights    string          `json:"weights"` // file, relative to the checkpoints folder
	Values     json.RawMessage `json:"values"`  // the phase's own
	OptimSteps int             `json:"optim_steps"`
}

// Saved is a state found in a run folder.
type Saved struct {
	Dir string
	pos position
}

// GlobalStep, Phase, Epoch, Rows, Evals and Completions say what the state stands for.
func (s *Saved) GlobalStep() int  { return s.pos.GlobalStep }
func (s *Saved) Phase() string    { return s.pos.Phase }
func (s *Saved) Epoch() int       { return s.pos.Epoch }
func (s *Saved) Rows() int        { return s.pos.Rows }
func (s *Saved) Evals() int       { return s.pos.Evals }
func (s *Saved) Completions() int { return s.pos.Completions }

// ConfigHash is that of the configuration the state was saved under.
func (s *Saved) ConfigHash() string { return s.pos.ConfigHash }

// DataHash is that of the data the state was saved with; "": an older program's.
func (s *Saved) DataHash() string { return s.pos.DataHash }

const stateSuffix = ".state"

// sumsFile lists the SHA-256 of every file that a resume from a state reads, the checkpoints beside the
// folder included, as sha256sum does: `cd rce_epoch1.state && sha256sum -c SHA256SUMS`.
const sumsFile = "SHA256SUMS"

// save writes a state folder in one step: it is complete or absent. At the end of an epoch the weights
// are the checkpoint that pos.Weights names, in mid-epoch a file of the folder.
func (pos position) save(ckpt, name string, env *Env, phase Phase, midEpoch bool) error {
	s := phase.State()
	pos.FormatVersion, pos.ConfigHash, pos.DataHash = formatVersion, env.ConfigHash, env.DataHash
	pos.Values, pos.OptimSteps = s.Values, s.OptimizerSteps
	tmp, err := os.MkdirTemp(ckpt, "."+name+".tmp*")
	if err != nil {
		return fmt.Errorf("cannot save the state: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	names := []string{"../" + InitialCheckpoint, "optimizer.safetensors"}
	if midEpoch {
		pos.Weights = filepath.Join(name, "weights.safetensors")
		names = append(names, "weights.safetensors")
		if err := saveWeights(filepath.Join(tmp, "weights.safetensors"), env.Policy, pos.Phase, pos.Epoch, env.ConfigHash, nil); err != nil {
			return err
		}
	} else {
		names = append(names, "../"+pos.Weights)
	}
	if err := saveFlat(filepath.Join(tmp, "optimizer.safetensors"), map[string][]float32{"m": s.M, "v": s.V}); err != nil {
		return err
	}
	if len(s.Frozen) > 0 {
		names = append(names, "frozen.safetensors")
		if err := saveFlat(filepath.Join(tmp, "frozen.safetensors"), s.Frozen); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(pos, "", " ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(tmp, "state.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	if err := writeSums(tmp, append(names, "state.json")); err != nil {
		return err
	}
	final := filepath.Join(ckpt, name)
	if err := atomicfile.RemoveAll(final); err != nil { // left by a run that was killed after saving and resumed from before
		return err
	}
	if err := os.Rename(tmp, final); err != nil {
		return fmt.Errorf("cannot save the state: %w", err)
	}
	return atomicfile.SyncDir(ckpt)
}

func writeSums(dir string, names []string) error {
	slices.Sort(names)
	var text strings.Builder
	for _, name := range names {
		hash, _, err := digest.File(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", hash, name)
	}
	return atomicfile.Write(filepath.Join(dir, sumsFile), []byte(text.String()), 0o644)
}

// verify reads all files that a resume from the state folder dir needs and names the first that is not
// what was saved, and what to do about it.
func verify(dir string) error {
	path := filepath.Join(dir, sumsFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("damaged state: %w; %s", err, dropState(dir))
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) < 4 {
		return fmt.Errorf("%s: damaged: %d lines, want one for each file; %s", path, len(lines), dropState(dir))
	}
	for _, line := range lines {
		want, name, ok := strings.Cut(line, "  ")
		if !ok {
			return fmt.Errorf("%s: damaged line %q; %s", path, line, dropState(dir))
		}
		remedy := dropState(dir)
		if filepath.Base(name) == checkpointName("init", 0) {
			remedy = "every state needs it; " + startOver(filepath.Dir(dir))
		}
		switch hash, _, err := digest.File(filepath.Join(dir, name)); {
		case err != nil:
			return fmt.Errorf("%s needs %s: %w; %s", dir, name, err, remedy)
		case hash != want:
			return fmt.Errorf("%s: damaged (its content is not what was saved); %s", filepath.Join(dir, name), remedy)
		}
	}
	return nil
}

// dropState and startOver are what a user can do about a damaged file.
func dropState(dir string) string { return "remove " + dir + " to resume from the state before it" }

func startOver(ckpt string) string {
	return fmt.Sprintf("remove %s, and a resume starts over in %s", ckpt, filepath.Dir(ckpt))
}

// verifyRivals checks the digests of the checkpoints that competed for best up to the last of the states, which are in
// order of time: the run ends by loading one of them. Those that checkpoint.keep has removed are not missed.
func verifyRivals(ckpt string, states []*Saved) error {
	pos := states[len(states)-1].pos
	for _, c := range pos.History {
		if !c.Saved {
			continue
		}
		isBest := c.File == pos.Best.Candidate.File
		f, err := tensorfile.ReadSafetensors(filepath.Join(ckpt, c.File))
		switch {
		case err == nil:
			f.Close()
		case !isBest && errors.Is(err, fs.ErrNotExist):
		case !isBest:
			return fmt.Errorf("%w; it is not the best so far: remove it to resume without it", err)
		default:
			return fmt.Errorf("%w; it is the best so far, with which the run would end: %s", err, beforeIt(ckpt, states, c))
		}
	}
	return nil
}

// beforeIt says how to resume from the last state that does not know a checkpoint.
func beforeIt(ckpt string, states []*Saved, c bestCandidate) string {
	var newer []string
	for _, s := range slices.Backward(states) {
		if !slices.ContainsFunc(s.pos.History, func(h bestCandidate) bool { return h.File == c.File }) {
			return fmt.Sprintf("remove %s to resume from %s, before it was trained", strings.Join(newer, " and "), s.Dir)
		}
		newer = append(newer, s.Dir)
	}
	return startOver(ckpt)
}

// FindState returns the state that a resume of the run folder dir starts from: the furthest one. It
// returns nil when there is none, and an error that names the file when one is damaged.
func FindState(dir string) (*Saved, error) {
	ckpt := checkpointDir(dir)
	entries, err := os.ReadDir(ckpt)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []*Saved
	for _, e := range entries {
		if !e.IsDir() || !strings.HasSuffix(e.Name(), stateSuffix) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(ckpt, e.Name(), "state.json")
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("damaged state: %w; %s", err, dropState(filepath.Dir(path)))
		}
		s := &Saved{Dir: filepath.Join(ckpt, e.Name())}
		if err := jsonwords.Unmarshal(text, &s.pos); err != nil {
			return nil, fmt.Errorf("%s: damaged state: %w; %s", path, err, dropState(s.Dir))
		}
		if s.pos.FormatVersion != formatVersion {
			return nil, fmt.Errorf("%s: saved in format %q, this version reads %q", path, s.pos.FormatVersion, formatVersion)
		}
		found = append(found, s)
	}
	if len(found) == 0 {
		return nil, nil
	}
	slices.SortFunc(found, func(x, y *Saved) int {
		a, b := x.pos, y.pos
		return cmp.Or(cmp.Compare(a.GlobalStep, b.GlobalStep), cmp.Compare(a.PhaseIndex, b.PhaseIndex),
			cmp.Compare(b.EpochSteps, a.EpochSteps)) // the end of an epoch stands behind a state saved at its last step
	})
	last := found[len(found)-1]
	if err := verify(last.Dir); err != nil {
		return last, err
	}
	return last, verifyRivals(ckpt, found)
}

// restore loads the state into a phase that has begun.
func (s *Saved) restore(dir string, env *Env, phase Phase) error {
	if err := loadWeights(filepath.Join(checkpointDir(dir), s.pos.Weights), env.Policy); err != nil {
		return err
	}
	moments, err := loadFlat(filepath.Join(s.Dir, "optimizer.safetensors"))
	if err != nil {
		return err
	}
	ps := PhaseState{Values: s.pos.Values, M: moments["m"], V: moments["v"], OptimizerSteps: s.pos.OptimSteps}
	frozen := filepath.Join(s.Dir, "frozen.safetensors")
	if _, err := os.Stat(frozen); err == nil {
		if ps.Frozen, err = loadFlat(frozen); err != nil {
			return err
		}
	}
	if err := phase.Restore(ps); err != nil {
		return fmt.Errorf("%s: %w", s.Dir, err)
	}
	return nil
}
