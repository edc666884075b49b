// Package recorded computes rewards of recorded candidates and judges an order of them.
package recorded

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

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

// RewardOptions says how a trajectory becomes one number (see Reward), and how the levels of a reward
// are weighed (see Combine).
type Options struct {
	// which recorded scores make the reward
	Mode string `koanf:"mode" enum:"hard_plus_soft,hard_plus_soft_v2,separated,hard_only,soft_only,hard01_plus_gtprob,hard01_plus_gtprob_separated,hard_plus_gtprob_plus_rel,legacy,vqa_gt_prob,vqa_acc_score,beam_score"`

	// recorded number of a trajectory that is its reward, whatever it is called; null = what mode makes of the
	// scores it knows
	Field *string `koanf:"field"`

	// weight of vqa_correct
	HardWeight float64 `koanf:"hard_weight" range:"(-inf,inf)"`
	// weight of vqa_acc_score, or of vqa_gt_prob in the gtprob modes
	SoftWeight float64 `koanf:"soft_weight" range:"(-inf,inf)"`
	// weight of vqa_rel_score (hard_plus_gtprob_plus_rel)
	RelWeight float64 `koanf:"rel_weight" range:"(-inf,inf)"`
	// weight of the beam's quality (legacy mode)
	Alpha float64 `koanf:"alpha" range:"(-inf,inf)"`
	// weight of correctness (legacy mode)
	Beta float64 `koanf:"beta" range:"(-inf,inf)"`
	// correctness as 0..1 or -1..1 (legacy mode)
	CorrectnessMode string `koanf:"correctness_mode" enum:"01,pm1"`
	// quality is -logprob_score where present (legacy mode)
	UseLogProb bool `koanf:"use_logprob"`
	// a NaN reward counts as +5, as in the Python reference, instead of being an error
	NaNIsBest bool `koanf:"nan_is_best"`

	// beam level: weight of the reward above in the total
	BeamWeight float64 `koanf:"beam_weight" range:"(-inf,inf)"`
	// sequence level: weight of the mean cosine of query to examples and of neighbours
	CoherenceWeight float64 `koanf:"coherence_weight" range:"(-inf,inf)"`
	// sequence level: weight of 1 - mean pairwise cosine of the examples
	DiversityWeight float64 `koanf:"diversity_weight" range:"(-inf,inf)"`
	// task level: weight of the VQA accuracy, where it is known
	TaskWeight float64 `koanf:"task_weight" range:"(-inf,inf)"`
}

// DefaultRewardOptions returns the reference's default mode and weights, and the beam level alone.
func DefaultOptions() Options {
	return Options{
		Mode: "hard_plus_soft", HardWeight: 1, SoftWeight: 1, RelWeight: 0.1,
		CorrectnessMode: "01", BeamWeight: 1,
	}
}

// rewardLimit bounds the rewards of the reference's modes.
const rewardLimit = 5

// RewardModes returns the names that mode accepts.
func Modes() []string {
	return []string{
		"hard_plus_soft", "hard_plus_soft_v2", "separated", "hard_only", "soft_only",
		"hard01_plus_gtprob", "hard01_plus_gtprob_separated", "hard_plus_gtprob_plus_rel",
		"legacy", "vqa_gt_prob", "vqa_acc_score", "beam_score",
	}
}

