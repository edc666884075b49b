package chart

import (
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// DownGlyph is a filled triangle that points down.
type DownGlyph struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (DownGlyph) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := style.Radius
	c.FillPolygon(style.Color, []vg.Point{{X: at.X - r, Y: at.Y + 0.7*r}, {X: at.X + r, Y: at.Y + 0.7*r}, {X: at.X, Y: at.Y - r}})
}

// FixedTicks are ticks that were chosen before.
type FixedTicks []plot.Tick

// Ticks implements plot.Ticker.
func (t FixedTicks) Ticks(low, high float64) []plot.Tick {
	return slices.DeleteFunc(slices.Clone([]plot.Tick(t)), func(tick plot.Tick) bool { return tick.Value < low || tick.Value > high })
}

// Thinned drops labels until none touches another on an axis of this length. Evenly placed labels stay
// evenly placed; those of a grid's values are kept where they fit. size is the room that a label takes
// along the axis.
func Thinned(ticks []plot.Tick, low, high float64, length vg.Length, size func(string) vg.Length) []plot.Tick {
	for _, step := range steps(ticks) {
		out := slices.Clone(ticks)
		first := max(0, slices.IndexFunc(ticks, func(t plot.Tick) bool { return strings.HasPrefix(t.Label, "1") })) % step
		end, fits := vg.Length(math.Inf(-1)), true
		for i, t := range out {
			if i%step != first {
				out[i].Label = ""
				continue
			}
			at := length * vg.Length((t.Value-low)/(high-low))
			half := size(t.Label) / 2
			fits = fits && at-half >= end
			end = at + half
		}
		if fits {
			return out
		}
	}
	out := slices.Clone(ticks)
	end := vg.Length(math.Inf(-1))
	for i, t := range out {
		at := length * vg.Length((t.Value-low)/(high-low))
		half := size(t.Label) / 2
		if at-half < end {
			out[i].Label = ""
			continue
		}
		end = at + half
	}
	return out
}

// steps are the ways to leave out ticks: none, or all but every n-th where they are evenly placed, and
// decades where they are at 1, 2 and 5 times powers of ten.
func steps(ticks []plot.Tick) []int {
	if len(ticks) < 4 {
		return []int{1}
	}
	even, threes := true, true
	for i := 2; i < len(ticks); i++ {
		gap := func(i, n int) float64 { return ticks[i].Value - ticks[i-n].Value }
		even = even && math.Abs(gap(i, 1)-gap(1, 1)) < 1e-6*math.Abs(gap(1, 1))
		threes = threes && (i < 4 || math.Abs(gap(i, 3)-gap(3, 3)) < 1e-6*math.Abs(gap(3, 3)))
	}
	switch {
	case even:
		return []int{1, 2, 3, 4, 5}
	case threes:
		return []int{1, 3, 6}
	}
	return []int{1}
}

// Fitted cuts text in its middle until it is no wider than width.
func Fitted(style draw.TextStyle, text string, width vg.Length) string {
	if style.Width(text) <= width {
		return text
	}
	runes := []rune(text)
	for n := len(runes) - 1; n > 0; n-- {
		head := n / 2
		if short := string(runes[:head]) + "…" + string(runes[len(runes)-(n-head):]); style.Width(short) <= width {
			return short
		}
	}
	return "…"
}
