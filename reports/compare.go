package reports

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// maxSettings is how many differing config keys a comparison lists.
const maxSettings = 60

// Compare writes a comparison of runs as markdown: what each ended with (its best policy, or its last
// phase) against the first run on the same questions, p-values corrected for all comparisons made, and
// the settings that differ. Runs that differ in nothing but their seed are one arm, and arms are
// compared for new questions and new seeds both.
func Compare(dirs []string) (string, error) {
	if len(dirs) < 2 {
		return "", fmt.Errorf("comparison: %s given: want at least 2", plural(len(dirs), "run"))
	}
	var runs []*Run
	for _, dir := range dirs {
		run, err := ReadRun(dir)
		if err != nil {
			return "", err
		}
		runs = append(runs, run)
	}
	var d document
	d.heading(1, "Comparison of %s", plural(len(runs), "run"))
	steps := slices.ContainsFunc(runs, func(run *Run) bool { return run.lastStep() > 0 })
	var rows [][]string
	for i, run := range runs {
		state := "not ended"
		if run.Summary != nil {
			state = run.Summary.State
		}
		row := []string{runName(i), plain(run.Dir), codeList(run.Overrides)}
		if steps {
			row = append(row, stepsOf(run))
		}
		rows = append(rows, append(row, state))
	}
	header := []string{"run", "folder", "overrides", "state"}
	if steps {
		header = slices.Insert(header, 3, "optimizer steps")
	}
	d.table(header, rows)
	if err := writeComparisons(&d, runs); err != nil {
		return "", err
	}
	compareSettings(&d, runs)
	return strings.TrimRight(d.b.String(), "\n") + "\n", nil
}

// writeComparisons compares the runs one by one, or by arms where some differ in their seed only.
func writeComparisons(d *document, runs []*Run) error {
	const nothing = "The runs share no evaluation on the same split: there is nothing to compare."
	if arms := armsOf(runs); seededArms(arms) {
		var items []string
		for _, a := range arms {
			items = append(items, fmt.Sprintf("%s: %s %s", capital(a.name), verb(len(a.runs), "run", "runs"), joined(a.names)))
		}
		d.paragraph("Runs that differ in nothing but `seed` are one arm. The difference of two arms is taken question by question, averaged over seeds; its interval holds for new questions and new seeds both.")
		d.list(items...)
		if len(arms) == 1 {
			d.paragraph("All runs are one arm: there is nothing to compare it with but its baselines.")
		}
		tables := armTables(arms, nil, 0)
		for _, t := range tables {
			t.write(d)
		}
		if len(tables) == 0 {
			d.paragraph(nothing)
		}
		return nil
	}
	tables, err := comparisonTables(runs)
	if err != nil {
		return err
	}
	if len(tables) == 0 {
		d.paragraph(nothing)
	}
	for _, t := range tables {
		t.write(d)
	}
	return nil
}

// stepsOf says how many optimizer steps a run took, and in which phases: 225 (sft 150, rce 75).
func stepsOf(run *Run) string {
	var parts []string
	before := 0
	for _, span := range run.spans() {
		parts = append(parts, fmt.Sprintf("%s %s", plain(span.name), thousands(int(span.to)-before)))
		before = int(span.to)
	}
	text := thousands(run.lastStep())
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text
}

// comparisonTable compares the runs on one split by one metric.
type comparisonTable struct {
	split, metric string
	also          string // another metric with the same numbers, where the reward is the accuracy
	entries       []comparisonEntry
	baselines     []Arm // of the first run that has some
}

type comparisonEntry struct {
	name    string
	stage   StageResult // with its gains over similarity or majority
	step    int         // optimizer steps it took; -1: not recorded
	paired  *Paired     // against the first entry, nil for itself
	refused string      // why there is no comparison
}

