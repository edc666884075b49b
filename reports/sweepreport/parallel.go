package sweepreport

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
)

// parallel draws every job as a line across an axis for each swept key and each objective (parallel
// coordinates, Inselberg 1985), coloured by the first objective.
type parallel struct {
	axes    []parallelAxis
	lines   []parallelLine // in drawing order
	legend  []chart.LegendItem
	colours objectiveScale
	name    string // of the objective that colours
	darkLow bool   // small values are good

	left, gap vg.Length // margin, distance of the axes
	head      vg.Length // of the names over the axes
	slanted   bool      // they are wider than the gaps
}

type parallelAxis struct {
	name      string
	shown     string // the name as it is drawn
	ticks     []plot.Tick
	low, high float64
	objective bool
}

type parallelLine struct {
	at    []float64 // position on each axis; NaN: none
	style draw.LineStyle
	under *draw.LineStyle // drawn below, to set it off
}

const (
	parallelHeight = 300 * vg.Length(1)
	parallelLegend = 22 * vg.Length(1)
	barWidth       = 9 * vg.Length(1)
)

// parallelFigure is the sweep in parallel coordinates, nil for less than three axes.
func (v *View) parallelFigure() *sweepFigure {
	dims := v.panelDims()
	if len(dims) == 0 || len(dims)+len(v.Opt.Objectives) < 3 { // one key against one objective is no more than a plot of points
		return nil
	}
	p := &parallel{colours: v.colourScale(), name: v.Opt.Objectives[0].Name, darkLow: v.Opt.Objectives[0].Minimize}
	var place []func(sweeps.Job) float64
	grids := false
	for _, dim := range dims {
		axis := newSweepAxis(dim, v.ByNumber)
		grids = grids || axis.shared
		low, high := axis.bounds()
		jitter := axis.jitter(high-low, parallelHeight)
		p.axes = append(p.axes, parallelAxis{name: dim.Key, ticks: axis.ticks(low, high), low: low, high: high})
		place = append(place, func(j sweeps.Job) float64 {
			u, ok := axis.at(j.Params)
			if !ok {
				return math.NaN()
			}
			return u + jitter*sideways(j.Number)
		})
	}
	for i := range v.Opt.Objectives {
		axis, of := v.objectiveAxis(i)
		p.axes, place = append(p.axes, axis), append(place, of)
	}
	p.layout()
	p.addLines(v, place)
	if len(p.lines) == 0 {
		return nil
	}
	best := "dark lines are good, light ones bad"
	f := &chart.Figure{Name: "parallel", Title: "All jobs at once",
		Note: "A line is a job: it crosses the axis of every swept key at its value. " + page.Capital(best) + ".",
		Body: &chart.Artwork{Height: parallelLegend + p.head + parallelHeight + 8, Draw: p.draw}}
	caption := fmt.Sprintf("*Parallel coordinates.* A line is a job; %s (colour is %s). Where the dark lines run through one place of "+
		"an axis, that key matters and that value is good; where they are spread over a whole axis, the key matters little.", best,
		page.Plain(p.name))
	if grids {
		caption += " Lines through one value of a grid are moved apart a little."
	}
	if len(dims) < len(v.Dims) {
		caption += fmt.Sprintf(" Of %d keys these are the %d that explain most.", len(v.Dims), len(dims))
	}
	if n := v.scale(0).clipped; n > 0 {
		caption += fmt.Sprintf(" %s far worse than the others end at the edge of the axis of %s.", page.Capital(page.Plural(n, "job")),
			page.Plain(p.name))
	}
	return &sweepFigure{f, "parallel coordinates", caption + v.sampleWords()}
}

// colourScale spans what is drawn in colour: the first objective of finished jobs that count.
func (v *View) colourScale() objectiveScale {
	var values []float64
	for _, j := range v.Jobs {
		if v.Feasible(j) {
			values = append(values, j.Objectives[0])
		}
	}
	if len(values) == 0 {
		return v.scale(0)
	}
	return scaleOf(v.Opt.Objectives[0], values, slices.Clone(values))
}

