package sweepreport

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fulcrum/reports/chart"
)

// pointNames writes names beside points where there is room.
type pointNames struct {
	X, Y  []float64
	Names []string
	Right bool // they stand to the right first
	Up    bool // above first
}

func (n pointNames) Plot(c draw.Canvas, p *plot.Plot) {
	style := chart.TextStyle(8.5, true, chart.Black)
	var taken []vg.Rectangle
	at := make([]vg.Point, len(n.X))
	for i := range n.X {
		at[i] = vg.Point{X: c.X(p.X.Norm(n.X[i])), Y: c.Y(p.Y.Norm(n.Y[i]))}
		taken = append(taken, vg.Rectangle{Min: vg.Point{X: at[i].X - 5, Y: at[i].Y - 5}, Max: vg.Point{X: at[i].X + 5, Y: at[i].Y + 5}})
	}
	for i, name := range n.Names {
		width := style.Width(name)
		sides, heights := []vg.Length{at[i].X - 6 - width, at[i].X + 6}, []vg.Length{at[i].Y - 11, at[i].Y + 4}
		if n.Right {
			slices.Reverse(sides)
		}
		if n.Up {
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

// diamond is a filled square on its corner.
type diamond struct{}

func (diamond) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := style.Radius * 1.3
	c.FillPolygon(style.Color, []vg.Point{{X: at.X - r, Y: at.Y}, {X: at.X, Y: at.Y + r}, {X: at.X + r, Y: at.Y}, {X: at.X, Y: at.Y - r}})
}
