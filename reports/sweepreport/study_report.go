package sweepreport

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// Report returns a study's report.md: the answers first, then what they rest on.
func (v *studyView) Report(figures []sweepFigure) string {
	var d page.Document
	d.Heading(1, "%s", page.Plain(v.studyTitle()))
	v.writeStanding(&d)
	v.writeAnswers(&d)
	v.writeReading(&d)
	v.writeArms(&d)
	v.writeSplits(&d)
	v.writePlots(&d, figures)
	v.writeBeta(&d)
	v.writeOthers(&d)
	v.writeSeeds(&d)
	v.writeSettingsOfArms(&d)
	v.writeFindings(&d)
	v.writeFailures(&d)
	v.writeSkipped(&d)
	v.writeCosts(&d)
	v.writeRepeat(&d)
	v.writeNotes(&d)
	return strings.TrimRight(d.B.String(), "\n") + "\n"
}

// studyTitle names the study by its configuration where the overrides do.
func (v *studyView) studyTitle() string {
	for _, o := range v.common {
		if name, ok := strings.CutPrefix(o, "exp="); ok {
			return "Study " + name
		}
	}
	return cmp.Or(v.opt.Title, "Study")
}

// writeStanding says what was run on what, and how far it is.
func (v *studyView) writeStanding(d *page.Document) {
	seeds := 0
	for _, s := range v.settings {
		for _, a := range s.arms {
			seeds = max(seeds, len(a.jobs))
		}
	}
	text := fmt.Sprintf("%s, %s each, %s: %s.", page.Capital(page.Plural(len(v.study.Arms), "arm")), page.Plural(seeds, "seed"), page.Plural(len(v.jobs), "job"), v.states(nil))
	if n := len(v.settings); n > 1 {
		text = fmt.Sprintf("%s under %s, %s each, %s: %s.", page.Capital(page.Plural(len(v.study.Arms), "arm")), page.Plural(n, "setting"), page.Plural(seeds, "seed"), page.Plural(len(v.jobs), "job"), v.states(nil))
	}
	d.Paragraph("%s %s", text, v.dataSentence())
	if v.count(func(j Job) bool { return !ended(j.State) }) > 0 {
		d.Paragraph("**This study has not ended.** `run resume FOLDER`, with the folder of this report, goes on with it if nobody controls it. What follows compares the seeds that both sides of a question have.")
	}
}

// writeNotes says what went wrong with the report itself.
func (v *studyView) writeNotes(d *page.Document) {
	if len(v.notes) > 0 {
		d.Heading(2, "What this report lacks")
		d.List(v.notes...)
	}
}

// dataSentence says what the questions are.
func (v *studyView) dataSentence() string {
	run := v.first()
	if run == nil {
		return ""
	}
	data, counts := run.Summary.Data, []string{}
	for _, name := range sortedCounts(data.Counts) {
		what := name
		for _, unit := range []string{"_queries", "_samples"} {
			what = strings.TrimSuffix(what, unit)
		}
		counts = append(counts, fmt.Sprintf("%s %s", page.Thousands(data.Counts[name]), page.Plain(strings.ReplaceAll(what, "_", " "))))
	}
	text := fmt.Sprintf("Data %s (%s %s)", page.Plain(data.Name), strings.Join(counts, ", "), run.Wording("queries", "samples"))
	if !run.Answers() {
		text += ", " + page.Plural(data.Shots, "shot")
	}
	text += "."
	if data.Synthetic {
		text += " " + page.Capital(strings.TrimSuffix(page.Plain(data.Notice), ".")) + "."
	}
	return text
}

