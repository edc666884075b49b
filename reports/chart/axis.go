package chart

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"fulcrum/reports/page"
)

// scale fixes the ranges of a panel: the given limits, else the data with some air around.
func (p *Panel) scale(g *plot.Plot) {
	if p.XMax > p.XMin {
		g.X.Min, g.X.Max = p.XMin, p.XMax
	}
	low, high := g.Y.Min, g.Y.Max
	if math.IsInf(low, 0) || math.IsInf(high, 0) {
		low, high = 0, 1
	}
	if p.Log {
		low, high = LogRange(low, high)
	} else {
		low, high = AirRange(low, high)
	}
	if !math.IsNaN(p.YMin) {
		low = p.YMin
	}
	if p.named() && p.Log { // room for the names of phases
		high *= math.Pow(high/low, 0.1)
	} else if p.named() {
		high += 0.1 * (high - low)
	}
	if !math.IsNaN(p.YMax) {
		high = p.YMax
	}
	if high <= low { // a constant series on a given limit
		high = low + 1
	}
	g.Y.Min, g.Y.Max = low, high
}

func (p *Panel) named() bool { return len(p.Spans) > 0 && p.Spans[0].Name != "" }

// AirRange widens a range by 6 % on both sides; zero stays an edge.
func AirRange(low, high float64) (float64, float64) {
	air := 0.06 * (high - low)
	if air == 0 {
		air = max(0.1*math.Abs(high), 1e-9)
		if high == 0 {
			air = 1
		}
	}
	a, b := low-air, high+air
	if low >= 0 && a < 0 {
		a = 0
	}
	if high <= 0 && b > 0 {
		b = 0
	}
	return a, b
}

// LogRange widens a range by 15 % of its ratio, at least to half a decade.
func LogRange(low, high float64) (float64, float64) {
	if low <= 0 {
		low = math.Min(1e-12, high)
	}
	if high <= 0 {
		return 0.1, 1
	}
	ratio := math.Pow(high/low, 0.08)
	low, high = low/ratio, high*ratio
	if high/low < 3 {
		mid := math.Sqrt(low * high)
		low, high = mid/math.Sqrt(3), mid*math.Sqrt(3)
	}
	return low, high
}

// LinearTicks are at multiples of 1, 2 or 5 times a power of ten: four to seven of them.
type LinearTicks struct {
	Integers bool // steps, never 2.5
	Percent  bool
	Most     int // about as many, and thousands as k; 0: five
}

func (t LinearTicks) Ticks(low, high float64) []plot.Tick {
	scale := 1.0
	if t.Percent {
		scale = 100
	}
	step := NiceStep((high - low) * scale / float64(cmp.Or(t.Most, 5)))
	if t.Integers {
		step = max(step, 1)
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var ticks []plot.Tick
	for k := math.Ceil(low*scale/step - 1e-9); k*step <= high*scale*(1+1e-12)+1e-12; k++ {
		value := k * step
		label := strconv.FormatFloat(value, 'f', decimals, 64)
		switch {
		case t.Integers:
			label = page.Thousands(int(math.Round(value)))
			if rest, thousands := strings.CutSuffix(label, ",000"); thousands && t.Most > 0 && step >= 1000 {
				label = rest + "k"
			}
		case step < 1e-5 || step >= 1e6:
			label = strconv.FormatFloat(value, 'g', 3, 64)
		}
		if math.Abs(value) < step/2 {
			label = "0"
		}
		label = strings.Replace(label, "-", "−", 1)
		if t.Percent {
			label += "%"
		}
		ticks = append(ticks, plot.Tick{Value: value / scale, Label: label})
		if len(ticks) > 50 {
			break
		}
	}
	return ticks
}

// fit takes labels from an axis of this length until none touches the next: a linear one has fewer ticks, of others every n-th is named.
// size is the room that a label takes along the axis.
func fit(a *plot.Axis, length vg.Length, size func(label string) vg.Length) {
	linear, even := a.Tick.Marker.(LinearTicks)
	all, fits := a.Tick.Marker.Ticks(a.Min, a.Max), false
	for n := 1; !fits && n <= max(len(all), 5); n++ {
		shown, end := slices.Clone(all), vg.Length(math.Inf(-1))
		if linear.Most = max(7-n, 2); even && n > 1 {
			shown = linear.Ticks(a.Min, a.Max)
		}
		fits = true
		for i, t := range shown {
			if at, half := length*vg.Length(a.Norm(t.Value)), size(t.Label)/2; !even && i%n > 0 {
				shown[i].Label = ""
			} else if t.Label != "" {
				fits, end = fits && at-half >= end, at+half
			}
		}
		a.Tick.Marker = plot.ConstantTicks(shown)
	}
}

// NiceStep rounds x up to 1, 2 or 5 times a power of ten.
func NiceStep(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 0) {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if x <= m*unit*(1+1e-9) {
			return m * unit
		}
	}
	return 10 * unit
}

// logScale is a logarithmic axis; what has no logarithm lies on its lower edge.
type logScale struct{}

func (logScale) Normalize(low, high, x float64) float64 {
	if x <= 0 || low <= 0 || high <= low {
		return 0
	}
	return math.Log(x/low) / math.Log(high/low)
}

// LogTicks are at 1, 2 and 5 times powers of ten over two decades or less, else at powers of ten.
type LogTicks struct{}

func (LogTicks) Ticks(low, high float64) []plot.Tick {
	if low <= 0 || high <= low {
		return nil
	}
	marks := []float64{1, 2, 5}
	every := 1
	if decades := math.Log10(high / low); decades > 2.2 {
		marks = marks[:1]
		every = int(math.Ceil(decades / 6))
	}
	var ticks []plot.Tick
	for e := int(math.Floor(math.Log10(low))); e <= int(math.Ceil(math.Log10(high))); e++ {
		for _, m := range marks {
			v := m * math.Pow(10, float64(e))
			if v < low*(1-1e-9) || v > high*(1+1e-9) || e%every != 0 {
				continue
			}
			ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 3, 64)})
		}
	}
	return ticks
}
