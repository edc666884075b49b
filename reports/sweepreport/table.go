package sweepreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"fulcrum/reports/page"
)

const (
	tableRows  = 40 // jobs in a table for the terminal
	valueWidth = 24 // letters of a swept value
)

// Table is a compact table of a sweep for a terminal: counts, jobs with their states and values,
// best first, and the best job. Of a long sweep it shows the best jobs, those that run and some of the
// others.
func Table(jobs []Job, opt Options) string {
	v := newView("", jobs, opt)
	var b strings.Builder
	b.WriteString(strings.NewReplacer("`", "", `\`, "").Replace(v.countLine(func(s string) string { return s })) + "\n")
	if len(v.jobs) == 0 {
		return b.String()
	}
	b.WriteString("\n")
	shown := v.tableJobs()
	b.WriteString(v.jobTable(shown))
	if n := len(v.jobs) - len(shown); n > 0 {
		fmt.Fprintf(&b, "and %s\n", page.Plural(n, "more job"))
	}
	for i, g := range v.failuresOf() {
		if i == 0 {
			b.WriteString("\n")
		}
		if i == maxFailures {
			b.WriteString("and rarer causes\n")
			break
		}
		b.WriteString(g.line() + "\n")
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
	return b.String()
}

// line names the cause and its jobs: failed: job 5, 18, 31: loss is nan.
func (g *failures) line() string {
	text := "failed: job " + jobNumbers(g.jobs)
	if len(g.jobs) > 1 {
		text = fmt.Sprintf("failed: %s (%s)", page.Plural(len(g.jobs), "job"), jobNumbers(g.jobs))
	}
	return text + ": " + cmp.Or(oneLine(g.cause), "no cause recorded")
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

func (v *View) jobTable(jobs []Job) string {
	keys := v.keyColumns()
	header := []string{"job", "state"}
	align := []tw.Align{tw.AlignRight, tw.AlignLeft}
	column := func(name string, a tw.Align) { header, align = append(header, name), append(align, a) }
	for _, o := range v.opt.Objectives {
		column(o.Name, tw.AlignRight)
	}
	constrained := slices.ContainsFunc(v.jobs, violates)
	if constrained {
		column("violation", tw.AlignRight)
	}
	column("epochs", tw.AlignRight)
	column("time", tw.AlignRight)
	for _, k := range keys {
		column(k.Key, tw.AlignRight)
	}
	if keys == nil {
		column("overrides", tw.AlignLeft)
	}
	var rows [][]string
	for _, j := range jobs {
		number := fmt.Sprint(j.Number)
		if len(v.opt.Objectives) > 1 && v.front[j.Number] {
			number = "*" + number
		}
		state := cmp.Or(j.State, "unknown")
		if v.infeasible(j) {
			state = "infeasible"
		}
		row := append([]string{number, state}, v.objectiveCells(j)...)
		if constrained {
			row = append(row, v.violationCell(j))
		}
		row = append(row, numberCell(j.Epochs), timeCell(j.Seconds))
		for _, k := range keys {
			row = append(row, page.Clip(oneLine(k.cell(j)), valueWidth))
		}
		if keys == nil {
			row = append(row, page.Clip(oneLine(strings.Join(v.own(j), " ")), 3*valueWidth))
		}
		rows = append(rows, row)
	}
	return lightTable(header, align, rows)
}

// oneLine replaces every run of white space by one space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// lightTable lays out a table with a line under its header only.
func lightTable(header []string, align []tw.Align, rows [][]string) string {
	lines := tw.Lines{ShowTop: tw.Off, ShowBottom: tw.Off, ShowHeaderLine: tw.On, ShowFooterLine: tw.Off}
	var buf strings.Builder
	table := tablewriter.NewTable(&buf,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.Border{Left: tw.Off, Right: tw.Off, Top: tw.Off, Bottom: tw.Off},
			Symbols:  tw.NewSymbols(tw.StyleLight),
			Settings: tw.Settings{Lines: lines, Separators: tw.Separators{BetweenRows: tw.Off, BetweenColumns: tw.Off}},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithRowAlignmentConfig(tw.CellAlignment{PerColumn: align}),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
	)
	table.Header(header)
	for _, row := range rows {
		_ = table.Append(row) // into memory: neither can fail
	}
	_ = table.Render()
	var b strings.Builder
	for line := range strings.Lines(buf.String()) { // the last column is padded too
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}
