package sweepreport

import (
	"fmt"
	"slices"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

// splits are the sets that the runs were scored on: training questions first, where there are some.
func (v *View) splits() []string {
	var out []string
	run := v.first()
	if run == nil {
		return nil
	}
	for _, e := range run.Evaluations {
		if !slices.Contains(out, e.Split) {
			out = append(out, e.Split)
		}
	}
	if i := slices.Index(out, "train"); i > 0 {
		out = append([]string{"train"}, slices.Delete(out, i, i+1)...)
	}
	return out
}

// writeSplits is the table of arms and baselines on every set: what does not carry over falls from left to right.
func (v *View) writeSplits(d *page.Document) {
	splits := v.splits()
	if !slices.Contains(splits, "train") {
		return
	}
	for _, s := range v.armSettings {
		d.Heading(2, "%s", s.heading("Every set of questions"))
		header := []string{"policy"}
		for _, split := range splits {
			header = append(header, ">reward on "+page.Plain(split))
		}
		var rows [][]string
		for _, l := range s.lines(record.PolicyBestBeam, record.PolicyOracle, record.PolicyReference) {
			cells, known := []string{l.label}, false
			for _, split := range splits {
				cell := "–"
				if arm, err := results.ArmOf(l.runs, split, "reward", l.policy); err == nil {
					cell, known = meanCell(arm), true
					if i := arm.Interval(); i != nil {
						cell += fmt.Sprintf(" [%.4f, %.4f]", i.Low, i.High)
					}
				}
				cells = append(cells, cell)
			}
			if known {
				rows = append(rows, cells)
			}
		}
		d.Table(header, rows)
	}
	d.Paragraph("Means over questions and seeds, with 95 %% intervals for new questions and new seeds. Policies are compared by the " +
		"paired differences above, not by whether these intervals overlap.")
}
