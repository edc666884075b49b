package sweepreport

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg/draw"

	"fulcrum/internal/list"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/sweeps"
)

// maxPairs is how many pairs of objectives are drawn.
const maxPairs = 6

// frontFigure draws objectives against each other: a large panel for two, one for each pair of more.
func (v *View) frontFigure() *sweepFigure {
	n := len(v.Opt.Objectives)
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
	better := list.Map(v.Opt.Objectives, func(o sweeps.Objective) string {
		return fmt.Sprintf("%s %s values", o.Direction(), page.Plain(o.Name))
	})
	caption := fmt.Sprintf("*Pareto front.* Better is towards %s. A front with a sharp corner has a natural choice there; a straight "+
		"one trades one objective for the other at a constant price.", strings.Join(better, " and "))
	if v.Count(v.Infeasible) > 0 {
		caption += " Crosses violate a constraint and cannot be on the front."
	}
	return &sweepFigure{f, "Pareto front", caption + clipped + v.sampleWords()}
}

// pairPanel draws objective k over objective i.
func (v *View) pairPanel(i, k int, only bool) (*chart.Panel, string) {
	a, b := v.Opt.Objectives[i], v.Opt.Objectives[k]
	sx, sy := v.scale(i), v.scale(k)
	p := &chart.Panel{}
	p.X, p.Y = objectiveLabel(a, 500), objectiveLabel(b, chart.PanelHeight)
	place := func(x float64) float64 {
		x, _ = sx.clamp(x)
		if sx.log {
			x = math.Log10(x)
		}
		return x
	}
	axis := sx.axis(sx.axisRange())
	p.XMin, p.XMax = axis.low, axis.high
	setTicks(p, axis, 560)
	x := func(j sweeps.Job) (float64, bool) { return place(j.Objectives[i]), true }
	addJobs(p, v, v.drawnJobs(), k, sy, x)
	front := v.highlighted()
	slices.SortStableFunc(front, func(s, t sweeps.Job) int { return cmp.Compare(s.Objectives[i], t.Objectives[i]) })
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
			pointNames{X: fx, Y: fy, Names: names, Right: !a.Minimize, Up: !b.Minimize})
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
