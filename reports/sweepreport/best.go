package sweepreport

import (
	"fmt"
	"fulcrum/reports/page"
	"slices"
)

// writeBest shows the best job and its command, or with several objectives the Pareto front.
func (v *View) writeBest(d *page.Document) {
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
	if text := v.bestSetting(); text != "" {
		d.Paragraph("%s", text)
	}
}

// shownCommands is how many commands of a Pareto front are printed.
const shownCommands = 10

func (v *View) writeFront(d *page.Document) {
	d.Heading(2, "Pareto front")
	var rows [][]string
	var commands []string
	for _, j := range v.jobs {
		if !v.front[j.Number] {
			continue
		}
		rows = append(rows, append([]string{v.link(j), page.TableCode(v.own(j))}, v.objectiveCells(j)...))
		if len(j.Command) > 0 && len(commands) < shownCommands {
			commands = append(commands, fmt.Sprintf("%s  # %d", page.ShellCommand(j.Command), j.Number))
		}
	}
	if len(rows) == 0 {
		if n := v.count(v.infeasible); n > 0 {
			d.Paragraph("No job satisfies the constraints: %s with a result violate them.", page.Plural(n, "job"))
		} else {
			d.Paragraph("No job has a result yet.")
		}
		return
	}
	d.Paragraph("%s that no other job beats in one objective without losing in another%s. Which of them is best is a matter of what the "+
		"objectives are worth to you. Jobs at the ends of a front are a little lucky: run those you choose again with new seeds.",
		page.Capital(page.Plural(len(rows), "job")), v.feasibleWords())
	d.Table(append([]string{">job", "setting"}, v.objectiveHeads()...), rows)
	if len(commands) > 0 {
		d.Code(commands...)
	}
}

func (v *View) feasibleWords() string {
	if len(v.opt.Constraints) == 0 {
		return ""
	}
	return ", among those that satisfy the constraints"
}

func (v *View) objectiveHeads() []string {
	var out []string
	for _, o := range v.ranking() {
		out = append(out, ">"+page.Plain(o.Name))
	}
	return out
}

// ranking are the objectives that tables have columns for.
func (v *View) ranking() []Objective {
	if v.unranked {
		return nil
	}
	return v.opt.Objectives
}

func (v *View) objectiveCells(j Job) []string {
	out := make([]string, len(v.ranking()))
	for i := range out {
		out[i] = "–"
		if i < len(j.Objectives) {
			out[i] = page.Sig(j.Objectives[i], 4)
		}
	}
	return out
}
