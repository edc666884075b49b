package sweepreport

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fulcrum/reports/chart"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// marks are the ways in which a job is drawn.
type mark struct {
	text  string
	shape draw.GlyphDrawer
	color chart.Colour
	size  vg.Length
	has   func(sweeps.Job) bool
}

func (v *View) marks(n int) []mark {
	strength := 0.75
	if n > 150 {
		strength = 0.45
	}
	return []mark{
		{"done", draw.CircleGlyph{}, chart.Faint(chart.Blue, strength), 2.6, v.Feasible},
		{"pruned", draw.TriangleGlyph{}, chart.Faint(chart.Orange, min(1, strength+0.25)), 3,
			func(j sweeps.Job) bool { return j.State == record.StatePruned }},
		{"infeasible", draw.CrossGlyph{}, chart.Vermillion, 2.6, v.Infeasible},
		{"running or failed", draw.RingGlyph{}, chart.Grey, 2.4, func(j sweeps.Job) bool {
			return !sweeps.Ended(j.State) ||
				j.State == record.StateFailed
		}},
	}
}

// highlighted are the best job, or with several objectives the front.
func (v *View) highlighted() []sweeps.Job {
	if len(v.Opt.Objectives) == 1 {
		if best := v.Best(); best != nil {
			return []sweeps.Job{*best}
		}
		return nil
	}
	return slices.DeleteFunc(slices.Clone(v.Jobs), func(j sweeps.Job) bool { return !v.Front[j.Number] })
}

// whiskers are means with their standard deviations.
type whiskers struct {
	x, mean, sd []float64 // sd NaN: one value
	low, high   float64   // limits of the axis
	joined      bool      // the values have an order
}

// widen gives the vertical axis room for the whiskers, half of its height at most; on an axis that leaves out jobs, and on
// a logarithmic one, they end at its edge.
func (w *whiskers) widen(p *chart.Panel, s objectiveScale) {
	if s.clipped > 0 || s.log {
		return
	}
	room := (p.YMax - p.YMin) / 2
	low, high := p.YMin, p.YMax
	for i, sd := range w.sd {
		if sd > 0 {
			low, high = min(low, w.mean[i]-1.05*sd), max(high, w.mean[i]+1.05*sd)
		}
	}
	p.YMin, p.YMax = max(low, p.YMin-room), min(high, p.YMax+room)
	w.low, w.high = p.YMin, p.YMax
}

func (w whiskers) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.LineStyle{Color: chart.Black, Width: 1}
	at := func(u, y float64) vg.Point { // of the nearest point on the axis
		return vg.Point{X: c.X(p.X.Norm(u)), Y: c.Y(p.Y.Norm(min(max(y, w.low), w.high)))}
	}
	inside := func(y float64) bool { return y >= w.low && y <= w.high }
	for i, u := range w.x {
		if w.joined && i > 0 && inside(w.mean[i]) && inside(w.mean[i-1]) {
			from, to := at(w.x[i-1], w.mean[i-1]), at(u, w.mean[i])
			c.StrokeLine2(draw.LineStyle{Color: chart.Faint(chart.Black, 0.55), Width: 1}, from.X, from.Y, to.X, to.Y)
		}
		if !(w.sd[i] > 0) {
			continue
		}
		low, high := w.mean[i]-w.sd[i], w.mean[i]+w.sd[i]
		if high < w.low || low > w.high {
			continue
		}
		from, to := at(u, low), at(u, high)
		c.StrokeLine2(style, from.X, from.Y, to.X, to.Y)
		for _, y := range []float64{low, high} {
			if end := at(u, y); inside(y) {
				c.StrokeLine2(style, end.X-2.5, end.Y, end.X+2.5, end.Y)
			}
		}
	}
	for i, u := range w.x {
		if inside(w.mean[i]) {
			c.DrawGlyph(draw.GlyphStyle{Color: chart.Black, Radius: 2.7, Shape: diamond{}}, at(u, w.mean[i]))
		}
	}
}

// addJobs draws jobs as points at (x, objective), by state; what lies beyond the axis is drawn at its
// edge.
func addJobs(p *chart.Panel, v *View, jobs []sweeps.Job, objective int, s objectiveScale, x func(sweeps.Job) (float64, bool)) {
	low, high := s.axisRange()
	p.YMin, p.YMax, p.Log = low, high, s.log
	edge := chart.Dots{Color: chart.Grey, Shape: draw.PyramidGlyph{}, Size: 3}
	inset := 0.025 * (high - low)
	for _, m := range slices.Backward(v.marks(len(jobs))) { // done ones on top
		d := chart.Dots{Color: m.color, Shape: m.shape, Size: m.size}
		for _, j := range slices.Backward(jobs) {
			u, ok := x(j)
			if !ok || !m.has(j) {
				continue
			}
			if _, out := s.clamp(j.Objectives[objective]); out {
				edge.X, edge.Y = append(edge.X, u), append(edge.Y, low+inset)
				if v.Opt.Objectives[objective].Minimize {
					edge.Y[len(edge.Y)-1], edge.Shape = high-inset, downGlyph{}
				}
				continue
			}
			d.X, d.Y = append(d.X, u), append(d.Y, j.Objectives[objective])
		}
		if len(d.X) > 0 {
			p.Layers = append(p.Layers, d)
			p.Legend = slices.Insert(p.Legend, 0, chart.LegendItem{Text: m.text, Draw: chart.DotSample(m.color, m.shape)})
		}
	}
	if len(edge.X) > 0 {
		p.Layers = append(p.Layers, edge)
		p.Legend = append(p.Legend, chart.LegendItem{Text: "beyond the axis", Draw: chart.DotSample(chart.Grey, edge.Shape)})
	}
}

// addBest rings the best job, or those of the front.
func addBest(p *chart.Panel, v *View, objective int, s objectiveScale, x func(sweeps.Job) (float64, bool)) {
	d := chart.Dots{Color: chart.Black, Shape: draw.RingGlyph{}, Size: 5}
	for _, j := range v.highlighted() {
		if u, ok := x(j); ok && (len(v.Opt.Objectives) > 1 || !v.HasSeeds()) { // no seed of a setting is the best
			y, _ := s.clamp(j.Objectives[objective])
			d.X, d.Y = append(d.X, u), append(d.Y, y)
		}
	}
	if len(d.X) > 0 {
		words := "Pareto front"
		if best := v.Best(); len(v.Opt.Objectives) == 1 {
			words = fmt.Sprintf("best: job %d", best.Number)
		}
		p.Layers = append(p.Layers, d)
		p.Legend = append(p.Legend, chart.LegendItem{Text: words, Draw: chart.DotSample(chart.Black, draw.RingGlyph{})})
	}
}
