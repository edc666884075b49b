package chart

import (
	"math"

	"gonum.org/v1/plot/vg/draw"

	"fulcrum/reports/record"
)

// DrawnPoints is how many points of a curve are drawn at most: more would not be seen and make
// megabytes of SVG.
const DrawnPoints = 400

// Buckets averages a long series over equal runs of steps, with the extremes of each run. Points that
// are not finite are left out. A short series comes back as it is.
func Buckets(x, y []float64) (bx, mean, low, high []float64) {
	x, y = FinitePoints(x, y)
	size := (len(x) + DrawnPoints - 1) / DrawnPoints
	for i := 0; i < len(x); i += max(size, 1) {
		j := min(i+max(size, 1), len(x))
		var sx, sy float64
		lo, hi := math.Inf(1), math.Inf(-1)
		for k := i; k < j; k++ {
			sx, sy = sx+x[k], sy+y[k]
			lo, hi = min(lo, y[k]), max(hi, y[k])
		}
		n := float64(j - i)
		bx, mean, low, high = append(bx, sx/n), append(mean, sy/n), append(low, lo), append(high, hi)
	}
	return
}

// Smooth is a moving average over a twentieth of the series, one-sided at its ends.
func Smooth(y []float64) []float64 {
	half := len(y) / 40
	out := make([]float64, len(y))
	sums := make([]float64, len(y)+1)
	for i, v := range y {
		sums[i+1] = sums[i] + v
	}
	for i := range y {
		from, to := max(i-half, 0), min(i+half+1, len(y))
		out[i] = (sums[to] - sums[from]) / float64(to-from)
	}
	return out
}

// AddSteps draws a step metric of every phase that has it: single steps faint, their moving average
// bold. It reports whether there was any.
func (p *Panel) AddSteps(run *record.Run, name, label string, color Colour) bool {
	any := false
	for _, s := range run.Steps {
		any = p.AddStepsOf(s, name, color) || any
	}
	if any {
		p.Legend = append(p.Legend, LegendItem{label, LineSample(draw.LineStyle{Color: color, Width: 1.6})})
	}
	return any
}

func (p *Panel) AddStepsOf(s *record.Steps, name string, color Colour) bool {
	column := s.Column(name)
	x, mean, low, high := Buckets(s.Globals(), column)
	if len(x) == 0 {
		return false
	}
	if len(x) > 40 { // few steps need no smoothing
		if len(column) > DrawnPoints {
			p.Layers = append(p.Layers, Ribbon{x, low, high, Faint(color, 0.18)})
		} else {
			p.Layers = append(p.Layers, Line(x, mean, Faint(color, 0.3), 0.7))
		}
		mean = Smooth(mean)
	}
	p.Layers = append(p.Layers, Line(x, mean, color, 1.6))
	return true
}
