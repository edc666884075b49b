package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// historyFigure shows the objective in the order of the jobs with the best so far, and what each cost.
func (v *sweepView) historyFigure() *sweepFigure {
	byNumber := v.byNumber
	last := float64(byNumber[len(byNumber)-1].Number)
	number := func(j SweepJob) (float64, bool) { return float64(j.Number), true }
	var panels []*panel
	clipped := ""
	for i, o := range v.opt.Objectives {
		s := v.scale(i)
		p := &panel{}
		addJobs(p, v, v.drawnJobs(), i, s, number)
		p.y = o.label(panelHeight - 30)
		var x, y []float64
		for _, j := range byNumber {
			if v.feasible(j) && (len(y) == 0 || o.compare(j.Objectives[i], y[len(y)-1]) < 0) {
				x, y = append(x, float64(j.Number)), append(y, j.Objectives[i])
			}
		}
		if len(x) > 0 {
			x, y = append(x, last+0.5), append(y, y[len(y)-1])
			for k := range y {
				y[k], _ = s.clamp(y[k])
			}
			l := line(x, y, black, 1.4)
			l.steps = true
			p.layers = append(p.layers, l)
			p.legend = append(p.legend, legendItem{"best so far", lineSample(l.style)})
		}
		addBest(p, v, i, s, number)
		panels = append(panels, p)
		clipped = cmp.Or(clipped, s.clippedWords())
	}
	caption := "*History.* Objective by job number; the line is the best so far. A sweep whose line has been flat for most of its jobs has found what it can find in these ranges; one that still rises deserves more trials."
	if v.opt.Objectives[0].Minimize {
		caption = strings.Replace(caption, "still rises", "still falls", 1)
	}
	if p, text := v.epochsPanel(byNumber); p != nil {
		panels = append(panels, p)
		caption += " " + text
	}
	f := stack("History of the sweep", "Jobs in the order in which the sweeper proposed them.", panels...)
	if f == nil {
		return nil
	}
	f.name = "history"
	for _, p := range panels {
		p.xMin, p.xMax, p.xTicks = -0.5, last+0.5, linearTicks{integers: true}
	}
	f.rows[len(f.rows)-1][0].x = "job"
	return &sweepFigure{f, "history of the sweep", caption + clipped + v.sampleWords()}
}

// stems are vertical bars from zero.
type stems struct {
	x, y  []float64
	wide  float64 // jobs that a bar stands for; 0: one
	style draw.LineStyle
}

// DataRange implements plot.DataRanger.
func (s stems) DataRange() (xmin, xmax, ymin, ymax float64) { return rangeOf(s.x, s.y) }

// Plot implements plot.Plotter.
func (s stems) Plot(c draw.Canvas, p *plot.Plot) {
	style := s.style
	style.Width = min((c.Max.X-c.Min.X)/vg.Length(p.X.Max-p.X.Min)*vg.Length(0.75*max(s.wide, 1)), 9)
	for i, u := range s.x {
		x := c.X(p.X.Norm(u))
		c.StrokeLine2(style, x, c.Y(p.Y.Norm(0)), x, c.Y(p.Y.Norm(s.y[i])))
	}
}

// epochsPanel shows what pruning saved: the epochs of every job.
func (v *sweepView) epochsPanel(jobs []SweepJob) (*panel, string) {
	pruned := v.count(func(j SweepJob) bool { return j.State == StatePruned && j.Epochs > 0 })
	if pruned == 0 {
		return nil, ""
	}
	p := &panel{y: "epochs trained", yMin: 0, yMax: math.NaN()}
	full, spent, finished, stopped := 0, 0, 0, 0
	caption := "Below, the epochs that each job trained"
	if len(jobs) > maxStems {
		p.y = "mean epochs trained"
		caption = "Below, the mean epochs of jobs in succession"
		p.layers = append(p.layers, meanEpochs(jobs))
	} else {
		addEpochs(p, jobs)
	}
	for _, j := range jobs {
		switch {
		case j.State == StateDone:
			full, finished, spent = max(full, j.Epochs), finished+1, spent+j.Epochs
		case j.State == StatePruned:
			spent += j.Epochs
			stopped++
		}
	}
	if finished == 0 {
		return p, caption + "."
	}
	whole := full * (finished + stopped)
	return p, fmt.Sprintf("%s: finished and pruned jobs took %s of the %s that all of them would have taken in full.", caption, thousands(spent), plural(whole, "epoch"))
}

// maxStems is how many jobs have room for a bar each.
const maxStems = 200

// meanEpochs draws bars for the means of many jobs in succession.
func meanEpochs(jobs []SweepJob) stems {
	s := stems{style: draw.LineStyle{Color: faint(blue, 0.8)}}
	size := (len(jobs) + maxStems/4 - 1) / (maxStems / 4)
	for chunk := range slices.Chunk(jobs, size) {
		sum := 0.0
		for _, j := range chunk {
			sum += float64(j.Epochs)
		}
		s.x = append(s.x, float64(chunk[0].Number+chunk[len(chunk)-1].Number)/2)
		s.y = append(s.y, sum/float64(len(chunk)))
	}
	s.wide = float64(size)
	return s
}

// addEpochs draws a bar for every job, coloured by how it ended.
func addEpochs(p *panel, jobs []SweepJob) {
	for _, m := range []struct {
		text  string
		color colour
		has   func(SweepJob) bool
	}{
		{"done", faint(blue, 0.8), func(j SweepJob) bool { return j.State == StateDone }},
		{"pruned", orange, func(j SweepJob) bool { return j.State == StatePruned }},
		{"failed or not ended", faint(grey, 0.7), func(j SweepJob) bool { return j.State != StateDone && j.State != StatePruned }},
	} {
		s := stems{style: draw.LineStyle{Color: m.color}}
		for _, j := range jobs {
			if j.Epochs > 0 && m.has(j) {
				s.x, s.y = append(s.x, float64(j.Number)), append(s.y, float64(j.Epochs))
			}
		}
		if len(s.x) > 0 {
			p.layers = append(p.layers, s)
			p.legend = append(p.legend, legendItem{m.text, areaSample(m.color)})
		}
	}
}
