package audit

import (
	"fmt"
	"math"
	"slices"

	"fulcrum/internal/list"
)

// Shares of groups, of candidates where it says so, from which a fault is more than mild, or from which there is one.
const (
	ConstantRewards      = 0.9  // fewer than one in ten is left to learn from
	SubprecisionRewards  = 0.5  // the precision decides for most of the data what counts
	ScoreTies            = 0.9  // accuracies with few values tie often: only where nearly all do is the reward too coarse
	SmallGroups          = 0.5  // most of the data teaches GRPO nothing
	WorstFirst           = 0.9  // by chance 1 in 120 groups of five rises
	ContradictoryRewards = 0.5  // noise contradicts only what is drawn twice
	ScoresOutside        = 0.01 // of candidates: fewer are slips of whoever wrote them
	ReaderMismatch       = 0.01 // of candidates: files hold rounded numbers, and few are far off by that
	// RewardScales is how many times as far apart the rewards of one file lie: a percent sign makes a hundred.
	RewardScales = 10.0
)

// Groups holds the recorded candidates of a set, query by query.
type Groups struct {
	Name     string // who learns from them: "rce, sft"
	Baseline bool   // a group's rewards are compared with each other: one candidate teaches nothing
	Len      int
	Of       func(i int) (query int64, rewards []float64) // the slice is valid until the next call
}

// rounding is the relative difference at which two float32 rewards can no longer be told apart.
const rounding = 4e-7

// Rewards reports groups whose rewards are not finite, equal, too close to tell apart (they differ by at most precision) or tied for the
// best, and groups of one candidate.
func Rewards(g Groups, precision float64) []Fault {
	every := Every(g.Len, Sampled)
	looked, small, constant, close, tied, infinite, rising := 0, 0, 0, 0, 0, 0, 0
	var badQuery int64
	badAt, bad := 0, 0.0
	for i := 0; i < g.Len; i += every {
		query, r := g.Of(i)
		looked++
		if at := slices.IndexFunc(r, notFinite); at >= 0 {
			if infinite == 0 {
				badQuery, badAt, bad = query, at, r[at]
			}
			infinite++
			continue
		}
		if len(r) < 2 {
			small++
			continue
		}
		if len(r) > 2 && r[0] < r[len(r)-1] && slices.IsSorted(r) {
			rising++
		}
		low, high := slices.Min(r), slices.Max(r)
		switch spread := high - low; {
		case spread <= rounding*math.Max(math.Abs(low), math.Abs(high)):
			constant++
		case spread <= precision:
			close++
		case list.Count(r, func(x float64) bool { return x == high }) > 1:
			tied++
		}
	}
	var out []Fault
	add := func(check string, n int, limit, mildFrom float64, what, cause string) {
		s := share(n, looked)
		if n == 0 || s < math.Min(limit, mildFrom) {
			return
		}
		out = append(out, graded(check, s, limit, of(n, looked, "groups for "+g.Name)+" "+what, cause))
	}
	if infinite > 0 {
		out = append(out, Fault{Check: "nonfinite_rewards", Value: share(infinite, looked),
			Message: fmt.Sprintf("%s hold a reward that is no finite number (query %d, candidate %d: %v): one is enough to "+
				"make the weights NaN; mend the file", of(infinite, looked, "groups for "+g.Name), badQuery, badAt+1, bad)})
	}
	if g.Baseline {
		add("small_groups", small, SmallGroups, 0, "have fewer than two candidates", "a group of one has nothing to be "+
			"compared with and teaches nothing")
		add("subprecision_rewards", close, SubprecisionRewards, 0.02, fmt.Sprintf("have rewards that differ by no more than "+
			"advantage.precision=%g", precision), "they count as equal; lower the precision or take a finer data.reward.mode")
	}
	add("constant_rewards", constant, ConstantRewards, 0.5, "have equal rewards", "they teach nothing but noise; choose another "+
		"data.reward.mode, or candidates of different quality")
	add("score_ties", tied, ScoreTies, 0.5, "have several best candidates with the same reward",
		"which of them is imitated, or counts in the top k, is left to their order; take a finer data.reward.mode")
	if s := share(rising, looked); rising >= fewGroups && s >= WorstFirst {
		out = append(out, Fault{Check: "worst_first", Value: s, Limit: WorstFirst,
			Message: fmt.Sprintf("%s list their candidates from the lowest reward to the highest: where lower scores are better (a loss), turn "+
				"their sign; where scores were sorted by themselves, they belong to other candidates", of(rising, looked, "groups for "+g.Name))})
	}
	for i := range out {
		if c := out[i].Check; c == "constant_rewards" || c == "score_ties" {
			out[i].Key = "data.reward.mode"
		}
	}
	return out
}

// span is the range of a set's rewards.
type span struct{ low, high float64 }

// spanOf returns the range of recorded rewards. How far apart those of a group lie says nothing of the scale: the best beams differ by a
// tenth of what a group with random candidates does.
func spanOf(g Groups) (s span, groups int) {
	s = span{math.Inf(1), math.Inf(-1)}
	for i := 0; i < g.Len; i += Every(g.Len, Sampled) {
		_, r := g.Of(i)
		if len(r) < 2 || slices.ContainsFunc(r, notFinite) {
			continue
		}
		s = span{min(s.low, slices.Min(r)), max(s.high, slices.Max(r))}
		groups++
	}
	return s, groups
}

