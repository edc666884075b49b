package chart

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"

	"fulcrum/reports/record"
)

// A figure for a paper keeps its words within its width, at least 6 points high in a column of 75 mm, and names its lines.
func TestPaperFigures(t *testing.T) {
	words := regexp.MustCompile(`<text textLength="([\d.e+]+)"[^>]* x="([-\d.]+)"[^>]*font-size:([\d.]+)px[^>]*>([^<]*)<`)
	for _, width := range []float64{75, 85, 170} {
		for _, bare := range []bool{false, true} {
			f := longFigure()
			dir := t.TempDir()
			if err := (Paper{Width: width, NoTitle: bare}).Write(dir, []*Figure{f}); err != nil {
				t.Fatal(err)
			}
			svg, err := os.ReadFile(filepath.Join(dir, "long.svg"))
			if err != nil {
				t.Fatal(err)
			}
			all := words.FindAllStringSubmatch(string(svg), -1)
			text := ""
			for _, m := range all {
				long, _ := strconv.ParseFloat(m[1], 64)
				x, _ := strconv.ParseFloat(m[2], 64)
				size, _ := strconv.ParseFloat(m[3], 64)
				if x < 0 || x+long > float64(f.width())+0.5 {
					t.Errorf("%g mm: %q reaches from %g to %g, the figure to %g", width, m[4], x, x+long, float64(f.width()))
				}
				if points := size * f.scale(); points < 6 {
					t.Errorf("%g mm: %q is %.2f points high", width, m[4], points)
				}
				text += m[4] + "\n"
			}
			for _, want := range []string{"a legend that is long, number 5", "the baseline 0.279", "rce"} {
				if !strings.Contains(text, want) {
					t.Errorf("%g mm: %q is not there, of %d texts:\n%s", width, want, len(all), text)
				}
			}
			if strings.Contains(text, "A title") == bare {
				t.Errorf("%g mm: title %v, want %v", width, !bare, bare)
			}
		}
	}
	if _, err := (Paper{Names: []string{"lang"}}).Choose([]*Figure{longFigure()}); err == nil ||
		err.Error() != `unknown figure "lang" (did you mean long?): want one of long` {
		t.Errorf("an unknown figure: %v", err)
	}
}

func longFigure() *Figure {
	p := &Panel{Head: "grpo", X: "step", Y: "reward", XMax: 10,
		YMin: math.NaN(), YMax: math.NaN(), Spans: []record.Span{{Name: "rce", To: 10}}}
	for i := range 6 {
		p.Legend = append(p.Legend, LegendItem{fmt.Sprintf("a legend that is long, number %d", i), LineSample(Dashed(Blue))})
	}
	p.Layers = append(p.Layers, Line([]float64{0, 10}, []float64{0.2, 0.3}, Blue, 1.6))
	p.Labels = []RightLabel{{0.279, "the baseline 0.279", Orange}}
	return &Figure{Name: "long", Title: "A title that is much longer than a column of a paper is wide, as some of ours are",
		Note: "a note", Right: 132 * vg.Length(1), Rows: [][]*Panel{{p}}}
}
