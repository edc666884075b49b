package sweepreport

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fulcrum/internal/stat"
	"fulcrum/reports/chart"
	"fulcrum/reports/curves"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/runreport"
	"fulcrum/reports/stats"
)

// fence is a difference with its interval, one for each place on the horizontal axis, with the single seeds beside it.
type fence struct {
	x, mean, low, high []float64
	colors             []chart.Colour
	seeds              chart.Dots
	ticks              []plot.Tick
}

// DataRange implements plot.DataRanger.
func (f fence) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, _ = chart.RangeOf(f.x, f.low)
	_, _, _, ymax = chart.RangeOf(f.x, f.high)
	return
}

// Plot implements plot.Plotter.
func (f fence) Plot(c draw.Canvas, p *plot.Plot) {
	for i := range f.x {
		at := func(y float64) vg.Point { return vg.Point{X: c.X(p.X.Norm(f.x[i])), Y: c.Y(p.Y.Norm(y))} }
		low, high, middle := at(f.low[i]), at(f.high[i]), at(f.mean[i])
		style := draw.LineStyle{Color: f.colors[i], Width: 1.4}
		c.StrokeLine2(style, low.X, low.Y, high.X, high.Y)
		for _, end := range []vg.Point{low, high} {
			c.StrokeLine2(style, end.X-3.5, end.Y, end.X+3.5, end.Y)
		}
		c.DrawGlyph(draw.GlyphStyle{Color: f.colors[i], Radius: 3.4, Shape: draw.CircleGlyph{}}, middle)
	}
}

// add draws a comparison at x; its seeds stand so far to the right.
func (f *fence) add(x float64, c *results.ArmComparison, color chart.Colour, aside float64) {
	f.x, f.mean, f.colors = append(f.x, x), append(f.mean, c.Mean), append(f.colors, color)
	f.low, f.high = append(f.low, c.Interval.Low), append(f.high, c.Interval.High)
	for _, y := range c.PerSeed {
		f.seeds.X, f.seeds.Y = append(f.seeds.X, x+aside), append(f.seeds.Y, y)
	}
}

// panel lays out the comparisons over a line at 0; nil where there are none.
func (f *fence) panel(y string) *chart.Panel {
	if len(f.x) == 0 {
		return nil
	}
	f.seeds.Color, f.seeds.Shape, f.seeds.Size = chart.Faint(chart.Grey, 0.7), draw.CircleGlyph{}, 1.6
	zero := chart.LevelOf{Y: 0, Style: draw.LineStyle{Color: chart.Black, Width: 0.8}, InRange: true}
	return &chart.Panel{Y: y, YMin: math.NaN(), YMax: math.NaN(), XMin: 0.4, XMax: float64(len(f.ticks)) + 0.6,
		XTicks: chart.FixedTicks(f.ticks), Layers: []plot.Plotter{zero, f.seeds, *f}}
}

func fenceSample(color chart.Colour) func(draw.Canvas, vg.Point, vg.Point) {
	return func(c draw.Canvas, from, to vg.Point) {
		x := (from.X + to.X) / 2
		c.StrokeLine2(draw.LineStyle{Color: color, Width: 1.4}, x, from.Y-5, x, from.Y+5)
		c.DrawGlyph(draw.GlyphStyle{Color: color, Radius: 2.8, Shape: draw.CircleGlyph{}}, vg.Point{X: x, Y: from.Y})
	}
}

// answersFigure shows every question's difference with its interval.
func (v *View) answersFigure() *sweepFigure {
	var shown fence
	for i, a := range v.answers {
		x := float64(i + 1)
		shown.ticks = append(shown.ticks, plot.Tick{Value: x, Label: fmt.Sprint(i + 1)})
		if a.c == nil {
			continue
		}
		color := chart.Grey
		if a.c.Verdict == stats.Better {
			color = chart.Blue
		} else if a.c.Verdict == stats.Worse {
			color = chart.Vermillion
		}
		shown.add(x, a.c, color, 0.18)
	}
	p := shown.panel("difference")
	if p == nil {
		return nil
	}
	p.X = "question"
	p.Legend = []chart.LegendItem{{Text: "better", Draw: fenceSample(chart.Blue)}, {Text: "worse", Draw: fenceSample(chart.Vermillion)},
		{Text: "open", Draw: fenceSample(chart.Grey)}, {Text: "single seeds", Draw: chart.DotSample(chart.Grey, draw.CircleGlyph{})}}
	f := &chart.Figure{Name: "answers", Title: "Answers: mean differences with 95% intervals",
		Note: "By number of the question. Above 0 the first of the two is ahead. An interval without 0 that is still open fails the " +
			"correction for the number of questions.", Rows: [][]*chart.Panel{{p}}, Tall: 220}
	return &sweepFigure{f, "differences with intervals, by question",
		"*Answers.* Differences and 95% intervals by question number; small dots are single seeds."}
}