// objectiveAxis is the axis of an objective, and where a job crosses it.
func (v *View) objectiveAxis(i int) (parallelAxis, func(sweeps.Job) float64) {
	s := v.scale(i)
	a := s.axis(s.axisRange())
	axis := parallelAxis{name: v.Opt.Objectives[i].Name, objective: true, low: a.low, high: a.high}
	of := func(j sweeps.Job) float64 { y, _ := s.clamp(j.Objectives[i]); return y }
	if !s.log {
		axis.ticks = chart.LinearTicks{}.Ticks(a.low, a.high)
		return axis, of
	}
	axis.ticks = a.ticks(a.low, a.high)
	return axis, func(j sweeps.Job) float64 { return math.Log10(of(j)) }
}

// addLines makes the lines, the best on top, and the legend.
func (p *parallel) addLines(v *View, place []func(sweeps.Job) float64) {
	jobs := v.drawnJobs()
	strength, width := 0.85, vg.Length(1.1)
	switch {
	case len(jobs) > 300:
		strength, width = 0.45, 0.7
	case len(jobs) > 80:
		strength, width = 0.65, 0.9
	}
	front := len(v.Opt.Objectives) > 1
	if front {
		strength, width = 0.4, 0.7
	}
	top := map[int]bool{}
	for _, j := range v.highlighted() {
		top[j.Number] = true
	}
	var shown [3]bool // pruned or not sweeps.Ended, infeasible, highlighted
	slices.SortStableFunc(jobs, func(a, b sweeps.Job) int {
		return cmp.Compare(stats.BoolInt(top[b.Number]), stats.BoolInt(top[a.Number]))
	})
	for _, j := range slices.Backward(jobs) {
		l := parallelLine{at: make([]float64, len(place))}
		for i, of := range place {
			l.at[i] = of(j)
		}
		shade := p.colourOf(j.Objectives[0])
		switch {
		case top[j.Number]:
			shown[2] = true
			l.style = draw.LineStyle{Color: shade, Width: 2.2}
			if !front {
				l.under = &draw.LineStyle{Color: chart.Vermillion, Width: 5}
			}
		case v.Feasible(j):
			l.style = draw.LineStyle{Color: chart.Faint(shade, strength), Width: width}
		case v.Infeasible(j):
			shown[1] = true
			l.style = draw.LineStyle{Color: chart.Faint(chart.Grey, 0.6), Width: 0.7, Dashes: []vg.Length{3, 2}}
		default:
			shown[0] = true
			l.style = draw.LineStyle{Color: chart.Faint(chart.Grey, 0.35), Width: 0.6}
		}
		p.lines = append(p.lines, l)
	}
	if shown[2] {
		p.legend = append(p.legend, chart.LegendItem{Text: v.highlightWords(), Draw: func(c draw.Canvas, from, to vg.Point) {
			if !front {
				c.StrokeLine2(draw.LineStyle{Color: chart.Vermillion, Width: 5}, from.X, from.Y, to.X, to.Y)
			}
			c.StrokeLine2(draw.LineStyle{Color: chart.Ramp(0), Width: 2.2}, from.X, from.Y, to.X, to.Y)
		}})
	}
	if v.Count(v.Feasible) > 0 {
		p.legend = append(p.legend, chart.LegendItem{Text: "done",
			Draw: chart.LineSample(draw.LineStyle{Color: chart.Faint(chart.Ramp(0.45), strength), Width: width + 0.3})})
	}
	if shown[0] {
		p.legend = append(p.legend, chart.LegendItem{Text: "pruned, failed or not ended",
			Draw: chart.LineSample(draw.LineStyle{Color: chart.Faint(chart.Grey, 0.6), Width: 0.8})})
	}
	if shown[1] {
		p.legend = append(p.legend, chart.LegendItem{Text: "infeasible",
			Draw: chart.LineSample(draw.LineStyle{Color: chart.Grey, Width: 0.9, Dashes: []vg.Length{3, 2}})})
	}
}

