package chart

import (
	"math"
	"slices"

	"gonum.org/v1/plot/vg/draw"

	"fulcrum/reports/record"
)

// AddShareOfSteps draws part/whole of every step that has a whole.
func (p *Panel) AddShareOfSteps(run *record.Run, part, whole, label string, c Colour) {
	any := false
	for _, s := range run.Steps {
		of := s.Column(whole)
		ratio := slices.Clone(s.Column(part))
		if len(ratio) == 0 || len(of) != len(ratio) {
			continue
		}
		for i := range ratio {
			if ratio[i] /= of[i]; of[i] == 0 {
				ratio[i] = math.NaN()
			}
		}
		x, mean, _, _ := Buckets(s.Globals(), ratio)
		if len(x) > 40 { // few steps need no smoothing
			mean = Smooth(mean)
		}
		if len(x) > 0 {
			p.Layers = append(p.Layers, Line(x, mean, c, 1.6))
			any = true
		}
	}
	if any {
		p.Legend = append(p.Legend, LegendItem{label, LineSample(draw.LineStyle{Color: c, Width: 1.6})})
	}
}

// Crop leaves out the phases of a token policy before the first that a figure is about: imitation comes
// first, is long, and has no rollouts.
func (f *Figure) Crop(run *record.Run) *Figure {
	if f == nil || !run.Answers() {
		return f
	}
	first := math.Inf(1)
	overTime := func(row []*Panel) bool { return len(row) == 1 && row[0].Spans != nil }
	for _, row := range f.Rows {
		for _, layer := range row[0].Layers {
			if l, ok := layer.(Curve); ok && overTime(row) {
				first = min(first, l.X[0])
			}
		}
	}
	start := 0.0
	for _, s := range run.Spans() {
		if s.To < first {
			start = max(start, s.To)
		}
	}
	for _, row := range f.Rows {
		if overTime(row) {
			row[0].XMin = start
		}
	}
	return f
}

// AddRange tints the area between the lowest of one step metric of a phase and the highest of another,
// over some windows of steps: single steps would be spikes.
func (p *Panel) AddRange(s *record.Steps, low, high string, tint Colour) {
	const windows, least = 25, 5
	x, bottom := FinitePoints(s.Globals(), s.Column(low))
	_, top := FinitePoints(s.Globals(), s.Column(high))
	if len(x) < 2 || len(top) != len(x) {
		return
	}
	r := Ribbon{Color: tint}
	size := max((len(x)+windows-1)/windows, least)
	for from := 0; from < len(x); from += size {
		to := min(from+size, len(x))
		l, h := slices.Min(bottom[from:to]), slices.Max(top[from:to])
		r.X, r.Low, r.High = append(r.X, x[from]-1, x[to-1]), append(r.Low, l, l), append(r.High, h, h)
	}
	p.Layers = append(p.Layers, r)
}

func (p *Panel) AddEpochDots(run *record.Run, name, label string, c Colour) {
	if x, y := run.EpochSeries("", name); len(x) > 0 {
		p.Layers = append(p.Layers, Points(x, y, c))
		p.Legend = append(p.Legend, LegendItem{label, DotSample(c, draw.CircleGlyph{})})
	}
}

// CurveRange returns the vertical range of the curves of panels, from +Inf to -Inf where there are none.
func CurveRange(panels ...*Panel) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, p := range panels {
		for _, layer := range p.Layers {
			if l, ok := layer.(Curve); ok {
				_, _, a, b := l.DataRange()
				low, high = min(low, a), max(high, b)
			}
		}
	}
	return low, high
}

// LogIfWide makes the vertical axis logarithmic when positive data span more than a factor of eight.
func (p *Panel) LogIfWide() {
	low, high := CurveRange(p)
	if low > 0 && high > 8*low {
		p.Log = true
	} else if low >= 0 {
		p.YMin = 0
	}
}

// LogIfPeaksDiffer draws learning rates of very different phases on one logarithmic axis.
func (p *Panel) LogIfPeaksDiffer(smallest float64) {
	_, highest := CurveRange(p)
	p.YMin = 0
	if highest > 5*smallest && smallest > 0 {
		p.Log, p.YMin = true, smallest/30
	}
}
