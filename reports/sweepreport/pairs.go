package sweepreport

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fulcrum/internal/stat"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
)

// cells are the means of an objective over two keys of a grid.
type cells struct {
	x, y    *sweepAxis
	values  [][][]float64 // [row of y][column of x]: of finished jobs
	scale   objectiveScale
	o       sweeps.Objective
	hasBest bool
	best    [2]int // row and column of the best mean, where no other cell shares it
}

const (
	maxCells   = 12 // values of a key in a table of cells
	cellHeight = 34 * vg.Length(1)
	cellWidth  = 96 * vg.Length(1) // at most
)

// cellsFigure shows the mean objective for every pair of values of the two grid keys that explain most:
// how they work together. Nil where there are no two such keys, or most pairs were not run.
func (v *View) cellsFigure() *sweepFigure {
	x, y := v.gridPair()
	if x == nil {
		return nil
	}
	c := &cells{x: x, y: y, o: v.Opt.Objectives[0]}
	if !c.fill(v) {
		return nil
	}
	bold := chart.TextStyle(13, true, chart.Black)
	title := fmt.Sprintf("%s by %s and %s", c.o.Name, x.dim.Key, y.dim.Key)
	if bold.Width(title) > chart.FigureWidth-30 {
		title = chart.Fitted(bold, c.o.Name, chart.FigureWidth-120) + " by two keys"
	}
	f := &chart.Figure{Name: "pairs", Title: title,
		Note: "Mean ± standard deviation over the finished jobs of a cell, and their number. Dark is good.",
		Body: &chart.Artwork{Height: vg.Length(len(y.stops))*cellHeight + 62, Draw: c.draw}}
	framed := "the best pair is framed"
	if !c.hasBest {
		framed = "several share the best"
	}
	caption := fmt.Sprintf("*Two keys together.* Mean %s for each pair of values of %s and %s; %s. Where the best "+
		"column is not the same in all rows, the keys depend on each other and must be tuned together; but differences of the size of ± "+
		"over √n are noise.", page.Plain(c.o.Name), page.InlineCode(x.dim.Key), page.InlineCode(y.dim.Key), framed)
	return &sweepFigure{f, "two keys together", caption}
}

// gridPair returns the axes of the two grid keys that explain most, or of the first two.
func (v *View) gridPair() (x, y *sweepAxis) {
	var axes []*sweepAxis
	rank := v.importanceOrder()
	for _, dim := range v.Dims {
		if a := newSweepAxis(dim, v.ByNumber); a.shared && len(a.stops) > 1 && len(a.stops) <= maxCells {
			axes = append(axes, a)
		}
	}
	slices.SortStableFunc(axes, func(a, b *sweepAxis) int { return rank[a.dim.Key] - rank[b.dim.Key] })
	if len(axes) < 2 {
		return nil, nil
	}
	return axes[0], axes[1]
}

// fill collects the jobs of each cell and says whether at least half of the cells have some.
func (c *cells) fill(v *View) bool {
	c.values = make([][][]float64, len(c.y.stops))
	for i := range c.values {
		c.values[i] = make([][]float64, len(c.x.stops))
	}
	filled := 0
	for _, j := range v.Jobs {
		u, okX := c.x.at(j.Params)
		w, okY := c.y.at(j.Params)
		if !okX || !okY || !v.Feasible(j) {
			continue
		}
		column, _ := slices.BinarySearch(c.x.stops, u)
		row, _ := slices.BinarySearch(c.y.stops, w)
		filled += stats.BoolInt(c.values[row][column] == nil)
		c.values[row][column] = append(c.values[row][column], j.Objectives[0])
	}
	if filled < 2 || 2*filled < len(c.x.stops)*len(c.y.stops) {
		return false
	}
	var means []float64
	most := 0.0
	for i, row := range c.values {
		for k, x := range row {
			if len(x) == 0 {
				continue
			}
			m := stat.Mean(x)
			means = append(means, m)
			if order := c.o.Compare(m, most); len(means) == 1 || order < 0 {
				most, c.hasBest, c.best = m, true, [2]int{i, k}
			} else if order == 0 {
				c.hasBest = false
			}
		}
	}
	c.scale = scaleOf(c.o, means, slices.Clone(means))
	return true
}

