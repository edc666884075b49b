package recorded

import (
	"math"
	"sync"

	"fulcrum/internal/option"
)

// mode is a way to make a reward of the scores that a trajectory records.
type mode struct {
	name string
	// parts lists the scores that it is made of, with their weights.
	parts func(o Options, t Trajectory) []part
	// reward is the formula, cut to ±5 as in the reference, or a recorded number, not cut.
	reward func(o Options, t Trajectory) float64
	// number is the score that must be present if the reward is a recorded number; 0 for a formula.
	number Field
	// validate checks the options that only this mode reads; nil: it reads no such option.
	validate func(o Options) error
}

// part is a score, or one of several, that a reward is made of.
type part struct {
	any    Field
	name   string
	weight float64
}

// modes is the table of modes, in the order of messages and documentation. With h = vqa_correct, s = vqa_acc_score,
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
// The last three are ours, the others the reference's. Source: parity specification §2.
func modes() []mode {
	return []mode{
		{name: "hard_plus_soft", parts: hardAndSoft,
			reward: func(o Options, t Trajectory) float64 { return o.HardWeight*t.Correct + o.SoftWeight*t.AccScore }},
		{name: "hard_plus_soft_v2", parts: hardAndSoft,
			reward: func(o Options, t Trajectory) float64 { return o.SoftWeight*t.AccScore + 2*o.HardWeight*t.Correct }},
		{name: "separated", parts: hardAndSoft,
			reward: func(o Options, t Trajectory) float64 { return o.SoftWeight*t.AccScore + o.bonus(t) }},
		{name: "hard_only",
			parts:  func(o Options, t Trajectory) []part { return hardAndSoft(o, t)[:1] },
			reward: func(o Options, t Trajectory) float64 { return o.HardWeight * t.Correct }},
		{name: "soft_only",
			parts:  func(o Options, t Trajectory) []part { return hardAndSoft(o, t)[1:] },
			reward: func(o Options, t Trajectory) float64 { return o.SoftWeight * t.AccScore }},
		{name: "hard01_plus_gtprob", parts: hardAndProb,
			reward: func(o Options, t Trajectory) float64 { return o.HardWeight*t.Correct + o.SoftWeight*t.GTProb }},
		{name: "hard01_plus_gtprob_separated", parts: hardAndProb,
			reward: func(o Options, t Trajectory) float64 { return o.SoftWeight*t.GTProb + o.bonus(t) }},
		{name: "hard_plus_gtprob_plus_rel", parts: hardProbAndRel,
			reward: func(o Options, t Trajectory) float64 {
				return o.HardWeight*t.Correct + o.SoftWeight*t.GTProb + o.RelWeight*(1-t.Correct)*t.RelScore
			}},
		{name: "legacy", parts: qualityAndCorrectness, validate: legacyWeighs,
			reward: func(o Options, t Trajectory) float64 { return o.Alpha*o.quality(t) + o.Beta*o.correctness(t) }},
		{name: "vqa_gt_prob", number: GTProb, reward: func(_ Options, t Trajectory) float64 { return t.GTProb }},
		{name: "vqa_acc_score", number: AccScore, reward: func(_ Options, t Trajectory) float64 { return t.AccScore }},
		{name: "beam_score", number: BeamScore, reward: func(_ Options, t Trajectory) float64 { return t.BeamScore }},
	}
}

// byName holds the table by name: millions of trajectories are looked up.
var byName = sync.OnceValue(func() map[string]mode {
	out := map[string]mode{}
	for _, m := range modes() {
		out[m.name] = m
	}
	return out
})

func hardAndSoft(o Options, _ Trajectory) []part {
	return []part{{Correct, "vqa_correct", o.HardWeight}, {AccScore, "vqa_acc_score", o.SoftWeight}}
}

func hardAndProb(o Options, _ Trajectory) []part {
	return []part{{Correct, "vqa_correct", o.HardWeight}, {GTProb, "vqa_gt_prob", o.SoftWeight}}
}

// hardProbAndRel leaves relevance out where the answer is correct: it counts for wrong ones.
func hardProbAndRel(o Options, t Trajectory) []part {
	if t.Correct == 1 {
		return hardAndProb(o, t)
	}
	return append(hardAndProb(o, t), part{RelScore, "vqa_rel_score", o.RelWeight})
}

func qualityAndCorrectness(o Options, _ Trajectory) []part {
	quality := part{BeamScore, "beam_score", o.Alpha}
	if o.UseLogProb {
		quality.any, quality.name = quality.any|LogProb, "logprob_score or beam_score"
	}
	return []part{quality, {Correct | AccScore, "vqa_correct or vqa_acc_score", o.Beta}}
}

// legacyWeighs refuses legacy rewards that could only be 0. With nan_is_best they may: alpha = beta = 0 are the
// reference's own defaults.
func legacyWeighs(o Options) error {
	weighs := o.Alpha != 0 || o.Beta != 0 || o.Weight(BeamLevel) == 0 || o.NaNIsBest
	return option.Want(weighs, "alpha", "alpha and beta are both 0: every legacy reward would be 0")
}

// bonus is added for a correct answer in the separated modes; a fractional vqa_correct adds nothing.
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

// correctness is vqa_correct, else vqa_acc_score, else 0, mapped to -1..1 by correctness_mode=pm1 where present.
func (o Options) correctness(t Trajectory) float64 {
	x := t.AccScore
	switch {
	case t.Has&Correct != 0:
		x = t.Correct
	case t.Has&AccScore == 0:
		return 0
	}
	if o.CorrectnessMode == "pm1" {
		return 2*x - 1
	}
	return x
}

// Range returns the least and the greatest reward that the mode can make of scores between 0 and 1; ok is false where it takes others. Each
// formula is linear in every one of them, so that its extremes lie at corners.
func (o Options) Range() (least, greatest float64, ok bool) {
	m, known := byName()[o.Mode]
	switch {
	case !known || o.Field != nil || m.number == BeamScore:
		return 0, 0, false
	case m.validate != nil: // of log-probabilities or beam scores
		return -rewardLimit, rewardLimit, true
	}
	least, greatest = math.Inf(1), math.Inf(-1)
	for corner := range 16 {
		at := func(bit int) float64 { return float64(corner >> bit & 1) }
		r := m.reward(o, Trajectory{Correct: at(0), AccScore: at(1), GTProb: at(2), RelScore: at(3)})
		least, greatest = min(least, r), max(greatest, r)
	}
	return max(-rewardLimit, least), min(rewardLimit, greatest), true
}
