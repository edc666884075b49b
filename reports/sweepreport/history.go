package sweepreport

import (
	"cmp"
	"strings"

	"fulcrum/reports/chart"
	"fulcrum/reports/runreport"
	"fulcrum/reports/sweeps"
)

// historyName is the name of the history's files.
const historyName = "history"

// historyFigure shows the objective in the order of the jobs with the best so far, and what each cost.
func (v *View) historyFigure() *sweepFigure {
	byNumber := v.ByNumber
	last := float64(byNumber[len(byNumber)-1].Number)
	number := func(j sweeps.Job) (float64, bool) { return float64(j.Number), true }
	var panels []*chart.Panel
	clipped := ""
	for i, o := range v.Opt.Objectives {
		s := v.scale(i)
		p := &chart.Panel{}
		addJobs(p, v, v.drawnJobs(), i, s, number)
		p.Y = objectiveLabel(o, chart.PanelHeight-30)
		var x, y []float64
		for _, j := range byNumber {
			if v.Feasible(j) && (len(y) == 0 || o.Compare(j.Objectives[i], y[len(y)-1]) < 0) {
				x, y = append(x, float64(j.Number)), append(y, j.Objectives[i])
			}
		}
		if len(x) > 0 {
			x, y = append(x, last+0.5), append(y, y[len(y)-1])
			for k := range y {
				y[k], _ = s.clamp(y[k])
			}
			l := chart.Line(x, y, chart.Black, 1.4)
			l.StepsIn = true
			p.Layers = append(p.Layers, l)
			p.Legend = append(p.Legend, chart.LegendItem{Text: "best so far", Draw: chart.LineSample(l.Style)})
		}
		addBest(p, v, i, s, number)
		panels = append(panels, p)
		clipped = cmp.Or(clipped, s.clippedWords())
	}
	caption := "*History.* Objective by job number; the line is the best so far. A sweep whose line has been flat for most of its jobs " +
		"has found what it can find in these ranges; one that still rises deserves more trials."
	if v.Opt.Objectives[0].Minimize {
		caption = strings.Replace(caption, "still rises", "still falls", 1)
	}
	f := runreport.Stack("History of the sweep", "Jobs in the order in which the sweeper proposed them.", panels...)
	if f == nil {
		return nil
	}
	f.Name = historyName
	for _, p := range panels {
		p.XMin, p.XMax, p.XTicks = -0.5, last+0.5, chart.LinearTicks{Integers: true}
	}
	f.Rows[len(f.Rows)-1][0].X = "job"
	return &sweepFigure{f, "history of the sweep", caption + clipped + v.sampleWords()}
}
