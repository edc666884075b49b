package sweepreport

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

type downGlyph struct{}

func (downGlyph) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := style.Radius
	c.FillPolygon(style.Color, []vg.Point{{X: at.X - r, Y: at.Y + 0.7*r}, {X: at.X + r, Y: at.Y + 0.7*r}, {X: at.X, Y: at.Y - r}})
}

type fixedTicks []plot.Tick

func (t fixedTicks) Ticks(low, high float64) []plot.Tick {
	return slices.DeleteFunc(slices.Clone([]plot.Tick(t)), func(tick plot.Tick) bool { return tick.Value < low || tick.Value > high })
}

// fitted cuts text in its middle until it is no wider than width.
func fitted(style draw.TextStyle, text string, width vg.Length) string {
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

// compactNumber writes small numbers with an exponent: 1e-3.
func compactNumber(x float64, digits int) string {
	if a := math.Abs(x); a > 0 && a < 0.0095 {
		text := strconv.FormatFloat(x, 'e', digits-1, 64)
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			text = strconv.FormatFloat(v, 'e', -1, 64) // without zeros behind the last digit
		}
		return exponent(minus(text))
	}
	return shortNumber(x, digits)
}

// shortNumber writes x as people write it in overrides: 0.001, 1e-5, 250000, 1e6.
func shortNumber(x float64, digits int) string {
	text := strconv.FormatFloat(x, 'g', digits, 64)
	if a := math.Abs(x); a >= 1 && a < 1e6 || x == 0 {
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			text = strconv.FormatFloat(v, 'f', -1, 64)
		}
	}
	return exponent(minus(text))
}

// exponent writes 1e-05 as 1e-5 and 1e+06 as 1e6.
func exponent(text string) string {
	mantissa, power, ok := strings.Cut(text, "e")
	if !ok {
		return text
	}
	sign := ""
	if strings.HasPrefix(power, "-") || strings.HasPrefix(power, "−") {
		sign = "-"
	}
	return mantissa + "e" + sign + strings.TrimLeft(power, "+-−0")
}

// minus writes the sign of a negative number as text does.
func minus(text string) string {
	if rest, ok := strings.CutPrefix(text, "-"); ok {
		return "−" + rest
	}
	return text
}
