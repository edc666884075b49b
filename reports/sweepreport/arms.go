package sweepreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/arms"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

func (v *View) writeArms(d *page.Document) {
	if len(v.conditions) == 0 {
		return
	}
	split := v.split()
	for _, c := range v.conditions {
		d.Heading(2, "%s", c.heading("Arms and baselines"))
		table := page.LinesOf(slices.DeleteFunc(v.lines(c, record.PolicyBestBeam, record.PolicyOracle), func(l armLine) bool {
			return l.arm == nil && l.scored(split, "reward", meanCell) == ""
		}))
		ofArm := func(cell func(*setting) string) func(armLine) string {
			return func(l armLine) string {
				if l.arm == nil {
					return ""
				}
				return cmp.Or(cell(l.arm), "–")
			}
		}
		scored := func(metric string, cell func(arms.Arm) string) func(armLine) string {
			return func(l armLine) string { return l.scored(split, metric, cell) }
		}
		table.Column("policy", func(l armLine) string { return l.label })
		table.Column("starts from", ofArm(v.startOf))
		table.Column(">steps", ofArm(stepsCell))
		table.Column(">reader calls", ofArm((*setting).callsCell))
		table.Column(">reward on "+page.Plain(split), scored("reward", meanCell))
		table.Column(">SE, questions", scored("reward", seCell))
		table.Column(">SD, seeds", scored("reward", sdCell))
		table.Column(">gain over init", ofArm(func(s *setting) string {
			gain, _ := v.compare(c, s.arm.Name, record.PolicyInit, split, "reward", false)
			if gain == nil {
				return ""
			}
			return gain.Gain()
		}))
		table.Column(">accuracy", scored("accuracy", meanCell))
		table.Column(">KL", ofArm(func(s *setting) string {
			if kl := s.lastOf("val_kl"); len(kl) > 0 {
				return page.Sig(stat.Mean(kl), 2)
			}
			return ""
		}))
		table.Column(">best checkpoint", ofArm(func(s *setting) string {
			return armLine{arm: s, runs: s.runs, policy: record.PolicyBest}.scored(split, "reward", meanCell)
		}))
		d.Table(table.Header, table.Rows)
	}
	greedy := "greedy selection"
	if runs := v.runs(); len(runs) > 0 {
		greedy = runs[0].Wording(greedy, "greedy answer")
	}
	d.Paragraph("Reward is the mean over questions and seeds of the %s; the standard error is over questions, of scores averaged over "+
		"seeds; the standard deviation is between the seeds' means. Steps and reader calls, the candidates scored for them, count "+
		"those of the arms that an arm starts from; recorded candidates were scored before. The gain over the initial policy is "+
		"descriptive: its 95%% interval is not corrected for the number of arms. KL is that of the last epoch on validation queries, in "+
		"nats, to the reference of its phase (grpo.kl.reference): with phase_start the policy that the phase began with. Best checkpoint "+
		"is the reward of the checkpoint that validation prefers.", greedy)
}

// writeSplits is the table of arms and baselines on every set of questions: what does not carry over falls from left to right.
func (v *View) writeSplits(d *page.Document) {
	splits := v.splits()
	if len(v.conditions) == 0 || !slices.Contains(splits, "train") {
		return
	}
	for _, c := range v.conditions {
		d.Heading(2, "%s", c.heading("Every set of questions"))
		table := page.LinesOf(v.lines(c, record.PolicyBestBeam, record.PolicyOracle, record.PolicyReference))
		table.Column("policy", func(l armLine) string { return l.label })
		for _, split := range splits {
			table.Column(">reward on "+page.Plain(split), func(l armLine) string {
				return cmp.Or(l.scored(split, "reward", func(arm arms.Arm) string {
					if i := arm.Interval(); i != nil {
						mean, low, high := page.Estimate(stat.Mean(arm.QueryScores()), i.Low, i.High, page.Unsigned)
						return fmt.Sprintf("%s [%s, %s]", mean, low, high)
					}
					return meanCell(arm)
				}), "–")
			})
		}
		d.Table(table.Header, slices.DeleteFunc(table.Rows, func(row []string) bool {
			return !slices.ContainsFunc(row[1:], func(cell string) bool { return cell != "–" })
		}))
	}
	d.Paragraph("Means over questions and seeds, with 95 %% intervals for new questions and new seeds. Policies are compared by the " +
		"paired differences above, not by whether these intervals overlap.")
}

