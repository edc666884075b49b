package sweepreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
)

const (
	tableRows  = 40 // jobs in a table for the terminal
	valueWidth = 24 // letters of a swept value
)

// Table is a compact table of a sweep for a terminal: counts, jobs with their states and values,
// best first, and the best job. Of a long sweep it shows the best jobs, those that run and some of the
// others. A width above 0 is that of the terminal.
func Table(jobs []Job, opt Options, width int) string {
	v := newView("", jobs, opt)
	var b strings.Builder
	b.WriteString(strings.NewReplacer("`", "", `\`, "").Replace(v.countLine(func(s string) string { return s })) + "\n")
	if len(v.jobs) == 0 {
		return b.String()
	}
	b.WriteString("\n")
	shown := v.tableJobs()
	b.WriteString(v.jobTable(shown, width))
	if n := len(v.jobs) - len(shown); n > 0 {
		fmt.Fprintf(&b, "and %s\n", page.Plural(n, "more job"))
	}
	for i, jobs := range v.failuresOf() {
		if i == 0 {
			b.WriteString("\n")
		}
		if i == maxFailures {
			b.WriteString("and rarer causes\n")
			break
		}
		who := "job " + jobNumbers(jobs)
		if len(jobs) > 1 {
			who = fmt.Sprintf("%s (%s)", page.Plural(len(jobs), "job"), jobNumbers(jobs))
		}
		fmt.Fprintf(&b, "failed: %s: %s\n", who, cmp.Or(oneLine(jobs[0].Cause), "no cause recorded"))
	}
	if len(v.opt.Objectives) > 1 {
		if n := len(v.front); n > 0 {
			fmt.Fprintf(&b, "\nPareto front (*): %s\n", page.Plural(n, "job"))
		}
	} else if best := v.best(); best != nil {
		fmt.Fprintf(&b, "\nbest: job %d, %s %s  %s\n", best.Number, v.opt.Objectives[0].Name,
			page.Sig(best.Objectives[0], 4), page.ShellCommand(v.own(*best)))
	} else if text := v.noWinner(); text != "" {
		fmt.Fprintf(&b, "\nno winner: %s\n", text)
	}
	if width == 0 {
		return b.String()
	}
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		lines[i] = stdout.Fold(line, width, 4)
	}
	return strings.Join(lines, "\n")
}

// tableJobs are the jobs of the table: all, or of many the best and a few of every other state.
func (v *View) tableJobs() []Job {
	if len(v.jobs) <= tableRows {
		return v.jobs
	}
	const others = 6
	count := map[int]int{}
	return slices.DeleteFunc(slices.Clone(v.jobs), func(j Job) bool {
		c := v.class(j)
		count[c]++
		if j.State == stateRunning {
			return count[c] > tableRows
		}
		return c > 0 && count[c] > others || count[c] > tableRows/2
	})
}

func (v *View) jobTable(jobs []Job, width int) string {
	table := page.LinesOf(jobs)
	table.Column(">job", func(j Job) string {
		if len(v.opt.Objectives) > 1 && v.front[j.Number] {
			return fmt.Sprintf("*%d", j.Number)
		}
		return fmt.Sprint(j.Number)
	})
	table.Column("state", func(j Job) string {
		if v.infeasible(j) {
			return "infeasible"
		}
		return cmp.Or(j.State, "unknown")
	})
	v.objectiveColumns(table)
	if slices.ContainsFunc(v.jobs, violates) {
		table.Column(">violation", v.violationCell)
	}
	table.Column(">epochs", epochsCell)
	table.Column(">time", timeCell)
	keys := v.keyColumns()
	for _, k := range keys {
		table.Column(">"+page.Plain(k.Key), func(j Job) string { return page.Clip(oneLine(k.cell(j)), valueWidth) })
	}
	if keys == nil {
		table.Column("overrides", func(j Job) string { return page.Clip(oneLine(strings.Join(v.own(j), " ")), 3*valueWidth) })
	}
	plain := page.NewTable(table.Header, nil)
	for _, row := range table.Rows {
		plain.Rows = append(plain.Rows, page.Texts(row))
	}
	var b strings.Builder
	_ = plain.ConsoleWithin(&b, width) // into memory: cannot fail
	return b.String()
}

// oneLine replaces every run of white space by one space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
