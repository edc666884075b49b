package reports

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Figures of token policies: what their completions look like and what these earn.

// lengthFigure shows how long completions are and how many were cut.
func lengthFigure(run *Run) *figure {
	length := newPanel(run, "tokens per completion")
	length.yMin = 0
	for _, s := range run.Steps {
		length.addRange(s, "completion_length_min", "completion_length_max", faint(blue, 0.15))
	}
	if !length.addSteps(run, "completion_length", "mean of a step", blue) {
		return nil
	}
	if len(length.layers) > 1 {
		length.legend = append(length.legend, legendItem{"shortest to longest of some steps", areaSample(faint(blue, 0.25))})
	}
	length.addEpochDots(run, "val_completion_length", "greedy, on validation questions", vermillion)
	cut := newPanel(run, "share of completions")
	cut.share, cut.yMin = true, 0
	cut.addSteps(run, "truncated_share", "cut at the limit", blue)
	cut.addEpochDots(run, "val_truncated_share", "greedy, on validation questions", vermillion)
	return stack("Length of completions", "The end token counts. A completion that reaches generation.max_new_tokens without it is cut.\nPhases that imitate show the lengths of their targets.", length, cut)
}

// sampledRewardFigure shows what the sampled completions earn, how much a group's rewards differ, and the
// terms of the reward.
func sampledRewardFigure(run *Run) *figure {
	if !run.answers() {
		return nil
	}
	reward := newPanel(run, "mean reward")
	if !reward.addSteps(run, "mean_reward", "mean of a step", blue) {
		return nil
	}
	spread := newPanel(run, "standard deviation")
	spread.yMin = 0
	spread.addSteps(run, "reward_std", "of the rewards of a group, mean over groups", green)
	terms := newPanel(run, "mean of a term")
	names := rewardTerms(run)
	colours := []colour{blue, vermillion, green, orange, purple, black} // more would not be told apart
	for i, name := range names[:min(len(names), len(colours))] {
		terms.addSteps(run, "reward_"+name, name, colours[i])
	}
	note := "Of what a step learns from: sampled completions, or recorded ones. A group whose rewards do not differ teaches nothing."
	if len(terms.layers) > 0 {
		note += "\nTerms of the reward are shown before their weights."
	}
	if more := len(names) - len(colours); more > 0 {
		note += fmt.Sprintf(" %s more in metrics.jsonl.", plural(more, "term"))
	}
	return stack("Reward of training completions", note, reward, spread, terms).crop(run)
}

// pointMeasures are the columns of the points term beside its value, with what they show.
func pointMeasures() [][2]string {
	return [][2]string{
		{"points_named", "named"}, {"points_in_confusion", "in the confusion region"}, {"points_on_object", "on the object"},
	}
}

// pointsFigure shows how many negative points completions name, how many of them fall into the confusion region and how
// many on the object, and what share of them that is.
func pointsFigure(run *Run) *figure {
	if !run.answers() {
		return nil
	}
	number := newPanel(run, "negative points per completion")
	number.yMin = 0
	share := newPanel(run, "share of those named")
	share.share, share.yMin = true, 0
	dots := ""
	for i, m := range pointMeasures() {
		c := []colour{black, green, vermillion}[i]
		if !number.addSteps(run, "reward_"+m[0], m[1], c) && i == 0 {
			return nil
		}
		if x, y := run.epochSeries("", "val_reward_"+m[0]); len(x) > 0 {
			number.layers = append(number.layers, points(x, y, c))
			dots = "\nDots: greedy completions of validation questions."
		}
		if i > 0 {
			share.addShareOfSteps(run, "reward_"+m[0], "reward_points_named", m[1], c)
		}
	}
	note := "A point counts once, however often it is named. Points in the confusion region steer a segmenter away from its mistake;\n" +
		"points on the object cost the mask." + dots
	if len(share.layers) == 0 {
		return stack("Negative points", note, number).crop(run)
	}
	return stack("Negative points", note, number, share).crop(run)
}

// isMeasure reports a column that a term measures beside its value.
func isMeasure(name string) bool {
	return slices.ContainsFunc(pointMeasures(), func(m [2]string) bool { return m[0] == name })
}

// closeTo says whether two means of equal numbers may differ by rounding alone.
func closeTo(a, b float64) bool { return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9 }

// rewardTerms are the names of the terms that steps have measured, in alphabetical order; none where the
// only term is the reward.
func rewardTerms(r *Run) []string {
	names := map[string]bool{}
	for _, s := range r.Steps {
		for column := range s.columns {
			if name, ok := strings.CutPrefix(column, "reward_"); ok && name != "std" && !strings.HasSuffix(name, "_std") && !isMeasure(name) {
				names[name] = true
			}
		}
	}
	terms := slices.Sorted(maps.Keys(names))
	if len(terms) == 1 && equalColumns(r, "mean_reward", "reward_"+terms[0]) {
		return nil
	}
	return terms
}

// rewardIsAccuracy says whether the validation reward of a token policy is its accuracy, as where the
// reward has no other term.
func rewardIsAccuracy(r *Run) bool {
	_, reward := r.epochSeries("", "val_reward")
	_, accuracy := r.epochSeries("", "val_accuracy")
	return r.answers() && len(reward) > 0 && slices.EqualFunc(reward, accuracy, closeTo)
}

// equalColumns says whether two step metrics are the same in every phase, rounding aside.
func equalColumns(r *Run, a, b string) bool {
	return !slices.ContainsFunc(r.Steps, func(s *Steps) bool { return !slices.EqualFunc(s.Column(a), s.Column(b), closeTo) })
}
