package chart

import (
	"fmt"
	"math"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"

	"fulcrum/reports/record"
)

// No two words of a figure touch, whatever its width, how many panels stand side by side and how long the numbers at their axes are, and
// each axis keeps some: their extents are measured as they are drawn.
func TestLabelsDoNotTouch(t *testing.T) {
	axes := map[string]func(p *Panel){
		"steps": func(p *Panel) {
			p.XMax, p.Spans = 198765, []record.Span{{Name: "rce", To: 80000}, {Name: "grpo", From: 80000, To: 198765}}
		},
		"later":  func(p *Panel) { p.XMin, p.XMax, p.XTicks = 998765, 1298765, LinearTicks{Integers: true} },
		"small":  func(p *Panel) { p.XMin, p.XMax = 0.0012345, 0.0012375 },
		"values": func(p *Panel) { p.XMin, p.XMax, p.XTicks = 0, 9, manyTicks{} },
		"log":    func(p *Panel) { p.XMax, p.Log = 10, true },
	}
	for _, width := range []float64{60, 75, 85, 120, 180} {
		for columns := 1; columns <= Columns(vg.Length(width)*vg.Millimeter); columns++ {
			for name, axis := range axes {
				f := &Figure{Name: "ticks", Title: "A title that is longer than a column of a paper, as some of ours are",
					Wide: vg.Length(width) * vg.Millimeter, Tall: 60}
				for range 2 {
					var row []*Panel
					for j := range columns {
						p := &Panel{X: "optimizer step of the run", XMax: 10, YMin: math.NaN(), YMax: math.NaN()}
						if axis(p); j == 0 {
							p.Y = "reward"
						}
						p.Layers = []plot.Plotter{Line([]float64{p.XMin, p.XMax}, []float64{0.00012, 0.31}, Blue, 1.6)}
						p.Legend = []LegendItem{{"training", LineSample(Dashed(Blue))}, {"validation", LineSample(Dashed(Blue))}}
						if columns == 1 {
							p.Legend[0].Text, p.Legend[1].Text = "schedule=[sft,rce,grpo] lr=0.0003", "schedule=[rce] selector=additive_attention"
						}
						row = append(row, p)
					}
					f.Rows = append(f.Rows, row)
				}
				words := wordsOf(t, f)
				for i, a := range words {
					for _, b := range words[:i] {
						if a.box.Min.X < b.box.Max.X && b.box.Min.X < a.box.Max.X && a.box.Min.Y < b.box.Max.Y && b.box.Min.Y < a.box.Max.Y {
							t.Errorf("%g mm, %d columns, %s: %q touches %q", width, columns, name, a.text, b.text)
						}
					}
				}
				if numbers := len(words) - 2*columns - len(f.titleLines()); numbers < 2*columns*4 {
					t.Errorf("%g mm, %d columns, %s: %d words are left", width, columns, name, numbers)
				}
			}
		}
	}
}

// manyTicks are a value every tenth.
type manyTicks struct{}

func (manyTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	for x := low; x <= high; x += 0.1 {
		ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprintf("%.4f", x)})
	}
	return ticks
}

type word struct {
	text string
	box  vg.Rectangle
}

// wordsOf are the words that stand level in a drawing of a figure, with the extents that they are drawn with.
func wordsOf(t *testing.T, f *Figure) (words []word) {
	t.Helper()
	var c recorder.Canvas
	f.draw(draw.NewCanvas(&c, f.width(), f.height()))
	level := true
	for _, action := range c.Actions {
		switch a := action.(type) {
		case *recorder.Push, *recorder.Pop:
			level = true
		case *recorder.Rotate:
			level = false
		case *recorder.FillString:
			style := draw.TextStyle{Font: a.Font, Handler: plot.DefaultTextHandler}
			width, height := style.Width(a.String), 0.7*a.Font.Size // of capitals and digits
			if level {
				words = append(words, word{a.String, vg.Rectangle{Min: a.Point, Max: vg.Point{X: a.Point.X + width, Y: a.Point.Y + height}}})
			}
		}
	}
	return words
}