// armsFigure shows what every arm gains over the initial policy.
func (v *View) armsFigure() *sweepFigure {
	s, split := v.armSettings[0], v.split()
	var shown fence
	style := chart.TextStyle(9.5, false, chart.Black)
	each := (chart.FigureWidth - chart.MarginLeft - chart.LabelWidth - chart.MarginRight - armsRight - 34) / vg.Length(len(s.arms))
	for i, a := range s.arms {
		x := float64(i + 1)
		room := (each*(vg.Length(i)+0.6) + 44) / vg.Length(math.Cos(chart.Tilt)) // to the left, over the margin
		shown.ticks = append(shown.ticks, plot.Tick{Value: x, Label: chart.Fitted(style, a.Label, min(room, 170))})
		if c, _ := s.compare(a.Name, record.PolicyInit, split, "reward", false); c != nil {
			shown.add(x, c, chart.Blue, 0.16)
		}
	}
	p := shown.panel("gain in reward")
	if p == nil {
		return nil
	}
	p.Tilted = true
	p.Legend = []chart.LegendItem{{Text: "mean, 95% interval", Draw: fenceSample(chart.Blue)},
		{Text: "single seeds", Draw: chart.DotSample(chart.Grey, draw.CircleGlyph{})}}
	p.Labels = append(p.Labels, chart.RightLabel{Y: 0, Text: "initial policy", Color: chart.Black})
	if untrained := s.untrained(); untrained != nil {
		start, err1 := results.ArmOf(untrained.runs, split, "reward", record.PolicyInit)
		similar, err2 := results.ArmOf(untrained.runs, split, "reward", record.PolicySimilarity)
		if err1 == nil && err2 == nil {
			if gain := stat.Mean(similar.QueryScores()) - stat.Mean(start.QueryScores()); runreport.CloseTo(gain, 0) {
				p.Labels[0].Text = "initial, similarity"
			} else {
				p.Layers = append(p.Layers, chart.LevelOf{Y: gain, Style: chart.Dashed(chart.Orange), InRange: true})
				p.Labels = append(p.Labels, chart.RightLabel{Y: gain, Text: "similarity", Color: chart.Orange})
			}
		}
	}
	f := &chart.Figure{Name: "arms", Title: "Gain of every arm over the initial policy, on " + split,
		Note: "Mean difference on the same questions and seeds. Intervals are for new questions and new seeds, and not corrected for " +
			"the number of arms.",
		Rows: [][]*chart.Panel{{p}}, Tall: 290, Right: armsRight}
	return &sweepFigure{f, "gain of every arm over the initial policy",
		fmt.Sprintf("*Arms.* Mean gain in reward over the initial policy on %s with its 95%% interval; small dots are single seeds.",
			page.Plain(split))}
}

// armsRight is the margin for the names of baselines.
const armsRight = 96 * vg.Length(1)

func extremes(_ string, values []float64) (low, high float64) {
	return slices.Min(values), slices.Max(values)
}

// over averages epoch metrics over the seeds of an arm, at the epochs that all of them have; steps include those of the arms
// before it.
func (a *armRuns) over(band func(metric string, values []float64) (low, high float64), names ...string) *curves.Drawn {
	if len(a.runs) == 0 {
		return &curves.Drawn{}
	}
	var runs []*curves.Drawn
	for _, r := range a.runs {
		runs = append(runs, curves.OfRows(r.Epochs, names))
	}
	mean := curves.Over(runs, band)
	if a.from != nil {
		_, before := a.from.steps()
		for i := range mean.Steps {
			mean.Steps[i] += int64(before)
		}
	}
	return mean
}

