package runreport

import (
	"math"
	"slices"
	"strings"

	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/webchart"
)

// explorePoints is how many points a curve has in report.html: as many as its width shows.
const explorePoints = 400

// explored is what the script of report.html draws.
type explored struct {
	Started float64         `json:"started"`
	Phases  []exploredPhase `json:"phases"`
	Levels  []level         `json:"levels"` // of the chart of scores
	Steps   *webchart.Drawn `json:"steps"`
	Epochs  *webchart.Drawn `json:"epochs"`
}

// exploredPhase is where a phase lies on the axis of global steps, from its first row to its last.
type exploredPhase struct {
	Name   string `json:"name"`
	From   int    `json:"from"`
	To     int    `json:"to"`
	Epochs int    `json:"epochs"`
	Steps  int    `json:"steps"`
}

// level is a baseline of the validation score.
type level struct {
	Label string  `json:"label"`
	Value float64 `json:"value"`
}

// Explore returns the interactive part of a run's page; a folder without rows has none.
func Explore(run *record.Run) (page.Lively, error) {
	d := explored{Started: math.Inf(1), Levels: []level{}, Steps: drawn(run.Steps...)}
	for _, name := range run.Phases() {
		p := exploredPhase{Name: name}
		if s := run.StepsOf(name); s != nil {
			p.From, p.To, p.Steps = s.Global[0], s.Global[len(s.Global)-1], len(s.Global)
		}
		for _, e := range run.Epochs {
			if e.Phase == name {
				if p.Steps+p.Epochs == 0 {
					p.From = e.GlobalStep
				}
				p.To, p.Epochs = max(p.To, e.GlobalStep), p.Epochs+1
			}
		}
		d.Phases = append(d.Phases, p)
	}
	if len(d.Phases) == 0 {
		return page.Lively{}, nil
	}
	for _, row := range slices.Concat(run.Epochs, run.EvalRows, run.Events) {
		if row.Time > 0 {
			d.Started = min(d.Started, row.Time)
		}
	}
	for _, s := range run.Steps {
		d.Started = min(d.Started, s.Time[0])
	}
	epochs := record.NewSteps("")
	for _, e := range run.Epochs {
		epochs.Add(e)
	}
	d.Epochs = drawn(epochs)
	for _, name := range []string{"reward", "accuracy", "recorded_reward"} {
		if epochs.Column("val_"+name) == nil {
			continue
		}
		for _, policy := range []string{record.PolicySimilarity, record.PolicyMajority, record.PolicyRecorded} {
			if top, ok := run.Score("val", policy, "top1_accuracy"); ok && top == 1 && policy == record.PolicyRecorded {
				continue // an oracle
			}
			// A mean that is not finite fails the run, which says so; it must not take the report with it.
			if score, ok := run.Score("val", policy, name); ok && !math.IsInf(score, 0) && !math.IsNaN(score) {
				d.Levels = append(d.Levels, level{strings.ReplaceAll(policy, "_", " "), score})
			}
		}
		break
	}
	return webchart.Lively(d)
}

// drawn makes the steps of all phases one series of at most explorePoints points, each the mean of equally many rows.
func drawn(phases ...*record.Steps) *webchart.Drawn {
	var steps []int
	var times []float64
	columns, nan := map[string][]float64{}, map[string][]int{}
	for _, s := range phases {
		n := len(steps)
		steps, times = append(steps, s.Global...), append(times, s.Time...)
		for name, column := range s.Columns {
			before := columns[name]
			columns[name] = slices.Concat(before, slices.Repeat([]float64{math.NaN()}, n-len(before)), column)
			for _, at := range s.NaN[name] {
				nan[name] = append(nan[name], n+at)
			}
		}
	}
	width := max(1, (len(steps)+explorePoints-1)/explorePoints)
	d := &webchart.Drawn{Width: width, Series: map[string]*webchart.DrawnColumn{}}
	for i := range steps {
		if (i+1)%width == 0 || i == len(steps)-1 {
			d.Steps, d.Times = append(d.Steps, int64(steps[i])), append(d.Times, times[i])
		}
	}
	for name, column := range columns {
		c := &webchart.DrawnColumn{}
		d.Series[name] = c
		for point, step := range d.Steps {
			sum, n, low, high, bad := 0.0, 0, math.Inf(1), math.Inf(-1), int64(0)
			for i := point * width; i < min((point+1)*width, len(column)); i++ {
				x := column[i]
				if math.IsNaN(x) || math.IsInf(x, 0) {
					if _, number := slices.BinarySearch(nan[name], i); number || !math.IsNaN(x) {
						bad++
					}
					continue
				}
				sum, n, low, high = sum+x, n+1, min(low, x), max(high, x)
			}
			c.Mean = append(c.Mean, sum/float64(n)) // NaN of none
			if width > 1 {
				c.Min, c.Max = append(c.Min, low), append(c.Max, high) // infinite where there is none: not shown
			}
			if bad > 0 {
				c.Bad = append(c.Bad, [2]int64{step, bad})
			}
		}
	}
	return d
}
