package sweepreport

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg/draw"

	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
	"fulcrum/reports/sweeps"
)

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
	if p, text := v.epochsPanel(byNumber); p != nil {
		panels = append(panels, p)
		caption += " " + text
	}
	f := runreport.Stack("History of the sweep", "Jobs in the order in which the sweeper proposed them.", panels...)
	if f == nil {
		return nil
	}
	f.Name = "history"
	for _, p := range panels {
		p.XMin, p.XMax, p.XTicks = -0.5, last+0.5, chart.LinearTicks{Integers: true}
	}
	f.Rows[len(f.Rows)-1][0].X = "job"
	return &sweepFigure{f, "history of the sweep", caption + clipped + v.sampleWords()}
}

// epochsPanel shows what pruning saved: the epochs of every job.
func (v *View) epochsPanel(jobs []sweeps.Job) (*chart.Panel, string) {
	pruned := v.Count(func(j sweeps.Job) bool { return j.State == record.StatePruned && j.Epochs > 0 })
	if pruned == 0 {
		return nil, ""
	}
	p := &chart.Panel{Y: "epochs trained", YMin: 0, YMax: math.NaN()}
	full, spent, finished, stopped := 0, 0, 0, 0
	caption := "Below, the epochs that each job trained"
	if len(jobs) > maxStems {
		p.Y = "mean epochs trained"
		caption = "Below, the mean epochs of jobs in succession"
		p.Layers = append(p.Layers, meanEpochs(jobs))
	} else {
		addEpochs(p, jobs)
	}
	for _, j := range jobs {
		switch {
		case j.State == record.StateDone:
			full, finished, spent = max(full, j.Epochs), finished+1, spent+j.Epochs
		case j.State == record.StatePruned:
			spent += j.Epochs
			stopped++
		}
	}
	if finished == 0 {
		return p, caption + "."
	}
	whole := full * (finished + stopped)
	return p, fmt.Sprintf("%s: finished and pruned jobs took %s of the %s that all of them would have taken in full.", caption,
		page.Thousands(spent), page.Plural(whole, "epoch"))
}

// maxStems is how many jobs have room for a bar each.
const maxStems = 200

// meanEpochs draws bars for the means of many jobs in succession.
func meanEpochs(jobs []sweeps.Job) chart.Stems {
	s := chart.Stems{Style: draw.LineStyle{Color: chart.Faint(chart.Blue, 0.8)}}
	size := (len(jobs) + maxStems/4 - 1) / (maxStems / 4)
	for chunk := range slices.Chunk(jobs, size) {
		sum := 0.0
		for _, j := range chunk {
			sum += float64(j.Epochs)
		}
		s.X = append(s.X, float64(chunk[0].Number+chunk[len(chunk)-1].Number)/2)
		s.Y = append(s.Y, sum/float64(len(chunk)))
	}
	s.Wide = float64(size)
	return s
}

// addEpochs draws a bar for every job, coloured by how it ended.
func addEpochs(p *chart.Panel, jobs []sweeps.Job) {
	for _, m := range []struct {
		text  string
		color chart.Colour
		has   func(sweeps.Job) bool
	}{
		{"done", chart.Faint(chart.Blue, 0.8), func(j sweeps.Job) bool { return j.State == record.StateDone }},
		{"pruned", chart.Orange, func(j sweeps.Job) bool { return j.State == record.StatePruned }},
		{"failed or not ended", chart.Faint(chart.Grey, 0.7), func(j sweeps.Job) bool {
			return j.State != record.StateDone &&
				j.State != record.StatePruned
		}},
	} {
		s := chart.Stems{Style: draw.LineStyle{Color: m.color}}
		for _, j := range jobs {
			if j.Epochs > 0 && m.has(j) {
				s.X, s.Y = append(s.X, float64(j.Number)), append(s.Y, float64(j.Epochs))
			}
		}
		if len(s.X) > 0 {
			p.Layers = append(p.Layers, s)
			p.Legend = append(p.Legend, chart.LegendItem{Text: m.text, Draw: chart.AreaSample(m.color)})
		}
	}
}
