package curves

import (
	"math"
	"slices"

	"fulcrum/internal/stat"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
	"fulcrum/reports/webchart"
)

// Shown is what charts draw of a run, or of the mean over runs that differ in their seed.
type Shown struct {
	Label   string          `json:"label,omitempty"`
	Runs    []string        `json:"runs,omitempty"`  // of a mean: ids on the board
	Seeds   int             `json:"seeds,omitempty"` // of a mean: how many runs it is over
	Started float64         `json:"started"`
	Phases  []Span          `json:"phases"`
	Steps   *webchart.Drawn `json:"steps,omitempty"`
	Epochs  *webchart.Drawn `json:"epochs,omitempty"`
}

// MeanBand is the 95 % interval of a metric's mean over seeds, by Student's t, within what the metric can be; NaN for one seed, which says
// nothing of others.
func MeanBand(metric string, values []float64) (low, high float64) {
	least, greatest := record.ScoreRange(metric)
	if _, interval := stats.MeanInterval(values, 0.95, least, greatest); interval != nil {
		return interval.Low, interval.High
	}
	return math.NaN(), math.NaN()
}

// Over is the mean over runs, with its MeanBand, of every metric and at every step that all of them have with a finite
// number. Where a point of one run stands for more rows than a point of another, they have no step in common.
func Over(runs []*webchart.Drawn) *webchart.Drawn {
	out := &webchart.Drawn{Width: runs[0].Width, Series: map[string]*webchart.DrawnColumn{}}
	at := make([]map[int64]int, len(runs)) // of each run: step → point
	timed := true
	for r, d := range runs {
		if d.Width != out.Width {
			return out
		}
		timed = timed && len(d.Times) == len(d.Steps)
		at[r] = make(map[int64]int, len(d.Steps))
		for i, step := range d.Steps {
			at[r][step] = i
		}
	}
	for i, step := range runs[0].Steps {
		points := make([]int, len(runs))
		all := at[0][step] == i
		for r := range runs {
			k, ok := at[r][step]
			points[r], all = k, all && ok
		}
		if !all {
			continue
		}
		values := make([]float64, len(runs))
		out.Steps = append(out.Steps, step)
		if timed {
			for r, d := range runs {
				values[r] = d.Times[points[r]]
			}
			out.Times = append(out.Times, stat.Mean(values))
		}
		for name := range runs[0].Series {
			mean, low, high := math.NaN(), math.NaN(), math.NaN()
			if !slices.ContainsFunc(runs, func(d *webchart.Drawn) bool { return d.Series[name] == nil }) {
				for r, d := range runs {
					values[r] = d.Series[name].Mean[points[r]]
				}
				if !slices.ContainsFunc(values, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }) {
					mean = stat.Mean(values)
					low, high = MeanBand(name, values)
				}
			}
			c := out.Series[name]
			if c == nil {
				c = &webchart.DrawnColumn{}
				out.Series[name] = c
			}
			c.Mean, c.Low, c.High = append(c.Mean, mean), append(c.Low, low), append(c.High, high)
		}
	}
	return out
}

// OverSeeds is the mean over runs that differ in their seed, with its 95 % interval. Its times are seconds from a run's start.
func OverSeeds(label string, runs []Shown) Shown {
	mean := Shown{Label: label, Seeds: len(runs), Phases: runs[0].Phases}
	var steps, epochs []*webchart.Drawn
	for _, r := range runs {
		for _, d := range []*webchart.Drawn{r.Steps, r.Epochs} {
			for i := range d.Times {
				d.Times[i] -= r.Started
			}
		}
		steps, epochs = append(steps, r.Steps), append(epochs, r.Epochs)
	}
	mean.Steps, mean.Epochs = Over(steps), Over(epochs)
	return mean
}
