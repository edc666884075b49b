package runreport

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// verdictOf is what a run came to: the planned comparisons on the held-out split, or on val where there is none, in one sentence; and
// the entries of a list with what it rests on, findings first. "" where nothing was judged.
func verdictOf(run *record.Run, s *record.Summary, stages []record.StageResult) (answer string, entries []string) {
	stage := PlannedResult(stages)
	if stage == nil {
		return "", nil
	}
	metric, table := results.MetricName(stage.Metric), results.TableOf(stages, *stage)
	gains := gainsOf(stage, table, stages)
	switch why := s.Best.RuledOut(); {
	case !untrained(stage) && len(gains) == 0:
		answer = fmt.Sprintf("On %s there is no baseline to compare %s with.", questionsOf(run, stage), stage.Subject())
	case !untrained(stage):
		answer = fmt.Sprintf("On %s %s %s.", questionsOf(run, stage), stage.Subject(), inWords(gains))
	case why != "":
		answer = page.Capital(why) + ". The rows of the phases show what training gained."
	default:
		entries = whyUntrained(run, s.Best, stages)
		answer, entries = entries[0], entries[1:]
	}
	said := map[string]bool{} // why a gain is rough is the same for most
	serious := slices.DeleteFunc(gravestFirst(s.Findings), func(f record.Finding) bool { return f.Severity == "note" })
	entry := func(p stats.Paired) string {
		if len(serious) > 0 { // more questions would not mend it
			p.Questions = 0
		}
		if why := p.Rough; said[why] {
			p.Rough = "as above"
		} else if why != "" {
			said[why] = true
		}
		return run.InItsWords(p.Entry(metric))
	}
	of := ""
	if untrained(stage) {
		of = ", the initial policy"
		entries = append(entries, run.InItsWords(trainedOverInit(table, metric)))
	}
	for _, g := range gains {
		entries = append(entries, fmt.Sprintf("Over %s%s: %s.", g.over, of, entry(*g.by)))
	}
	entries = append(entries, byAccuracy(run, stage, stages))
	entries = append(entries, lastPhase(table, entry)...)
	behindBest := results.BehindBest(run.Evaluations, *stage, stats.DefaultOptions())
	if behindBest != "" {
		behindBest = page.Capital(behindBest) + "."
	}
	entries = append(entries, behindBest, results.WarnBelowRandom(table))
	entries = plainWords(entries)
	if still := unmoved(run, stage); still != "" {
		entries = slices.Insert(entries, 0, "**"+page.Plain(still)+"**")
	}
	if len(serious) > 0 {
		checks := list.Map(stats.GroupBy(serious, func(f record.Finding) string { return f.Check }), func(alike []record.Finding) string {
			return page.Plain(alike[0].Check)
		})
		first := fmt.Sprintf("**Read the findings first: %s** (%s).", findingCounts(serious), strings.Join(checks, ", "))
		if i := slices.IndexFunc(serious, func(f record.Finding) bool { return f.Set != "" }); i >= 0 {
			first += fmt.Sprintf(" In %s the policy ran away from where the phase began: before more questions or epochs, try `%s`.",
				page.Plain(serious[i].Phase), serious[i].Set)
		}
		entries = slices.Insert(entries, 0, first)
	}
	return page.Plain(answer), entries
}

// behindVerdict are sentences for who asks further: what the selector asked the reader for, and which look at its questions this was.
func behindVerdict(run *record.Run, s *record.Summary, stages []record.StageResult) []string {
	stage := PlannedResult(stages)
	if stage == nil {
		return nil
	}
	return plainWords([]string{s.Data.Scorer.Sentence(), lookAt(run, stage), judgedOn(run, s, stage)})
}

// judgedOn says for a reader who did not make the run how the policy was trained and on what it was judged.
func judgedOn(run *record.Run, s *record.Summary, stage *record.StageResult) string {
	if len(s.Phases) == 0 {
		return ""
	}
	phases := list.Map(s.Phases, func(p record.PhaseSummary) string {
		return fmt.Sprintf("%s (%s)", p.Name, page.Plural(p.Epochs, "epoch"))
	})
	questions := fmt.Sprintf("%s (%s), which entered no choice", page.Plural(stage.Queries, run.InItsWords("held-out question")), stage.Split)
	if stage.Split == "val" {
		questions = page.Plural(stage.Queries, run.InItsWords("validation question"))
		if stage.Policy == record.PolicyBest {
			questions += ", by which its checkpoint was chosen too"
		}
	}
	return fmt.Sprintf("The run trained through %s and was judged on %s.", strings.Join(phases, ", then "), questions)
}

// plainWords are the sentences that say something, safe in markdown.
func plainWords(sentences []string) []string {
	return list.Map(slices.DeleteFunc(sentences, func(s string) bool { return s == "" }), page.Plain)
}

