package phases

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"fulcrum/internal/account"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/digest"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/ranks"
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
	Metric      string          `json:"metric,omitempty"`      // that chooses the best
	Rows        int             `json:"rows"`                  // of metrics.jsonl
	Evals       int             `json:"evals"`                 // of evals.jsonl
	Completions int             `json:"completions,omitempty"` // of completions.jsonl

	// Scores by which later candidates are compared, query by query: those of the highest, and with restore_best those of the highest
	// of the phase.
	HighestScores []float64 `json:"highest_scores,omitempty"`
	PhaseScores   []float64 `json:"phase_scores,omitempty"`

	Doctor  json.RawMessage `json:"doctor,omitempty"`  // its memory of earlier rows
	Account []account.Of    `json:"account,omitempty"` // of the phases that have begun

	Inputs  []string    `json:"inputs,omitempty"` // name and digest of each file that the run reads while it trains
	Written digest.Sums `json:"written"`          // of the checkpoints

	Weights    string          `json:"weights"` // file, relative to the checkpoints folder
	Values     json.RawMessage `json:"values"`  // the phase's own
	OptimSteps int             `json:"optim_steps"`
}

// Saved is a state found in a run folder.
type Saved struct {
	Dir string
	pos position
	// Passed names what was damaged and passed over on the way to this state.
	Passed []string
}

// GlobalStep, Phase, Epoch, Step, Rows, Evals and Completions say what the state stands for.
func (s *Saved) GlobalStep() int  { return s.pos.GlobalStep }
func (s *Saved) Phase() string    { return s.pos.Phase }
func (s *Saved) Epoch() int       { return s.pos.Epoch }
func (s *Saved) Step() int        { return s.pos.Step }
func (s *Saved) Rows() int        { return s.pos.Rows }
func (s *Saved) Evals() int       { return s.pos.Evals }
func (s *Saved) Completions() int { return s.pos.Completions }

// Checkpoints are the files that the run had written when the state was saved; some may be gone.
func (s *Saved) Checkpoints() []string { return slices.Sorted(maps.Keys(s.pos.Written)) }

// Inputs are the name and the digest of each file that the run was reading.
func (s *Saved) Inputs() []string { return s.pos.Inputs }

// ConfigHash and DataHash are those of the configuration and the data that the state was saved with.
func (s *Saved) ConfigHash() string { return s.pos.ConfigHash }
func (s *Saved) DataHash() string   { return s.pos.DataHash }

const stateSuffix = ".state"

// weightsFile holds the weights of a state in mid-epoch.
const weightsFile = "weights.safetensors"

// state copies what a state folder holds to the host, and returns the writing of it; from other processes than rank 0 it takes their part
// and returns nil. At the end of an epoch the weights are the checkpoint that pos.Weights names, and the writing may go on beside training;
// in mid-epoch they are a file of the folder, written from the policy.
func (pos position) state(ckpt, name string, env *Env, phase Phase, midEpoch bool) (write func() error, err error) {
	s := phase.State()
	if err := s.join(env.Ranks); err != nil || !env.Ranks.First() {
		return nil, err
	}
	pos.FormatVersion, pos.ConfigHash, pos.DataHash = formatVersion, env.ConfigHash, env.DataHash
	pos.Values, pos.OptimSteps = s.Values, s.OptimizerSteps
	sums := digest.Sums{"../" + InitialCheckpoint: pos.Written[InitialCheckpoint]}
	if midEpoch {
		pos.Weights = filepath.Join(name, weightsFile)
	} else {
		sums["../"+pos.Weights] = pos.Written[pos.Weights]
	}
	text, err := json.MarshalIndent(pos, "", " ")
	if err != nil {
		return nil, err
	}
	return func() error {
		return saveFolder(ckpt, name, func(dir string) (err error) {
			if midEpoch {
				sums[weightsFile], err = saveWeights(filepath.Join(dir, weightsFile), env.Policy, pos.Phase, pos.Epoch, env.ConfigHash, nil)
			}
			if err != nil {
				return err
			}
			return s.write(dir, sums, append(text, '\n'))
		})
	}, nil
}

