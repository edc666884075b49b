package sweepreport

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/reports/page"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
)

// writeBest shows the best job or setting in the words of the console and its command, or with several objectives the Pareto front. A
// sweep that asks how its arms compare chooses none.
func (v *View) writeBest(d *page.Document) {
	switch {
	case v.Opt.Study != nil || v.Unranked && !v.Opt.Mixed && len(v.methods) > 0:
		return
	case v.Unranked && !v.Opt.Mixed:
		d.Paragraph("The jobs are not ranked: they measured nothing that could be an objective.")
		return
	case len(v.Opt.Objectives) > 1 && !v.Opt.Mixed:
		v.writeFront(d)
		return
	}
	best, lead := v.Leading(), v.Lead()
	if best != nil {
		d.Paragraph("**What leads.** %s.", page.Capital(page.Plain(strings.Replace(lead, "  ", ", ", 1))))
		if len(best.Command) > 0 {
			d.Code(page.ShellCommand(best.Command))
		}
	} else if lead != "" {
		d.Paragraph("**No winner.** %s.", page.Capital(page.Plain(strings.TrimPrefix(lead, "no winner: "))))
	} else if n := v.Count(v.Infeasible); n > 0 {
		closest := v.Jobs[slices.IndexFunc(v.Jobs, v.Infeasible)] // they are sorted by violation
		d.Paragraph("**No job satisfies the constraints.** Number %d comes closest: it violates them by %s, with %s %s (%s).",
			closest.Number, page.Sig(closest.Violation, 3), page.Plain(v.Opt.Objectives[0].Name), page.Sig(closest.Objectives[0], 4),
			page.CodeList(v.Own(closest)))
	} else if v.Count(func(j sweeps.Job) bool { return sweeps.Ended(j.State) }) > 0 {
		d.Paragraph("**No job has a result yet.** No finished job left a finite %s.", page.Plain(v.Opt.Objectives[0].Name))
	}
	if v.HasSeeds() && v.Tied() > 0 {
		d.Paragraph("%s", v.luck())
	}
}

// shownCommands is how many commands of a Pareto front are printed.
const shownCommands = 10

func (v *View) writeFront(d *page.Document) {
	d.Heading(2, "Pareto front")
	front := v.highlighted()
	if len(front) == 0 {
		if n := v.Count(v.Infeasible); n > 0 {
			d.Paragraph("No job satisfies the constraints: %s with a result violate them.", page.Plural(n, "job"))
		} else {
			d.Paragraph("No job has a result yet.")
		}
		return
	}
	feasible := ""
	if len(v.Opt.Constraints) > 0 {
		feasible = ", among those that satisfy the constraints"
	}
	d.Paragraph("%s that no other job beats in one objective without losing in another%s. Which of them is best is a matter of what the "+
		"objectives are worth to you. Jobs at the ends of a front are a little lucky: run those you choose again with new seeds.",
		page.Capital(page.Plural(len(front), "job")), feasible)
	table := page.LinesOf(front)
	table.Column(">job", v.link)
	table.Column("setting", func(j sweeps.Job) string { return page.TableCode(v.Own(j)) })
	v.ObjectiveColumns(table)
	d.Table(table.Header, table.Rows)
	var commands []string
	for _, j := range front {
		if len(j.Command) > 0 && len(commands) < shownCommands {
			commands = append(commands, fmt.Sprintf("%s  # %d", page.ShellCommand(j.Command), j.Number))
		}
	}
	if len(commands) > 0 {
		d.Code(commands...)
	}
}

// luck says how much of the best setting's lead seeds alone explain.
func (v *View) luck() string {
	settings, seeds := 0, math.MaxInt
	for _, s := range v.Settings {
		if s.Class() == 0 {
			settings, seeds = settings+1, min(seeds, len(s.Values[0]))
		}
	}
	sd := v.SeedSD()
	if settings < 2 || !(sd > 0) {
		return ""
	}
	lead := sd / math.Sqrt(float64(seeds)) * stats.LuckOf(settings)
	return fmt.Sprintf("Seeds alone spread %s by %s (standard deviation within a setting). If all %d settings were equally good, the best "+
		"mean of %s would still look about %s better than it is.", page.Plain(v.Opt.Objectives[0].Name), page.Sig(sd, 2), settings,
		page.Plural(seeds, "seed"), page.Sig(lead, 2))
}