func sortedCounts(counts map[string]int) []string {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// writeAnswers gives every question its verdict.
func (v *studyView) writeAnswers(d *page.Document) {
	if len(v.answers) == 0 {
		return
	}
	d.Heading(2, "Answers")
	var items []string
	var rows [][]string
	for i, a := range v.answers {
		items = append(items, fmt.Sprintf("**%d. %s** %s", i+1, a.Title(), a.sentence()))
		row := []string{fmt.Sprint(i + 1), page.Plain(a.what), page.Plain(a.against) + v.unusual(a)}
		if c := a.c; c != nil {
			row = append(row, page.Fixed(c.Mean, 4), intervalCell(c.Interval), page.Sig(c.QuestionSE, 2), page.Sig(c.SeedSE, 2), strings.TrimPrefix(stats.PValue(c.PHolm), "= "), answerCell(c))
		} else {
			row = append(row, "–", "–", "–", "–", "–", "no answer")
		}
		rows = append(rows, row)
	}
	d.List(items...)
	d.Table([]string{"", "arm", "against", ">difference", ">95% interval", ">SE, questions", ">SE, seeds", ">p (Holm)", "verdict"}, rows)
}

// unusual names the measure of a question that is not asked of the reward on the held-out set.
func (v *studyView) unusual(a *studyAnswer) string {
	var parts []string
	if a.Metric != "reward" {
		parts = append(parts, a.Metric)
	}
	if a.split != v.split() {
		parts = append(parts, "on "+a.split)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + page.Plain(strings.Join(parts, " ")) + ")"
}

func intervalCell(i stats.Interval) string {
	return fmt.Sprintf("%s to %s", page.Fixed(i.Low, 4), page.Fixed(i.High, 4))
}

// writeReading says what the answers mean and what they cannot show.
func (v *studyView) writeReading(d *page.Document) {
	var halves []float64
	n := 0
	for _, a := range v.answers {
		if a.c != nil {
			n++
		}
		if a.c != nil && a.c.Changed > 0 {
			halves = append(halves, (a.c.Interval.High-a.c.Interval.Low)/2)
		}
	}
	if n == 0 {
		return
	}
	d.Heading(3, "How to read them")
	items := []string{
		"A difference is the mean score of the first minus that of the second, on the same questions and the same seeds.",
		"An arm is judged by the policy that it ended with, after all its steps. No checkpoint was chosen by validation, so that more epochs are no more draws; below, the same with the best checkpoint.",
		"Each interval covers new questions and new seeds both. What one and the other add to it stands in the table as standard errors. Where the seeds' is 0, they differ by no more than chance on single questions.",
		fmt.Sprintf("The p-values are corrected for the %s asked here (Holm). A verdict needs an interval without 0 and a corrected p below 0.05. The intervals are not corrected.", page.Plural(n, "question")),
	}
	if len(halves) > 0 {
		items = append(items, fmt.Sprintf("The intervals reach %s to %s to each side: a difference smaller than that cannot be seen with these questions and seeds. Open means not shown, not absent.", page.Sig(slices.Min(halves), 2), page.Sig(slices.Max(halves), 2)))
	}
	if v.split() == "val" {
		items = append(items, "There is no held-out set: these are validation questions.")
	} else {
		items = append(items, fmt.Sprintf("The questions are those of %s, which enter no choice of a run.", page.Plain(v.split())))
	}
	d.List(items...)
}

// heading names a setting where there are several.
func (s *studySetting) heading(text string) string {
	if len(s.what) > 0 {
		text += " with " + page.CodeList(s.what)
	}
	return text
}

// writeArms is the table of arms and baselines.
func (v *studyView) writeArms(d *page.Document) {
	split := v.split()
	for _, s := range v.settings {
		d.Heading(2, "%s", s.heading("Arms and baselines"))
		var rows [][]string
		baselines := func(names ...string) {
			for _, name := range names {
				if row := s.baselineRow(name, split); row != nil {
					rows = append(rows, row)
				}
			}
		}
		baselines(record.PolicyRandom, record.PolicyMajority, record.PolicySimilarity, record.PolicyInit)
		for _, a := range s.arms {
			rows = append(rows, a.row(split))
		}
		baselines(record.PolicyBestBeam, record.PolicyOracle) // what no policy is expected to pass
		d.Table([]string{"policy", "starts from", ">steps", ">reward on " + page.Plain(split), ">SE, questions", ">SD, seeds", ">gain over init", ">accuracy", ">KL", ">best checkpoint"},
			rows)
	}
	greedy := "greedy selection"
	if run := v.first(); run != nil {
		greedy = run.Wording(greedy, "greedy answer")
	}
	d.Paragraph("Reward is the mean over questions and seeds of the %s; the standard error is over questions, of scores averaged over seeds; the standard deviation is between the seeds' means. Steps count those of the arms that an arm starts from. The gain over the initial policy is descriptive: its 95%% interval is not corrected for the number of arms. KL is that of the last epoch on validation queries, in nats, to the policy that the arm itself started with. Best checkpoint is the reward of the checkpoint that validation prefers.", greedy)
}

// baselineRow is a line of the table of arms; nil when the runs have no such baseline.
func (s *studySetting) baselineRow(name, split string) []string {
	for _, a := range s.arms {
		if a.from != nil || len(a.runs) == 0 {
			continue
		}
		reward, err := results.ArmOf(a.runs, split, "reward", name)
		if err != nil {
			return nil
		}
		row := []string{"*" + page.Plain(strings.TrimPrefix(s.label(name), "the ")) + "*", "", "", meanCell(reward), seCell(reward), sdCell(reward), "", "", "", ""}
		if accuracy, err := results.ArmOf(a.runs, split, "accuracy", name); err == nil {
			row[7] = meanCell(accuracy)
		}
		return row
	}
	return nil
}

// row is an arm's line of the table.
func (a *armRuns) row(split string) []string {
	from := "fresh weights"
	if a.from != nil {
		from = fmt.Sprintf("%s (%s)", page.Plain(a.from.Label), a.Checkpoint)
	}
	row := []string{page.Plain(a.Label), from, "–", "–", "–", "–", "–", "–", "–", "–"}
	if len(a.runs) == 0 {
		return row
	}
	own, all := a.steps()
	row[2] = page.Thousands(all)
	if own != all {
		row[2] = fmt.Sprintf("%s + %s", page.Thousands(all-own), page.Thousands(own))
	}
	reward, err := results.ArmOf(a.runs, split, "reward", a.last())
	if err != nil {
		return row
	}
	row[3], row[4], row[5] = meanCell(reward), seCell(reward), sdCell(reward)
	setting := &studySetting{arms: []*armRuns{a}}
	if c, _ := setting.compare(a.Name, record.PolicyInit, split, "reward", false); c != nil {
		row[6] = fmt.Sprintf("%s [%s, %s]", page.Fixed(c.Mean, 4), page.Fixed(c.Interval.Low, 4), page.Fixed(c.Interval.High, 4))
	}
	if accuracy, err := results.ArmOf(a.runs, split, "accuracy", a.last()); err == nil {
		row[7] = meanCell(accuracy)
	}
	if kl := a.lastOf("val_kl"); len(kl) > 0 {
		row[8] = page.Sig(stat.Mean(kl), 2)
	}
	if best, err := results.ArmOf(a.runs, split, "reward", record.PolicyBest); err == nil {
		row[9] = meanCell(best)
	}
	return row
}

// lastOf is a metric of the last epoch of every run that has it.
func (a *armRuns) lastOf(name string) []float64 {
	var out []float64
	for _, r := range a.runs {
		for _, e := range slices.Backward(r.Epochs) {
			if x, ok := e.Number(name); ok {
				out = append(out, x)
				break
			}
		}
	}
	return out
}

func meanCell(a results.Arm) string { return fmt.Sprintf("%.4f", stat.Mean(a.QueryScores())) }

func seCell(a results.Arm) string {
	_, se := stats.NewGrouping(a.Clusters).MeanSE(a.QueryScores())
	return fmt.Sprintf("%.4f", se)
}

// sdCell is the spread between seeds, a dash with one seed.
func sdCell(a results.Arm) string {
	if len(a.Scores) < 2 {
		return "–"
	}
	means := make([]float64, len(a.Scores))
	for i, row := range a.Scores {
		means[i] = stat.Mean(row)
	}
	return fmt.Sprintf("%.4f", stat.SD(means))
}

// writeBeta says what became of the KL's coefficient in the arms that have one.
func (v *studyView) writeBeta(d *page.Document) {
	var rows [][]string
	for _, s := range v.settings {
		for _, a := range s.arms {
			if !a.penalised() {
				continue
			}
			start, _ := a.runs[0].SettingNumber(a.last(), "kl", "beta")
			moves := a.runs[0].Setting(a.last(), "kl", "controller") != "fixed"
			end, kl := a.lastOf("kl_beta_next"), a.lastOf("val_kl")
			row := []string{page.Plain(a.Label), "fixed", page.Sig(start, 3), rangeCell(end), rangeCell(kl), "–", "–"}
			if moves {
				row[1] = "moves"
				if band := a.band(); band != nil {
					row[5] = fmt.Sprintf("%s to %s", page.Sig(band[0], 3), page.Sig(band[1], 3))
				}
				bound, epochs := 0, 0
				for _, r := range a.runs {
					for _, e := range r.Epochs {
						if at, ok := e.Fields["kl_beta_at_bound"].(bool); ok {
							bound, epochs = bound+stats.BoolInt(at), epochs+1
						}
					}
				}
				row[6] = fmt.Sprintf("%d of %d", bound, epochs)
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return
	}
	d.Heading(3, "What β did")
	d.Table([]string{"arm", "β", ">at the start", ">at the end", ">KL at the end", ">band of the KL", ">epochs with β on a bound"}, rows)
	d.Paragraph("The end is the mean over seeds, with the least and the greatest seed. KL on validation queries, in nats.")
}

// rangeCell is a mean over seeds with its extremes.
func rangeCell(x []float64) string {
	if len(x) == 0 {
		return "–"
	}
	if slices.Min(x) == slices.Max(x) {
		return page.Sig(x[0], 3)
	}
	return fmt.Sprintf("%s (%s to %s)", page.Sig(stat.Mean(x), 3), page.Sig(slices.Min(x), 2), page.Sig(slices.Max(x), 2))
}

// writeOthers repeats the comparisons by other measures.
func (v *studyView) writeOthers(d *page.Document) {
	measures := v.measures()
	if !slices.ContainsFunc(v.answers, func(a *studyAnswer) bool { return a.c != nil }) {
		return
	}
	d.Heading(2, "The same by other measures")
	header := []string{"", "question", ">planned"}
	for _, m := range measures {
		header = append(header, ">"+m.name)
	}
	var rows [][]string
	var differ []string
	for i, a := range v.answers {
		row := []string{fmt.Sprint(i + 1), a.Title(), otherCell(a.c)}
		for k, o := range a.others {
			row = append(row, otherCell(o.c))
			if a.c != nil && o.c != nil && o.c.Verdict != a.c.Verdict {
				differ = append(differ, fmt.Sprintf("%d by %s (%s instead of %s)", i+1, measures[k].name, answerWord(o.c), answerWord(a.c)))
			}
		}
		rows = append(rows, row)
	}
	d.Table(header, rows)
	text := "Each column is corrected for its own number of comparisons. The planned measure decides; the others show how much hangs on that choice."
	if len(differ) == 0 {
		text += " All verdicts are the same."
	} else {
		text += " Other verdicts: " + strings.Join(differ, "; ") + "."
	}
	d.Paragraph("%s", text)
}

func otherCell(c *results.ArmComparison) string {
	if c == nil {
		return "–"
	}
	return page.Fixed(c.Mean, 4) + " " + answerWord(c)
}

// writeSeeds shows every run's own number.
func (v *studyView) writeSeeds(d *page.Document) {
	split := v.split()
	for _, s := range v.settings {
		var seeds []int64
		for _, a := range s.arms {
			for _, seed := range a.seeds() {
				if !slices.Contains(seeds, seed) {
					seeds = append(seeds, seed)
				}
			}
		}
		if len(seeds) == 0 {
			continue
		}
		slices.Sort(seeds)
		d.Heading(2, "%s", s.heading("Seed by seed"))
		header := []string{"reward on " + page.Plain(split)}
		for _, seed := range seeds {
			header = append(header, fmt.Sprintf(">%d", seed))
		}
		var rows [][]string
		for _, a := range s.arms {
			row := []string{page.Plain(a.Label)}
			for _, seed := range seeds {
				cell := "–"
				if arm, err := results.ArmOf(a.withSeeds([]int64{seed}), split, "reward", a.last()); err == nil {
					cell = meanCell(arm)
				}
				row = append(row, cell)
			}
			rows = append(rows, row)
		}
		d.Table(header, rows)
	}
}

// writeSettingsOfArms says what each arm is, in the words of the command line.
func (v *studyView) writeSettingsOfArms(d *page.Document) {
	d.Heading(2, "What the arms are")
	var rows [][]string
	for _, a := range v.study.Arms {
		from := "fresh weights from seed"
		if a.From != "" {
			from = fmt.Sprintf("`%s`, its %s checkpoint", a.From, a.Checkpoint)
			if a.As != "" {
				from += fmt.Sprintf(" as `%s`, adapters merged", a.As)
			}
		}
		rows = append(rows, []string{"`" + a.Name + "`", page.Plain(a.Label), from, page.TableCode(a.Overrides)})
	}
	d.Table([]string{"arm", "in this report", "starts from", "overrides"}, rows)
	if len(v.common) > 0 {
		d.Paragraph("All arms have %s, and what that sets.", page.CodeList(v.common))
	}
	d.Paragraph("An arm that starts from another one takes the checkpoint of the same seed. In such a run the policy at its start is that checkpoint: the reference of its KL and the old policy of its ratios begin there, as in the second phase of one run with both.")
}

// writeFindings collects what the runs themselves warned of, alike ones together.
func (v *studyView) writeFindings(d *page.Document) {
	type finding struct {
		arm, event, severity, message string
		runs                          map[string]bool
	}
	var all []*finding
	of := map[string]int{}
	for _, s := range v.settings {
		for _, a := range s.arms {
			of[a.Label] += len(a.runs)
			for _, r := range a.runs {
				for _, e := range r.Events {
					severity := e.Text("severity")
					if severity != "warning" && severity != "stop" {
						continue
					}
					i := slices.IndexFunc(all, func(f *finding) bool { return f.arm == a.Label && f.event == e.Text("event") })
					if i < 0 {
						i, all = len(all), append(all, &finding{a.Label, e.Text("event"), severity, e.Text("message"), map[string]bool{}})
					}
					all[i].runs[r.Dir] = true
				}
			}
		}
	}
	d.Heading(2, "What the runs warned of")
	if len(all) == 0 {
		d.Paragraph("Nothing: no run has a warning.")
		return
	}
	var items []string
	for _, f := range all {
		items = append(items, fmt.Sprintf("%s, %d of %s (`%s`): %s.", page.Plain(f.arm), len(f.runs), page.Plural(of[f.arm], "run"), f.event, strings.TrimSuffix(page.Plain(f.message), ".")))
	}
	d.List(items...)
	d.Paragraph("The words are those of the first run of each arm that said so.")
}

// writeSkipped names the jobs that did not run because of others.
func (v *studyView) writeSkipped(d *page.Document) {
	var items []string
	for _, j := range v.byNumber {
		if j.State == stateSkipped {
			items = append(items, fmt.Sprintf("Job %d (%s) was skipped: %s.", j.Number, page.CodeList(v.own(j)), page.Plain(j.Cause)))
		}
	}
	if len(items) > 0 {
		d.List(items...)
	}
}

// writeCosts says what an arm costs and what the whole did.
func (v *studyView) writeCosts(d *page.Document) {
	d.Heading(2, "Costs")
	var rows [][]string
	total := 0.0
	for _, s := range v.settings {
		for _, a := range s.arms {
			var seconds, training []float64
			for _, j := range a.jobs {
				total += j.Seconds
				if j.State == record.StateDone {
					seconds = append(seconds, j.Seconds)
				}
			}
			for _, r := range a.runs {
				sum := 0.0
				for _, p := range r.Summary.Phases {
					sum += p.Seconds
				}
				training = append(training, sum)
			}
			if len(seconds) == 0 {
				continue
			}
			own, _ := a.steps()
			label := page.Plain(a.Label)
			if len(s.what) > 0 {
				label += " with " + page.CodeList(s.what)
			}
			rows = append(rows, []string{label, fmt.Sprint(len(seconds)), page.Thousands(own), page.Duration(stat.Mean(seconds)), page.Duration(stat.Mean(training))})
		}
	}
	d.Table([]string{"arm", ">runs done", ">own steps", ">time of a run", ">of it, steps"}, rows)
	text := fmt.Sprintf("All jobs together took %s", page.Duration(total))
	if elapsed := v.elapsed(); elapsed > 0 {
		text += fmt.Sprintf("; from the first start to the last end %s passed", page.Duration(elapsed))
	}
	d.Paragraph("%s, with launcher %s. A run's time beside its steps is loading, validation, baselines and its own report.", text, page.Plain(cmp.Or(v.opt.Launcher, "unknown")))
}

// elapsed is the time from the first start of a run to the last end of one, in seconds; 0 when unknown.
func (v *studyView) elapsed() float64 {
	var first, last time.Time
	for _, s := range v.settings {
		for _, a := range s.arms {
			for _, r := range a.runs {
				start, err := time.Parse(time.RFC3339, r.Summary.Start)
				if err != nil {
					return 0
				}
				end := start.Add(time.Duration(r.Summary.WallSeconds * float64(time.Second)))
				if first.IsZero() || start.Before(first) {
					first = start
				}
				if end.After(last) {
					last = end
				}
			}
		}
	}
	return math.Round(last.Sub(first).Seconds())
}

// writeRepeat gives the commands, the environment and the data's fingerprint.
func (v *studyView) writeRepeat(d *page.Document) {
	d.Heading(2, "To repeat it")
	if len(v.opt.Command) > 0 {
		d.Code(page.ShellCommand(v.opt.Command))
	}
	d.Paragraph("The same command with `--cfg sweep` prints the jobs and runs none. With another `hydra.sweep.dir` it makes the study again: on a CPU of this kind with the same numbers, but for times. `run report FOLDER` writes this report anew from the runs in its folder.")
	run := v.first()
	if run == nil {
		return
	}
	rows := [][]string{{"data", "`" + page.Plain(run.Summary.Data.Name) + "`"}, {"data fingerprint", v.shared(func(r *record.Run) string { return r.Summary.Data.Fingerprint })}, {"device", v.shared(func(r *record.Run) string { return r.Summary.Device })}}
	var names []string
	for name := range run.Summary.Versions {
		if name != "config" { // differs between arms by design
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		rows = append(rows, []string{page.Plain(name), v.shared(func(r *record.Run) string { return r.Summary.Versions[name] })})
	}
	d.Table([]string{"", "of every run"}, rows)
}

// shared is a value that all runs have, or a warning that they differ.
func (v *studyView) shared(of func(*record.Run) string) string {
	var values []string
	for _, s := range v.settings {
		for _, a := range s.arms {
			for _, r := range a.runs {
				if text := of(r); !slices.Contains(values, text) {
					values = append(values, text)
				}
			}
		}
	}
	if len(values) == 1 {
		return page.Plain(values[0])
	}
	for i := range values {
		values[i] = page.Plain(values[i])
	}
	return "**not the same in all runs:** " + strings.Join(values, "; ")
}
