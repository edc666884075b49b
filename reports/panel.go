package reports

import (
	"math"
	"slices"

	"gonum.org/v1/plot/vg/draw"
)

// addShareOfSteps draws part/whole of every step that has a whole.
func (p *panel) addShareOfSteps(run *Run, part, whole, label string, c colour) {
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
		x, mean, _, _ := buckets(s.globals(), ratio)
		if len(x) > 40 { // few steps need no smoothing
			mean = smooth(mean)
		}
		if len(x) > 0 {
			p.layers = append(p.layers, line(x, mean, c, 1.6))
			any = true
		}
	}
	if any {
		p.legend = append(p.legend, legendItem{label, lineSample(draw.LineStyle{Color: c, Width: 1.6})})
	}
}

// crop leaves out the phases of a token policy before the first that a figure is about: imitation comes
// first, is long, and has no rollouts.
func (f *figure) crop(run *Run) *figure {
	if f == nil || !run.answers() {
		return f
	}
	first := math.Inf(1)
	overTime := func(row []*panel) bool { return len(row) == 1 && row[0].spans != nil }
	for _, row := range f.rows {
		for _, layer := range row[0].layers {
			if l, ok := layer.(curve); ok && overTime(row) {
				first = min(first, l.x[0])
			}
		}
	}
	start := 0.0
	for _, s := range run.spans() {
		if s.to < first {
			start = max(start, s.to)
		}
	}
	for _, row := range f.rows {
		if overTime(row) {
			row[0].xMin = start
		}
	}
	return f
}

// addRange tints the area between the lowest of one step metric of a phase and the highest of another,
// over some windows of steps: single steps would be spikes.
func (p *panel) addRange(s *Steps, low, high string, tint colour) {
	const windows, least = 25, 5
	x, bottom := finitePoints(s.globals(), s.Column(low))
	_, top := finitePoints(s.globals(), s.Column(high))
	if len(x) < 2 || len(top) != len(x) {
		return
	}
	r := ribbon{color: tint}
	size := max((len(x)+windows-1)/windows, least)
	for from := 0; from < len(x); from += size {
		to := min(from+size, len(x))
		l, h := slices.Min(bottom[from:to]), slices.Max(top[from:to])
		r.x, r.low, r.high = append(r.x, x[from]-1, x[to-1]), append(r.low, l, l), append(r.high, h, h)
	}
	p.layers = append(p.layers, r)
}

// addEpochDots marks an epoch metric with dots.
func (p *panel) addEpochDots(run *Run, name, label string, c colour) {
	if x, y := run.epochSeries("", name); len(x) > 0 {
		p.layers = append(p.layers, points(x, y, c))
		p.legend = append(p.legend, legendItem{label, dotSample(c, draw.CircleGlyph{})})
	}
}

func (p *panel) addSpread(s *Steps) {
	x, mean, _, _ := buckets(s.globals(), s.Column("mean_advantage"))
	_, sd, _, _ := buckets(s.globals(), s.Column("std_advantage"))
	if len(x) == 0 || len(sd) != len(x) {
		return
	}
	mean, sd = smooth(mean), smooth(sd)
	low, high := make([]float64, len(x)), make([]float64, len(x))
	for i := range x {
		low[i], high[i] = mean[i]-sd[i], mean[i]+sd[i]
	}
	p.layers = append(p.layers, ribbon{x, low, high, faint(blue, 0.2)}, line(x, mean, blue, 1.6))
	if mx, largest, _, _ := buckets(s.globals(), s.Column("max_advantage")); len(mx) > 0 {
		p.layers = append(p.layers, line(mx, smooth(largest), vermillion, 1.1))
	}
}

// logIfWide makes the vertical axis logarithmic when positive data span more than a factor of eight.
func (p *panel) logIfWide() {
	low, high := math.Inf(1), math.Inf(-1)
	for _, layer := range p.layers {
		if l, ok := layer.(curve); ok {
			_, _, a, b := l.DataRange()
			low, high = min(low, a), max(high, b)
		}
	}
	if low > 0 && high > 8*low {
		p.log = true
	} else if low >= 0 {
		p.yMin = 0
	}
}

// logIfPeaksDiffer draws learning rates of very different phases on one logarithmic axis.
func (p *panel) logIfPeaksDiffer(smallest float64) {
	highest := 0.0
	for _, layer := range p.layers {
		_, _, _, high := layer.(curve).DataRange()
		highest = max(highest, high)
	}
	p.yMin = 0
	if highest > 5*smallest && smallest > 0 {
		p.log, p.yMin = true, smallest/30
	}
}
