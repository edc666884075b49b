package sweepreport

import (
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// writeArms is the table of arms and baselines.
func (v *View) writeArms(d *page.Document) {
	split := v.split()
	for _, s := range v.armSettings {
		d.Heading(2, "%s", s.heading("Arms and baselines"))
		var rows [][]string
		for _, l := range s.lines(record.PolicyBestBeam, record.PolicyOracle) {
			if row := l.row(split); row != nil {
				rows = append(rows, row)
			}
		}
		d.Table([]string{"policy", "starts from", ">steps", ">reward on " + page.Plain(split), ">SE, questions", ">SD, seeds",
			">gain over init", ">accuracy", ">KL", ">best checkpoint"},
			rows)
	}
	greedy := "greedy selection"
	if run := v.first(); run != nil {
		greedy = run.Wording(greedy, "greedy answer")
	}
	d.Paragraph("Reward is the mean over questions and seeds of the %s; the standard error is over questions, of scores averaged over "+
		"seeds; the standard deviation is between the seeds' means. Steps count those of the arms that an arm starts from. The gain "+
		"over the initial policy is descriptive: its 95%% interval is not corrected for the number of arms. KL is that of the last "+
		"epoch on validation queries, in nats, to the policy that the arm itself started with. Best checkpoint is the reward of the "+
		"checkpoint that validation prefers.", greedy)
}

// armLine is a line of the tables of arms: an arm, or a baseline that the first runs with untrained weights have scored.
type armLine struct {
	label  string   // in Markdown
	arm    *armRuns // nil: a baseline
	runs   []*record.Run
	policy string
}

// lines are the arms between the baselines that they start from and the bounds that no policy is expected to pass.
func (s *studySetting) lines(bounds ...string) []armLine {
	var out []armLine
	baselines := func(names ...string) {
		if untrained := s.untrained(); untrained != nil {
			for _, name := range names {
				label := "*" + page.Plain(strings.TrimPrefix(s.label(name), "the ")) + "*"
				out = append(out, armLine{label: label, runs: untrained.runs, policy: name})
			}
		}
	}
	baselines(record.PolicyRandom, record.PolicyMajority, record.PolicySimilarity, record.PolicyInit)
	for _, a := range s.arms {
		out = append(out, armLine{page.Plain(a.Label), a, a.runs, a.last()})
	}
	baselines(bounds...)
	return out
}

// untrained is the first arm that started with untrained weights and has finished runs, nil for none.
func (s *studySetting) untrained() *armRuns {
	if i := slices.IndexFunc(s.arms, func(a *armRuns) bool { return a.from == nil && len(a.runs) > 0 }); i >= 0 {
		return s.arms[i]
	}
	return nil
}

// row is the line in the table of arms, nil for a baseline that the runs do not have.
func (l armLine) row(split string) []string {
	a, row := l.arm, []string{l.label, "", "", "", "", "", "", "", "", ""}
	reward, err := results.ArmOf(l.runs, split, "reward", l.policy)
	if a == nil && err != nil {
		return nil
	}
	if a != nil {
		row = []string{l.label, "fresh weights", "–", "–", "–", "–", "–", "–", "–", "–"}
		if a.from != nil {
			row[1] = fmt.Sprintf("%s (%s)", page.Plain(a.from.Label), a.Checkpoint)
		}
		if own, all := a.steps(); own != all && len(a.runs) > 0 {
			row[2] = fmt.Sprintf("%s + %s", page.Thousands(all-own), page.Thousands(own))
		} else if len(a.runs) > 0 {
			row[2] = page.Thousands(all)
		}
		if err != nil {
			return row
		}
	}
	row[3], row[4], row[5] = meanCell(reward), seCell(reward), sdCell(reward)
	if accuracy, err := results.ArmOf(l.runs, split, "accuracy", l.policy); err == nil {
		row[7] = meanCell(accuracy)
	}
	if a == nil {
		return row
	}
	setting := &studySetting{arms: []*armRuns{a}}
	if c, _ := setting.compare(a.Name, record.PolicyInit, split, "reward", false); c != nil {
		row[6] = fmt.Sprintf("%s [%s, %s]", page.Fixed(c.Mean, 4), page.Fixed(c.Interval.Low, 4), page.Fixed(c.Interval.High, 4))
	}
	if kl := a.lastOf("val_kl"); len(kl) > 0 {
		row[8] = page.Sig(stat.Mean(kl), 2)
	}
	if best, err := results.ArmOf(a.runs, split, "reward", record.PolicyBest); err == nil {
		row[9] = meanCell(best)
	}
	return row
}

// lastOf is a metric of the last epoch of every run that has it.
func (a *armRuns) lastOf(name string) []float64 {
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

func meanCell(a results.Arm) string { return fmt.Sprintf("%.4f", stat.Mean(a.QueryScores())) }

func seCell(a results.Arm) string {
	_, se := stats.NewGrouping(a.Clusters).MeanSE(a.QueryScores())
	return fmt.Sprintf("%.4f", se)
}

// sdCell returns the standard deviation between seeds, a dash with one seed.
func sdCell(a results.Arm) string {
	if len(a.Scores) < 2 {
		return "–"
	}
	return fmt.Sprintf("%.4f", stat.SD(a.SeedMeans()))
}

// writeBeta says what became of the KL's coefficient in the arms that have one.
func (v *View) writeBeta(d *page.Document) {
	var rows [][]string
	for _, a := range v.arms() {
		if !a.penalised() {
			continue
		}
		start, _ := a.runs[0].SettingNumber(a.last(), "kl", "beta")
		row := []string{page.Plain(a.Label), "fixed", page.Sig(start, 3), rangeCell(a.lastOf("kl_beta_next")),
			rangeCell(a.lastOf("val_kl")), "–", "–"}
		if a.runs[0].Setting(a.last(), "kl", "controller") != "fixed" {
			row[1] = "moves"
			if band := a.band(); band != nil {
				row[5] = fmt.Sprintf("%s to %s", page.Sig(band[0], 3), page.Sig(band[1], 3))
			}
			bound, epochs := 0, 0
			for _, r := range a.runs {
				for _, e := range r.Epochs {
					if at, ok := e.Fields["kl_beta_at_bound"].(bool); ok {
						bound, epochs = bound+stats.BoolInt(at), epochs+1
					}
				}
			}
			row[6] = fmt.Sprintf("%d of %d", bound, epochs)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return
	}
	d.Heading(3, "What β did")
	d.Table([]string{"arm", "β", ">at the start", ">at the end", ">KL at the end", ">band of the KL", ">epochs with β on a bound"}, rows)
	d.Paragraph("The end is the mean over seeds, with the least and the greatest seed. KL on validation queries, in nats.")
}

// rangeCell is a mean over seeds with its extremes.
func rangeCell(x []float64) string {
	if len(x) == 0 {
		return "–"
	}
	if slices.Min(x) == slices.Max(x) {
		return page.Sig(x[0], 3)
	}
	return fmt.Sprintf("%s (%s to %s)", page.Sig(stat.Mean(x), 3), page.Sig(slices.Min(x), 2), page.Sig(slices.Max(x), 2))
}
