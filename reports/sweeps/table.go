package sweeps

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

const (
	MaxFailures   = 20 // causes of failures that are told
	maxKeyColumns = 6  // swept keys with a column of their own
	TableRows     = 40 // jobs in a table for the terminal
	valueWidth    = 24 // letters of a swept value
)

// Table is a compact table of a sweep for a terminal: counts, jobs with their states and values,
// best first, and the best job. Of a long sweep it shows the best jobs, those that run and some of the
// others. A width above 0 is that of the terminal.
func Table(jobs []Job, opt Options, width int) string {
	v := ModelOf(jobs, opt)
	var b strings.Builder
	b.WriteString(strings.NewReplacer("`", "", `\`, "").Replace(v.CountLine(func(s string) string { return s }, 0)) + "\n")
	if len(v.Jobs) == 0 {
		return b.String()
	}
	b.WriteString("\n")
	shown := v.tableJobs()
	b.WriteString(v.jobTable(shown, width))
	if n := len(v.Jobs) - len(shown); n > 0 {
		fmt.Fprintf(&b, "and %s\n", page.Plural(n, "more job"))
	}
	for i, jobs := range v.Failures() {
		if i == 0 {
			b.WriteString("\n")
		}
		if i == MaxFailures {
			b.WriteString("and rarer causes\n")
			break
		}
		who := "job " + JobNumbers(jobs)
		if len(jobs) > 1 {
			who = fmt.Sprintf("%s (%s)", page.Plural(len(jobs), "job"), JobNumbers(jobs))
		}
		fmt.Fprintf(&b, "failed: %s: %s\n", who, cmp.Or(oneLine(jobs[0].Cause), "no cause recorded"))
	}
	if len(v.Opt.Objectives) > 1 && !v.Unranked {
		if n := len(v.Front); n > 0 {
			fmt.Fprintf(&b, "\nPareto front (*): %s\n", page.Plural(n, "job"))
		}
	} else if lead := v.Lead(); lead != "" && v.Opt.Study == nil { // whose answers say what is better
		fmt.Fprintf(&b, "\n%s\n", lead)
	}
	if v.Opt.Study != nil {
		b.WriteString("\nvalues: best checkpoints on val; answers judge what the jobs ended with, held-out questions first\n")
	}
	if width == 0 {
		return b.String()
	}
	lines := list.Map(strings.Split(b.String(), "\n"), func(line string) string { return stdout.Fold(line, width, 4) })
	return strings.Join(lines, "\n")
}

// tableJobs are the jobs of the table: all, or of many the best and a few of every other state.
func (v *Model) tableJobs() []Job {
	if len(v.Jobs) <= TableRows {
		return v.Jobs
	}
	const others = 6
	count := map[int]int{}
	return slices.DeleteFunc(slices.Clone(v.Jobs), func(j Job) bool {
		c := v.class(j)
		count[c]++
		if j.State == StateRunning {
			return count[c] > TableRows
		}
		return c > 0 && count[c] > others || count[c] > TableRows/2
	})
}

func (v *Model) jobTable(jobs []Job, width int) string {
	table := page.LinesOf(jobs)
	table.Column(">job", func(j Job) string {
		if len(v.Opt.Objectives) > 1 && v.Front[j.Number] {
			return fmt.Sprintf("*%d", j.Number)
		}
		return fmt.Sprint(j.Number)
	})
	table.Column("state", func(j Job) string {
		if v.Infeasible(j) {
			return "infeasible"
		}
		return cmp.Or(j.State, "unknown")
	})
	v.ObjectiveColumns(table)
	if slices.ContainsFunc(v.Jobs, Violates) {
		table.Column(">violation", v.ViolationCell)
	}
	table.Column(">epochs", EpochsCell)
	table.Column(">time", TimeCell)
	keys := v.KeyColumns()
	for _, k := range keys {
		table.Column(">"+page.Plain(k.Key), func(j Job) string {
			if k.Key == ArmKey {
				return page.Clip(strings.TrimPrefix(v.Opt.Study.Sets(j.Params[ArmKey]), ArmKey+"="), valueWidth)
			}
			return page.Clip(oneLine(k.Cell(j)), valueWidth)
		})
	}
	if keys == nil {
		table.Column("overrides", func(j Job) string { return page.Clip(oneLine(strings.Join(v.Own(j), " ")), 3*valueWidth) })
	}
	plain := page.NewTable(table.Header, nil)
	plain.Rows = list.Map(table.Rows, page.Texts)
	var b strings.Builder
	_ = plain.ConsoleWithin(&b, width) // into memory: cannot fail
	return b.String()
}

// oneLine replaces every run of white space by one space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// ObjectiveColumns adds the jobs' objectives to a table, where they have some.
func (v *Model) ObjectiveColumns(table *page.Lines[Job]) {
	if v.Unjudged && v.Unranked {
		return
	}
	for i, o := range v.Opt.Objectives {
		table.Column(">"+page.Plain(o.Name), func(j Job) string {
			if i < len(j.Objectives) && !(v.Opt.Mixed && math.IsNaN(j.Objectives[i])) {
				return page.Sig(j.Objectives[i], 4)
			}
			return "–"
		})
	}
}

// KeyColumns are the swept keys if they are few and tell the jobs apart, else nil.
func (v *Model) KeyColumns() []Dimension {
	columns := slices.Clone(v.Dims)
	seeded := slices.ContainsFunc(columns, func(d Dimension) bool { return IsSeed(d.Key) })
	if !seeded && slices.ContainsFunc(v.Jobs, func(j Job) bool { _, ok := j.Params["seed"]; return ok }) {
		columns = append(columns, Dimension{Key: "seed"})
	}
	if len(columns) == 0 || len(columns) > maxKeyColumns {
		return nil
	}
	for _, j := range v.Jobs {
		for _, o := range v.Own(j) {
			if key, _, _ := strings.Cut(o, "="); !slices.ContainsFunc(columns, func(d Dimension) bool {
				return d.Key == key || d.Key == strings.TrimLeft(key, "+")
			}) {
				return nil
			}
		}
	}
	return columns
}

// Cell is a job's value of the key: of an interval with 4 digits (its command has all), else as written.
func (d Dimension) Cell(j Job) string {
	text, ok := j.Params[d.Key]
	if !ok {
		return "–"
	}
	if x, err := strconv.ParseFloat(text, 64); err == nil && d.Interval && len(text) > 6 {
		if x == math.Trunc(x) {
			return text
		}
		return page.Sig(x, 4)
	}
	return cmp.Or(text, "''")
}

// ViolationCell, EpochsCell and TimeCell are cells of a job in tables, a dash for what is not known.
func (v *Model) ViolationCell(j Job) string {
	switch {
	case !v.Measured(j):
		return "–"
	case j.Violation == 0:
		return "0"
	}
	return page.Sig(j.Violation, 3)
}

// EpochsCell is how many epochs a job trained.
func EpochsCell(j Job) string {
	if j.Epochs == 0 {
		return "–"
	}
	return page.Thousands(j.Epochs)
}

// TimeCell is the wall time of a job.
func TimeCell(j Job) string {
	if j.Seconds == 0 {
		return "–"
	}
	return page.Duration(j.Seconds)
}

// anyNumber hides what tells alike causes apart: steps, epochs, values, job folders.
var anyNumber = regexp.MustCompile(`[-+]?[0-9][0-9.,]*([eE][-+]?[0-9]+)?`)

// Failures groups the failed jobs whose causes differ in numbers only, most frequent first.
func (v *Model) Failures() [][]Job {
	failed := slices.DeleteFunc(slices.Clone(v.Jobs), func(j Job) bool { return j.State != record.StateFailed })
	groups := stats.GroupBy(failed, func(j Job) string { return anyNumber.ReplaceAllString(j.Cause, "#") })
	slices.SortStableFunc(groups, func(a, b []Job) int { return cmp.Compare(len(b), len(a)) })
	return groups
}
