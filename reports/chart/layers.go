package chart

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fulcrum/reports/record"
)

var tints = []color.NRGBA{{0xf1, 0xf5, 0xfa, 0xff}, {0xfb, 0xf5, 0xea, 0xff}, {0xec, 0xf6, 0xf1, 0xff}, {0xf7, 0xf0, 0xf6, 0xff}}

// phaseName is the colour of a phase's name, dark enough to be read through a band (WCAG 2.1, 1.4.3).
var phaseName = Black

// shading tints every phase, marks where the next begins and names it at the panel's top.
type shading struct{ spans []record.Span }

func (s shading) Plot(c draw.Canvas, p *plot.Plot) {
	for i, span := range s.spans {
		left, right := c.X(Clamp01(p.X.Norm(span.From))), c.X(Clamp01(p.X.Norm(span.To)))
		if right <= left {
			continue
		}
		c.FillPolygon(tints[i%len(tints)], Rectangle(left, c.Min.Y, right, c.Max.Y))
		if i > 0 && left > c.Min.X {
			c.StrokeLine2(draw.LineStyle{Color: Faint(Grey, 0.6), Width: 0.5, Dashes: []vg.Length{2, 2}}, left, c.Min.Y, left, c.Max.Y)
		}
		style := TextStyle(8.5, false, phaseName)
		if style.Width(span.Name)+6 < right-left {
			c.FillText(style, vg.Point{X: left + 4, Y: c.Max.Y - 10}, span.Name)
		}
	}
}

func Rectangle(x0, y0, x1, y1 vg.Length) []vg.Point {
	return []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
}

func Clamp01(x float64) float64 { return min(max(x, 0), 1) }

type grid struct{}

func (grid) Plot(c draw.Canvas, p *plot.Plot) {
	for _, tick := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		y := c.Y(p.Y.Norm(tick.Value))
		c.StrokeLine2(draw.LineStyle{Color: lightGrey, Width: 0.4}, c.Min.X, y, c.Max.X, y)
	}
}

// Curve joins points with a line. Points that are not finite are left out.
type Curve struct {
	X, Y    []float64
	Style   draw.LineStyle
	StepsIn bool // hold a value until the next point
}

func Line(x, y []float64, c color.Color, width vg.Length) Curve {
	x, y = FinitePoints(x, y)
	return Curve{X: x, Y: y, Style: draw.LineStyle{Color: c, Width: width}}
}

func (l Curve) DataRange() (xmin, xmax, ymin, ymax float64) { return RangeOf(l.X, l.Y) }

func (l Curve) Plot(c draw.Canvas, p *plot.Plot) {
	var points []vg.Point
	for i := range l.X {
		point := vg.Point{X: c.X(p.X.Norm(l.X[i])), Y: c.Y(p.Y.Norm(l.Y[i]))}
		if l.StepsIn && i > 0 {
			points = append(points, vg.Point{X: point.X, Y: points[len(points)-1].Y})
		}
		points = append(points, point)
	}
	if len(points) == 1 { // one step: a short dash rather than nothing
		points = append(points, vg.Point{X: points[0].X + 3, Y: points[0].Y})
	}
	c.StrokeLines(l.Style, c.ClipLinesXY(points)...)
}

type Ribbon struct {
	X, Low, High []float64
	Color        color.Color
}

func (r Ribbon) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, _ = RangeOf(r.X, r.Low)
	_, _, _, ymax = RangeOf(r.X, r.High)
	return
}

func (r Ribbon) Plot(c draw.Canvas, p *plot.Plot) {
	var points []vg.Point
	for i := range r.X {
		points = append(points, vg.Point{X: c.X(p.X.Norm(r.X[i])), Y: c.Y(p.Y.Norm(r.High[i]))})
	}
	for i := len(r.X) - 1; i >= 0; i-- {
		points = append(points, vg.Point{X: c.X(p.X.Norm(r.X[i])), Y: c.Y(p.Y.Norm(r.Low[i]))})
	}
	if len(points) > 2 {
		c.FillPolygon(r.Color, c.ClipPolygonXY(points))
	}
}

// Dots mark single values: epochs, the initial policy, the best one.
type Dots struct {
	X, Y  []float64
	Color color.Color
	Shape draw.GlyphDrawer
	Size  vg.Length
}

func Points(x, y []float64, c color.Color) Dots {
	x, y = FinitePoints(x, y)
	return Dots{X: x, Y: y, Color: c, Shape: draw.CircleGlyph{}, Size: 2.6}
}

func (d Dots) DataRange() (xmin, xmax, ymin, ymax float64) { return RangeOf(d.X, d.Y) }

// Plot implements plot.Plotter. Dots on an edge are drawn whole.
func (d Dots) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.GlyphStyle{Color: d.Color, Radius: d.Size, Shape: d.Shape}
	for i := range d.X {
		at := vg.Point{X: c.X(p.X.Norm(d.X[i])), Y: c.Y(p.Y.Norm(d.Y[i]))}
		if c.Contains(at) {
			c.DrawGlyph(style, at)
		}
	}
}

// LevelOf draws a horizontal line, which the axis reaches.
type LevelOf struct {
	Y     float64
	Style draw.LineStyle
}

func (l LevelOf) DataRange() (xmin, xmax, ymin, ymax float64) {
	return math.Inf(1), math.Inf(-1), l.Y, l.Y
}

func (l LevelOf) Plot(c draw.Canvas, p *plot.Plot) {
	if at := p.Y.Norm(l.Y); at >= 0 && at <= 1 {
		c.StrokeLine2(l.Style, c.Min.X, c.Y(at), c.Max.X, c.Y(at))
	}
}

func Dashed(c color.Color) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: 1, Dashes: []vg.Length{4, 2.5}}
}

// FinitePoints drops points that cannot be drawn. A nil y, an absent column, has none.
func FinitePoints(x, y []float64) (fx, fy []float64) {
	for i := range y {
		if !math.IsNaN(y[i]) && !math.IsInf(y[i], 0) {
			fx, fy = append(fx, x[i]), append(fy, y[i])
		}
	}
	return fx, fy
}

func RangeOf(x, y []float64) (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, ymax = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for i := range x {
		xmin, xmax = min(xmin, x[i]), max(xmax, x[i])
		ymin, ymax = min(ymin, y[i]), max(ymax, y[i])
	}
	return
}

// Legend samples.

func LineSample(style draw.LineStyle) func(draw.Canvas, vg.Point, vg.Point) {
	return func(c draw.Canvas, from, to vg.Point) { c.StrokeLine2(style, from.X, from.Y, to.X, to.Y) }
}

func DotSample(color color.Color, shape draw.GlyphDrawer) func(draw.Canvas, vg.Point, vg.Point) {
	return func(c draw.Canvas, from, to vg.Point) {
		at := vg.Point{X: (from.X + to.X) / 2, Y: from.Y}
		c.DrawGlyph(draw.GlyphStyle{Color: color, Radius: 2.8, Shape: shape}, at)
	}
}

func AreaSample(color color.Color) func(draw.Canvas, vg.Point, vg.Point) {
	return func(c draw.Canvas, from, to vg.Point) {
		c.FillPolygon(color, Rectangle(from.X, from.Y-4, to.X, from.Y+4))
	}
}
