package runreport

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
	"fulcrum/reports/webchart"
)

// explorePoints is how many points a curve has in report.html: as many as its width shows.
const explorePoints = 400

// explored is what the script of report.html draws.
type explored struct {
	Started     float64              `json:"started"`
	Phases      []exploredPhase      `json:"phases"`
	Differences *results.Differences `json:"differences,omitempty"` // of the verdict
	Score       *scoreCurve          `json:"score,omitempty"`
	Levels      []level              `json:"levels"` // of the chart of scores
	Steps       *webchart.Drawn      `json:"steps"`
	Epochs      *webchart.Drawn      `json:"epochs"`
}

// scoreCurve is the first curve of the page: the validation score from the initial policy on.
type scoreCurve struct {
	Name   string          `json:"name"` // val_reward
	Epochs *webchart.Drawn `json:"epochs"`
	Best   []float64       `json:"best,omitempty"` // step and score of the best checkpoint
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
	for _, span := range run.Spans() {
		p := exploredPhase{Name: span.Name, From: int(span.From), To: int(span.To),
			Epochs: list.Count(run.Epochs, func(e record.Row) bool { return e.Phase == span.Name })}
		if s := run.StepsOf(span.Name); s != nil { // a span begins with the step before
			p.From, p.Steps = p.From+1, len(s.Global)
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
	stages, err := results.StagesOf(run)
	if err != nil {
		return page.Lively{}, err
	}
	d.Differences = differencesOf(run, stages)
	name := scoreOf(run)
	if name == "" {
		return webchart.Lively(d, drawnByScript()...)
	}
	d.Score = curveOf(run, name)
	for _, policy := range []string{record.PolicySimilarity, record.PolicyMajority, record.PolicyRecorded} {
		if top, ok := run.Score("val", policy, "top1_accuracy"); ok && top == 1 && policy == record.PolicyRecorded {
			continue // an oracle
		}
		// A mean that is not finite fails the run, which says so; it must not take the report with it.
		if score, ok := run.Score("val", policy, name); ok && finite(score) {
			d.Levels = append(d.Levels, level{strings.ReplaceAll(policy, "_", " "), score})
		}
	}
	return webchart.Lively(d, drawnByScript()...)
}

// drawnByScript names the figures that have charts in the page.
func drawnByScript() []string { return list.Map(Figures(), func(f Figure) string { return f.Name }) }

func finite(x float64) bool { return !math.IsInf(x, 0) && !math.IsNaN(x) }

// scoreOf is the first validation score that a run has after its epochs: the reward, if anything gives one; "" for none. Its figure has
// the same name.
func scoreOf(run *record.Run) string {
	for _, name := range []string{"reward", "accuracy", "recorded_reward"} {
		if _, y := run.EpochSeries("", "val_"+name); len(y) > 0 {
			return name
		}
	}
	return ""
}

// curveOf is a validation score at the start and after the epochs. Its band is the 95 % interval of the mean over questions: exact where
// the scores of single questions are recorded, at the start and for the policy that each phase hands on. Between these its width follows
// a straight line, behind the last it stays.
func curveOf(run *record.Run, name string) *scoreCurve {
	x, y := run.EpochSeries("", "val_"+name)
	out := &scoreCurve{Name: "val_" + name, Epochs: &webchart.Drawn{Width: 1}}
	if b := run.Summary; b != nil && b.Best != nil {
		for _, e := range run.Epochs {
			if v, ok := e.Number("val_" + name); ok && finite(v) && e.Phase == b.Best.Phase && e.Epoch == b.Best.Epoch {
				out.Best = []float64{float64(e.GlobalStep), v}
			}
		}
	}
	if initial, ok := run.Score("val", record.PolicyInit, name); ok {
		x, y = append([]float64{0}, x...), append([]float64{initial}, y...)
	}
	least, greatest := record.ScoreRange(name)
	var at, half []float64 // where the width of the band is known
	for _, e := range run.Evaluations {
		n, step := stats.NewGrouping(e.Clusters).Units(len(e.Scores)), run.StepAt(e)
		if e.Split != "val" || e.Metric != name || n < 2 || step < 0 || e.Policy != record.PolicyInit && e.Policy != e.Phase {
			continue
		}
		mean, se := e.MeanSE()
		if i := stats.StudentInterval(mean, se, n, 0.95); len(at) == 0 || float64(step) > at[len(at)-1] {
			at, half = append(at, float64(step)), append(half, (i.High-i.Low)/2)
		}
	}
	c := &webchart.DrawnColumn{Mean: y}
	for i := range x {
		out.Epochs.Steps, out.Epochs.Times = append(out.Epochs.Steps, int64(x[i])), append(out.Epochs.Times, 0)
		if len(at) > 0 {
			within, _ := stats.Interval{Low: y[i] - widthAt(at, half, x[i]), High: y[i] + widthAt(at, half, x[i])}.Within(least, greatest)
			c.Low, c.High = append(c.Low, within.Low), append(c.High, within.High)
		}
	}
	out.Epochs.Series = map[string]*webchart.DrawnColumn{out.Name: c}
	return out
}

// widthAt interpolates between points, x ascending; beyond the last one its value holds.
func widthAt(x, y []float64, at float64) float64 {
	i, _ := slices.BinarySearch(x, at)
	switch {
	case i == len(x):
		return y[i-1]
	case i == 0:
		return y[0]
	}
	return y[i-1] + (y[i]-y[i-1])*(at-x[i-1])/(x[i]-x[i-1])
}

// differencesOf are the comparisons of the verdict and what the last phase added; nil where nothing was judged.
func differencesOf(run *record.Run, stages []record.StageResult) *results.Differences {
	stage := PlannedResult(stages)
	if stage == nil {
		return nil
	}
	table := results.TableOf(stages, *stage)
	d := &results.Differences{What: fmt.Sprintf("%s of %s over …, mean difference with its 95%% interval, %s",
		page.Capital(results.MetricName(stage.Metric)), stage.Subject(), questionsOf(run, stage))}
	for _, g := range gainsOf(stage, table, stages) {
		d.Add(g.short, g.by)
	}
	if i := lastAdded(table); i > 0 {
		d.Add(fmt.Sprintf("%s over %s", table[i].Policy, table[i-1].Policy), table[i].OverPrevious)
	}
	if len(d.Rows) == 0 {
		return nil
	}
	return d
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
