package reports

import (
	"fmt"
	"math"

	"gonum.org/v1/plot/vg/draw"
)

// advantageFigure shows how advantages spread over time, and their histogram in the first and the last
// epoch of each phase that has them.
func advantageFigure(run *Run) *figure {
	spread := newPanel(run, "advantage")
	for _, s := range run.Steps {
		spread.addSpread(s)
	}
	if spread.blank() {
		return nil
	}
	spread.layers = append(spread.layers, level{y: 0, style: dashed(grey), inRange: true})
	spread.legend = []legendItem{
		{"mean", lineSample(draw.LineStyle{Color: blue, Width: 1.6})},
		{"± standard deviation", areaSample(faint(blue, 0.25))},
		{"largest absolute value", lineSample(draw.LineStyle{Color: vermillion, Width: 1.1})},
	}
	spread.x = stepAxis
	f := &figure{title: "Advantages of the " + run.wording("candidates", "completions") + " used", note: "After the curriculum. With the group as baseline, the best few of a group are mostly above 0.", rows: [][]*panel{{spread}}}
	var histograms []*panel
	for _, s := range run.Steps {
		if p := histogramPanel(s); p != nil {
			histograms = append(histograms, p)
		}
	}
	if len(histograms) > 0 {
		histograms[0].y = "share of " + run.wording("candidates", "completions")
		f.rows = append(f.rows, histograms)
	}
	return f.crop(run)
}

// histogramPanel compares the first and the last epoch of a phase, nil without adv_hist.
func histogramPanel(s *Steps) *panel {
	lists := s.lists["adv_hist"]
	if lists == nil {
		return nil
	}
	first, last := s.Epoch[0], s.Epoch[len(s.Epoch)-1]
	p := &panel{head: s.Phase, x: "advantage", yMin: 0, yMax: math.NaN(), share: true, xMin: -5, xMax: 5}
	for _, of := range []struct {
		epoch int
		color colour
	}{{first, orange}, {last, blue}} {
		shares := histogram(s, lists, of.epoch)
		if shares == nil || of.epoch == first && first == last && of.color == orange {
			continue
		}
		edges := advantageEdges(len(shares))
		l := line(edges, append(shares, shares[len(shares)-1]), of.color, 1.5)
		l.steps = true
		p.layers = append(p.layers, l)
		p.legend = append(p.legend, legendItem{fmt.Sprintf("epoch %d", of.epoch), lineSample(draw.LineStyle{Color: of.color, Width: 1.6})})
	}
	if p.blank() {
		return nil
	}
	return p
}

// histogram adds up an epoch's counts, as shares.
func histogram(s *Steps, lists [][]float64, epoch int) []float64 {
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