// draw draws the cells with the first value of y at the bottom, like an axis.
func (c *cells) draw(area draw.Canvas) {
	style := chart.TextStyle(9.5, false, chart.Black)
	left := vg.Length(40)
	for _, u := range c.y.stops {
		left = max(left, min(style.Width(c.label(c.y, u)), 130)+chart.MarginLeft+chart.LabelWidth+14)
	}
	width := min(cellWidth, (area.Max.X-area.Min.X-left-chart.MarginRight)/vg.Length(len(c.x.stops)))
	at := func(row, column int) vg.Point {
		return vg.Point{X: area.Min.X + left + vg.Length(column)*width, Y: area.Min.Y + 44 + vg.Length(row)*cellHeight}
	}
	for i, row := range c.values {
		for k, x := range row {
			c.drawCell(area, at(i, k), width, x)
		}
	}
	if c.hasBest {
		from := at(c.best[0], c.best[1])
		corners := chart.Rectangle(from.X, from.Y, from.X+width, from.Y+cellHeight)
		area.StrokeLines(draw.LineStyle{Color: chart.Vermillion, Width: 2}, append(corners, corners[0], corners[1]))
	}
	for i, u := range c.y.stops {
		text := chart.Fitted(style, c.label(c.y, u), 130)
		area.FillText(style, vg.Point{X: area.Min.X + left - 6 - style.Width(text), Y: at(i, 0).Y + cellHeight/2 - 3}, text)
	}
	for k, u := range c.x.stops {
		text := chart.Fitted(style, c.label(c.x, u), width-4)
		area.FillText(style, vg.Point{X: at(0, k).X + (width-style.Width(text))/2, Y: at(0, 0).Y - 14}, text)
	}
	name := chart.TextStyle(10.5, false, chart.Black)
	name.XAlign = draw.XCenter
	middle := at(0, 0).X + width*vg.Length(len(c.x.stops))/2
	area.FillText(name, vg.Point{X: middle, Y: at(0, 0).Y - 31}, chart.Fitted(name, c.x.dim.Key, 2*(middle-area.Min.X)))
	name.Rotation, name.YAlign = math.Pi/2, draw.YTop
	height := cellHeight * vg.Length(len(c.y.stops))
	area.FillText(name, vg.Point{X: area.Min.X + chart.MarginLeft, Y: at(0, 0).Y + height/2}, chart.Fitted(name, c.y.dim.Key, height+40))
}

// label is a value as it is written.
func (c *cells) label(a *sweepAxis, u float64) string {
	if !a.numeric {
		return a.levels[int(u)]
	}
	return a.gridText(u)
}

func (c *cells) drawCell(area draw.Canvas, from vg.Point, width vg.Length, x []float64) {
	fill, ink := color.NRGBA{0xf3, 0xf3, 0xf3, 0xff}, color.NRGBA{0x66, 0x66, 0x66, 0xff}
	lines := []string{"–", ""}
	if len(x) > 0 {
		t := c.scale.goodness(c.o, stat.Mean(x))
		fill, ink = chart.Ramp(t), color.NRGBA{0xff, 0xff, 0xff, 0xff}
		if t > 0.6 {
			ink = chart.Black
		}
		lines = []string{page.Sig(stat.Mean(x), 4), fmt.Sprintf("n = %d", len(x))}
		if len(x) > 1 {
			lines[1] = fmt.Sprintf("± %s  n = %d", page.Sig(stat.SD(x), 2), len(x))
		}
	}
	area.FillPolygon(fill, chart.Rectangle(from.X+0.5, from.Y+0.5, from.X+width-0.5, from.Y+cellHeight-0.5))
	for i, size := range []vg.Length{10, 8} {
		style := chart.TextStyle(size, i == 0, ink)
		text := lines[i]
		if style.Width(text) > width-4 {
			if i == 1 {
				continue
			}
			style = chart.TextStyle(7.5, false, ink)
		}
		area.FillText(style, vg.Point{X: from.X + (width-style.Width(text))/2, Y: from.Y + cellHeight - 15 - 12*vg.Length(i)}, text)
	}
}