// Validate reports an unknown mode, a weight that is no number, and a reward that could only be 0.
func (o Options) Validate() error {
	var errs []error
	if !slices.Contains(Modes(), o.Mode) {
		errs = append(errs, option.Errorf("mode", "%s", modeError(o.Mode)))
	}
	errs = append(errs, option.OneOf("correctness_mode", o.CorrectnessMode, "01", "pm1"))
	if o.Field != nil && *o.Field == "" {
		errs = append(errs, option.Errorf("field", "want the name of a recorded number, or null"))
	}
	if o.BeamWeight == 0 && o.CoherenceWeight == 0 && o.DiversityWeight == 0 && o.TaskWeight == 0 {
		errs = append(errs, option.Errorf("beam_weight", "all level weights are 0: every reward would be 0"))
	}
	// compat (nan_is_best) may: alpha = beta = 0 are the reference's own defaults
	if o.Mode == "legacy" && o.Alpha == 0 && o.Beta == 0 && o.BeamWeight != 0 && !o.NaNIsBest {
		errs = append(errs, option.Errorf("alpha", "alpha and beta are both 0: every legacy reward would be 0"))
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

// Reward returns the trajectory's reward under o.Mode. With h = vqa_correct, s = vqa_acc_score,
// p = vqa_gt_prob, e = vqa_rel_score (absent = 0) and the weights wh, ws, wr:
//
//	hard_plus_soft                 wh·h + ws·s
//	hard_plus_soft_v2              ws·s + 2·wh·h
//	separated                      ws·s + (2·wh if h is exactly 1)
//	hard_only, soft_only           wh·h, ws·s
//	hard01_plus_gtprob             wh·h + ws·p
//	hard01_plus_gtprob_separated   ws·p + (2·wh if h is exactly 1)
//	hard_plus_gtprob_plus_rel      wh·h + ws·p + wr·(1-h)·e
//	legacy                         alpha·quality + beta·correctness
//	vqa_gt_prob, vqa_acc_score, beam_score   the recorded number itself
//
// The first nine are the reference's and are cut to ±5 like there; the last three are ours and are not
// cut, but must be present. A reward that is not finite is an error, unless NaNIsBest. Source: parity
// specification §2.
func (o Options) Reward(t Trajectory) (float64, error) {
	var r float64
	switch o.Mode {
	case "hard_plus_soft":
		r = o.HardWeight*t.Correct + o.SoftWeight*t.AccScore
	case "hard_plus_soft_v2":
		r = o.SoftWeight*t.AccScore + 2*o.HardWeight*t.Correct
	case "separated":
		r = o.SoftWeight*t.AccScore + o.bonus(t)
	case "hard_only":
		r = o.HardWeight * t.Correct
	case "soft_only":
		r = o.SoftWeight * t.AccScore
	case "hard01_plus_gtprob":
		r = o.HardWeight*t.Correct + o.SoftWeight*t.GTProb
	case "hard01_plus_gtprob_separated":
		r = o.SoftWeight*t.GTProb + o.bonus(t)
	case "hard_plus_gtprob_plus_rel":
		r = o.HardWeight*t.Correct + o.SoftWeight*t.GTProb + o.RelWeight*(1-t.Correct)*t.RelScore
	case "legacy":
		r = o.Alpha*o.quality(t) + o.Beta*o.correctness(t)
	case "vqa_gt_prob":
		return o.recorded(t, GTProb, t.GTProb)
	case "vqa_acc_score":
		return o.recorded(t, AccScore, t.AccScore)
	case "beam_score":
		return o.recorded(t, BeamScore, t.BeamScore)
	default:
		return 0, errors.New(modeError(o.Mode))
	}
	switch {
	case math.IsNaN(r) && o.NaNIsBest:
		return rewardLimit, nil // the reference's max(-5, min(5, NaN))
	case math.IsNaN(r) || math.IsInf(r, 0) && !o.NaNIsBest:
		return 0, fmt.Errorf("reward %s is %v: want finite scores (vqa_correct %v, vqa_acc_score %v, vqa_gt_prob %v, vqa_rel_score %v, beam_score %v, logprob_score %v)",
			o.Mode, r, t.Correct, t.AccScore, t.GTProb, t.RelScore, t.BeamScore, t.LogProb)
	}
	return max(-rewardLimit, min(rewardLimit, r)), nil
}

// Missing returns the name of a score that o.Mode makes the reward of and that t lacks, or "". A score with weight 0 is
// not wanted.
func (o Options) Missing(t Trajectory) string {
	for _, want := range o.wanted(t) {
		if want.weight != 0 && t.Has&want.any == 0 {
			return want.name
		}
	}
	return ""
}

// part is a score, or one of several, that a reward is made of.
type part struct {
	any    Field
	name   string
	weight float64
}

func (o Options) wanted(t Trajectory) []part {
	hard, soft, prob := part{Correct, "vqa_correct", o.HardWeight}, part{AccScore, "vqa_acc_score", o.SoftWeight}, part{GTProb, "vqa_gt_prob", o.SoftWeight}
	switch o.Mode {
	case "hard_plus_soft", "hard_plus_soft_v2", "separated":
		return []part{hard, soft}
	case "hard_only":
		return []part{hard}
	case "soft_only":
		return []part{soft}
	case "hard01_plus_gtprob", "hard01_plus_gtprob_separated":
		return []part{hard, prob}
	case "hard_plus_gtprob_plus_rel":
		if t.Correct == 1 { // relevance counts where the answer is wrong
			return []part{hard, prob}
		}
		return []part{hard, prob, {RelScore, "vqa_rel_score", o.RelWeight}}
	case "legacy":
		quality := part{BeamScore, "beam_score", o.Alpha}
		if o.UseLogProb {
			quality.any, quality.name = quality.any|LogProb, "logprob_score or beam_score"
		}
		return []part{quality, {Correct | AccScore, "vqa_correct or vqa_acc_score", o.Beta}}
	}
	return nil // one recorded number: Reward asks for it
}

// bonus is what a correct answer adds in the separated modes; a fractional vqa_correct adds nothing.
func (o Options) bonus(t Trajectory) float64 {
	if t.Correct == 1 {
		return 2 * o.HardWeight
	}
	return 0
}

func (o Options) quality(t Trajectory) float64 {
	if o.UseLogProb && t.Has&LogProb != 0 {
		return -t.LogProb
	}
	return t.BeamScore
}

// correctness is vqa_correct, else vqa_acc_score, else 0, mapped to -1..1 in mode pm1 where present.
func (o Options) correctness(t Trajectory) float64 {
	var x float64
	switch {
	case t.Has&Correct != 0:
		x = t.Correct
	case t.Has&AccScore != 0:
		x = t.AccScore
	default:
		return 0
	}
	if o.CorrectnessMode == "pm1" {
		return 2*x - 1
	}
	return x
}

func (o Options) recorded(t Trajectory, f Field, v float64) (float64, error) {
	if t.Has&f == 0 {
		return 0, fmt.Errorf("reward %s: the trajectory does not record it", o.Mode)
	}
	if math.IsNaN(v) && o.NaNIsBest {
		return rewardLimit, nil
	}
	if err := group.CheckReward(v); err != nil {
		return 0, fmt.Errorf("reward %s is %v: %w", o.Mode, v, err)
	}
	return v, nil
}
