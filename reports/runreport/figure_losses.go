package runreport

import (
	"math"

	"fulcrum/reports/chart"
	"fulcrum/reports/record"

	"gonum.org/v1/plot/vg/draw"
)

// lossFigure has a column for each phase, since their losses are different quantities.
func lossFigure(run *record.Run) *chart.Figure {
	f := &chart.Figure{Title: "Losses", Note: "Each phase has its own loss and scale.\nThe validation loss is the same quantity in all " +
		"phases: weighted cross entropy of recorded " + run.Wording("candidates", "completions") + " at a fixed temperature."}
	var train, val []*chart.Panel
	hasVal := false
	for i, s := range run.Spans() {
		t := &chart.Panel{Head: s.Name, XMin: s.From, XMax: s.To, YMin: math.NaN(), YMax: math.NaN(),
			Spans: []record.Span{{Name: "", From: s.From, To: s.To}}}
		v := &chart.Panel{XMin: s.From, XMax: s.To, YMin: math.NaN(), YMax: math.NaN(), Spans: t.Spans}
		if steps := run.StepsOf(s.Name); steps != nil && t.AddStepsOf(steps, "loss", chart.Blue) {
			t.Legend = append(t.Legend, chart.LegendItem{Text: "training", Draw: chart.LineSample(draw.LineStyle{Color: chart.Blue, Width: 1.6})})
		}
		x, y := run.EpochSeries(s.Name, "val_loss")
		if len(x) > 0 {
			hasVal = true
			v.Layers = append(v.Layers, chart.Line(x, y, chart.Vermillion, 1.2), chart.Points(x, y, chart.Vermillion))
			v.Legend = append(v.Legend, chart.LegendItem{Text: "validation", Draw: chart.DotSample(chart.Vermillion, draw.CircleGlyph{})})
		}
		if i == 0 {
			t.Y, v.Y = "training loss", "validation loss"
		}
		if !t.Blank() {
			train, val = append(train, t), append(val, v)
		}
	}
	if len(train) == 0 {
		return nil
	}
	f.Rows = [][]*chart.Panel{train}
	if hasVal {
		low, high := chart.AirRange(chart.CurveRange(val...))
		for _, p := range val {
			p.YMin, p.YMax = low, high
		}
		f.Rows = append(f.Rows, val)
	}
	for _, p := range f.Rows[len(f.Rows)-1] {
		p.X = "step"
	}
	return f
}
