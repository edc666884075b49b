package reports

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// shading tints every phase, marks where the next begins and names it at the panel's top.
type shading struct{ spans []span }

// Plot implements plot.Plotter.
func (s shading) Plot(c draw.Canvas, p *plot.Plot) {
	tints := []color.NRGBA{{0xf1, 0xf5, 0xfa, 0xff}, {0xfb, 0xf5, 0xea, 0xff}, {0xec, 0xf6, 0xf1, 0xff}, {0xf7, 0xf0, 0xf6, 0xff}}
	for i, span := range s.spans {
		left, right := c.X(clamp01(p.X.Norm(span.from))), c.X(clamp01(p.X.Norm(span.to)))
		if right <= left {
			continue
		}
		c.FillPolygon(tints[i%len(tints)], rectangle(left, c.Min.Y, right, c.Max.Y))
		if i > 0 && left > c.Min.X {
			c.StrokeLine2(draw.LineStyle{Color: faint(grey, 0.6), Width: 0.5, Dashes: []vg.Length{2, 2}}, left, c.Min.Y, left, c.Max.Y)
		}
		style := textStyle(8.5, false, grey)
		if style.Width(span.name)+6 < right-left {
			c.FillText(style, vg.Point{X: left + 4, Y: c.Max.Y - 10}, span.name)
		}
	}
}

func rectangle(x0, y0, x1, y1 vg.Length) []vg.Point {
	return []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
}

func clamp01(x float64) float64 { return min(max(x, 0), 1) }

// grid draws a hair line at every labelled height.
type grid struct{}

// Plot implements plot.Plotter.
func (grid) Plot(c draw.Canvas, p *plot.Plot) {
	for _, tick := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		y := c.Y(p.Y.Norm(tick.Value))
		c.StrokeLine2(draw.LineStyle{Color: lightGrey, Width: 0.4}, c.Min.X, y, c.Max.X, y)
	}
}

// curve joins points with a line. Points that are not finite are left out.
type curve struct {
	x, y  []float64
	style draw.LineStyle
	steps bool // hold a value until the next point
}

func line(x, y []float64, c color.Color, width vg.Length) curve {
	x, y = finitePoints(x, y)
	return curve{x: x, y: y, style: draw.LineStyle{Color: c, Width: width}}
}

// DataRange implements plot.DataRanger.
func (l curve) DataRange() (xmin, xmax, ymin, ymax float64) { return rangeOf(l.x, l.y) }

// Plot implements plot.Plotter.
func (l curve) Plot(c draw.Canvas, p *plot.Plot) {
	var points []vg.Point
	for i := range l.x {
		point := vg.Point{X: c.X(p.X.Norm(l.x[i])), Y: c.Y(p.Y.Norm(l.y[i]))}
		if l.steps && i > 0 {
			points = append(points, vg.Point{X: point.X, Y: points[len(points)-1].Y})
		}
		points = append(points, point)
	}
	if len(points) == 1 { // one step: a short dash rather than nothing
		points = append(points, vg.Point{X: points[0].X + 3, Y: points[0].Y})
	}
	c.StrokeLines(l.style, c.ClipLinesXY(points)...)
}

// ribbon fills the area between two lines.
type ribbon struct {
	x, low, high []float64
	color        color.Color
}

// DataRange implements plot.DataRanger.
func (r ribbon) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, _ = rangeOf(r.x, r.low)
	_, _, _, ymax = rangeOf(r.x, r.high)
	return
}

// Plot implements plot.Plotter.
func (r ribbon) Plot(c draw.Canvas, p *plot.Plot) {
	var points []vg.Point
	for i := range r.x {
		points = append(points, vg.Point{X: c.X(p.X.Norm(r.x[i])), Y: c.Y(p.Y.Norm(r.high[i]))})
	}
	for i := len(r.x) - 1; i >= 0; i-- {
		points = append(points, vg.Point{X: c.X(p.X.Norm(r.x[i])), Y: c.Y(p.Y.Norm(r.low[i]))})
	}
	if len(points) > 2 {
		c.FillPolygon(r.color, c.ClipPolygonXY(points))
	}
}

// dots mark single values: epochs, the initial policy, the best one.
type dots struct {
	x, y  []float64
	color color.Color
	shape draw.GlyphDrawer
	size  vg.Length
}

func points(x, y []float64, c color.Color) dots {
	x, y = finitePoints(x, y)
	return dots{x: x, y: y, color: c, shape: draw.CircleGlyph{}, size: 2.6}
}

// DataRange implements plot.DataRanger.
func (d dots) DataRange() (xmin, xmax, ymin, ymax float64) { return rangeOf(d.x, d.y) }

// Plot implements plot.Plotter. Dots on an edge are drawn whole.
func (d dots) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.GlyphStyle{Color: d.color, Radius: d.size, Shape: d.shape}
	for i := range d.x {
		at := vg.Point{X: c.X(p.X.Norm(d.x[i])), Y: c.Y(p.Y.Norm(d.y[i]))}
		if c.Contains(at) {
			c.DrawGlyph(style, at)
		}
	}
}

// level is a horizontal line over part of the panel or all of it (from = to).
type level struct {
	y, from, to float64
	style       draw.LineStyle
	inRange     bool // the axis must reach it
}

// DataRange implements plot.DataRanger.
func (l level) DataRange() (xmin, xmax, ymin, ymax float64) {
	if l.inRange {
		return math.Inf(1), math.Inf(-1), l.y, l.y
	}
	return math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
}

// Plot implements plot.Plotter.
func (l level) Plot(c draw.Canvas, p *plot.Plot) {
	left, right := c.Min.X, c.Max.X
	if l.from < l.to {
		left, right = c.X(clamp01(p.X.Norm(l.from))), c.X(clamp01(p.X.Norm(l.to)))
	}
	if at := p.Y.Norm(l.y); at >= 0 && at <= 1 {
		c.StrokeLine2(l.style, left, c.Y(at), right, c.Y(at))
	}
}

func dashed(c color.Color) draw.LineStyle {
	return draw.LineStyle{Color: c, Width: 1, Dashes: []vg.Length{4, 2.5}}
}

// finitePoints drops points that cannot be drawn. A nil y, an absent column, has none.
func finitePoints(x, y []float64) (fx, fy []float64) {
	for i := range y {
		if !math.IsNaN(y[i]) && !math.IsInf(y[i], 0) {
			fx, fy = append(fx, x[i]), append(fy, y[i])
		}
	}
	return fx, fy
}

func rangeOf(x, y []float64) (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, ymax = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for i := range x {
		xmin, xmax = min(xmin, x[i]), max(xmax, x[i])
		ymin, ymax = min(ymin, y[i]), max(ymax, y[i])
	}
	return
}

// Legend samples.

func lineSample(style draw.LineStyle) func(draw.Canvas, vg.Point, vg.Point) {
	return func(c draw.Canvas, from, to vg.Point) { c.StrokeLine2(style, from.X, from.Y, to.X, to.Y) }
}

func dotSample(color color.Color, shape draw.GlyphDrawer) func(draw.Canvas, vg.Point, vg.Point) {
	return func(c draw.Canvas, from, to vg.Point) {
		at := vg.Point{X: (from.X + to.X) / 2, Y: from.Y}
		c.DrawGlyph(draw.GlyphStyle{Color: color, Radius: 2.8, Shape: shape}, at)
	}
}

func areaSample(color color.Color) func(draw.Canvas, vg.Point, vg.Point) {
	return func(c draw.Canvas, from, to vg.Point) {
		c.FillPolygon(color, rectangle(from.X, from.Y-4, to.X, from.Y+4))
	}
}
