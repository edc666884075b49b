package chart

import (
	"bytes"
	"regexp"
	"strconv"
	"testing"

	"gonum.org/v1/plot/vg"
)

// A figure for a paper has its width, in both formats, and is the same every time.
func TestFigureForPaper(t *testing.T) {
	for _, mm := range []vg.Length{89, 180} {
		f := &Figure{Title: "τ → β ±", Rows: [][]*Panel{{{X: "step", Y: "KL β", XMax: 10, YMin: 0, YMax: 1}}}, Wide: mm * vg.Millimeter}
		pdf, err := f.Pdf()
		if err != nil {
			t.Fatal(err)
		}
		svg, err := f.Svg()
		if err != nil {
			t.Fatal(err)
		}
		want := (mm * vg.Millimeter).Points()
		for name, found := range map[string][][]byte{"pdf": regexp.MustCompile(`/MediaBox \[0 0 ([\d.]+) `).FindSubmatch(pdf),
			"svg": regexp.MustCompile(`<svg width="([\d.]+)pt"`).FindSubmatch(svg)} {
			if len(found) != 2 {
				t.Fatalf("the %s names no width: %.300s", name, svg)
			}
			if got, _ := strconv.ParseFloat(string(found[1]), 64); got < want-0.1 || got > want+0.1 {
				t.Errorf("%s: %g points wide, want %g", name, got, want)
			}
		}
		again, err := f.Pdf()
		if err != nil || !bytes.Equal(pdf, again) || bytes.Contains(pdf, []byte("/FontFile")) {
			t.Errorf("%g mm: another PDF the second time, or one with fonts (%v)", float64(mm), err)
		}
	}
}