// byAccuracy says what a line comes to by accuracy, which papers report whatever was rewarded; "" where nobody knows.
func byAccuracy(run *record.Run, stage *record.StageResult, stages []record.StageResult) string {
	i := slices.IndexFunc(stages, func(r record.StageResult) bool {
		return r.Metric == "accuracy" && r.Policy == stage.Policy && r.Split == stage.Split && r.Shots == stage.Shots
	})
	switch {
	case i < 0 || stage.Metric == "accuracy":
		return ""
	case sameNumbers(stages[i:i+1], []record.StageResult{*stage}):
		return "The reward is the accuracy here."
	}
	look := "" // a second measure of the same questions is another look at them, and its intervals are wider
	if of := run.Looks.At(stage.Split, "accuracy"); of != nil {
		look = " (" + of.String() + ")"
	}
	text := fmt.Sprintf("By accuracy%s %s scores %s", look, stage.Subject(), page.Score(stages[i].Mean, stages[i].SE))
	if gains := gainsOf(&stages[i], results.TableOf(stages, stages[i]), stages); len(gains) > 0 {
		text += " and " + inWords(gains)
		if mean, low, high := gains[0].by.Texts(); gains[0].by.Changed > 0 {
			text += fmt.Sprintf(" (over the first %s, 95%% interval %s to %s)", mean, low, high)
		}
	}
	return run.InItsWords(text + ".")
}

// questionsOf is what to call the questions of a line in a sentence: the held-out ones often have a file's name alone.
func questionsOf(run *record.Run, stage *record.StageResult) string {
	if !record.HeldOut(stage.Split) {
		return stage.Split
	}
	text := run.InItsWords("the held-out questions") + " (" + stage.Split
	if look := run.Looks.At(stage.Split, stage.Metric); look != nil {
		text += ", " + look.String()
	}
	return text + ")"
}

// lookAt says which look at its questions a line is and what that costs it, or that nobody knows; "" where nobody counts.
func lookAt(run *record.Run, stage *record.StageResult) string {
	look := run.Looks.At(stage.Split, stage.Metric)
	if look == nil {
		return ""
	}
	return look.Sentence()
}

// openedOf says what the sealed questions showed of the claim for which they were opened; nothing where they were not.
func openedOf(run *record.Run, stages []record.StageResult) []string {
	if run.Opened == nil {
		return nil
	}
	out := []string{fmt.Sprintf("**Sealed questions**, opened once, at %s. The claim was: %s.", run.Opened.Time,
		page.Plain(strings.TrimSuffix(run.Opened.Claim, ".")))}
	for i := range stages {
		stage := &stages[i]
		if stage.Split != record.Sealed || !results.Trained(stage.Policy) {
			continue
		}
		metric, entries := results.MetricName(stage.Metric), []string{lookAt(run, stage)}
		for _, g := range gainsOf(stage, results.TableOf(stages, *stage), stages) {
			entries = append(entries, page.Capital(g.by.Sentence(stage.Subject(), g.over, metric))+".")
		}
		out = append(out, "- "+strings.Join(list.Map(entries, page.Plain), "\n- "))
	}
	return out
}

// untrained says whether a line of a table is the policy that the run began with.
func untrained(stage *record.StageResult) bool {
	return stage.Policy == record.PolicyBest && stage.Phase == record.PolicyInit
}

// gain is the planned comparison with one yardstick.
type gain struct {
	over, short string // in a sentence, in a plot
	by          *stats.Paired
}

// gainsOf are the planned comparisons.
func gainsOf(stage *record.StageResult, table, stages []record.StageResult) []gain {
	var out []gain
	yards := results.YardsticksOf(table, stages)
	for i, y := range yards {
		switch {
		case *y.Gain(stage) == nil,
			y.Policy == record.PolicyInit && (untrained(stage) || i > 0 && sameAsInit(table, yards[0])): // said with the first
			continue
		case i == 0 && len(yards) > 1 && sameAsInit(table, y):
			y.Long += " (and the initial policy, which scores the same)"
			y.Short += " = initial policy"
		}
		out = append(out, gain{y.Long, y.Short, *y.Gain(stage)})
	}
	if stage.OverRandom != nil && len(results.BelowRandom(table)) == 0 { // else it is among the yardsticks
		out = append(out, gain{"drawing at random", "random", stage.OverRandom})
	}
	return out
}

