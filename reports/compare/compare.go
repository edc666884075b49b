package compare

import (
	"cmp"
	"fmt"
	"maps"
	"math"
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
	runs, err := readRuns(dirs)
	if err != nil {
		return nil, nil, err
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
		row := []string{arms.RunName(i) + arms.WithScorer(run), page.Plain(run.Dir), page.CodeList(run.Overrides)}
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
	pairs := writeComparisons(&d, runs, seeded)
	compareSettings(&d, runs)
	return &d, pairs, nil
}

func readRuns(dirs []string) (runs []*record.Run, err error) {
	for _, dir := range dirs {
		run, err := record.ReadRun(dir)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// writeComparisons compares the runs one by one, or by arms where some differ in their seed only. It returns the
// differences of its tables.
func writeComparisons(d *page.Document, runs []*record.Run, seeded []arms.ComparedArm) (pairs []Pairing) {
	split, missing := arms.Controls(seeded)
	defer d.Paragraph("%s", missing)
	var tables []arms.ArmTable
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
		tables = arms.ArmTables(seeded, nil, 0)
	} else {
		tables = arms.RunTables(list.Map(stat.Indices(len(runs)), func(i int) arms.ComparedArm {
			return arms.ComparedArm{Name: arms.RunName(i) + arms.WithScorer(runs[i]), Runs: runs[i : i+1]}
		}))
	}
	if len(tables) == 0 {
		d.Paragraph("The runs share no evaluation on the same split: there is nothing to compare.")
	}
	n := 0
	for _, t := range tables {
		n += len(t.Made())
	}
	if n > 1 {
		d.Paragraph("%s", stats.FamilyNote("the "+page.Plural(n, "comparison")+" below"))
	}
	for _, t := range tables {
		t.Write(d)
		for _, r := range t.Differences() {
			pairs = append(pairs, Pairing{t.Split, t.Metric, t.Reference, *results.DifferenceOf(r.Name, &r.Difference.Paired)})
		}
	}
	if slices.ContainsFunc(tables, arms.ArmTable.Drawn) {
		d.Paragraph("One seed is one draw: to judge the settings, run each with three seeds (`-m seed=0,1,2`) and compare all of the runs.")
	}
	return pairs
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
