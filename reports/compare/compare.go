package compare

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/arms"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
)

// maxSettings is how many differing config keys a comparison lists.
const maxSettings = 60

// Pairing is a difference from the first run or arm of a comparison on the same questions, as its tables state it.
type Pairing struct {
	Split   string `json:"split"`
	Metric  string `json:"metric"`
	Against string `json:"against"`
	results.Difference
}

// Compare writes a comparison of runs as markdown: what each ended with (its best policy, or its last
// phase) against the first run on the same questions, p-values corrected for all comparisons made, and
// the settings that differ. Runs that differ in nothing but their seed are one arm, and arms are
// compared for new questions and new seeds both. The differences are returned as numbers too.
func Compare(dirs []string) (*page.Document, []Pairing, error) {
	if len(dirs) < 2 {
		return nil, nil, fmt.Errorf("comparison: %s given: want at least 2", page.Plural(len(dirs), "run"))
	}
	var runs []*record.Run
	for _, dir := range dirs {
		run, err := record.ReadRun(dir)
		if err != nil {
			return nil, nil, err
		}
		runs = append(runs, run)
	}
	var d page.Document
	d.Heading(1, "Comparison of %s", page.Plural(len(runs), "run"))
	seeded := asked(&d, arms.ArmsOf(runs))
	steps := slices.ContainsFunc(runs, func(run *record.Run) bool { return run.LastStep() > 0 })
	var rows [][]string
	for i, run := range runs {
		state := "not ended"
		if run.Summary != nil {
			state = run.Summary.State
		}
		row := []string{arms.RunName(i) + withScorer(run), page.Plain(run.Dir), page.CodeList(run.Overrides)}
		if steps {
			row = append(append(row, stepsOf(run)), costOf(run)...)
		}
		rows = append(rows, append(row, state))
	}
	header := []string{"run", "folder", "overrides", "state"}
	if steps {
		header = slices.Insert(header, 3, "optimizer steps", ">reader calls", ">training")
	}
	d.Table(header, rows)
	pairs, err := writeComparisons(&d, runs, seeded)
	if err != nil {
		return nil, nil, err
	}
	compareSettings(&d, runs)
	return &d, pairs, nil
}

// writeComparisons compares the runs one by one, or by arms where some differ in their seed only. It returns the
// differences of its tables.
func writeComparisons(d *page.Document, runs []*record.Run, seeded []arms.ComparedArm) (pairs []Pairing, err error) {
	const nothing = "The runs share no evaluation on the same split: there is nothing to compare."
	split, missing := arms.Controls(seeded)
	defer d.Paragraph("%s", missing)
	if split || slices.ContainsFunc(seeded, func(a arms.ComparedArm) bool { return len(a.Runs) > 1 }) {
		settings := Settings(runs)
		items := list.Map(stat.Indices(len(seeded)), func(i int) string {
			a, sets := seeded[i], settings[i].Name
			item := fmt.Sprintf("%s: %s %s", page.Capital(a.Name), page.Verb(len(a.Runs), "run", "runs"), page.Joined(a.Names))
			if !strings.HasPrefix(sets, a.Name) {
				item += ", " + page.InlineCode(sets)
			}
			if len(a.Runs) == 1 {
				item += " (one seed: other seeds may differ)"
			}
			return item
		})
		d.Paragraph("Runs that differ in nothing but `seed` are one arm. The difference of two arms is taken question by question, " +
			"averaged over seeds; its interval holds for new questions and new seeds both.")
		d.List(items...)
		if len(seeded) == 1 {
			d.Paragraph("All runs are one arm: there is nothing to compare it with but its baselines.")
		}
		tables := arms.ArmTables(seeded, nil, 0)
		n := 0
		for _, t := range tables {
			n += len(t.Made())
		}
		writeFamily(d, n)
		for _, t := range tables {
			t.Write(d)
			for name, c := range t.Differences() {
				pairs = append(pairs, Pairing{t.Split, t.Metric, t.Reference, *results.DifferenceOf(name, &c.Paired)})
			}
		}
		if len(tables) == 0 {
			d.Paragraph(nothing)
		}
		return pairs, nil
	}
	tables, family := comparisonTables(runs)
	if len(tables) == 0 {
		d.Paragraph(nothing)
	}
	trained := false
	writeFamily(d, family)
	for _, t := range tables {
		t.Write(d)
		for _, e := range t.entries {
			if e.paired != nil {
				trained = trained || t.drawn(e)
				pairs = append(pairs, Pairing{t.split, t.metric, t.entries[0].name, *results.DifferenceOf(e.name, e.paired)})
			}
		}
	}
	if trained {
		d.Paragraph("One seed is one draw: to judge the settings, run each with three seeds (`-m seed=0,1,2`) and compare all of the runs.")
	}
	return pairs, nil
}

