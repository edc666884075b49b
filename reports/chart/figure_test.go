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
	for _, c := range []color.NRGBA{Orange, Green, Vermillion, Purple, Blue, Grey, {0xff, 0xff, 0xff, 0xff}} {
		got := legible(c).(color.NRGBA)
		if ratio := contrastOnWhite(got); ratio < 4.5 {
			t.Errorf("%v becomes %v with a contrast of %.2f:1", c, got, ratio)
		}
		if contrastOnWhite(c) >= 4.5 && got != c {
			t.Errorf("%v was legible and became %v", c, got)
		}
	}
}