// learning are the arm's validation metrics over its steps, the score from the initial policy or from the end of the arm before it.
func (a *armRuns) learning() *curves.Drawn {
	mean, score := a.over(curves.MeanBand, "val_reward", "val_recorded_reward", "val_accuracy", "val_loss", "val_kl"), a.score()
	if mean.Series["val_"+score] == nil {
		return mean
	}
	if a.from != nil {
		if before := a.from.learning().Line("val_" + score); len(before.X) > 0 {
			n := len(before.X) - 1
			mean.Begin(int64(before.X[n]), "val_"+score, before.Mean[n], before.Low[n], before.High[n])
		}
		return mean
	}
	var values []float64
	for _, r := range a.runs {
		if y, ok := r.Score("val", record.PolicyInit, score); ok {
			values = append(values, y)
		}
	}
	if len(values) == len(a.runs) {
		low, high := curves.MeanBand(score, values)
		mean.Begin(0, "val_"+score, stat.Mean(values), low, high)
	}
	return mean
}

// score is the validation metric of the arm's curve: the reward or, where nothing scores selections, the recorded one.
func (a *armRuns) score() string {
	if slices.ContainsFunc(a.runs, func(r *record.Run) bool { _, y := r.EpochSeries("", "val_recorded_reward"); return len(y) > 0 }) {
		return "recorded_reward"
	}
	return "reward"
}

// curvesFigure has a panel for each arm: its score on validation queries over steps, with the arms that it starts
// from before it.
func (s *studySetting) curvesFigure() *sweepFigure {
	score := "reward"
	for _, a := range s.arms {
		score = results.MetricName(a.score())
	}
	note := "Mean " + score + " on validation queries at epoch ends, over the seeds; the band is the 95% interval of that mean (Student's t)."
	caption := fmt.Sprintf("*Learning curves.* Validation %s over optimizer steps: mean over seeds (%s) with the pointwise 95%% interval "+
		"of the mean by Student's t, which is for new seeds and the same questions; one seed has no band, and a band that is much wider "+
		"than the curves ends at the axis.", score, s.seedCounts())
	if score != "reward" {
		caption += " It is what the policy expects among a query's recorded candidates: nothing scores its selections."
	}
	if slices.ContainsFunc(s.arms, func(a *armRuns) bool { return a.from != nil }) {
		note += "\nGrey: the arm that it starts from."
		caption += " In grey the arm that it starts from, with its steps."
	}
	return s.multiples("curves", "Learning curves", note, "val "+score, caption,
		func(a *armRuns) *chart.Panel {
			c := a.learning().Line("val_" + a.score())
			if len(c.X) == 0 {
				return nil
			}
			p := &chart.Panel{YMin: math.NaN(), YMax: math.NaN(), Legend: []chart.LegendItem{{Text: page.Plural(len(a.runs), "seed")}}}
			if a.from == nil {
				if spans := a.runs[0].Spans(); len(spans) > 1 {
					for i, before := range spans[:len(spans)-1] { // also where only ends of epochs were read
						spans[i+1].From = before.To
					}
					spans[0].From, p.Spans = 0, spans
				}
			} else if before := a.from.learning().Line("val_" + a.score()); len(before.X) > 0 {
				addCurve(p, before, chart.Grey)
			}
			addCurve(p, c, chart.Blue)
			return p
		})
}

