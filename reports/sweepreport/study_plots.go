package sweepreport

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fulcrum/reports/arms"
	"fulcrum/reports/chart"
	"fulcrum/reports/stats"
)

// fence is a difference with its interval, one for each place on the horizontal axis, with the single seeds beside it.
type fence struct {
	x, mean, low, high []float64
	colors             []chart.Colour
	seeds              chart.Dots
	ticks              []plot.Tick
}

func (f fence) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, _ = chart.RangeOf(f.x, f.low)
	_, _, _, ymax = chart.RangeOf(f.x, f.high)
	return
}

func (f fence) Plot(c draw.Canvas, p *plot.Plot) {
	for i := range f.x {
		at := func(y float64) vg.Point { return vg.Point{X: c.X(p.X.Norm(f.x[i])), Y: c.Y(p.Y.Norm(y))} }
		low, high, middle := at(f.low[i]), at(f.high[i]), at(f.mean[i])
		style := draw.LineStyle{Color: f.colors[i], Width: 1.4}
		c.StrokeLine2(style, low.X, low.Y, high.X, high.Y)
		for _, end := range []vg.Point{low, high} {
			c.StrokeLine2(style, end.X-3.5, end.Y, end.X+3.5, end.Y)
		}
		c.DrawGlyph(draw.GlyphStyle{Color: f.colors[i], Radius: 3.4, Shape: draw.CircleGlyph{}}, middle)
	}
}

// add draws a comparison at x, with its seeds a little to the right.
func (f *fence) add(x float64, c *arms.ArmComparison, color chart.Colour) {
	const aside = 0.18
	f.x, f.mean, f.colors = append(f.x, x), append(f.mean, c.Mean), append(f.colors, color)
	f.low, f.high = append(f.low, c.Interval.Low), append(f.high, c.Interval.High)
	for _, y := range c.PerSeed {
		f.seeds.X, f.seeds.Y = append(f.seeds.X, x+aside), append(f.seeds.Y, y)
	}
}

// panel lays out the comparisons over a line at 0; nil where there are none.
func (f *fence) panel(y string) *chart.Panel {
	if len(f.x) == 0 {
		return nil
	}
	f.seeds.Color, f.seeds.Shape, f.seeds.Size = chart.Faint(chart.Grey, 0.7), draw.CircleGlyph{}, 1.6
	zero := chart.LevelOf{Y: 0, Style: draw.LineStyle{Color: chart.Black, Width: 0.8}}
	return &chart.Panel{Y: y, YMin: math.NaN(), YMax: math.NaN(), XMin: 0.4, XMax: float64(len(f.ticks)) + 0.6,
		XTicks: fixedTicks(f.ticks), Layers: []plot.Plotter{zero, f.seeds, *f}}
}

func fenceSample(color chart.Colour) func(draw.Canvas, vg.Point, vg.Point) {
	return func(c draw.Canvas, from, to vg.Point) {
		x := (from.X + to.X) / 2
		c.StrokeLine2(draw.LineStyle{Color: color, Width: 1.4}, x, from.Y-5, x, from.Y+5)
		c.DrawGlyph(draw.GlyphStyle{Color: color, Radius: 2.8, Shape: draw.CircleGlyph{}}, vg.Point{X: x, Y: from.Y})
	}
}

func verdictColor(v stats.Verdict) chart.Colour {
	switch v {
	case stats.Better:
		return chart.Blue
	case stats.Worse:
		return chart.Vermillion
	}
	return chart.Grey
}

// answersFigure shows every question's difference with its interval.
func (v *View) answersFigure() *sweepFigure {
	var shown fence
	for i, a := range v.answers {
		x := float64(i + 1)
		shown.ticks = append(shown.ticks, plot.Tick{Value: x, Label: fmt.Sprint(i + 1)})
		if a.c == nil {
			continue
		}
		shown.add(x, a.c, verdictColor(a.c.Verdict))
	}
	p := shown.panel("difference")
	if p == nil {
		return nil
	}
	p.X = "question"
	p.Legend = []chart.LegendItem{{Text: "better", Draw: fenceSample(chart.Blue)}, {Text: "worse", Draw: fenceSample(chart.Vermillion)},
		{Text: "open", Draw: fenceSample(chart.Grey)}, {Text: "single seeds", Draw: chart.DotSample(chart.Grey, draw.CircleGlyph{})}}
	f := &chart.Figure{Name: "answers", Title: "Answers: mean differences with 95% intervals",
		Note: "By number of the question. Above 0 the first of the two is ahead. An interval without 0 that is still open fails the " +
			"correction for the number of questions.", Rows: [][]*chart.Panel{{p}}, Tall: 220}
	return &sweepFigure{f, "differences with intervals, by question",
		"*Answers.* Differences and 95% intervals by question number; small dots are single seeds."}
}
