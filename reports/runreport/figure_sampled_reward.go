package runreport

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

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
	// more would not be told apart
	colours := []chart.Colour{chart.Blue, chart.Vermillion, chart.Green, chart.Orange, chart.Purple, chart.Black}
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

// rewardTerms are the names of the terms that steps have measured, in alphabetical order; none where the
// only term is the reward.
func rewardTerms(r *record.Run) []string {
	names := map[string]bool{}
	for _, s := range r.Steps {
		for column := range s.Columns {
			name, ok := strings.CutPrefix(column, "reward_")
			measured := slices.ContainsFunc(pointMeasures(), func(m [2]string) bool { return m[0] == name }) // beside a term's value
			if ok && name != "std" && !strings.HasSuffix(name, "_std") && !measured {
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
