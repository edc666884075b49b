package sweepreport

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fulcrum/internal/list"
	"fulcrum/reports/arms"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// Difference is a comparison under the name of what it is of.
type Difference struct {
	Name string
	*arms.ArmComparison
}

// DifferencesFigure tells the differences of arms from the first by what they are judged by; nil where there are none.
func DifferencesFigure(wide vg.Length, seeded []arms.ComparedArm) *chart.Figure {
	split, metric, ok := arms.Judged(seeded)
	if !ok {
		return nil
	}
	var shown []Difference
	rows, _ := arms.ToldOf(seeded, split, metric)
	rows = list.Filter(rows, func(r arms.Told) bool { return len(r.QueryIDs) > 0 })
	for _, r := range rows {
		if r.Difference != nil {
			shown = append(shown, Difference{r.Name, r.Difference})
		}
	}
	f := forestOf(wide, shown, "difference in "+results.MetricName(metric)+" on "+split)
	if f == nil {
		return nil
	}
	if n := len(seeded) - 1 - len(shown); n > 0 {
		f.Omits = page.Plural(n, "setting") + " that cannot be compared"
	}
	f.Name, f.Title = "differences", page.Capital(results.MetricName(metric))+": differences with 95% intervals"
	p := f.Rows[0][0]
	p.Legend = append([]chart.LegendItem{{Text: "minus " + rows[0].Name}}, p.Legend...)
	return f
}

// answersFigure shows every question's difference with its interval.
func (v *View) answersFigure() *sweepFigure {
	var shown []Difference
	for i, a := range v.answers {
		if a.c != nil {
			shown = append(shown, Difference{fmt.Sprintf("%d  %s − %s", i+1, a.what, a.against), a.c})
		}
	}
	f := forestOf(v.wide, shown, "difference")
	if f == nil {
		return nil
	}
	f.Name, f.Title = "answers", "Answers: mean differences with 95% intervals"
	corrections := []string{"for the number of questions"}
	if v.Opt.Ask != nil {
		corrections[0] = "for its stage"
		if len(shown) > 1 {
			corrections = append(corrections, "for the number of arms")
		}
	}
	f.Note = "Right of 0 the first of the two is ahead. An interval without 0 that is grey fails the correction " +
		page.Joined(corrections) + "."
	return &sweepFigure{f, "differences with intervals, by question",
		"*Answers.* Differences and 95% intervals by question."}
}

// forestOf draws differences with their intervals below each other; nil where there are none.
func forestOf(wide vg.Length, shown []Difference, x string) *chart.Figure {
	if len(shown) == 0 {
		return nil
	}
	drawn, text := forest{shown, oneLine}, chart.TextStyle(9.5, false, chart.Black)
	if slices.ContainsFunc(shown, func(d Difference) bool { return text.Width(d.Name)+text.Width(d.Gain()) > chart.LayoutWidth(wide)-60 }) {
		drawn.row = twoLines
	}
	low, high, _, _ := drawn.DataRange()
	low, high = chart.AirRange(low, high)
	p := &chart.Panel{X: x, XMin: low, XMax: high, YMax: float64(len(shown)), YTicks: fixedTicks(nil), Layers: []plot.Plotter{drawn}}
	for _, verdict := range []stats.Verdict{stats.Better, stats.Worse, stats.NotSeparable} {
		if slices.ContainsFunc(shown, func(d Difference) bool { return d.Verdict == verdict }) {
			p.Legend = append(p.Legend, chart.LegendItem{Text: string(verdict), Draw: chart.LineSample(intervalStyle(verdict))})
		}
	}
	if slices.ContainsFunc(shown, Difference.seeded) {
		p.Legend = append(p.Legend, chart.LegendItem{Text: "single seeds", Draw: chart.DotSample(chart.Grey, draw.CircleGlyph{})})
	}
	return &chart.Figure{Rows: [][]*chart.Panel{{p}}, Tall: 40 + drawn.row*vg.Length(len(shown))}
}

// seeded says that single seeds are drawn.
func (d Difference) seeded() bool { return len(d.PerSeed) > 1 }

func intervalStyle(v stats.Verdict) draw.LineStyle {
	return draw.LineStyle{Width: 1.4, Color: map[stats.Verdict]chart.Colour{stats.Better: chart.Blue, stats.Worse: chart.Vermillion,
		stats.NotSeparable: chart.Grey}[v]}
}

// forest draws each difference under its name and numbers, with single seeds below the line.
type forest struct {
	shown []Difference
	row   vg.Length // oneLine or twoLines
}

// The height of a row with its name beside its numbers, or above them.
const (
	oneLine  = 26 * vg.Length(1)
	twoLines = 38 * vg.Length(1)
)

// DataRange has 0, the intervals and the single seeds in it.
func (f forest) DataRange() (xmin, xmax, ymin, ymax float64) {
	for _, d := range f.shown {
		xmin, xmax = math.Min(xmin, d.Interval.Low), math.Max(xmax, d.Interval.High)
		for _, x := range d.PerSeed {
			xmin, xmax = math.Min(xmin, x), math.Max(xmax, x)
		}
	}
	return xmin, xmax, 0, float64(len(f.shown))
}

func (f forest) Plot(c draw.Canvas, p *plot.Plot) {
	at := func(x float64) vg.Length { return c.X(p.X.Norm(x)) }
	c.StrokeLine2(draw.LineStyle{Color: chart.Grey, Width: 0.6, Dashes: []vg.Length{2, 2}}, at(0), c.Min.Y, at(0), c.Max.Y)
	for i, d := range f.shown {
		top := c.Y(p.Y.Norm(float64(len(f.shown) - i)))
		y := top + 6 - f.row
		style := intervalStyle(d.Verdict)
		c.StrokeLine2(style, at(d.Interval.Low), y, at(d.Interval.High), y)
		for _, end := range []float64{d.Interval.Low, d.Interval.High} {
			c.StrokeLine2(style, at(end), y-3.5, at(end), y+3.5)
		}
		c.DrawGlyph(draw.GlyphStyle{Color: style.Color, Radius: 3, Shape: draw.CircleGlyph{}}, vg.Point{X: at(d.Mean), Y: y})
		for s := 0; d.seeded() && s < len(d.PerSeed); s++ {
			c.DrawGlyph(draw.GlyphStyle{Color: chart.Grey, Radius: 1.4, Shape: draw.CircleGlyph{}}, vg.Point{X: at(d.PerSeed[s]), Y: y - 4})
		}
		text, gain := chart.TextStyle(9.5, false, chart.Black), d.Gain()
		room := c.Max.X - c.Min.X - 8
		if f.row == oneLine {
			room -= text.Width(gain) + 8
		}
		c.FillPolygon(color.White, chart.Rectangle(c.Min.X+4, y+5, c.Max.X, top-3))
		c.FillText(text, vg.Point{X: c.Max.X - text.Width(gain), Y: y + 7}, gain)
		c.FillText(text, vg.Point{X: c.Min.X + 4, Y: top - 13}, fitted(text, d.Name, room))
	}
}
