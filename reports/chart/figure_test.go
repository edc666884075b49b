package chart

import (
	"image/color"
	"strings"
	"testing"
)

// Words keep the width that the layout was made with, whatever font a reader has.
func TestWordsKeepTheirWidth(t *testing.T) {
	got := string(fixedWidths([]byte("<svg>\n<text x=\"1\" y=\"2\" transform=\"scale(1, " +
		"-1)\"\n\tstyle=\"font-weight:bold;font-size:10px;fill:#222222\">a &lt; b</text>\n<path d=\"M1,2\" />\n<text>odd</text>\n</svg>")))
	if !strings.Contains(got, `<text textLength="2`) || !strings.Contains(got, `lengthAdjust="spacingAndGlyphs" x="1" y="2"`) ||
		!strings.Contains(got, "<text>odd</text>\n</svg>") {
		t.Errorf("got %s", got)
	}
}

// Labels are legible on white whatever their line's colour, and keep it where it is dark enough.
func TestLabelsAreLegible(t *testing.T) {
	white := color.NRGBA{0xff, 0xff, 0xff, 0xff}
	for _, c := range []color.NRGBA{Orange, Green, Vermillion, Purple, Blue, Grey, {0xff, 0xff, 0xff, 0xff}} {
		got := legible(c).(color.NRGBA)
		if ratio := contrast(got, white); ratio < 4.5 {
			t.Errorf("%v becomes %v with a contrast of %.2f:1", c, got, ratio)
		}
		if contrast(c, white) >= 4.5 && got != c {
			t.Errorf("%v was legible and became %v", c, got)
		}
	}
}

// The name of a phase is legible on every tint, also where a band of any colour lies over it.
func TestPhaseNamesAreLegible(t *testing.T) {
	const alpha = 0.2
	for _, tint := range tints {
		for _, band := range []color.NRGBA{Blue, Vermillion, Green, Orange, Purple, Grey} {
			over := func(c color.NRGBA) color.NRGBA {
				mix := func(a, b uint8) uint8 { return uint8((1-alpha)*float64(a) + alpha*float64(b)) }
				return color.NRGBA{mix(c.R, band.R), mix(c.G, band.G), mix(c.B, band.B), 0xff}
			}
			if ratio := contrast(over(phaseName), over(tint)); ratio < 4.5 {
				t.Errorf("%v over %v, under a band of %v: contrast %.2f:1", phaseName, tint, band, ratio)
			}
		}
	}
}