// Scales compares the rewards of two files: those of one may be in percent, negated, or another score.
func Scales(a, b Groups) []Fault {
	x, n := spanOf(a)
	y, m := spanOf(b)
	narrow, wide := min(x.high-x.low, y.high-y.low), max(x.high-x.low, y.high-y.low)
	ratio := wide / narrow
	if min(n, m) < fewGroups || !(ratio >= RewardScales || x.high < y.low || y.high < x.low) || narrow == 0 {
		return nil
	}
	return []Fault{{Check: "reward_scales", Value: ratio, Limit: RewardScales,
		Message: fmt.Sprintf("rewards of %s lie in [%.3g, %.3g] and those of %s in [%.3g, %.3g]: one of the files is in percent, has the "+
			"other sign, or holds another score", a.Name, x.low, x.high, b.Name, y.low, y.high)}}
}

// Outside reports recorded probabilities and accuracies outside [0, 1]; example is one of them. A single one may be the best of its group.
func Outside(name string, outside, looked int, query int64, example float64) []Fault {
	s := share(outside, looked)
	if outside == 0 {
		return nil
	}
	return []Fault{{Check: "scores_outside", Mild: s < ScoresOutside, Value: s, Limit: ScoresOutside, Key: "data.reward.field",
		Message: fmt.Sprintf("%s have a vqa_gt_prob, vqa_acc_score or vqa_correct outside [0, 1] (query %d: %.4g): in percent, of the other "+
			"sign, or another number; data.reward.field=NAME reads any number as a reward, more being better",
			of(outside, looked, "candidates of "+name), query, example)}}
}

// fewGroups is the number of groups that a verdict on a file's scale or order needs.
const fewGroups = 16

func notFinite(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }

// Scored is a recorded candidate with the reader's reward of the same selection.
type Scored struct {
	Query     int64
	Candidate int       // number in its group, from 0
	Recorded  []float64 // the recorded scores that the reader's reward might be
	Reader    float64
	Shifted   []float64 // the reader's rewards for wrong readings of the selection, in the order of Shifts
}

// Shifts names the wrong readings of Scored.Shifted.
func Shifts() []string {
	return []string{"the pool positions before", "the next pool positions", "the next query", "the query before"}
}

// tolerance is the allowed difference between a recorded reward and the reader's: files hold rounded decimals.
const tolerance = 2e-3

// Agreement compares recorded rewards with a reader's for the same selections, in the order of their queries.
// A reader that measures something else, but ranks alike, is mild.
func Agreement(name string, candidates []Scored) []Fault {
	wrong, first := 0, -1
	for i, c := range candidates {
		if notFinite(c.Reader) {
			return []Fault{{Check: "nonfinite_rewards", Message: fmt.Sprintf("the reader gives %v for candidate %d of query "+
				"%d (%s): mend its table", c.Reader, c.Candidate+1, c.Query, name)}}
		}
		if !agrees(c.Recorded, c.Reader) {
			if first < 0 {
				first = i
			}
			wrong++
		}
	}
	s := share(wrong, len(candidates))
	if wrong == 0 || s < ReaderMismatch {
		return nil
	}
	c := candidates[first]
	f := Fault{Check: "record_reader_mismatch", Value: s, Limit: ReaderMismatch, Message: fmt.Sprintf("%s have another reward "+
		"than the reader gives for the same selection (query %d, candidate %d: recorded %.4g, reader %.4g)",
		of(wrong, len(candidates), "recorded candidates of "+name), c.Query, c.Candidate+1, c.Recorded[0], c.Reader)}
	for k, what := range Shifts() {
		explained := list.Count(candidates, func(c Scored) bool {
			return k < len(c.Shifted) && agrees(c.Recorded, c.Shifted[k]) && !agrees(c.Recorded, c.Reader)
		})
		if 2*explained > wrong {
			f.Message += fmt.Sprintf("; %s of these fit what the reader gives for %s: the two are off by one",
				percent(share(explained, wrong)), what)
			return []Fault{f}
		}
	}
	// Where most of them agree to the digit, the others are no other scale.
	if alike := concordance(candidates); alike >= 0.75 && s > 0.5 {
		f.Mild = true
		f.Message += fmt.Sprintf("; both rank candidates alike in %s of the pairs, so they measure the same on another scale",
			percent(alike))
		return []Fault{f}
	}
	f.Message += ": positions, ids or pools mean something else in one of the files, or another reader made the records"
	return []Fault{f}
}

// agrees reports whether one of the recorded scores is the reader's.
func agrees(recorded []float64, reader float64) bool {
	return slices.ContainsFunc(recorded, func(r float64) bool { return math.Abs(r-reader) <= tolerance*math.Max(1, math.Abs(r)) })
}

// Contradictions reports groups in which the same candidate stands under different rewards. A reward with noise does that
// to the few candidates that are drawn twice; a tenth of the limit is worth a note.
func Contradictions(name string, groups, looked int, example int64) []Fault {
	s := share(groups, looked)
	if groups == 0 || s < ContradictoryRewards/10 {
		return nil
	}
	return []Fault{graded("contradictory_rewards", s, ContradictoryRewards,
		fmt.Sprintf("%s hold the same candidate under different rewards (query %d, for example)", of(groups, looked, "groups of "+name), example),
		"rewards and candidates are joined wrongly, or the reward is noise")}
}

// concordance is the share of pairs of a query's candidates that recorded and reader's reward order alike,
// among the pairs that both order; 0 without such pairs.
func concordance(candidates []Scored) float64 {
	alike, pairs := 0, 0
	for i, a := range candidates {
		for _, b := range candidates[i+1:] {
			if b.Query != a.Query {
				break
			}
			if d := (a.Recorded[0] - b.Recorded[0]) * (a.Reader - b.Reader); d != 0 {
				pairs++
				if d > 0 {
					alike++
				}
			}
		}
	}
	return share(alike, pairs)
}