// splits are the sets that the runs were scored on: training questions first, where there are some.
func (v *View) splits() []string {
	var out []string
	for _, run := range v.runs()[:min(1, len(v.runs()))] {
		out = list.Unique(list.Map(run.Evaluations, func(e record.Evaluation) string { return e.Split }))
	}
	if i := slices.Index(out, "train"); i > 0 {
		out = append([]string{"train"}, slices.Delete(out, i, i+1)...)
	}
	return out
}

// armLine is a line of the tables of arms: an arm, or a baseline that the first runs with untrained weights have scored.
type armLine struct {
	label  string   // in Markdown
	arm    *setting // nil: a baseline
	runs   []*record.Run
	policy string
}

// lines are the arms between the baselines that they start from and the bounds that no policy is expected to pass.
func (v *View) lines(c *condition, bounds ...string) []armLine {
	var out []armLine
	baselines := func(names ...string) {
		untrained := v.untrained(c)
		for _, name := range names {
			for _, s := range untrained {
				label := "*" + page.Plain(strings.TrimPrefix(v.label(name), "the ")) + "*"
				if len(untrained) > 1 {
					label += ", as for " + page.Plain(s.label())
				}
				out = append(out, armLine{label: label, runs: s.runs, policy: name})
			}
		}
	}
	baselines(record.PolicyRandom, record.PolicyMajority, record.PolicySimilarity, record.PolicyInit)
	out = append(out, list.Map(c.arms, func(s *setting) armLine { return armLine{page.Plain(s.label()), s, s.runs, s.last()} })...)
	baselines(bounds...)
	return out
}

// untrained are the first arms that started with untrained weights and have finished runs, one for each set of baselines.
func (v *View) untrained(c *condition) (out []*setting) {
	for _, s := range c.arms {
		if s.from == nil && len(s.runs) > 0 && !slices.ContainsFunc(out, func(o *setting) bool { return v.sameBaselines(o, s) }) {
			out = append(out, s)
		}
	}
	return out
}

// scored is the cell of a score of the line's policy; of one without that score a dash for an arm, nothing for a baseline.
func (l armLine) scored(split, metric string, cell func(arms.Arm) string) string {
	if arm, err := arms.ArmOf(l.runs, split, metric, l.policy); err == nil {
		return cell(arm)
	}
	if l.arm == nil {
		return ""
	}
	return "–"
}

func (v *View) startOf(s *setting) string {
	if s.arm.From == "" {
		return v.givenStart(s, "fresh weights")
	}
	return fmt.Sprintf("%s (%s)", page.Plain(v.label(s.arm.From)), s.arm.Checkpoint)
}

func stepsCell(s *setting) string {
	own, all := s.steps()
	switch {
	case len(s.runs) == 0:
		return ""
	case own != all:
		return fmt.Sprintf("%s + %s", page.Thousands(all-own), page.Thousands(own))
	}
	return page.Thousands(all)
}

// lastOf is a metric of the last epoch of every run that has it.
func (a *setting) lastOf(name string) []float64 {
	var out []float64
	for _, r := range a.runs {
		for _, e := range slices.Backward(r.Epochs) {
			if x, ok := e.Number(name); ok {
				out = append(out, x)
				break
			}
		}
	}
	return out
}

func meanCell(a arms.Arm) string {
	return page.Score(stats.NewGrouping(a.Clusters).MeanSE(a.QueryScores()))
}

func seCell(a arms.Arm) string {
	_, se := stats.NewGrouping(a.Clusters).MeanSE(a.QueryScores())
	return page.Sig(se, 2)
}

// callsCell is how many candidates the reader scored for an arm.
func (s *setting) callsCell() string {
	if len(s.runs) == 0 {
		return ""
	}
	return page.Thousands(s.calls())
}

// sdCell is the standard deviation between seeds, a dash with one seed.
func sdCell(a arms.Arm) string {
	if len(a.Scores) < 2 {
		return "–"
	}
	if means := a.SeedMeans(); !page.Rounding(stat.Mean(means), stat.SD(means)) {
		return page.Sig(stat.SD(means), 2)
	}
	return "0"
}
