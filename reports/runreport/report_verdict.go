package runreport

import (
	"fmt"
	"slices"
	"strings"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// verdictLine is the planned comparison on the held-out split, or on val where there is none.
func verdictLine(run *record.Run, best *record.BestSummary, stages []record.StageResult) string {
	stage := PlannedResult(stages)
	if stage == nil {
		return ""
	}
	still := stage.Policy == record.PolicyBest && stage.Phase == record.PolicyInit
	table := results.TableOf(stages, *stage)
	var parts []string
	if why := best.RuledOut(); still && why != "" {
		parts = append(parts, page.Capital(why)+". What training gained stands in the rows of the phases.")
	} else if still {
		parts = append(parts, whyUntrained(best, stages)...)
	}
	yards := slices.DeleteFunc(results.YardsticksOf(table), func(y results.Yardstick) bool {
		return *y.Gain(stage) == nil || still && y.Policy == record.PolicyInit
	})
	for i, y := range yards {
		against := y.Long
		if y.Policy == record.PolicyInit && i > 0 && sameAsInit(table, yards[0]) {
			continue // said with the first
		}
		if i == 0 && len(yards) > 1 && sameAsInit(table, y) {
			against += " (and the initial policy, which scores the same)"
		}
		if y.Policy == record.PolicyRecorded && results.ListsBestFirst(stages) {
			against += ", which lists the best first"
		}
		parts = append(parts, page.Capital((*y.Gain(stage)).Sentence(stage.Subject(), against, results.MetricName(stage.Metric)))+".")
	}
	parts = append(parts, lastPhase(table)...)
	if behind := results.BehindBest(run.Evaluations, *stage, stats.DefaultOptions()); behind != "" {
		parts = append(parts, page.Capital(behind)+".")
	}
	if warning := results.WarnBelowRandom(table); warning != "" {
		parts = append(parts, warning)
	}
	if len(parts) == 0 {
		return fmt.Sprintf("On %s, %s has a mean %s of %s; there is no baseline to compare it with.", stage.Split, stage.Subject(),
			results.MetricName(stage.Metric), page.Sig(stage.Mean, 4))
	}
	return fmt.Sprintf("On %s: %s", stage.Split, page.Plain(strings.Join(parts, " ")))
}

// whyUntrained says by what the initial policy is the best, which epoch another measure would have chosen, and which phase the tables
// under the verdict call better.
func whyUntrained(best *record.BestSummary, stages []record.StageResult) []string {
	if best == nil { // the run has not ended
		best = &record.BestSummary{Metric: "its metric on val"}
	}
	out := []string{fmt.Sprintf("By %s, which chooses the best checkpoint (checkpoint.best.metric), no epoch is better than the initial "+
		"policy.", best.Metric)}
	for _, more := range []string{best.Other, results.BetterThanInit(stages)} {
		if more != "" {
			out = append(out, page.Capital(more)+".")
		}
	}
	return out
}

// lastPhase says what the last phase of a table is worth by itself: its policy against that of the phase before.
func lastPhase(table []record.StageResult) []string {
	for i, s := range slices.Backward(table) {
		if s.OverPrevious != nil {
			before := table[i-1] // phases stand in the order in which they ended
			return []string{page.Capital(s.OverPrevious.Sentence(s.Subject(), before.Subject(), results.MetricName(s.Metric))) + "."}
		}
	}
	return nil
}

// standing gives the verdict its scale for a reader who did not make the run: what chance and the bound score, how
// the policy was trained, on what it was judged, and whether the doctor had something to say.
func standing(run *record.Run, s *record.Summary, stages []record.StageResult) string {
	stage := PlannedResult(stages)
	table := results.TableOf(stages, *stage)
	var out []string
	scale := fmt.Sprintf("The mean %s of %s is %s", results.MetricName(stage.Metric), page.Plain(stage.Subject()), page.Sig(stage.Mean, 4))
	var bounds []string
	for _, b := range []struct{ policy, is string }{
		{record.PolicyRandom, run.Wording("random selections get ", "random answers get ")},
		{record.PolicyOracle, "the oracle, which looks at the rewards, "}, {record.PolicyReference, "the target answers "},
	} {
		if i := slices.IndexFunc(table, func(r record.StageResult) bool { return r.Policy == b.policy }); i >= 0 {
			is := b.is + page.Sig(table[i].Mean, 4)
			if b.policy == record.PolicyRandom && stage.OverRandom != nil && len(results.BelowRandom(table)) == 0 { // else said before
				gain, verdict := GainCells(stage.OverRandom)
				is += fmt.Sprintf(" (gain %s, %s)", gain, verdict)
			}
			bounds = append(bounds, is)
		}
	}
	if len(bounds) > 0 {
		scale += "; " + strings.Join(bounds, ", ")
	}
	out = append(out, scale+".")
	var phases []string
	for _, p := range s.Phases {
		phases = append(phases, fmt.Sprintf("%s (%s)", page.Plain(p.Name), page.Plural(p.Epochs, "epoch")))
	}
	questions := fmt.Sprintf("%s of %s, which entered no choice", page.Plural(stage.Queries, "question"), page.Plain(stage.Split))
	if stage.Split == "val" {
		questions = page.Plural(stage.Queries, "validation question")
		if stage.Policy == record.PolicyBest {
			questions += ", by which its checkpoint was chosen too"
		}
	}
	if len(phases) > 0 {
		out = append(out, fmt.Sprintf("The run trained %s through %s and judged it on %s.",
			run.Wording("a policy that selects in-context examples", "a policy that writes answers"), strings.Join(phases, ", then "), questions))
	}
	if serious := slices.DeleteFunc(slices.Clone(s.Findings), func(f record.Finding) bool { return f.Severity == "note" }); len(serious) > 0 {
		out = append(out, fmt.Sprintf("**The doctor has %s: read the findings first.**", findingCounts(serious)))
	}
	return strings.Join(out, " ")
}

// sameAsInit says whether the initial policy scores as a yardstick does on every question of a table.
func sameAsInit(table []record.StageResult, y results.Yardstick) bool {
	return y.Policy != record.PolicyInit && slices.ContainsFunc(table, func(r record.StageResult) bool {
		return r.Policy == record.PolicyInit && *y.Gain(&r) != nil && (*y.Gain(&r)).Changed == 0
	})
}

// PlannedResult is best (or the last phase) on the held-out split (or val), by reward if it is known.
func PlannedResult(stages []record.StageResult) *record.StageResult {
	var found *record.StageResult
	better := func(s record.StageResult) bool {
		if found == nil {
			return true
		}
		if held, was := record.HeldOut(s.Split), record.HeldOut(found.Split); held != was {
			return held
		}
		if s.Split != found.Split || s.Metric != found.Metric {
			return false // the first held-out split, and reward before accuracy
		}
		return true // best stands behind the phases
	}
	for i := range stages {
		if results.Trained(stages[i].Policy) && better(stages[i]) {
			found = &stages[i]
		}
	}
	return found
}