func comparisonTables(runs []*Run) ([]comparisonTable, error) {
	type key struct {
		split, metric string
		shots         int
	}
	var keys []key
	final := make([]map[key]Evaluation, len(runs)) // of each run: what it ended with
	tablesOf := make([]map[key][]Evaluation, len(runs))
	for i, run := range runs {
		final[i], tablesOf[i] = map[key]Evaluation{}, map[key][]Evaluation{}
		for _, table := range stageTables(run.Evaluations) {
			k := key{table[0].Split, table[0].Metric, table[0].Shots}
			if run.answers() {
				k.shots = 0 // answers compare whatever their limit of tokens
			}
			tablesOf[i][k] = table
			if at := plannedStage(table); at >= 0 {
				final[i][k] = table[at]
			}
			if _, ok := final[i][k]; ok && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	var tables []comparisonTable
	for _, k := range keys {
		t := comparisonTable{split: k.split, metric: k.metric}
		var first *Evaluation
		for i := range runs {
			e, ok := final[i][k]
			if !ok {
				continue
			}
			entry := comparisonEntry{name: runName(i), step: runs[i].stepAt(e)}
			entry.stage = StageResult{Policy: e.Policy, Phase: e.Phase, Epoch: e.Epoch, Queries: len(e.Scores)}
			entry.stage.Mean, entry.stage.SE = e.meanSE()
			for _, y := range yardsticks() {
				at := slices.IndexFunc(tablesOf[i][k], func(o Evaluation) bool { return o.Policy == y.policy })
				if at < 0 || y.policy == policyInit {
					continue
				}
				if paired, err := compareEvaluations(e, tablesOf[i][k][at], DefaultStatsOptions()); err == nil {
					settle([]*Paired{&paired})
					*y.gain(&entry.stage) = &paired
				}
			}
			if first == nil {
				first = &e
			} else if paired, err := compareEvaluations(e, *first, DefaultStatsOptions()); err != nil {
				entry.refused = "not the same questions"
			} else {
				entry.paired = &paired
			}
			t.entries = append(t.entries, entry)
		}
		for _, run := range runs {
			if t.baselines = baselinesOf([]*Run{run}, k.split, k.metric); len(t.baselines) > 0 {
				break
			}
		}
		if n := len(tables); n > 0 && tables[n-1].split == t.split && reflect.DeepEqual(tables[n-1].entries, t.entries) {
			tables[n-1].also = t.metric
		} else if len(t.entries) > 1 {
			tables = append(tables, t)
		}
	}
	var pairs []*Paired
	for _, t := range tables {
		for _, e := range t.entries {
			if e.paired != nil {
				pairs = append(pairs, e.paired)
			}
		}
	}
	settle(pairs)
	return tables, nil
}

func (t comparisonTable) write(d *document) {
	first := t.entries[0]
	metrics := t.metric
	if t.also != "" {
		metrics += " and " + t.also
	}
	d.heading(2, "%s on %s", capital(metrics), plain(t.split))
	stages := make([]StageResult, len(t.entries))
	for i, e := range t.entries {
		stages[i] = e.stage
	}
	yards := yardsticksOf(stages)
	steps := slices.ContainsFunc(t.entries, func(e comparisonEntry) bool { return e.step > 0 })
	var rows [][]string
	var sentences []string
	for _, e := range t.entries {
		difference, verdict := gainCells(e.paired)
		p, effect := "–", "–"
		if e.paired != nil {
			effect = fixed(e.paired.Effect, 2)
			p = strings.TrimPrefix(pValue(e.paired.PHolm), "= ")
			sentences = append(sentences, capital(e.paired.Sentence(e.name, first.name, t.metric))+".")
		}
		if e.refused != "" {
			verdict = e.refused
			sentences = append(sentences, fmt.Sprintf("%s and %s were not scored on the same questions: no verdict.", e.name, first.name))
		}
		row := []string{e.name, plain(e.stage.title())}
		if steps {
			row = append(row, stepCell(e.step))
		}
		row = append(row, thousands(e.stage.Queries), fmt.Sprintf("%.4f ± %.4f", e.stage.Mean, e.stage.SE))
		for _, y := range yards {
			gain, _ := gainCells(*y.gain(&e.stage))
			row = append(row, gain)
		}
		rows = append(rows, append(row, difference, p, effect, verdict))
	}
	header := []string{"run", "policy"}
	if steps {
		header = append(header, ">at step")
	}
	header = append(header, ">questions", ">mean ± SE")
	for _, y := range yards {
		header = append(header, ">gain over "+y.short)
	}
	d.table(append(header, ">minus "+first.name, ">p (Holm)", ">effect", "verdict"), withBaselines(rows, t.baselines, steps))
	d.list(sentences...)
}

// withBaselines adds a line for each baseline: its mean, and nothing that it was not compared with.
func withBaselines(rows [][]string, baselines []Arm, steps bool) [][]string {
	for _, b := range baselines {
		mean, _ := b.level()
		row := []string{"", plain(b.Name)}
		if steps {
			row = append(row, "")
		}
		row = append(row, thousands(len(b.QueryIDs)), mean)
		for len(row) < len(rows[0]) {
			row = append(row, "")
		}
		rows = append(rows, row)
	}
	return rows
}

func stepCell(step int) string {
	if step < 0 {
		return "–"
	}
	return thousands(step)
}

// compareSettings lists the config keys in which the runs differ.
func compareSettings(d *document, runs []*Run) {
	d.heading(2, "Settings that differ")
	flat := make([]map[string]string, len(runs))
	keys := map[string]bool{}
	for i, run := range runs {
		flat[i] = map[string]string{}
		flatten(flat[i], "", run.tree)
		for k := range flat[i] {
			keys[k] = true
		}
	}
	header := []string{"key"}
	for i := range runs {
		header = append(header, runName(i))
	}
	var rows [][]string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		row := []string{"`" + k + "`"}
		same := true
		for i := range runs {
			v, ok := flat[i][k]
			if !ok {
				v = "(absent)"
			}
			same = same && v == flat[0][k]
			row = append(row, plain(v))
		}
		if !same {
			rows = append(rows, row)
		}
	}
	switch {
	case len(rows) == 0:
		d.paragraph("None.")
	case len(rows) > maxSettings:
		d.table(header, rows[:maxSettings])
		d.paragraph("and %d more.", len(rows)-maxSettings)
	default:
		d.table(header, rows)
	}
}