// goodness is 0 for the best value of the objective and 1 for the worst.
func (p *parallel) goodness(y float64) float64 {
	low, high := p.colours.low, p.colours.high
	if p.colours.log {
		low, high, y = math.Log(low), math.Log(high), math.Log(max(y, math.SmallestNonzeroFloat64))
	}
	if high <= low {
		return 0
	}
	t := chart.Clamp01((y - low) / (high - low))
	if !p.darkLow {
		t = 1 - t
	}
	return t
}

func (p *parallel) colourOf(y float64) chart.Colour { return chart.Ramp(p.goodness(y)) }

const (
	parallelTilt  = math.Pi / 7
	parallelRight = 92 * vg.Length(1) // the colour bar's
)

func axisLabel() draw.TextStyle { return chart.TextStyle(8.5, false, chart.Black) }

func axisName() draw.TextStyle { return chart.TextStyle(9.5, true, chart.Black) }

// layout makes room: for the names of the axes above them, slanted where they do not fit side by side; for labels left of their axis;
// for the colour bar at the right.
func (p *parallel) layout() {
	style, last := axisName(), len(p.axes)-1
	p.left = 34
	for _, t := range p.axes[0].ticks {
		p.left = max(p.left, min(axisLabel().Width(t.Label), 110)+chart.MarginLeft+12)
	}
	p.left = max(p.left, min(style.Width(p.axes[0].name)/2+chart.MarginLeft, 90))
	p.gap = (chart.FigureWidth - p.left - parallelRight) / vg.Length(last)
	widest := vg.Length(0)
	for i, a := range p.axes {
		w := style.Width(a.name)
		if i > 0 && (w+style.Width(p.axes[i-1].name))/2+8 > p.gap || i == last && w/2 > 80 {
			p.slanted = true
		}
		room := parallelRight + p.gap*vg.Length(last-i) - 8
		p.axes[i].shown = chart.Fitted(style, a.name, min(150, room/vg.Length(math.Cos(parallelTilt))))
		widest = max(widest, style.Width(p.axes[i].shown))
	}
	p.head = 18
	if p.slanted {
		p.head = 12 + widest*vg.Length(math.Sin(parallelTilt)) + 6
	}
}

// draw draws it all into c.
func (p *parallel) draw(c draw.Canvas) {
	area := vg.Rectangle{Min: vg.Point{X: c.Min.X + p.left, Y: c.Min.Y + 8},
		Max: vg.Point{X: c.Max.X - parallelRight, Y: c.Max.Y - parallelLegend - p.head}}
	chart.DrawLegend(c, p.legend, c.Min.X+chart.MarginLeft+4, c.Max.Y-parallelLegend+9)
	y := func(i int, u float64) vg.Length {
		a := p.axes[i]
		return area.Min.Y + (area.Max.Y-area.Min.Y)*vg.Length(chart.Clamp01((u-a.low)/(a.high-a.low)))
	}
	x := func(i int) vg.Length { return area.Min.X + p.gap*vg.Length(i) }
	for _, l := range p.lines {
		p.drawLine(c, l, x, y)
	}
	for i, a := range p.axes {
		p.drawAxis(c, i, a, x(i), area, func(u float64) vg.Length { return y(i, u) })
	}
	p.drawBar(c, area)
}

// drawLine joins a job's values; a missing one breaks the line.
func (p *parallel) drawLine(c draw.Canvas, l parallelLine, x func(int) vg.Length, y func(int, float64) vg.Length) {
	var pieces [][]vg.Point
	open := false
	for i, u := range l.at {
		if math.IsNaN(u) {
			open = false
			continue
		}
		at := vg.Point{X: x(i), Y: y(i, u)}
		if !open {
			pieces = append(pieces, nil)
			open = true
		}
		pieces[len(pieces)-1] = append(pieces[len(pieces)-1], at)
	}
	for _, piece := range pieces {
		if len(piece) == 1 { // a value between two missing ones
			piece = []vg.Point{{X: piece[0].X - 4, Y: piece[0].Y}, {X: piece[0].X + 4, Y: piece[0].Y}}
		}
		if l.under != nil {
			c.StrokeLines(*l.under, piece)
		}
		c.StrokeLines(l.style, piece)
	}
}

