package sweepreport

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/arms"
	"fulcrum/reports/chart"
	"fulcrum/reports/curves"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/webchart"
)

// over averages epoch metrics over the seeds of an arm, at the epochs that all of them have; steps include those of the arms
// before it.
func (a *setting) over(names ...string) *webchart.Drawn {
	if len(a.runs) == 0 {
		return &webchart.Drawn{}
	}
	runs := list.Map(a.runs, func(r *record.Run) *webchart.Drawn { return ofRows(r.Epochs, names) })
	mean := curves.Over(runs)
	if a.from != nil {
		_, before := a.from.steps()
		for i := range mean.Steps {
			mean.Steps[i] += int64(before)
		}
	}
	return mean
}

// learning are the arm's validation metrics over its steps, the score from the initial policy or from the end of the arm before it.
func (a *setting) learning() *webchart.Drawn {
	mean, score := a.over("val_reward", "val_recorded_reward", "val_accuracy", "val_loss", "val_kl"), a.score()
	if mean.Series["val_"+score] == nil {
		return mean
	}
	if a.from != nil {
		if before := lineOf(a.from.learning(), "val_"+score); len(before.X) > 0 {
			n := len(before.X) - 1
			begin(mean, int64(before.X[n]), "val_"+score, before.Mean[n], before.Low[n], before.High[n])
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
		begin(mean, 0, "val_"+score, stat.Mean(values), low, high)
	}
	return mean
}

// score is the validation metric of the arm's curve.
func (a *setting) score() string { return scoreOf(a.runs) }

// scoreOf is the metric that runs are judged by: the reward or, where nothing scores selections, the recorded one.
func scoreOf(runs []*record.Run) string {
	for _, metric := range []string{"reward", "recorded_reward"} {
		if slices.ContainsFunc(runs, func(r *record.Run) bool {
			return slices.ContainsFunc(r.Evaluations, func(e record.Evaluation) bool { return e.Metric == metric })
		}) {
			return metric
		}
	}
	return "reward"
}

// curvesName is the name of the learning curves' files.
const curvesName = "curves"

// curvesFigure has a panel for each of the learners: its score on validation queries over steps, with the arms that it starts
// from before it.
func (v *View) curvesFigure() *sweepFigure {
	of, score := v.learners(), "reward"
	for _, a := range of.arms {
		score = results.MetricName(a.score())
	}
	note := "Mean " + score + " on validation queries at epoch ends, over the seeds; the band is the 95% interval of that mean (Student's t)."
	caption := fmt.Sprintf("*Learning curves.* Validation %s: mean over %s seeds with its 95%% interval (Student's t), for new seeds and the "+
		"same questions; one seed has no band.", score, seedCounts(of.arms))
	if score != "reward" {
		caption += " It is what the policy expects among a query's recorded candidates: nothing scores its selections."
	}
	if slices.ContainsFunc(of.arms, func(a *setting) bool { return a.from != nil }) {
		note += "\nGrey: the arm that it starts from."
	}
	title := "Learning curves"
	if v.Opt.Study == nil {
		title += " of settings with several seeds"
		caption += fmt.Sprintf(" These are %s, best first.", page.Plural(len(of.arms), "setting"))
	}
	columns, names, style := chart.Columns(v.wide), list.Map(of.arms, (*setting).label), chart.TextStyle(10, true, chart.Black)
	if v.wide > 0 {
		names = arms.ShortNames(names)
		for columns > 1 && slices.ContainsFunc(names, func(n string) bool { return style.Width(n) > roomFor(v.wide, columns) }) {
			columns--
		}
	}
	room := roomFor(v.wide, columns)
	if columns > 2 {
		room -= 45
	}
	var all []*chart.Panel
	xMax := 0.0
	for i, a := range of.arms {
		_, steps := a.steps()
		xMax = max(xMax, float64(steps))
		if p := a.panel(); p != nil {
			p.Head = fitted(style, names[i], room)
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	for _, p := range all {
		p.XMax = xMax
	}
	if shareBands(all) {
		caption += " Bands end at the axis; where most of one is wider, it is left out."
	}
	for len(all)%columns != 0 {
		all = append(all, &chart.Panel{YMin: math.NaN(), YMax: math.NaN()})
	}
	f := &chart.Figure{Name: curvesName, Title: title, Note: note, Tall: 130}
	for row := range slices.Chunk(all, columns) {
		row[0].Y = "val " + score
		f.Rows = append(f.Rows, row)
	}
	for i, p := range all {
		if i+columns >= len(all) || all[i+columns].Blank() {
			p.X = "optimizer steps"
		}
	}
	return &sweepFigure{f, strings.ToLower(title), caption}
}

// panel draws the arm's score with its band, behind the curve of the arm that it starts from; nil where there is no score.
func (a *setting) panel() *chart.Panel {
	c := lineOf(a.learning(), "val_"+a.score())
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
	} else if before := lineOf(a.from.learning(), "val_"+a.score()); len(before.X) > 0 {
		addCurve(p, before, chart.Grey)
	}
	addCurve(p, c, chart.Blue)
	return p
}

// seedCounts says over how many seeds the means of settings are: "3", or "2 to 3".
func seedCounts(of []*setting) string {
	counts := list.Filter(list.Map(of, func(s *setting) int { return len(s.runs) }), func(n int) bool { return n > 0 })
	slices.Sort(counts)
	if n := len(counts); n > 0 && counts[0] < counts[n-1] {
		return fmt.Sprintf("%d to %d", counts[0], counts[n-1])
	}
	return fmt.Sprint(append(counts, 0)[0])
}

// roomFor is the room of a panel's head.
func roomFor(wide vg.Length, columns int) vg.Length {
	return chart.LayoutWidth(wide)/vg.Length(columns) - 45
}

// shareBands gives panels one vertical range that holds all curves, and of bands that are wider as much as the curves
// themselves take on either side: the interval of two seeds would flatten every curve. A band that fills its panel is left out. cut: the
// range does not hold all of a band.
func shareBands(panels []*chart.Panel) (cut bool) {
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
			if _, band := layer.(chart.Ribbon); !band {
				low, high = min(low, a), max(high, b)
			}
		}
	}
	if room := high - low; room > 0 {
		cut = least < low-room || most > high+room
		low, high = max(least, low-room), min(most, high+room)
	} else {
		low, high = least, most
	}
	for _, p := range panels {
		p.YMin, p.YMax = chart.AirRange(low, high)
		p.Layers = slices.DeleteFunc(p.Layers, func(layer plot.Plotter) bool {
			band, ok := layer.(chart.Ribbon)
			wider := list.Count(stat.Indices(len(band.X)), func(i int) bool { return band.Low[i] < p.YMin && band.High[i] > p.YMax })
			return ok && 2*wider > len(band.X)
		})
	}
	return cut
}

