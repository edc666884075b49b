package sweepreport

import (
	"cmp"
	"fmt"
	"maps"
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

// studyTitle names the study by its configuration where the overrides do.
func (v *View) studyTitle() string {
	if name := record.ExperimentOf(v.common); name != "" {
		return "Study " + name
	}
	return cmp.Or(v.opt.Title, "Study")
}

// writeStanding says what was run on what, and how far it is.
func (v *View) writeStanding(d *page.Document) {
	seeds := 0
	for _, a := range v.arms() {
		seeds = max(seeds, len(a.jobs))
	}
	under := ""
	if n := len(v.armSettings); n > 1 {
		under = " under " + page.Plural(n, "setting")
	}
	d.Paragraph("%s%s, %s each, %s: %s. %s", page.Plural(len(v.opt.Study.Arms), "arm"), under,
		page.Plural(seeds, "seed"), page.Plural(len(v.jobs), "job"), v.states(nil), v.dataSentence())
	if v.count(func(j Job) bool { return !ended(j.State) }) > 0 {
		d.Paragraph("**This study has not ended.** `run resume FOLDER`, with the folder of this report, goes on with it if nobody " +
			"controls it. What follows compares the seeds that both sides of a question have.")
	}
}

// writeNotes says what went wrong with the report itself.
func (v *View) writeNotes(d *page.Document) {
	if len(v.notes) > 0 {
		d.Heading(2, "What this report lacks")
		d.List(v.notes...)
	}
}

// dataSentence says what the questions are.
func (v *View) dataSentence() string {
	run := v.first()
	if run == nil {
		return ""
	}
	data, counts := run.Summary.Data, []string{}
	for _, name := range slices.Sorted(maps.Keys(data.Counts)) {
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

// writeAnswers gives every question its verdict.
func (v *View) writeAnswers(d *page.Document) {
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
			interval := fmt.Sprintf("%s to %s", page.Fixed(c.Interval.Low, 4), page.Fixed(c.Interval.High, 4))
			row = append(row, page.Fixed(c.Mean, 4), interval, page.Sig(c.SE, 2), page.Sig(c.SeedSE, 2),
				c.PCell(), answerCell(c))
		} else {
			row = append(row, "–", "–", "–", "–", "–", "no answer")
		}
		rows = append(rows, row)
	}
	d.List(items...)
	d.Table([]string{"", "arm", "against", ">difference", ">95% interval", ">SE, questions", ">SE, seeds", ">p (Holm)", "verdict"}, rows)
	for _, note := range stats.Notes(rows) {
		d.Paragraph("%s", note)
	}
}

// unusual names the measure of a question that is not asked of the reward on the held-out set.
func (v *View) unusual(a *studyAnswer) string {
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

// writeReading says what the answers mean and what they cannot show.
func (v *View) writeReading(d *page.Document) {
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
		"An arm is judged by the policy that it ended with, after all its steps. No checkpoint was chosen by validation, so that more " +
			"epochs are no more draws; below, the same with the best checkpoint.",
		"Each interval covers new questions and new seeds both. What one and the other add to it stands in the table as standard " +
			"errors. Where the seeds' is 0, they differ by no more than chance on single questions.",
		fmt.Sprintf("The p-values are corrected for the %s asked here (Holm). A verdict needs an interval without 0 and a corrected p "+
			"below 0.05. The intervals are not corrected.", page.Plural(n, "question")),
	}
	if len(halves) > 0 {
		items = append(items, fmt.Sprintf("The intervals reach %s to %s to each side: a difference smaller than that cannot be seen "+
			"with these questions and seeds. Open means not shown, not absent.", page.Sig(slices.Min(halves), 2),
			page.Sig(slices.Max(halves), 2)))
	}
	if slices.ContainsFunc(v.answers, func(a *studyAnswer) bool { return a.c != nil && a.c.OfTwoSeeds() }) {
		items = append(items, results.TwoSeeds)
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

// writeOthers repeats the comparisons by other measures.
func (v *View) writeOthers(d *page.Document) {
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
			row = append(row, otherCell(o))
			if a.c != nil && o != nil && o.Verdict != a.c.Verdict {
				differ = append(differ, fmt.Sprintf("%d by %s (%s instead of %s)", i+1, measures[k].name, answerWord(o), answerWord(a.c)))
			}
		}
		rows = append(rows, row)
	}
	d.Table(header, rows)
	text := "Each column is corrected for its own number of comparisons. The planned measure decides; the others show how much hangs on " +
		"that choice."
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
func (v *View) writeSeeds(d *page.Document) {
	split := v.split()
	for _, s := range v.armSettings {
		var seeds []int64
		for _, a := range s.arms {
			seeds = append(seeds, a.seeds()...)
		}
		if len(seeds) == 0 {
			continue
		}
		slices.Sort(seeds)
		seeds = slices.Compact(seeds)
		d.Heading(2, "%s", s.heading("Seed by seed"))
		table := page.LinesOf(s.arms)
		table.Column("reward on "+page.Plain(split), func(a *armRuns) string { return page.Plain(a.Label) })
		for _, seed := range seeds {
			table.Column(fmt.Sprintf(">%d", seed), func(a *armRuns) string {
				if arm, err := results.ArmOf(a.withSeeds([]int64{seed}), split, "reward", a.last()); err == nil {
					return meanCell(arm)
				}
				return "–"
			})
		}
		d.Table(table.Header, table.Rows)
	}
}

// writeSettingsOfArms says what each arm is, in the words of the command line.
func (v *View) writeSettingsOfArms(d *page.Document) {
	d.Heading(2, "What the arms are")
	var rows [][]string
	for _, a := range v.opt.Study.Arms {
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
	d.Paragraph("An arm that starts from another one takes the checkpoint of the same seed. In such a run the policy at its start is " +
		"that checkpoint: the reference of its KL and the old policy of its ratios begin there, as in the second phase of one run with " +
		"both.")
}

// writeFindings collects what the runs themselves warned of, alike ones together.
func (v *View) writeFindings(d *page.Document) {
	type finding struct {
		arm, event, message string
		runs                map[string]bool
	}
	var all []*finding
	of := map[string]int{}
	for _, a := range v.arms() {
		of[a.Label] += len(a.runs)
		for _, r := range a.runs {
			for _, e := range r.Events {
				if severity := e.Text("severity"); severity != "warning" && severity != "stop" {
					continue
				}
				i := slices.IndexFunc(all, func(f *finding) bool { return f.arm == a.Label && f.event == e.Text("event") })
				if i < 0 {
					i, all = len(all), append(all, &finding{a.Label, e.Text("event"), e.Text("message"), map[string]bool{}})
				}
				all[i].runs[r.Dir] = true
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
		items = append(items, fmt.Sprintf("%s, %d of %s (`%s`): %s.", page.Plain(f.arm), len(f.runs), page.Plural(of[f.arm], "run"),
			f.event, strings.TrimSuffix(page.Plain(f.message), ".")))
	}
	d.List(items...)
	d.Paragraph("The words are those of the first run of each arm that said so.")
}

// writeSkipped names the jobs that did not run because of others.
func (v *View) writeSkipped(d *page.Document) {
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
func (v *View) writeCosts(d *page.Document) {
	d.Heading(2, "Costs")
	var rows [][]string
	total := 0.0
	for _, a := range v.arms() {
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
		rows = append(rows, []string{a.setting.heading(page.Plain(a.Label)), fmt.Sprint(len(seconds)), page.Thousands(own),
			page.Duration(stat.Mean(seconds)), page.Duration(stat.Mean(training))})
	}
	d.Table([]string{"arm", ">runs done", ">own steps", ">time of a run", ">of it, steps"}, rows)
	text := fmt.Sprintf("All jobs together took %s", page.Duration(total))
	if elapsed := v.elapsed(); elapsed > 0 {
		text += fmt.Sprintf("; from the first start to the last end %s passed", page.Duration(elapsed))
	}
	d.Paragraph("%s, with launcher %s. A run's time beside its steps is loading, validation, baselines and its own report.", text,
		page.Plain(cmp.Or(v.opt.Launcher, "unknown")))
}

// elapsed is the time from the first start of a run to the last end of one, in seconds; 0 when unknown.
func (v *View) elapsed() float64 {
	var first, last time.Time
	for _, r := range v.runs() {
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
	return math.Round(last.Sub(first).Seconds())
}

// writeRepeat gives the commands, the environment and the data's fingerprint.
func (v *View) writeRepeat(d *page.Document) {
	d.Heading(2, "To repeat it")
	if len(v.opt.Command) > 0 {
		d.Code(page.ShellCommand(v.opt.Command))
	}
	d.Paragraph("The same command with `--cfg sweep` prints the jobs and runs none. With another `hydra.sweep.dir` it makes the study " +
		"again: on a CPU of this kind with the same numbers, but for times. `run report FOLDER` writes this report anew from the runs " +
		"in its folder.")
	run := v.first()
	if run == nil {
		return
	}
	rows := [][]string{{"data", "`" + page.Plain(run.Summary.Data.Name) + "`"}, {"data fingerprint",
		v.shared(func(r *record.Run) string { return r.Summary.Data.Fingerprint })},
		{"device", v.shared(func(r *record.Run) string { return r.Summary.Device })}}
	for _, name := range slices.Sorted(maps.Keys(run.Summary.Versions)) {
		if name != "config" { // differs between arms by design
			rows = append(rows, []string{page.Plain(name), v.shared(func(r *record.Run) string { return r.Summary.Versions[name] })})
		}
	}
	d.Table([]string{"", "of every run"}, rows)
}

// shared is a value that all runs have, or a warning that they differ.
func (v *View) shared(of func(*record.Run) string) string {
	var values []string
	for _, r := range v.runs() {
		if text := page.Plain(of(r)); !slices.Contains(values, text) {
			values = append(values, text)
		}
	}
	if len(values) == 1 {
		return values[0]
	}
	return "**not the same in all runs:** " + strings.Join(values, "; ")
}