func (p *parallel) drawAxis(c draw.Canvas, i int, a parallelAxis, x vg.Length, area vg.Rectangle, y func(float64) vg.Length) {
	width := vg.Length(0.9)
	if a.objective {
		width = 1.6
	}
	c.StrokeLine2(draw.LineStyle{Color: chart.Black, Width: width}, x, area.Min.Y, x, area.Max.Y)
	style := axisLabel()
	room := p.gap - 12
	if i == 0 {
		room = x - c.Min.X - chart.MarginLeft - 4
	}
	for _, t := range chart.Thinned(a.ticks, a.low, a.high, area.Max.Y-area.Min.Y, func(string) vg.Length { return 11 }) {
		at := y(t.Value)
		if t.Label == "" || t.Value < a.low || t.Value > a.high {
			continue
		}
		c.StrokeLine2(draw.LineStyle{Color: chart.Black, Width: 0.7}, x-3, at, x, at)
		text := t.Label
		if _, ok := numberOf(strings.ReplaceAll(text, ",", "")); !ok {
			text = chart.Fitted(style, text, room)
		} else if style.Width(text) > room+4 {
			continue // half a number misleads
		}
		w := style.Width(text)
		c.FillPolygon(color.NRGBA{0xff, 0xff, 0xff, 0xc8}, chart.Rectangle(x-6-w, at-4.5, x-4, at+5))
		c.FillText(style, vg.Point{X: x - 5 - w, Y: at - 3}, text)
	}
	name := axisName()
	if p.slanted {
		name.Rotation = parallelTilt
	} else {
		x = max(x-name.Width(a.shown)/2, c.Min.X+4)
	}
	c.FillText(name, vg.Point{X: x, Y: area.Max.Y + 7}, a.shown)
}

// drawBar draws the colours along the scale of the first objective.
func (p *parallel) drawBar(c draw.Canvas, area vg.Rectangle) {
	low, high := p.colours.low, p.colours.high
	if high <= low {
		return
	}
	axis := p.colours.axis(low, high)
	value := func(u float64) float64 { return u }
	if axis.log {
		value = func(u float64) float64 { return math.Pow(10, u) }
	}
	x := area.Max.X + 26
	bottom, top := area.Min.Y+(area.Max.Y-area.Min.Y)*0.15, area.Max.Y-(area.Max.Y-area.Min.Y)*0.15
	y := func(u float64) vg.Length {
		return bottom + (top-bottom)*vg.Length((u-axis.low)/(axis.high-axis.low))
	}
	const slices = 60
	for k := range slices {
		u := axis.low + (axis.high-axis.low)*(float64(k)+0.5)/slices
		from := bottom + (top-bottom)*vg.Length(k)/slices
		c.FillPolygon(p.colourOf(value(u)), chart.Rectangle(x, from, x+barWidth, from+(top-bottom)/slices+0.4))
	}
	style := axisLabel()
	ticks := axis.ticks(axis.low, axis.high)
	if !axis.log {
		ticks = chart.LinearTicks{}.Ticks(low, high)
	}
	for _, t := range chart.Thinned(ticks, axis.low, axis.high, top-bottom, func(string) vg.Length { return 11 }) {
		if t.Label == "" {
			continue
		}
		c.StrokeLine2(draw.LineStyle{Color: chart.Black, Width: 0.6}, x+barWidth, y(t.Value), x+barWidth+3, y(t.Value))
		c.FillText(style, vg.Point{X: x + barWidth + 5, Y: y(t.Value) - 3}, t.Label)
	}
	turned := chart.TextStyle(9, false, chart.Black)
	turned.Rotation, turned.XAlign, turned.YAlign = math.Pi/2, draw.XCenter, draw.YCenter
	c.FillText(turned, vg.Point{X: c.Max.X - 9, Y: (bottom + top) / 2}, chart.Fitted(turned, p.name, top-bottom+40))
}