func addCurve(p *chart.Panel, c line, color chart.Colour) {
	if len(c.X) == 0 {
		return
	}
	if !slices.ContainsFunc(c.Low, math.IsNaN) {
		p.Layers = append(p.Layers, chart.Ribbon{X: c.X, Low: c.Low, High: c.High, Color: chart.Faint(color, 0.2)})
	}
	p.Layers = append(p.Layers, chart.Line(c.X, c.Mean, color, 1.6), chart.Points(c.X, c.Mean, color))
}

// learners are the settings whose curves are drawn, with bands over their seeds: the arms under the first condition, or of the compared
// settings those with several seeds, best first.
func (v *View) learners() *condition {
	if len(v.conditions) > 0 {
		return v.conditions[0]
	}
	rowless := func(r *record.Run) bool { return len(r.Epochs) == 0 }
	return &condition{arms: slices.DeleteFunc(slices.Clone(v.settings), func(s *setting) bool {
		return len(s.runs) < 2 || slices.ContainsFunc(s.runs, rowless)
	})}
}

// Explore is the interactive part of the page: the curves of the figure over each other, and those of other validation metrics.
func (v *View) Explore() (page.Lively, error) {
	var data struct {
		Runs        []curves.Shown       `json:"runs"`
		Name        string               `json:"name"` // of the score that the figure shows
		Differences *results.Differences `json:"differences,omitempty"`
	}
	data.Runs, data.Differences = []curves.Shown{}, v.differences()
	for _, s := range v.learners().arms {
		if d := s.learning(); len(d.Steps) > 0 {
			data.Name = "val_" + s.score()
			data.Runs = append(data.Runs, curves.Shown{Label: s.label(), Seeds: len(s.runs), Phases: s.phases(), Epochs: d})
		}
	}
	if len(data.Runs) == 0 && data.Differences == nil {
		return page.Lively{}, nil
	}
	return webchart.Lively(data, curvesName)
}

