package sweepreport

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gonum.org/v1/plot"

	"fulcrum/reports/chart"
	"fulcrum/reports/page"
)

// maxPairs is how many pairs of objectives are drawn.
const maxPairs = 6

// frontFigure draws objectives against each other: a large panel for two, one for each pair of more.
func (v *View) frontFigure() *sweepFigure {
	n := len(v.opt.Objectives)
	f := &chart.Figure{Name: "pareto", Title: "Pareto front", Note: "Jobs that no other beats in one objective without losing in another."}
	f.Tall = 330
	if n > 2 {
		f.Tall = 220
	}
	clipped := ""
	for i := range n {
		for k := i + 1; k < n && len(f.Rows) < maxPairs; k++ {
			p, words := v.pairPanel(i, k, n == 2)
			clipped = cmp.Or(clipped, words)
			if len(f.Rows) > 0 {
				p.Legend = nil
			}
			f.Rows = append(f.Rows, []*chart.Panel{p})
		}
	}
	var better []string
	for _, o := range v.opt.Objectives {
		better = append(better, fmt.Sprintf("%s %s values", o.direction(), page.Plain(o.Name)))
	}
	caption := fmt.Sprintf("*Pareto front.* Better is towards %s. A front with a sharp corner has a natural choice there; a straight "+
		"one trades one objective for the other at a constant price.", strings.Join(better, " and "))
	if v.count(v.infeasible) > 0 {
		caption += " Crosses violate a constraint and cannot be on the front."
	}
	return &sweepFigure{f, "Pareto front", caption + clipped + v.sampleWords()}
}

// pairPanel draws objective k over objective i.
func (v *View) pairPanel(i, k int, only bool) (*chart.Panel, string) {
	a, b := v.opt.Objectives[i], v.opt.Objectives[k]
	sx, sy := v.scale(i), v.scale(k)
	p := &chart.Panel{}
	p.X, p.Y = a.label(500), b.label(chart.PanelHeight)
	axis := &sweepAxis{numeric: true, log: sx.log}
	place := func(x float64) float64 {
		x, _ = sx.clamp(x)
		if sx.log {
			x = math.Log10(x)
		}
		return x
	}
	p.XMin, p.XMax = sx.axisRange()
	if sx.log {
		p.XMin, p.XMax = math.Log10(p.XMin), math.Log10(p.XMax)
	}
	axis.low, axis.high, axis.stops = p.XMin, p.XMax, []float64{p.XMin, p.XMax}
	setTicks(p, axis, 560)
	x := func(j Job) (float64, bool) { return place(j.Objectives[i]), true }
	addJobs(p, v, v.drawnJobs(), k, sy, x)
	front := v.highlighted()
	slices.SortStableFunc(front, func(s, t Job) int { return cmp.Compare(s.Objectives[i], t.Objectives[i]) })
	var fx, fy []float64
	var names []string
	for _, j := range front {
		y, _ := sy.clamp(j.Objectives[k])
		fx, fy, names = append(fx, place(j.Objectives[i])), append(fy, y), append(names, fmt.Sprint(j.Number))
	}
	if len(fx) > 0 {
		if only {
			l := chart.Line(fx, fy, chart.Faint(chart.Black, 0.7), 1)
			// What a step of the front reaches is dominated by its better corner.
			l.StepsIn = true
			if !a.Minimize { // hold the value of the point to come
				l.X, l.Y = heldBack(fx, fy)
				l.StepsIn = false
			}
			p.Layers = append(p.Layers, l)
		}
		p.Layers = append(p.Layers, chart.Dots{X: fx, Y: fy, Color: chart.Black, Shape: draw.RingGlyph{}, Size: 4.5},
			numbers{fx, fy, names, !a.Minimize, !b.Minimize})
		p.Legend = append(p.Legend, chart.LegendItem{Text: "Pareto front, with job numbers",
			Draw: chart.DotSample(chart.Black, draw.RingGlyph{})})
	}
	return p, cmp.Or(sx.clippedWords(), sy.clippedWords())
}

// heldBack makes steps that change before the value: at each x the line jumps and then runs flat to
// the left.
func heldBack(x, y []float64) (sx, sy []float64) {
	for i := range x {
		if i > 0 {
			sx, sy = append(sx, x[i-1]), append(sy, y[i])
		}
		sx, sy = append(sx, x[i]), append(sy, y[i])
	}
	return
}

// numbers writes names beside points where there is room.
type numbers struct {
	x, y  []float64
	names []string
	right bool // better values lie to the right: names stand there first, off the line of the front
	up    bool
}

// Plot implements plot.Plotter.
func (n numbers) Plot(c draw.Canvas, p *plot.Plot) {
	style := chart.TextStyle(8.5, true, chart.Black)
	var taken []vg.Rectangle
	at := make([]vg.Point, len(n.x))
	for i := range n.x {
		at[i] = vg.Point{X: c.X(p.X.Norm(n.x[i])), Y: c.Y(p.Y.Norm(n.y[i]))}
		taken = append(taken, vg.Rectangle{Min: vg.Point{X: at[i].X - 5, Y: at[i].Y - 5}, Max: vg.Point{X: at[i].X + 5, Y: at[i].Y + 5}})
	}
	for i, name := range n.names {
		width := style.Width(name)
		sides, heights := []vg.Length{at[i].X - 6 - width, at[i].X + 6}, []vg.Length{at[i].Y - 11, at[i].Y + 4}
		if n.right {
			slices.Reverse(sides)
		}
		if n.up {
			slices.Reverse(heights)
		}
		for k := range 4 {
			from := vg.Point{X: sides[k%2], Y: heights[k/2]}
			box := vg.Rectangle{Min: from, Max: vg.Point{X: from.X + width, Y: from.Y + 8}}
			if box.Min.X < c.Min.X || box.Max.X > c.Max.X || box.Min.Y < c.Min.Y || box.Max.Y > c.Max.Y ||
				slices.ContainsFunc(taken, func(t vg.Rectangle) bool { return overlap(t, box) }) {
				continue
			}
			c.FillText(style, from, name)
			taken = append(taken, box)
			break
		}
	}
}

func overlap(a, b vg.Rectangle) bool {
	return a.Min.X < b.Max.X && b.Min.X < a.Max.X && a.Min.Y < b.Max.Y && b.Min.Y < a.Max.Y
}
