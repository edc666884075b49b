package runreport

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// rewardTerm is a weighted part of a run's reward, its users' own program among them.
type rewardTerm struct {
	name   string
	weight float64
	set    string // the program that scores it; "": one of ours
}

// weightedTerms are the terms of a run's reward that are on, the heaviest first.
func weightedTerms(run *record.Run) (terms []rewardTerm) {
	section, _ := run.Setting("rewards").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(section)) {
		if weight, _ := run.SettingNumber("rewards", name, "weight"); weight != 0 {
			t := rewardTerm{name: name, weight: weight}
			if command, _ := run.Setting("rewards", name, "command").([]any); len(command) > 0 {
				t.set = strings.Trim(fmt.Sprint(command), "[]")
			}
			terms = append(terms, t)
		}
	}
	slices.SortStableFunc(terms, func(a, b rewardTerm) int { return cmp.Compare(math.Abs(b.weight), math.Abs(a.weight)) })
	return terms
}

// rewardFormula is Reward = 0.9 · vqa + 0.1 · format; "" where no terms make the reward.
func rewardFormula(run *record.Run) string {
	var text string
	for i, t := range weightedTerms(run) {
		sign, weight := "", fmt.Sprintf("%g · ", math.Abs(t.weight))
		switch {
		case t.weight < 0 && i > 0:
			sign = " − "
		case t.weight < 0:
			sign = "−"
		case i > 0:
			sign = " + "
		}
		text += sign + strings.TrimPrefix(weight, "1 · ") + t.name
	}
	if text == "" {
		return ""
	}
	if scale, ok := run.SettingNumber("rewards", "scale"); ok && scale != 1 {
		text = fmt.Sprintf("%g · (%s)", scale, text)
	}
	for _, end := range []struct{ key, words string }{{"clip_min", "at least"}, {"clip_max", "at most"}} {
		if x, ok := run.SettingNumber("rewards", end.key); ok {
			text += fmt.Sprintf(", %s %g", end.words, x)
		}
	}
	return "Reward = " + text
}

// termMean is the mean of a term over a policy's answers, as exact as a line's score, and a dash where it was not recorded.
func termMean(run *record.Run, line *record.StageResult, policy string, t rewardTerm) string {
	if x, ok := run.Score(line.Split, policy, "reward_"+t.name); ok && x != 0 {
		return page.Score(x, line.SE)
	} else if ok {
		return "0"
	}
	return "–"
}

// rewardLine is the formula of a line's reward with what its terms came to, from the initial policy on; "" of another metric.
func rewardLine(run *record.Run, stage *record.StageResult) string {
	text := rewardFormula(run)
	if stage.Metric != "reward" || text == "" {
		return ""
	}
	var parts []string
	for _, t := range weightedTerms(run) {
		if after := termMean(run, stage, stage.Policy, t); after != "–" {
			parts = append(parts, fmt.Sprintf("%s %s → %s", t.name, termMean(run, stage, record.PolicyInit, t), after))
		}
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text + "."
}

// reportTerms writes a row for each term of the reward below a table of it, with its mean for each policy that answered.
func reportTerms(d *page.Document, run *record.Run, table []record.StageResult) {
	terms := weightedTerms(run)
	header := []string{"term", ">weight"}
	var policies []record.StageResult
	for _, r := range table {
		if slices.ContainsFunc(terms, func(t rewardTerm) bool { return termMean(run, &r, r.Policy, t) != "–" }) {
			header, policies = append(header, ">"+page.Plain(r.Title())), append(policies, r)
		}
	}
	if len(policies) == 0 {
		return
	}
	line := slices.MaxFunc(policies, func(a, b record.StageResult) int { return cmp.Compare(a.SE, b.SE) }) // one number of digits in all
	var rows [][]string
	for _, t := range terms {
		name := page.Plain(t.name)
		if t.set != "" {
			name += " (" + page.TableCode([]string{t.set}) + ")"
		}
		means := list.Map(policies, func(r record.StageResult) string { return termMean(run, &line, r.Policy, t) })
		rows = append(rows, append([]string{name, fmt.Sprintf("%g", t.weight)}, means...))
	}
	d.Paragraph("%s. Its terms, before their weights:", rewardFormula(run))
	d.Table(header, rows)
}