// Answers are those of the questions that runs are of.
func Answers(dirs []string) (answers []string) {
	of := list.Unique(list.Map(dirs, sweeps.AskedIn))
	return slices.Concat(list.Map(slices.DeleteFunc(of, func(dir string) bool { return dir == "" }), sweeps.ToldAnswers)...)
}

// asked notes of which question arms are, and tells the answers (run ask): no table gives another one.
func asked(d *page.Document, seeded []arms.ComparedArm) []arms.ComparedArm {
	names := map[string][]string{}
	for i, a := range seeded {
		if of := sweeps.AskedIn(a.Runs[0].Dir); of != "" {
			seeded[i].Asked, names[of] = of, append(names[of], a.Names...)
		}
	}
	for _, of := range slices.Sorted(maps.Keys(names)) {
		answer := cmp.Or(strings.Join(sweeps.ToldAnswers(of), " "), "No answer yet.")
		d.Paragraph("**A question** has %s %s (`run ask`). Its own rule decides, by the policies that its runs ended with: %s",
			page.Verb(len(names[of]), "run", "runs"), page.Joined(slices.Sorted(slices.Values(names[of]))), answer)
	}
	return seeded
}

// writeFamily names the comparisons that the page is corrected for.
func writeFamily(d *page.Document, n int) {
	if n > 1 {
		d.Paragraph("%s", stats.FamilyNote("the "+page.Plural(n, "comparison")+" below"))
	}
}

// stepsOf says how many optimizer steps a run took, and in which phases: 225 (sft 150, rce 75).
func stepsOf(run *record.Run) string {
	var parts []string
	before := 0
	for _, span := range run.Spans() {
		parts = append(parts, fmt.Sprintf("%s %s", page.Plain(span.Name), page.Thousands(int(span.To)-before)))
		before = int(span.To)
	}
	text := page.Thousands(run.LastStep())
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text
}

// costOf says how many candidates were scored for a run's steps and how long these took; nothing of a run that has not ended.
func costOf(run *record.Run) []string {
	if run.Summary == nil {
		return []string{"–", "–"}
	}
	calls, seconds := 0, 0.0
	if of := run.Summary.Data.Scorer; of != nil {
		calls = of.Training
	}
	for _, p := range run.Summary.Phases {
		calls, seconds = calls+p.Calls, seconds+p.Seconds
	}
	return []string{page.Thousands(calls), page.Duration(seconds)}
}

// withScorer is what the name of a run whose selector asks the reader has behind it.
func withScorer(run *record.Run) string {
	if run.Summary == nil {
		return ""
	}
	return run.Summary.Data.Scorer.With()
}

// comparisonTable compares the runs on one split by one metric.
type comparisonTable struct {
	split, metric string
	also          string // another metric with the same numbers, where the reward is the accuracy
	entries       []comparisonEntry
	baselines     []arms.Arm // of the first run that has some
	yards         []results.Yardstick
	warning       string // of baselines that are worse than random; "": none is
}

type comparisonEntry struct {
	name    string
	stage   record.StageResult // with its gains over similarity or majority
	step    int                // optimizer steps it took; -1: not recorded
	paired  *stats.Paired      // against the first entry, nil for itself
	refused arms.Refused
}