// seedCounts says over how many seeds the arms' means are: "3", or "2 to 3".
func (s *studySetting) seedCounts() string {
	least, most := math.MaxInt, 0
	for _, a := range s.arms {
		if n := len(a.runs); n > 0 {
			least, most = min(least, n), max(most, n)
		}
	}
	if least >= most {
		return fmt.Sprint(most)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// klFigure has a panel for each arm whose loss has a KL.
func (v *View) klFigure() *sweepFigure {
	return v.armSettings[0].multiples("kl", "KL of the arms with GRPO to the policy that they started with",
		"On validation queries at epoch ends, in nats a selection; mean and range of the seeds. Dashed: the band that an adaptive β "+
			"aims at.", "KL, nats",
		"*KL.* Distance of each arm from its own start, mean and range of the seeds; dashed lines are the band of an adaptive β.",
		func(a *armRuns) *chart.Panel {
			c := a.over(extremes, "val_kl").Line("val_kl")
			if len(c.X) == 0 || !a.penalised() {
				return nil
			}
			p := &chart.Panel{YMin: math.NaN(), YMax: math.NaN(), Log: true}
			addCurve(p, c, chart.Blue)
			for _, y := range a.band() {
				p.Layers = append(p.Layers, chart.LevelOf{Y: y, Style: chart.Dashed(chart.Green), InRange: true})
			}
			return p
		})
}

// penalised reports whether the last phase of an arm is GRPO, whose loss holds a KL to the arm's start.
func (a *armRuns) penalised() bool {
	return slices.ContainsFunc(a.runs, func(r *record.Run) bool {
		return slices.ContainsFunc(r.Epochs, func(e record.Row) bool { _, ok := e.Number("kl_beta_next"); return ok })
	})
}

// band are the targets of the KL of an arm whose β moves.
func (a *armRuns) band() []float64 {
	if len(a.runs) == 0 {
		return nil
	}
	r, phase := a.runs[0], a.last()
	if r.Setting(phase, "kl", "controller") != "band" {
		return nil
	}
	low, ok1 := r.SettingNumber(phase, "kl", "target_min")
	high, ok2 := r.SettingNumber(phase, "kl", "target_max")
	if !ok1 || !ok2 {
		return nil
	}
	return []float64{low, high}
}

// multiples lays out a panel for each arm that has one, three in a row, on shared axes.
func (s *studySetting) multiples(name, title, note, y, caption string, of func(*armRuns) *chart.Panel) *sweepFigure {
	const columns = 3
	var all []*chart.Panel
	f := &chart.Figure{Name: name, Title: title, Note: note, Tall: 130}
	for _, a := range s.arms {
		p := of(a)
		if p == nil {
			continue
		}
		p.Head = chart.Fitted(chart.TextStyle(10, true, chart.Black), a.Label, chart.FigureWidth/columns-40-50*vg.Length(len(p.Legend)))
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil
	}
	xMax := 0.0
	for _, a := range s.arms {
		_, steps := a.steps()
		xMax = max(xMax, float64(steps))
	}
	for _, p := range all {
		p.XMax = xMax
	}
	shareBands(all)
	for len(all)%columns != 0 {
		all = append(all, &chart.Panel{YMin: math.NaN(), YMax: math.NaN()})
	}
	for i := 0; i < len(all); i += columns {
		all[i].Y = y
		f.Rows = append(f.Rows, all[i:i+columns])
	}
	for i, p := range all {
		if i+columns >= len(all) || all[i+columns].Blank() {
			p.X = "optimizer steps"
		}
	}
	return &sweepFigure{f, strings.ToLower(title), caption}
}

// shareBands gives panels one vertical range that holds all curves, and of bands that are wider as much as the curves
// themselves take on either side: the interval of two seeds would flatten every curve.
func shareBands(panels []*chart.Panel) {
	low, high := math.Inf(1), math.Inf(-1)
	least, most := low, high
	for _, p := range panels {
		for _, layer := range p.Layers {
			l, ok := layer.(plot.DataRanger)
			if !ok {
				continue
			}
			_, _, a, b := l.DataRange()
			least, most = min(least, a), max(most, b)
			if _, band := layer.(chart.Ribbon); !band || p.Log {
				low, high = min(low, a), max(high, b)
			}
		}
	}
	if room := high - low; room > 0 {
		low, high = max(least, low-room), min(most, high+room)
	} else {
		low, high = least, most
	}
	for _, p := range panels {
		if p.Log {
			p.YMin, p.YMax = chart.LogRange(low, high)
		} else {
			p.YMin, p.YMax = chart.AirRange(low, high)
		}
	}
}

func addCurve(p *chart.Panel, c curves.Line, color chart.Colour) {
	if len(c.X) == 0 {
		return
	}
	if !slices.ContainsFunc(c.Low, math.IsNaN) {
		p.Layers = append(p.Layers, chart.Ribbon{X: c.X, Low: c.Low, High: c.High, Color: chart.Faint(color, 0.2)})
	}
	p.Layers = append(p.Layers, chart.Line(c.X, c.Mean, color, 1.6), chart.Points(c.X, c.Mean, color))
}
