package sweepreport

import (
	"fmt"
	"fulcrum/reports/page"
	"slices"
	"strings"
)

// writeBest shows the best job and its command, or with several objectives the Pareto front. A sweep that asks how its arms compare
// chooses none.
func (v *View) writeBest(d *page.Document) {
	if v.opt.Study != nil {
		return
	}
	if v.unranked {
		if len(v.methods) == 0 {
			d.Paragraph("The jobs are not ranked: they measured nothing that could be an objective.")
		}
		return
	}
	if len(v.opt.Objectives) > 1 {
		v.writeFront(d)
		return
	}
	best := v.best()
	if best == nil {
		if text := v.noWinner(); text != "" {
			d.Paragraph("**No winner.** %s", page.Capital(page.Plain(text))+".")
		} else if n := v.count(v.infeasible); n > 0 {
			closest := v.jobs[slices.IndexFunc(v.jobs, v.infeasible)] // they are sorted by violation
			d.Paragraph("**No job satisfies the constraints.** Number %d comes closest: it violates them by %s, with %s %s (%s).",
				closest.Number, page.Sig(closest.Violation, 3), page.Plain(v.opt.Objectives[0].Name), page.Sig(closest.Objectives[0], 4),
				page.CodeList(v.own(closest)))
		} else if v.count(func(j Job) bool { return ended(j.State) }) > 0 {
			d.Paragraph("**No job has a result yet.** No finished job left a finite %s.", page.Plain(v.opt.Objectives[0].Name))
		}
		return
	}
	d.Paragraph("**Best job.** Number %d with %s %s (%s).", best.Number, page.Plain(v.opt.Objectives[0].Name),
		page.Sig(best.Objectives[0], 4), page.CodeList(v.own(*best)))
	if len(best.Command) > 0 {
		d.Code(page.ShellCommand(best.Command))
	}
	if text := v.luck(); text != "" {
		d.Paragraph("%s", text)
	}
	if text := strings.TrimSpace(v.bestSetting() + " " + v.otherOrder()); text != "" {
		d.Paragraph("%s", text)
	}
}

// shownCommands is how many commands of a Pareto front are printed.
const shownCommands = 10

func (v *View) writeFront(d *page.Document) {
	d.Heading(2, "Pareto front")
	front := v.highlighted()
	if len(front) == 0 {
		if n := v.count(v.infeasible); n > 0 {
			d.Paragraph("No job satisfies the constraints: %s with a result violate them.", page.Plural(n, "job"))
		} else {
			d.Paragraph("No job has a result yet.")
		}
		return
	}
	feasible := ""
	if len(v.opt.Constraints) > 0 {
		feasible = ", among those that satisfy the constraints"
	}
	d.Paragraph("%s that no other job beats in one objective without losing in another%s. Which of them is best is a matter of what the "+
		"objectives are worth to you. Jobs at the ends of a front are a little lucky: run those you choose again with new seeds.",
		page.Capital(page.Plural(len(front), "job")), feasible)
	table := page.LinesOf(front)
	table.Column(">job", v.link)
	table.Column("setting", func(j Job) string { return page.TableCode(v.own(j)) })
	v.objectiveColumns(table)
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

// objectiveColumns adds the jobs' objectives to a table, where they have some.
func (v *View) objectiveColumns(table *page.Lines[Job]) {
	if v.unranked {
		return
	}
	for i, o := range v.opt.Objectives {
		table.Column(">"+page.Plain(o.Name), func(j Job) string {
			if i < len(j.Objectives) {
				return page.Sig(j.Objectives[i], 4)
			}
			return "–"
		})
	}
}