// comparisonTables also returns how many comparisons the page makes together.
func comparisonTables(runs []*record.Run) (tables []comparisonTable, family int) {
	type key struct{ split, metric string }
	var keys []key
	for _, run := range runs {
		for _, table := range results.StageTables(run.Evaluations) {
			if k := (key{table[0].Split, table[0].Metric}); results.PlannedStage(table) >= 0 && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	var pairs []*stats.Paired
	for _, k := range keys {
		t := comparisonTable{split: k.split, metric: k.metric}
		for _, run := range runs {
			if t.baselines = arms.BaselinesOf([]*record.Run{run}, k.split, k.metric); len(t.baselines) > 0 {
				break
			}
		}
		t.yards, t.warning = arms.ArmYardsticks(t.baselines)
		scored := func(policy string) bool {
			return slices.ContainsFunc(t.baselines, func(b arms.Arm) bool { return b.Name == record.StageResult{Policy: policy}.Title() })
		}
		if scored(record.PolicyInit) && !scored(record.PolicySimilarity) {
			t.yards = append(results.YardsticksBy(false)[:1], t.yards...) // each run's own start
		}
		var first *record.Evaluation
		var firstRun *record.Run
		for i, run := range runs {
			e, err := results.EvaluationOf(run, k.split, k.metric, "")
			if err != nil {
				continue
			}
			entry := comparisonEntry{name: arms.RunName(i) + withScorer(run), step: run.StepAt(e), stage: stageOf(run, e, t.yards)}
			if first == nil {
				first, firstRun = &e, run
			} else if paired, err := results.CompareEvaluations(e, *first, stats.DefaultOptions()); err != nil {
				entry.refused = arms.OtherQuestions()
			} else if entry.refused = arms.OtherRewards(run, firstRun, k.split, k.metric); entry.refused.Cell == "" {
				entry.paired = &paired
			}
			t.entries = append(t.entries, entry)
		}
		alone := list.Map(runs, func(run *record.Run) []*record.Run { return []*record.Run{run} })
		t.baselines = arms.Everybodys(t.baselines, alone, k.split, k.metric)
		if slices.ContainsFunc(t.entries, func(e comparisonEntry) bool { return e.refused.Cell != "" }) {
			t.baselines = nil // one was not scored as the first was
		}
		if n := len(tables); n > 0 && tables[n-1].split == t.split && reflect.DeepEqual(tables[n-1].entries, t.entries) {
			tables[n-1].also = t.metric
		} else if len(t.entries) > 1 {
			tables = append(tables, t)
			pairs = append(pairs, list.Map(t.entries, func(e comparisonEntry) *stats.Paired { return e.paired })...)
		}
	}
	pairs = slices.DeleteFunc(pairs, func(p *stats.Paired) bool { return p == nil })
	stats.Settle(pairs)
	return tables, len(pairs)
}

// stageOf describes an evaluation, with its gains over the baselines that stand in the same table.
func stageOf(run *record.Run, e record.Evaluation, yards []results.Yardstick) record.StageResult {
	stage := record.StageResult{Policy: e.Policy, Phase: e.Phase, Epoch: e.Epoch, Queries: len(e.Scores)}
	stage.Mean, stage.SE = e.MeanSE()
	for _, y := range yards {
		if reference, err := results.EvaluationOf(run, e.Split, e.Metric, y.Policy); err == nil {
			if paired, err := results.CompareEvaluations(e, reference, stats.DefaultOptions()); err == nil {
				stats.Settle([]*stats.Paired{&paired})
				*y.Gain(&stage) = &paired
			}
		}
	}
	return stage
}

// drawn says whether an entry's comparison has a policy that was trained, one draw of its seed.
func (t comparisonTable) drawn(e comparisonEntry) bool { return e.step != 0 || t.entries[0].step != 0 }

func (t comparisonTable) Write(d *page.Document) {
	first := t.entries[0]
	metrics := results.MetricName(t.metric)
	if t.also != "" {
		metrics += " and " + results.MetricName(t.also)
	}
	d.Heading(2, "%s on %s", page.Capital(metrics), page.Plain(t.split))
	steps := slices.ContainsFunc(t.entries, func(e comparisonEntry) bool { return e.step > 0 })
	var rows [][]string
	var sentences []string
	var look stats.Look
	for _, e := range t.entries {
		difference, p, effect, verdict := e.paired.Cells()
		if e.paired != nil {
			look = look.Later(e.paired.Look)
			against := first.name
			if t.drawn(e) {
				against += " (of these two runs; other seeds may differ)"
			}
			sentences = append(sentences, page.Capital(e.paired.Sentence(e.name, against, results.MetricName(t.metric)))+".")
		}
		if e.refused.Cell != "" {
			verdict = e.refused.Cell
			sentences = append(sentences, e.refused.Sentence(e.name, first.name))
		}
		row := []string{e.name, page.Plain(e.stage.Title())}
		if steps {
			row = append(row, stepCell(e.step))
		}
		row = append(row, page.Thousands(e.stage.Queries), page.MeanSE(e.stage.Mean, e.stage.SE))
		for _, y := range t.yards {
			gain, _, _, _ := (*y.Gain(&e.stage)).Cells()
			row = append(row, gain)
		}
		rows = append(rows, append(row, difference, p, effect, verdict))
	}
	header := []string{"run", "policy"}
	if steps {
		header = append(header, ">at step")
	}
	header = append(header, ">questions", ">mean ± SE")
	header = append(header, list.Map(t.yards, func(y results.Yardstick) string { return ">gain over " + y.Short })...)
	d.Table(append(header, ">minus "+first.name, ">p (Holm)", ">effect", "verdict"), withBaselines(rows, t.baselines, steps))
	for _, note := range stats.Notes(rows) {
		d.Paragraph("%s", note)
	}
	if look != (stats.Look{}) {
		sentences = append(sentences, page.Capital(look.Spent()))
	}
	if t.warning != "" {
		sentences = append(sentences, t.warning)
	}
	d.List(sentences...)
}

// withBaselines adds a line for each baseline: its mean, and nothing that it was not compared with.
func withBaselines(rows [][]string, baselines []arms.Arm, steps bool) [][]string {
	for _, b := range baselines {
		mean, _ := b.LevelOf()
		row := []string{"", page.Plain(b.Name)}
		if steps {
			row = append(row, "")
		}
		row = append(row, page.Thousands(len(b.QueryIDs)), mean)
		rows = append(rows, append(row, make([]string, len(rows[0])-len(row))...))
	}
	return rows
}

func stepCell(step int) string {
	if step < 0 {
		return "–"
	}
	return page.Thousands(step)
}

// compareSettings lists the config keys in which the runs differ.
func compareSettings(d *page.Document, runs []*record.Run) {
	d.Heading(2, "Settings that differ")
	flat := make([]map[string]string, len(runs))
	for i, run := range runs {
		flat[i] = map[string]string{}
		record.Flatten(flat[i], "", run.Tree)
		if run.Summary != nil {
			flat[i]["fingerprint of the data"] = run.Summary.Data.Fingerprint[:min(12, len(run.Summary.Data.Fingerprint))]
		}
	}
	header := append([]string{"key"}, list.Map(stat.Indices(len(runs)), arms.RunName)...)
	rows := list.Map(folded(Differing(flat), runs), func(one Setting) []string {
		cells := list.Map(one.Values, func(value *string) string { return page.Plain(cut(value, 0, math.MaxInt)) })
		return append([]string{"`" + one.Key + "`"}, cells...)
	})
	if len(rows) == 0 {
		hash := func(r *record.Run) string {
			if r.Summary == nil {
				return ""
			}
			return r.Summary.Versions["config"]
		}
		if len(list.Unique(list.Map(runs, hash))) > 1 { // a text that an environment variable gives
			d.Paragraph("None by their files, but an interpolation has another value: the hashes of the configurations differ.")
			return
		}
		d.Paragraph("None.")
		return
	}
	d.Table(header, rows[:min(len(rows), maxSettings)])
	if n := len(rows) - maxSettings; n > 0 {
		d.Paragraph("and %d more.", n)
	}
}

// folded puts the keys of a section that some runs lack and the others have alike into one line: a schedule without grpo lacks all of its.
func folded(differing []Setting, runs []*record.Run) (out []Setting) {
	section := func(s Setting) string { return strings.SplitN(s.Key, ".", 2)[0] }
	folds := func(s Setting) bool {
		var first *string
		for i, value := range s.Values {
			if has := runs[i].Setting(section(s)) != nil; has != (value != nil) || value != nil && first != nil && *value != *first {
				return false
			}
			first = cmp.Or(first, value)
		}
		return true
	}
	alike := list.Tally(list.Map(list.Filter(differing, folds), section))
	for _, s := range differing {
		switch n := alike[section(s)]; {
		case !folds(s) || n == 1:
			out = append(out, s)
		case n > 1: // once
			one := Setting{section(s) + ".*", make([]*string, len(runs))}
			for i := range runs {
				if s.Values[i] != nil {
					one.Values[i] = new(fmt.Sprintf("%d keys", n))
				}
			}
			out, alike[section(s)] = append(out, one), 0
		}
	}
	return out
}

// Setting is a key in which runs differ; nil where a run has no such key.
type Setting struct {
	Key    string    `json:"key"`
	Values []*string `json:"values"`
}

// Differing lists the keys whose values are not the same in all settings.
func Differing(settings []map[string]string) []Setting {
	all := map[string]string{}
	for _, one := range settings {
		maps.Copy(all, one)
	}
	out := []Setting{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		s := Setting{key, make([]*string, len(settings))}
		for i, one := range settings {
			if value, ok := one[key]; ok {
				s.Values[i] = &value
			}
		}
		if slices.ContainsFunc(s.Values, func(value *string) bool { return !equal(value, s.Values[0]) }) {
			out = append(out, s)
		}
	}
	return out
}
