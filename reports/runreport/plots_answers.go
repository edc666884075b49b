package runreport

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// Figures of token policies: what their completions look like and what these earn.

// lengthFigure shows how long completions are and how many were cut.
func lengthFigure(run *record.Run) *chart.Figure {
	length := newPanel(run, "tokens per completion")
	length.YMin = 0
	for _, s := range run.Steps {
		length.AddRange(s, "completion_length_min", "completion_length_max", chart.Faint(chart.Blue, 0.15))
	}
	if !length.AddSteps(run, "completion_length", "mean of a step", chart.Blue) {
		return nil
	}
	if len(length.Layers) > 1 {
		length.Legend = append(length.Legend, chart.LegendItem{Text: "shortest to longest of some steps", Draw: chart.AreaSample(chart.Faint(chart.Blue, 0.25))})
	}
	length.AddEpochDots(run, "val_completion_length", "greedy, on validation questions", chart.Vermillion)
	cut := newPanel(run, "share of completions")
	cut.Share, cut.YMin = true, 0
	cut.AddSteps(run, "truncated_share", "cut at the limit", chart.Blue)
	cut.AddEpochDots(run, "val_truncated_share", "greedy, on validation questions", chart.Vermillion)
	return Stack("Length of completions", "The end token counts. A completion that reaches generation.max_new_tokens without it is cut.\nPhases that imitate show the lengths of their targets.", length, cut)
}

// sampledRewardFigure shows what the sampled completions earn, how much a group's rewards differ, and the
// terms of the reward.
func sampledRewardFigure(run *record.Run) *chart.Figure {
	if !run.Answers() {
		return nil
	}
	reward := newPanel(run, "mean reward")
	if !reward.AddSteps(run, "mean_reward", "mean of a step", chart.Blue) {
		return nil
	}
	spread := newPanel(run, "standard deviation")
	spread.YMin = 0
	spread.AddSteps(run, "reward_std", "of the rewards of a group, mean over groups", chart.Green)
	terms := newPanel(run, "mean of a term")
	names := rewardTerms(run)
	colours := []chart.Colour{chart.Blue, chart.Vermillion, chart.Green, chart.Orange, chart.Purple, chart.Black} // more would not be told apart
	for i, name := range names[:min(len(names), len(colours))] {
		terms.AddSteps(run, "reward_"+name, name, colours[i])
	}
	note := "Of what a step learns from: sampled completions, or recorded ones. A group whose rewards do not differ teaches nothing."
	if len(terms.Layers) > 0 {
		note += "\nTerms of the reward are shown before their weights."
	}
	if more := len(names) - len(colours); more > 0 {
		note += fmt.Sprintf(" %s more in metrics.jsonl.", page.Plural(more, "term"))
	}
	return Stack("Reward of training completions", note, reward, spread, terms).Crop(run)
}

// pointMeasures are the columns of the points term beside its value, with what they show.
func pointMeasures() [][2]string {
	return [][2]string{
		{"points_named", "named"}, {"points_in_confusion", "in the confusion region"}, {"points_on_object", "on the object"},
	}
}

// pointsFigure shows how many negative points completions name, how many of them fall into the confusion region and how
// many on the object, and what share of them that is.
func pointsFigure(run *record.Run) *chart.Figure {
	if !run.Answers() {
		return nil
	}
	number := newPanel(run, "negative points per completion")
	number.YMin = 0
	share := newPanel(run, "share of those named")
	share.Share, share.YMin = true, 0
	dots := ""
	for i, m := range pointMeasures() {
		c := []chart.Colour{chart.Black, chart.Green, chart.Vermillion}[i]
		if !number.AddSteps(run, "reward_"+m[0], m[1], c) && i == 0 {
			return nil
		}
		if x, y := run.EpochSeries("", "val_reward_"+m[0]); len(x) > 0 {
			number.Layers = append(number.Layers, chart.Points(x, y, c))
			dots = "\nDots: greedy completions of validation questions."
		}
		if i > 0 {
			share.AddShareOfSteps(run, "reward_"+m[0], "reward_points_named", m[1], c)
		}
	}
	note := "A point counts once, however often it is named. Points in the confusion region steer a segmenter away from its mistake;\n" +
		"points on the object cost the mask." + dots
	if len(share.Layers) == 0 {
		return Stack("Negative points", note, number).Crop(run)
	}
	return Stack("Negative points", note, number, share).Crop(run)
}

// isMeasure reports a column that a term measures beside its value.
func isMeasure(name string) bool {
	return slices.ContainsFunc(pointMeasures(), func(m [2]string) bool { return m[0] == name })
}

// CloseTo says whether two means of equal numbers may differ by rounding alone.
func CloseTo(a, b float64) bool { return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9 }

// rewardTerms are the names of the terms that steps have measured, in alphabetical order; none where the
// only term is the reward.
func rewardTerms(r *record.Run) []string {
	names := map[string]bool{}
	for _, s := range r.Steps {
		for column := range s.Columns {
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
func rewardIsAccuracy(r *record.Run) bool {
	_, reward := r.EpochSeries("", "val_reward")
	_, accuracy := r.EpochSeries("", "val_accuracy")
	return r.Answers() && len(reward) > 0 && slices.EqualFunc(reward, accuracy, CloseTo)
}

// equalColumns says whether two step metrics are the same in every phase, rounding aside.
func equalColumns(r *record.Run, a, b string) bool {
	return !slices.ContainsFunc(r.Steps, func(s *record.Steps) bool { return !slices.EqualFunc(s.Column(a), s.Column(b), CloseTo) })
}
