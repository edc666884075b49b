// Package recorded computes rewards of recorded candidates and judges an order of them.
package recorded

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/option"
	"fulcrum/internal/registry"
	"fulcrum/rewardutil/group"
)

// Field names one score of a trajectory; it is a bit of Trajectory.Has.
type Field uint8

// The scores of a recorded trajectory, named as in the beam files.
const (
	Correct   Field = 1 << iota // vqa_correct, 0 or 1
	AccScore                    // vqa_acc_score, VQA accuracy in [0, 1]
	GTProb                      // vqa_gt_prob, probability of the ground truth in [0, 1]
	RelScore                    // vqa_rel_score, best of token F1 and edit similarity, in [0, 1]
	BeamScore                   // beam_score, whatever the generator ranked by
	LogProb                     // logprob_score, nats
)

// Trajectory is what a beam file records about one candidate, as far as rewards need it: six numbers
// and a mask of those present, so that millions fit in memory. An absent or null number is 0.
type Trajectory struct {
	Correct, AccScore, GTProb, RelScore, BeamScore, LogProb float64

	Has Field // union of the fields present
}

// Set stores one score and marks it present.
func (t *Trajectory) Set(f Field, v float64) {
	t.Has |= f
	switch f {
	case Correct:
		t.Correct = v
	case AccScore:
		t.AccScore = v
	case GTProb:
		t.GTProb = v
	case RelScore:
		t.RelScore = v
	case BeamScore:
		t.BeamScore = v
	case LogProb:
		t.LogProb = v
	}
}

// Options configures how a trajectory becomes one number (Reward), and the weights of a reward's levels (Combine).
type Options struct {
	// which recorded scores make the reward
	Mode string `koanf:"mode" free:"field"`

	// recorded number of a trajectory that is its reward; null = what mode makes of the scores it knows
	Field *string `koanf:"field"`

	// weight of vqa_correct
	HardWeight float64 `koanf:"hard_weight" range:"(-inf,inf)" when:"!mode=vqa_gt_prob|vqa_acc_score|beam_score"`
	// weight of vqa_acc_score, or of vqa_gt_prob in the gtprob modes
	SoftWeight float64 `koanf:"soft_weight" range:"(-inf,inf)" when:"!mode=vqa_gt_prob|vqa_acc_score|beam_score"`
	// weight of vqa_rel_score (hard_plus_gtprob_plus_rel)
	RelWeight float64 `koanf:"rel_weight" range:"(-inf,inf)" when:"mode=hard_plus_gtprob_plus_rel"`
	// weight of the beam's quality (legacy mode)
	Alpha float64 `koanf:"alpha" range:"(-inf,inf)" when:"mode=legacy"`
	// weight of correctness (legacy mode)
	Beta float64 `koanf:"beta" range:"(-inf,inf)" when:"mode=legacy"`
	// correctness as 0..1 or -1..1 (legacy mode)
	CorrectnessMode string `koanf:"correctness_mode" enum:"01,pm1" when:"mode=legacy"`
	// quality is -logprob_score where present (legacy mode)
	UseLogProb bool `koanf:"use_logprob" when:"mode=legacy"`
	// a NaN reward counts as +5, as in the Python reference, instead of being an error
	NaNIsBest bool `koanf:"nan_is_best"`

	// weights of further levels in the total: coherence (mean cosine of query to examples and of neighbours), diversity
	// (1 - mean pairwise cosine of the examples), task (VQA accuracy where known), beam (the reward above; 1)
	Levels map[string]float64 `koanf:"levels" range:"(-inf,inf)"`
}

const (
	BeamLevel      = "beam"
	CoherenceLevel = "coherence"
	DiversityLevel = "diversity"
	TaskLevel      = "task"
)

// Weight returns the weight of a level: the beam's alone has one that is not given.
func (o Options) Weight(level string) float64 {
	if w, ok := o.Levels[level]; ok || level != BeamLevel {
		return w
	}
	return 1
}

// DefaultOptions returns the reference's default mode and weights, and the beam level alone.
func DefaultOptions() Options {
	return Options{Mode: "hard_plus_soft", HardWeight: 1, SoftWeight: 1, RelWeight: 0.1, CorrectnessMode: "01"}
}

// rewardLimit bounds the rewards of the reference's modes.
const rewardLimit = 5

// Modes returns the names that mode accepts.
func Modes() []string { return list.Map(modes(), func(m mode) string { return m.name }) }

func (Options) Choices() map[string][]string { return map[string][]string{"mode": Modes()} }

// Validate reports an unknown mode, a weight that is not a number, and a reward that could only be 0.
func (o Options) Validate() error {
	var errs []error
	m, known := byName()[o.Mode]
	if !known {
		errs = append(errs, option.Errorf("mode", "%s", modeError(o.Mode)))
	}
	errs = append(errs, option.OneOf("correctness_mode", o.CorrectnessMode, "01", "pm1"))
	for _, level := range slices.Sorted(maps.Keys(o.Levels)) {
		errs = append(errs, option.OneOf("levels."+level, level, BeamLevel, CoherenceLevel, DiversityLevel, TaskLevel))
	}
	if o.Weight(BeamLevel) == 0 && !o.UsesSequence() && o.Weight(TaskLevel) == 0 {
		errs = append(errs, option.Errorf("levels.beam", "all levels weigh 0: every reward would be 0"))
	}
	if m.validate != nil {
		errs = append(errs, m.validate(o))
	}
	return errors.Join(errs...)
}

func modeError(mode string) string {
	list := strings.Join(Modes(), ", ")
	if mode == "hybrid" {
		return "hybrid is named by the Python reference but was never written there; want one of " + list
	}
	return registry.Unknown("reward mode", mode, Modes()).Error()
}

// Reward returns the trajectory's reward under o.Mode (modes). A reward that is not finite is an error, unless
// NaNIsBest; so is a recorded number that is absent.
func (o Options) Reward(t Trajectory) (float64, error) {
	m, known := byName()[o.Mode]
	if !known {
		return 0, errors.New(modeError(o.Mode))
	}
	if m.number != 0 && t.Has&m.number == 0 {
		return 0, fmt.Errorf("reward %s: the trajectory does not record it", o.Mode)
	}
	r := m.reward(o, t)
	if math.IsNaN(r) && o.NaNIsBest {
		return rewardLimit, nil // the reference's max(-5, min(5, NaN))
	}
	if m.number != 0 {
		if err := group.CheckReward(r); err != nil {
			return 0, fmt.Errorf("reward %s is %v: %w", o.Mode, r, err)
		}
		return r, nil
	}
	if math.IsNaN(r) || math.IsInf(r, 0) && !o.NaNIsBest {
		return 0, fmt.Errorf("reward %s is %v: want finite scores (vqa_correct %v, vqa_acc_score %v, vqa_gt_prob %v, "+
			"vqa_rel_score %v, beam_score %v, logprob_score %v)",
			o.Mode, r, t.Correct, t.AccScore, t.GTProb, t.RelScore, t.BeamScore, t.LogProb)
	}
	return max(-rewardLimit, min(rewardLimit, r)), nil
}

// Missing returns the name of a score that o.Mode makes the reward of and that t lacks, or "". A score with weight 0 is
// not wanted; of a single recorded number Reward says that it is absent.
func (o Options) Missing(t Trajectory) string {
	m := byName()[o.Mode]
	if m.parts == nil {
		return ""
	}
	for _, p := range m.parts(o, t) {
		if p.weight != 0 && t.Has&p.any == 0 {
			return p.name
		}
	}
	return ""
}
