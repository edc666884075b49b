package chart

import (
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