// join gives rank 0 the moments of all processes, each of which has its share.
func (s *PhaseState) join(by *ranks.Group) error {
	if by == nil {
		return nil
	}
	for _, moments := range []*[]float32{&s.M, &s.V} {
		all, err := by.Collect("the moments of a state", bytesOf(*moments))
		if err != nil {
			return err
		}
		if by.First() {
			*moments = floatsOf(slices.Concat(all...))
		}
	}
	return nil
}

// saveFolder writes a folder in one step: it is complete or absent.
func saveFolder(ckpt, name string, write func(dir string) error) error {
	tmp, err := os.MkdirTemp(ckpt, "."+name+".tmp*")
	if err != nil {
		return fmt.Errorf("cannot save the state: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := write(tmp); err != nil {
		return err
	}
	final := filepath.Join(ckpt, name)
	// A run that was killed after saving, and resumed from before, has left one, which goes when this one stands in its place.
	if _, err = os.Lstat(final); err == nil {
		err = unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, final, unix.RENAME_EXCHANGE)
	}
	if err != nil { // there is none, or the file system cannot exchange them
		if err = atomicfile.RemoveAll(final); err == nil {
			err = os.Rename(tmp, final)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot save the state: %w", err)
	}
	return atomicfile.SyncDir(ckpt)
}

// write writes the files of a state, of which position is state.json, to the folder dir. sums has the digests of the weights.
func (s PhaseState) write(dir string, sums digest.Sums, position []byte) (err error) {
	const moments, frozen, state = "optimizer.safetensors", "frozen.safetensors", "state.json"
	if sums[moments], err = saveFlat(filepath.Join(dir, moments), map[string][]float32{"m": s.M, "v": s.V}); err != nil {
		return err
	}
	if len(s.Frozen) > 0 {
		if sums[frozen], err = saveFlat(filepath.Join(dir, frozen), s.Frozen); err != nil {
			return err
		}
	}
	sums[state] = digest.Of(position)
	if err := atomicfile.Write(filepath.Join(dir, state), position, 0o644); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, sumsFile), sums.Text(), 0o644)
}

// whole is what the files of a saved state hold, as it travels to the other processes.
type whole struct {
	Weights []float32
	Phase   PhaseState
}

// share gives every process the state that rank 0 resumes from; nil: the run starts.
func (s *Saved) share(by *ranks.Group) (*Saved, error) {
	if by == nil {
		return s, nil
	}
	var position []byte
	var err error
	if s != nil {
		position, err = json.Marshal(s.pos)
	}
	if position, err = ranks.Share(by, "the saved state", position, err); err != nil || by.First() || len(position) == 0 {
		return s, err
	}
	s = &Saved{}
	return s, jsonwords.Unmarshal(position, &s.pos)
}

// restore loads the state, which rank 0 reads, into a phase that has begun.
func (s *Saved) restore(env *Env, phase Phase) error {
	var ps PhaseState
	var err error
	if env.Ranks.First() {
		ps, err = s.read(env)
	}
	if env.Ranks != nil && err == nil {
		var all whole
		all, err = ranks.Share(env.Ranks, "the saved optimizer", whole{Weights: env.Policy.Params().Values(), Phase: ps}, nil)
		if ps = all.Phase; err == nil && !env.Ranks.First() {
			env.Policy.Params().SetValues(all.Weights)
		}
	}
	if err != nil {
		return err
	}
	if err := phase.Restore(ps); err != nil {
		return fmt.Errorf("%s: %w", s.Dir, err)
	}
	return nil
}

// read loads the state's weights into the policy, and reads what the phase needs.
func (s *Saved) read(env *Env) (ps PhaseState, err error) {
	if err := loadWeights(filepath.Join(checkpointDir(env.Dir), s.pos.Weights), env.Policy); err != nil {
		return ps, err
	}
	moments, err := loadFlat(filepath.Join(s.Dir, "optimizer.safetensors"))
	if err != nil {
		return ps, err
	}
	ps = PhaseState{Values: s.pos.Values, M: moments["m"], V: moments["v"], OptimizerSteps: s.pos.OptimSteps}
	frozen := filepath.Join(s.Dir, "frozen.safetensors")
	if _, err := os.Stat(frozen); err == nil {
		if ps.Frozen, err = loadFlat(frozen); err != nil {
			return ps, err
		}
	}
	return ps, nil
}