// phases are those of the arm's runs, each from the step behind the one before, on the axis of its learning curves.
func (a *setting) phases() (out []curves.Span) {
	from := int64(0)
	if a.from != nil {
		_, before := a.from.steps()
		from = int64(before)
	}
	end := from
	for _, span := range a.runs[0].Spans() {
		out = append(out, curves.Span{Name: span.Name, From: end, To: from + int64(span.To)})
		end = from + int64(span.To) + 1
	}
	return out
}

// differences are what a page's forest plot shows: a study's answers, or what the other settings differ by from the best one.
func (v *View) differences() *results.Differences {
	d := &results.Differences{What: "Answers: mean difference with its 95% interval"}
	for i, a := range v.answers {
		if n := len(d.Rows); a.c != nil {
			d.Add(fmt.Sprintf("%d  %s − %s", i+1, a.what, a.against), &a.c.Paired)
			for ; n < len(d.Rows); n++ {
				d.Rows[n].Words = a.cell(a.c)
			}
		}
	}
	if t := v.verdicts; t != nil {
		d.What = fmt.Sprintf("%s minus that of %s, mean difference with its 95%% interval, on %s",
			page.Capital(results.MetricName(t.Metric)), t.Reference, t.Split)
		for _, r := range t.Differences() {
			d.Add(strings.ReplaceAll(r.Name, "`", ""), &r.Difference.Paired)
		}
	}
	if len(d.Rows) == 0 {
		return nil
	}
	return d
}

// ofRows makes a series of the metrics named, a point a row.
func ofRows(rows []record.Row, names []string) *webchart.Drawn {
	d := &webchart.Drawn{Width: 1, Series: map[string]*webchart.DrawnColumn{}}
	for i, row := range rows {
		d.Steps = append(d.Steps, int64(row.GlobalStep))
		for _, name := range names {
			y, ok := row.Number(name)
			if ok && d.Series[name] == nil {
				d.Series[name] = &webchart.DrawnColumn{Mean: slices.Repeat(webchart.Numbers{math.NaN()}, len(rows))}
			}
			if ok {
				d.Series[name].Mean[i] = y
			}
		}
	}
	return d
}

// begin puts a point of one metric before all others, with what is drawn around it.
func begin(d *webchart.Drawn, step int64, name string, mean, low, high float64) {
	d.Steps = slices.Insert(d.Steps, 0, step)
	for other, c := range d.Series {
		x, a, b := math.NaN(), math.NaN(), math.NaN()
		if other == name {
			x, a, b = mean, low, high
		}
		c.Mean, c.Low, c.High = slices.Insert(c.Mean, 0, x), slices.Insert(c.Low, 0, a), slices.Insert(c.High, 0, b)
	}
}

// line is one metric of a mean over runs, where it has a finite number.
type line struct {
	X               []float64 // global steps
	Mean, Low, High []float64 // Low is NaN where there is no band
}

// lineOf returns a metric's line, without a point for one that the series do not have.
func lineOf(d *webchart.Drawn, name string) line {
	var out line
	c := d.Series[name]
	if c == nil {
		return out
	}
	for i, y := range c.Mean {
		if !math.IsNaN(y) {
			out.X, out.Mean = append(out.X, float64(d.Steps[i])), append(out.Mean, y)
			out.Low, out.High = append(out.Low, c.Low[i]), append(out.High, c.High[i])
		}
	}
	return out
}