// inWords is: is better than similarity and drawing at random; it is not separable from the initial policy.
func inWords(gains []gain) string {
	relation := func(g gain) string {
		switch {
		case g.by.Verdict != stats.NotSeparable:
			return fmt.Sprintf("is %s than", g.by.Verdict)
		case g.by.Changed == 0:
			return "scores the same as"
		}
		return "is not separable from"
	}
	parts := list.Map(stats.GroupBy(gains, relation), func(alike []gain) string {
		return relation(alike[0]) + " " + page.Joined(list.Map(alike, func(g gain) string { return g.over }))
	})
	return strings.Join(parts, "; it ")
}

// whyUntrained says by what the initial policy is the best, which epoch another measure would have chosen, and which phase the tables
// under the verdict call better.
func whyUntrained(run *record.Run, best *record.BestSummary, stages []record.StageResult) []string {
	if schedule, ok := run.Setting("schedule").([]any); ok && len(schedule) == 0 {
		return []string{"Nothing was trained: the schedule is empty, and the policy that the run starts from is scored."}
	}
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

// trainedOverInit says what the last phase of a table is over the initial policy where that is the best; "" where it is better, which
// results.BetterThanInit says.
func trainedOverInit(table []record.StageResult, metric string) string {
	for _, r := range slices.Backward(table) {
		if results.Trained(r.Policy) && r.Policy != record.PolicyBest && r.OverInit != nil {
			if r.OverInit.Verdict == stats.Better {
				break
			}
			return fmt.Sprintf("Over the initial policy, %s: %s.", r.Subject(), r.OverInit.Entry(metric))
		}
	}
	return ""
}

// lastPhase says what the last phase of a table is worth by itself: its policy against that of the phase before.
func lastPhase(table []record.StageResult, entry func(stats.Paired) string) []string {
	i := lastAdded(table)
	if i < 0 {
		return nil
	}
	of, before := table[i], table[i-1]
	return []string{fmt.Sprintf("What the last phase added, %s over %s: %s.", of.Subject(), before.Subject(), entry(*of.OverPrevious))}
}

// lastAdded is the line of the last phase that follows another, the line before it; -1 for none.
func lastAdded(table []record.StageResult) int {
	for i, s := range slices.Backward(table) {
		if s.OverPrevious != nil {
			return i // phases stand in the order in which they ended
		}
	}
	return -1
}

// remarks are what is to be said of the choice of the best checkpoint, each a sentence after a space.
func remarks(b *record.BestSummary) string {
	var out string
	for _, more := range []string{b.Choice, b.Reason, b.Other} {
		if more != "" {
			out += " " + page.Capital(more) + "."
		}
	}
	return out
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
		switch {
		case s.Split == record.Sealed:
			return false // it has a paragraph of its own
		case found == nil:
			return true
		case record.HeldOut(s.Split) != record.HeldOut(found.Split):
			return record.HeldOut(s.Split)
		}
		return s.Split == found.Split && s.Metric == found.Metric // the first held-out split, reward before accuracy; best after the phases
	}
	for i := range stages {
		if results.Trained(stages[i].Policy) && better(stages[i]) {
			found = &stages[i]
		}
	}
	return found
}

// hardlyMoved is the share of its probability below which a policy has hardly moved: what it selects is nearly what the initial one does.
const hardlyMoved = 0.2

// movedAtMost is the largest share of their probability that the trained policy of a line and the initial one can give to different
// selections, from the KL on validation queries; ok where it is known. By Pinsker's inequality a KL of d nats bounds it by √(d/2), also
// the mean over queries (Jensen); phases that each measure from their own start add up. An untrained line stands for the last epoch.
func movedAtMost(run *record.Run, stage *record.StageResult) (share float64, ok bool) {
	before, within, phase := 0.0, 0.0, ""
	for _, e := range run.Epochs {
		kl, known := e.Number("val_kl")
		reference := e.Text("kl_reference")
		if !known || reference != record.PolicyInit && reference != "phase_start" {
			return 0, false
		}
		if e.Phase != phase {
			before, phase = before+within, e.Phase
		}
		if within = math.Sqrt(max(kl, 0) / 2); reference == record.PolicyInit {
			before = 0
		}
		if !untrained(stage) && e.Phase == stage.Phase && e.Epoch == stage.Epoch {
			break
		}
	}
	return min(1, before+within), phase != ""
}

// unmoved says of a policy that is no better than the initial one that it is nearly the same; "" elsewhere.
func unmoved(run *record.Run, stage *record.StageResult) string {
	share, ok := movedAtMost(run, stage)
	if !ok || share >= hardlyMoved || stage.OverInit != nil && stage.OverInit.Verdict == stats.Better {
		return ""
	}
	return fmt.Sprintf("The policy hardly moved: by its KL on validation at most %s of the probability of its %s differs from the initial "+
		"policy's (below %s is hardly). That is no sign that there is nothing to learn: a higher learning rate comes first.",
		page.Percent(share), run.Wording("selections", "completions"), page.Percent(hardlyMoved))
}
