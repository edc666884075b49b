package runreport

import (
	"fmt"
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
	"math"

	"gonum.org/v1/plot/vg/draw"
)

// advantageFigure shows how advantages spread over time, and their histogram in the first and the last
// epoch of each phase that has them.
func advantageFigure(run *record.Run) *chart.Figure {
	spread := newPanel(run, "advantage")
	for _, s := range run.Steps {
		spread.AddSpread(s)
	}
	if spread.Blank() {
		return nil
	}
	spread.Layers = append(spread.Layers, chart.LevelOf{Y: 0, Style: chart.Dashed(chart.Grey), InRange: true})
	spread.Legend = []chart.LegendItem{
		{Text: "mean", Draw: chart.LineSample(draw.LineStyle{Color: chart.Blue, Width: 1.6})},
		{Text: "± standard deviation", Draw: chart.AreaSample(chart.Faint(chart.Blue, 0.25))},
		{Text: "largest absolute value", Draw: chart.LineSample(draw.LineStyle{Color: chart.Vermillion, Width: 1.1})},
	}
	spread.X = stepAxis
	f := &chart.Figure{Title: "Advantages of the " + run.Wording("candidates", "completions") + " used",
		Note: "After the curriculum. With the group as baseline, the best few of a group are mostly above 0.", Rows: [][]*chart.Panel{{spread}}}
	var histograms []*chart.Panel
	for _, s := range run.Steps {
		if p := histogramPanel(s); p != nil {
			histograms = append(histograms, p)
		}
	}
	if len(histograms) > 0 {
		histograms[0].Y = "share of " + run.Wording("candidates", "completions")
		f.Rows = append(f.Rows, histograms)
	}
	return f.Crop(run)
}

// histogramPanel compares the first and the last epoch of a phase, nil without adv_hist.
func histogramPanel(s *record.Steps) *chart.Panel {
	lists := s.Lists["adv_hist"]
	if lists == nil {
		return nil
	}
	first, last := s.Epoch[0], s.Epoch[len(s.Epoch)-1]
	p := &chart.Panel{Head: s.Phase, X: "advantage", YMin: 0, YMax: math.NaN(), Share: true, XMin: -5, XMax: 5}
	for _, of := range []struct {
		epoch int
		color chart.Colour
	}{{first, chart.Orange}, {last, chart.Blue}} {
		shares := histogram(s, lists, of.epoch)
		if shares == nil || of.epoch == first && first == last && of.color == chart.Orange {
			continue
		}
		edges := record.AdvantageEdges(len(shares))
		l := chart.Line(edges, append(shares, shares[len(shares)-1]), of.color, 1.5)
		l.StepsIn = true
		p.Layers = append(p.Layers, l)
		p.Legend = append(p.Legend, chart.LegendItem{Text: fmt.Sprintf("epoch %d", of.epoch),
			Draw: chart.LineSample(draw.LineStyle{Color: of.color, Width: 1.6})})
	}
	if p.Blank() {
		return nil
	}
	return p
}

// histogram adds up an epoch's counts, as shares.
func histogram(s *record.Steps, lists [][]float64, epoch int) []float64 {
	var sum []float64
	total := 0.0
	for i, counts := range lists {
		if s.Epoch[i] != epoch || counts == nil || sum != nil && len(counts) != len(sum) {
			continue
		}
		if sum == nil {
			sum = make([]float64, len(counts))
		}
		for k, c := range counts {
			sum[k] += c
			total += c
		}
	}
	if total == 0 {
		return nil
	}
	for k := range sum {
		sum[k] /= total
	}
	return sum
}
