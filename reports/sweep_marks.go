package reports

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// marks are the ways in which a job is drawn.
type mark struct {
	text  string
	shape draw.GlyphDrawer
	color colour
	size  vg.Length
	has   func(SweepJob) bool
}

func (v *sweepView) marks(n int) []mark {
	strength := 0.75
	if n > 150 {
		strength = 0.45
	}
	return []mark{
		{"done", draw.CircleGlyph{}, faint(blue, strength), 2.6, v.feasible},
		{"pruned", outline{3, math.Pi / 2}, faint(orange, min(1, strength+0.25)), 3, func(j SweepJob) bool { return j.State == StatePruned }},
		{"infeasible", cross{}, vermillion, 2.6, v.infeasible},
		{"running or failed", draw.RingGlyph{}, grey, 2.4, func(j SweepJob) bool { return !ended(j.State) || j.State == StateFailed }},
	}
}

// highlighted are the best job, or with several objectives the front.
func (v *sweepView) highlighted() []SweepJob {
	if len(v.opt.Objectives) == 1 {
		if best := v.best(); best != nil {
			return []SweepJob{*best}
		}
		return nil
	}
	return slices.DeleteFunc(slices.Clone(v.jobs), func(j SweepJob) bool { return !v.front[j.Number] })
}

func (v *sweepView) highlightWords() string {
	if len(v.opt.Objectives) > 1 {
		return "Pareto front"
	}
	if best := v.best(); best != nil {
		return fmt.Sprintf("best: job %d", best.Number)
	}
	return "best"
}

// outline is a polygon without its filling, first corner at the angle turn. gonum's has a hair line.
type outline struct {
	corners int
	turn    float64
}

// DrawGlyph implements draw.GlyphDrawer.
func (o outline) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	line := make([]vg.Point, o.corners+2) // the first side twice, for its corner
	for i := range line {
		sin, cos := math.Sincos(o.turn + 2*math.Pi*float64(i)/float64(o.corners))
		line[i] = vg.Point{X: at.X + style.Radius*vg.Length(cos), Y: at.Y + style.Radius*vg.Length(sin)}
	}
	c.StrokeLines(draw.LineStyle{Color: style.Color, Width: 1}, line)
}

// cross is two diagonal strokes. gonum's are hair lines.
type cross struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (cross) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r, line := style.Radius*0.9, draw.LineStyle{Color: style.Color, Width: 1.1}
	c.StrokeLine2(line, at.X-r, at.Y-r, at.X+r, at.Y+r)
	c.StrokeLine2(line, at.X-r, at.Y+r, at.X+r, at.Y-r)
}

// downGlyph is a filled triangle that points down.
type downGlyph struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (downGlyph) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := style.Radius
	c.FillPolygon(style.Color, []vg.Point{{X: at.X - r, Y: at.Y + 0.7*r}, {X: at.X + r, Y: at.Y + 0.7*r}, {X: at.X, Y: at.Y - r}})
}

// whiskers are means with their standard deviations.
type whiskers struct {
	x, mean, sd []float64 // sd NaN: one value
	low, high   float64   // limits of the axis
	joined      bool      // the values have an order
}

// Plot implements plot.Plotter.
func (w whiskers) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.LineStyle{Color: black, Width: 1}
	at := func(u, y float64) vg.Point { // of the nearest point on the axis
		return vg.Point{X: c.X(p.X.Norm(u)), Y: c.Y(p.Y.Norm(min(max(y, w.low), w.high)))}
	}
	inside := func(y float64) bool { return y >= w.low && y <= w.high }
	for i, u := range w.x {
		if w.joined && i > 0 && inside(w.mean[i]) && inside(w.mean[i-1]) {
			from, to := at(w.x[i-1], w.mean[i-1]), at(u, w.mean[i])
			c.StrokeLine2(draw.LineStyle{Color: faint(black, 0.55), Width: 1}, from.X, from.Y, to.X, to.Y)
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
			c.DrawGlyph(draw.GlyphStyle{Color: black, Radius: 2.7, Shape: diamondGlyph{}}, at(u, w.mean[i]))
		}
	}
}

// diamondGlyph is a filled square on its corner.
type diamondGlyph struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (diamondGlyph) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := style.Radius * 1.3
	c.FillPolygon(style.Color, []vg.Point{{X: at.X - r, Y: at.Y}, {X: at.X, Y: at.Y + r}, {X: at.X + r, Y: at.Y}, {X: at.X, Y: at.Y - r}})
}

// addJobs draws jobs as points at (x, objective), by state; what lies beyond the axis is drawn at its
// edge.
func addJobs(p *panel, v *sweepView, jobs []SweepJob, objective int, s objectiveScale, x func(SweepJob) (float64, bool)) {
	low, high := s.axisRange()
	p.yMin, p.yMax, p.log = low, high, s.log
	edge := dots{color: grey, shape: draw.PyramidGlyph{}, size: 3}
	inset := 0.025 * (high - low)
	for i := len(v.marks(len(jobs))) - 1; i >= 0; i-- { // done ones on top
		m := v.marks(len(jobs))[i]
		d := dots{color: m.color, shape: m.shape, size: m.size}
		for _, j := range slices.Backward(jobs) {
			u, ok := x(j)
			if !ok || !m.has(j) {
				continue
			}
			if _, out := s.clamp(j.Objectives[objective]); out {
				edge.x, edge.y = append(edge.x, u), append(edge.y, low+inset)
				if v.opt.Objectives[objective].Minimize {
					edge.y[len(edge.y)-1], edge.shape = high-inset, downGlyph{}
				}
				continue
			}
			d.x, d.y = append(d.x, u), append(d.y, j.Objectives[objective])
		}
		if len(d.x) > 0 {
			p.layers = append(p.layers, d)
			p.legend = slices.Insert(p.legend, 0, legendItem{m.text, dotSample(m.color, m.shape)})
		}
	}
	if len(edge.x) > 0 {
		p.layers = append(p.layers, edge)
		p.legend = append(p.legend, legendItem{"beyond the axis", dotSample(grey, edge.shape)})
	}
}

// addBest rings the best job, or those of the front.
func addBest(p *panel, v *sweepView, objective int, s objectiveScale, x func(SweepJob) (float64, bool)) {
	d := dots{color: black, shape: draw.RingGlyph{}, size: 5}
	for _, j := range v.highlighted() {
		if u, ok := x(j); ok {
			y, _ := s.clamp(j.Objectives[objective])
			d.x, d.y = append(d.x, u), append(d.y, y)
		}
	}
	if len(d.x) > 0 {
		p.layers = append(p.layers, d)
		p.legend = append(p.legend, legendItem{v.highlightWords(), dotSample(black, draw.RingGlyph{})})
	}
}
