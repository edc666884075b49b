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

// writeBest shows the best job and its command, or with several objectives the Pareto front. Where jobs are repetitions with other seeds,
// none of them is the best: a setting is. A sweep that asks how its arms compare chooses none.
func (v *View) writeBest(d *page.Document) {
	if v.Opt.Study != nil {
		return
	}
	if v.Unranked {
		if v.Opt.Mixed {
			d.Paragraph("**No winner.** %s.", page.Capital(page.Plain(v.NoWinner())))
		} else if len(v.methods) == 0 {
			d.Paragraph("The jobs are not ranked: they measured nothing that could be an objective.")
		}
		return
	}
	if len(v.Opt.Objectives) > 1 {
		v.writeFront(d)
		return
	}
	if v.HasSeeds() && v.Tied() > 0 {
		v.writeBestSetting(d)
		return
	}
	best := v.Best()
	if best == nil {
		if text := v.NoWinner(); text != "" {
			d.Paragraph("**No winner.** %s", page.Capital(page.Plain(text))+".")
		} else if n := v.Count(v.Infeasible); n > 0 {
			closest := v.Jobs[slices.IndexFunc(v.Jobs, v.Infeasible)] // they are sorted by violation
			d.Paragraph("**No job satisfies the constraints.** Number %d comes closest: it violates them by %s, with %s %s (%s).",
				closest.Number, page.Sig(closest.Violation, 3), page.Plain(v.Opt.Objectives[0].Name), page.Sig(closest.Objectives[0], 4),
				page.CodeList(v.Own(closest)))
		} else if v.Count(func(j sweeps.Job) bool { return sweeps.Ended(j.State) }) > 0 {
			d.Paragraph("**No job has a result yet.** No finished job left a finite %s.", page.Plain(v.Opt.Objectives[0].Name))
		}
		return
	}
	head, how := "Best job", ""
	if v.verdicts != nil && len(v.verdicts.Rows) > 1 {
		if apart, others := v.verdicts.Apart(); apart < others {
			head = "First, but no clear winner"
			how = fmt.Sprintf(" By the verdicts it is better than %d of %s.", apart, page.Plural(others, "other job"))
		}
	}
	d.Paragraph("**%s.** Number %d with %s %s (%s).%s", head, best.Number, page.Plain(v.Opt.Objectives[0].Name),
		page.Sig(best.Objectives[0], 4), page.CodeList(v.Own(*best)), how)
	if len(best.Command) > 0 {
		d.Code(page.ShellCommand(best.Command))
	}
}

// writeBestSetting shows the setting with the best mean and the command of one of its jobs.
func (v *View) writeBestSetting(d *page.Document) {
	if best := v.Leading(); best == nil {
		d.Paragraph("**No winner.** %s.", page.Capital(page.Plain(v.Lead())))
	} else {
		d.Paragraph("%s", strings.TrimSpace(v.bestSetting()+" "+v.otherOrder()))
		if len(best.Command) > 0 {
			d.Code(page.ShellCommand(best.Command))
		}
	}
	d.Paragraph("%s", v.luck())
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

// bestSetting names the setting with the best mean, and compares the means, which are less a matter of luck than single jobs.
func (v *View) bestSetting() string {
	best, name := v.Settings[0], page.Plain(v.Opt.Objectives[0].Name)
	over := fmt.Sprintf("%s of %s over %s", name, meanSD(best.Values[0]), page.Plural(len(best.Values[0]), "seed"))
	if len(v.Settings) < 2 {
		return fmt.Sprintf("**One setting.** All jobs repeat it with other seeds: a mean %s.", over)
	}
	apart, seeded, others := v.Apart()
	how := fmt.Sprintf("By the spread of the seeds (Welch's t, 95%%) it is separate from %d of %s with several seeds.", apart,
		page.Plural(seeded, "other setting"))
	switch {
	case v.verdicts != nil && len(v.verdicts.Rows) > 1: // they count the questions too, and are corrected
		apart, others = v.verdicts.Apart()
		how = fmt.Sprintf("By the verdicts it is better than %d of %s.", apart, page.Plural(others, "other setting"))
	case len(best.Values[0]) < 2:
		how = "One seed says nothing of its luck: run it with more."
	case seeded == 0:
		how = ""
	}
	head := "Best setting"
	if others == 0 {
		head = "Only setting with a result that counts"
	} else if apart < others {
		head = "First, but no clear winner"
	}
	return strings.TrimSpace(fmt.Sprintf("**%s.** %s with a mean %s. %s", head, page.CodeList(best.Overrides), over, how))
}
