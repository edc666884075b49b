package curves

import (
	"math"
	"slices"

	"fulcrum/internal/stat"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// Shown is what charts draw of a run, or of the mean over runs that differ in their seed.
type Shown struct {
	Label   string   `json:"label,omitempty"`
	Runs    []string `json:"runs,omitempty"`  // of a mean: ids on the board
	Seeds   int      `json:"seeds,omitempty"` // of a mean: how many runs it is over
	Started float64  `json:"started"`
	Phases  []Span   `json:"phases"`
	Steps   *Drawn   `json:"steps,omitempty"`
	Epochs  *Drawn   `json:"epochs,omitempty"`
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

// Over is the mean over runs, with a band around it, of every metric and at every step that all of them have with a finite
// number. Where a point of one run stands for more rows than a point of another, they have no step in common.
func Over(runs []*Drawn, band func(metric string, values []float64) (low, high float64)) *Drawn {
	out := &Drawn{Width: runs[0].Width, Series: map[string]*DrawnColumn{}}
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
			if columns, ok := columnsOf(runs, name); ok {
				for r, c := range columns {
					values[r] = c.Mean[points[r]]
				}
				if !slices.ContainsFunc(values, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }) {
					mean = stat.Mean(values)
					low, high = band(name, values)
				}
			}
			c := out.Series[name]
			if c == nil {
				c = &DrawnColumn{}
				out.Series[name] = c
			}
			c.Mean, c.Low, c.High = append(c.Mean, mean), append(c.Low, low), append(c.High, high)
		}
	}
	return out
}

// columnsOf returns a metric's column of each run, false where a run has none.
func columnsOf(runs []*Drawn, name string) ([]*DrawnColumn, bool) {
	columns := make([]*DrawnColumn, len(runs))
	for r, d := range runs {
		if columns[r] = d.Series[name]; columns[r] == nil {
			return nil, false
		}
	}
	return columns, true
}

// OfRows makes a series of the metrics named, a point a row.
func OfRows(rows []record.Row, names []string) *Drawn {
	d := &Drawn{Width: 1, Series: map[string]*DrawnColumn{}}
	for i, row := range rows {
		d.Steps = append(d.Steps, int64(row.GlobalStep))
		for _, name := range names {
			y, ok := row.Number(name)
			if ok && d.Series[name] == nil {
				d.Series[name] = &DrawnColumn{Mean: slices.Repeat(Numbers{math.NaN()}, len(rows))}
			}
			if ok {
				d.Series[name].Mean[i] = y
			}
		}
	}
	return d
}

// Begin puts a point of one metric before all others, with what is drawn around it.
func (d *Drawn) Begin(step int64, name string, mean, low, high float64) {
	d.Steps = slices.Insert(d.Steps, 0, step)
	for other, c := range d.Series {
		x, a, b := math.NaN(), math.NaN(), math.NaN()
		if other == name {
			x, a, b = mean, low, high
		}
		c.Mean, c.Low, c.High = slices.Insert(c.Mean, 0, x), slices.Insert(c.Low, 0, a), slices.Insert(c.High, 0, b)
	}
}

// Line is one metric of a mean over runs, where it has a finite number.
type Line struct {
	X               []float64 // global steps
	Mean, Low, High []float64 // Low is NaN where there is no band
}

// Line returns a metric's line, without a point for one that the series do not have.
func (d *Drawn) Line(name string) Line {
	var line Line
	c := d.Series[name]
	if c == nil {
		return line
	}
	for i, y := range c.Mean {
		if !math.IsNaN(y) {
			line.X, line.Mean = append(line.X, float64(d.Steps[i])), append(line.Mean, y)
			line.Low, line.High = append(line.Low, c.Low[i]), append(line.High, c.High[i])
		}
	}
	return line
}

// OverSeeds is the mean over runs that differ in their seed, with its 95 % interval. Its times are seconds from a run's start.
func OverSeeds(label string, runs []Shown) Shown {
	mean := Shown{Label: label, Seeds: len(runs), Phases: runs[0].Phases}
	var steps, epochs []*Drawn
	for _, r := range runs {
		for _, d := range []*Drawn{r.Steps, r.Epochs} {
			for i := range d.Times {
				d.Times[i] -= r.Started
			}
		}
		steps, epochs = append(steps, r.Steps), append(epochs, r.Epochs)
	}
	mean.Steps, mean.Epochs = Over(steps, MeanBand), Over(epochs, MeanBand)
	return mean
}
