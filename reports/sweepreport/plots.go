package sweepreport

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// sweepFigure is a plot of a sweep with what its report says below it.
type sweepFigure struct {
	Figure  *chart.Figure
	alt     string
	caption string
}

const (
	maxPanels    = 12   // sweeps.Swept keys with a panel of their own
	maxDrawnJobs = 1000 // more would not be seen and make megabytes of SVG
)

// drawFigures draws figures and returns those that were written.
func drawFigures(figures func() []sweepFigure, write func(*chart.Figure) error) (drawn []sweepFigure, err error) {
	defer func() { // a plot must not keep the report from being written
		if r := recover(); r != nil {
			err = fmt.Errorf("plots: %v", r)
		}
	}()
	var errs []error
	for _, f := range figures() {
		if err := write(f.Figure); err != nil {
			errs = append(errs, fmt.Errorf("plot %s: %w", f.Figure.Name, err))
			continue
		}
		drawn = append(drawn, f)
	}
	return drawn, errors.Join(errs...)
}

// Figures returns all plots that the sweep or study has data for, in the order of its report.
func (v *View) Figures() []sweepFigure {
	var out []sweepFigure
	add := func(f *sweepFigure) {
		if f != nil {
			out = append(out, *f)
		}
	}
	if v.Opt.Study != nil { // of its first condition, but for the answers, which are of all
		add(v.answersFigure())
		add(v.curvesFigure())
		return out
	}
	if v.Unranked || v.Count(v.Measured) < 2 { // there is nothing to compare
		return nil
	}
	if len(v.Opt.Objectives) > 1 {
		add(v.frontFigure())
	}
	for i := range v.Opt.Objectives {
		add(v.parametersFigure(i))
	}
	add(v.curvesFigure())
	if v.Opt.Sweeper != "" && v.Opt.Sweeper != "basic" || v.Count(func(j sweeps.Job) bool { return j.State == record.StatePruned }) > 0 {
		add(v.historyFigure())
	}
	return out
}

// drawnJobs are the jobs with numbers, best first; of very many the best half and a sample of the rest.
func (v *View) drawnJobs() []sweeps.Job {
	jobs := list.Filter(v.Jobs, v.Measured)
	if len(jobs) <= maxDrawnJobs {
		return jobs
	}
	const sure = maxDrawnJobs / 2
	rest := jobs[sure:]
	return slices.Concat(jobs[:sure], list.Make(sure, func(i int) sweeps.Job { return rest[i*len(rest)/sure] }))
}

// objectiveScale is how an objective is drawn: the range that shows the differences between good jobs.
type objectiveScale struct {
	low, high float64
	log       bool
	clipped   int // values beyond the bad end
}

// scaleOf covers all values, but for what is far worse than most of those that count (all but the
// infeasible): beyond their worst quartile by more than three times the distance between the
// quartiles, as diverged jobs are. The good end is never cut.
func scaleOf(o sweeps.Objective, values, counting []float64) objectiveScale {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	s := objectiveScale{low: sorted[0], high: sorted[n-1]}
	if o.Minimize && s.low > 0 && s.high >= 100*s.low { // losses over decades
		s.log = true
		return s
	}
	if len(counting) < 5 {
		return s
	}
	slices.Sort(counting)
	quarter := len(counting) / 4
	q1, q3 := counting[quarter], counting[len(counting)-1-quarter]
	reach := 3 * (q3 - q1)
	if reach == 0 {
		return s
	}
	if o.Minimize {
		for s.high > q3+reach {
			s.clipped++
			s.high = sorted[n-1-s.clipped]
		}
	} else {
		for s.low < q1-reach {
			s.clipped++
			s.low = sorted[s.clipped]
		}
	}
	return s
}

func (s objectiveScale) clamp(y float64) (float64, bool) {
	c := min(max(y, s.low), s.high)
	return c, c != y
}

func (s objectiveScale) axisRange() (low, high float64) {
	if s.log {
		return chart.LogRange(s.low, s.high)
	}
	return chart.AirRange(s.low, s.high)
}

// axis returns the axis from low to high of this scale.
func (s objectiveScale) axis(low, high float64) *sweepAxis {
	if s.log {
		low, high = math.Log10(low), math.Log10(high)
	}
	return &sweepAxis{numeric: true, log: s.log, low: low, high: high, stops: []float64{low, high}}
}

func (v *View) scale(objective int) objectiveScale {
	value := func(j sweeps.Job) float64 { return j.Objectives[objective] }
	jobs := list.Filter(v.Jobs, v.Measured)
	counting := list.Filter(jobs, func(j sweeps.Job) bool { return !sweeps.Violates(j) })
	return scaleOf(v.Opt.Objectives[objective], list.Map(jobs, value), list.Map(counting, value))
}

// clippedWords says in a caption that some jobs lie outside.
func (s objectiveScale) clippedWords() string {
	if s.clipped == 0 {
		return ""
	}
	return fmt.Sprintf(" The axis leaves out %s far worse than the others; triangles at its edge stand for them.",
		page.Plural(s.clipped, "job"))
}

// panelDims are the keys that get a panel: those that vary, the most important ones where
// there are too many.
func (v *View) panelDims() []sweeps.Dimension {
	if len(v.Dims) <= maxPanels {
		return v.Dims
	}
	order := v.importanceOrder()
	dims := slices.Clone(v.Dims)
	slices.SortStableFunc(dims, func(a, b sweeps.Dimension) int { return cmp.Compare(order[a.Key], order[b.Key]) })
	return dims[:maxPanels]
}

// parametersFigure has a panel for each swept key: objective against value.
func (v *View) parametersFigure(objective int) *sweepFigure {
	dims := v.panelDims()
	if len(dims) == 0 {
		return nil
	}
	o := v.Opt.Objectives[objective]
	s := v.scale(objective)
	columns := min(len(dims), chart.Columns(v.wide))
	if len(dims) == 4 {
		columns = 2
	}
	name := "parameters"
	if objective > 0 {
		name = fmt.Sprintf("parameters_%d", objective+1)
	}
	f := &chart.Figure{Name: name, Title: fitted(chart.TextStyle(13, true, chart.Black), o.Name+" by swept key",
		chart.LayoutWidth(v.wide)-2*chart.MarginLeft-20),
		Note: "Every job in every panel, by its value of one key; the other keys differ between the points of a column."}
	caption := fmt.Sprintf("*%s by swept key.* Every job is a point in every panel. A key that matters moves the whole cloud; where the "+
		"spread within a value is as large as the difference between values, other keys or the seed decide.", page.Plain(o.Name))
	if len(dims) == 1 {
		f.Note = "Every job by its value of the only swept key."
		caption = fmt.Sprintf("*%s by %s.* Every job is a point.", page.Plain(o.Name), page.InlineCode(dims[0].Key))
	}
	jobs := v.drawnJobs()
	grids, any := false, false
	room := chart.LayoutWidth(v.wide) - chart.MarginLeft - chart.LabelWidth - chart.MarginRight
	room = (room - 16*vg.Length(columns-1)) / vg.Length(columns)
	for i, dim := range dims {
		axis := newSweepAxis(dim, v.ByNumber)
		p := v.keyPanel(axis, jobs, objective, s, room-34)
		grids = grids || axis.shared
		any = any || !p.Blank()
		if i > 0 { // one legend for all panels
			first := f.Rows[0][0]
			for _, item := range p.Legend {
				if !slices.ContainsFunc(first.Legend, func(l chart.LegendItem) bool { return l.Text == item.Text }) {
					first.Legend = append(first.Legend, item)
				}
			}
			p.Legend = nil
		}
		if i%columns == 0 {
			p.Y = objectiveLabel(o, chart.PanelHeight-30)
			f.Rows = append(f.Rows, nil)
		}
		f.Rows[len(f.Rows)-1] = append(f.Rows[len(f.Rows)-1], p)
	}
	if !any {
		return nil
	}
	last := &f.Rows[len(f.Rows)-1]
	for len(*last) < columns {
		*last = append(*last, &chart.Panel{YMin: math.NaN(), YMax: math.NaN()})
	}
	if grids {
		caption += " Diamonds are means per value, whiskers ± one standard deviation over the finished jobs that share the value; " +
			"points are moved a little sideways so that they can be told apart."
	}
	if len(dims) < len(v.Dims) {
		caption += fmt.Sprintf(" Of %d keys these are the %d that explain most.", len(v.Dims), len(dims))
	}
	return &sweepFigure{f, "objective by swept key", caption + s.clippedWords() + v.sampleWords()}
}

func (v *View) sampleWords() string {
	n := v.Count(v.Measured)
	if n <= maxDrawnJobs {
		return ""
	}
	return fmt.Sprintf(" Of %s the best %d and an even sample of the others are drawn.", page.Plural(n, "job"), maxDrawnJobs/2)
}

// objectiveLabel names the objective beside an axis of this length, and which way is better if there is room.
func objectiveLabel(o sweeps.Objective, length vg.Length) string {
	style := chart.TextStyle(10.5, false, chart.Black)
	if text := fmt.Sprintf("%s (%s is better)", o.Name, o.Direction()); style.Width(text) <= length {
		return text
	}
	return fitted(style, o.Name, length)
}

// keyPanel draws the objective against one key; width is that of the panel.
func (v *View) keyPanel(axis *sweepAxis, jobs []sweeps.Job, objective int, s objectiveScale, width vg.Length) *chart.Panel {
	p := &chart.Panel{YMin: math.NaN(), YMax: math.NaN(), X: fitted(chart.TextStyle(10.5, false, chart.Black), axis.dim.Key, width)}
	p.XMin, p.XMax = axis.bounds()
	setTicks(p, axis, width)
	jitter := axis.jitter(p.XMax-p.XMin, width)
	x := func(j sweeps.Job) (float64, bool) {
		u, ok := axis.at(j.Params)
		return u + jitter*sideways(j.Number), ok
	}
	addJobs(p, v, jobs, objective, s, x)
	addMeans(p, v, axis, objective, s)
	addBest(p, v, objective, s, x)
	return p
}

// jitter returns how far points of one value are moved to the sides on an axis of this range and length: a
// fifth of the gap between values, at most 10 points.
func (a *sweepAxis) jitter(span float64, length vg.Length) float64 {
	if !a.shared {
		return 0
	}
	gap := span / 4
	for i := 1; i < len(a.stops); i++ {
		gap = min(gap, a.stops[i]-a.stops[i-1])
	}
	return min(0.2*gap, span*10/float64(length))
}

// sideways is in [-1, 1] and differs between jobs: multiples of the golden ratio are spread evenly.
func sideways(number int) float64 {
	const golden = 0.6180339887498949
	_, fraction := math.Modf(golden * float64(number))
	return 2*fraction - 1
}

func whiskerSample(c draw.Canvas, from, to vg.Point) {
	at := vg.Point{X: (from.X + to.X) / 2, Y: from.Y}
	c.StrokeLine2(draw.LineStyle{Color: chart.Black, Width: 1}, at.X, at.Y-5, at.X, at.Y+5)
	c.DrawGlyph(draw.GlyphStyle{Color: chart.Black, Radius: 2.7, Shape: diamond{}}, at)
}

// addMeans draws the mean per value of a grid, over finished jobs.
func addMeans(p *chart.Panel, v *View, axis *sweepAxis, objective int, s objectiveScale) {
	if !axis.grid {
		return
	}
	values := map[float64][]float64{}
	for _, j := range v.Jobs {
		if u, ok := axis.at(j.Params); ok && v.HasResult(j) {
			values[u] = append(values[u], j.Objectives[objective])
		}
	}
	w := whiskers{joined: axis.ordered, low: p.YMin, high: p.YMax}
	several := false
	for _, u := range axis.stops {
		if x := values[u]; len(x) > 0 {
			w.x, w.mean, w.sd = append(w.x, u), append(w.mean, stat.Mean(x)), append(w.sd, stat.SD(x))
			several = several || len(x) > 1
		}
	}
	if several {
		w.widen(p, s)
		p.Layers = append(p.Layers, w)
		p.Legend = append(p.Legend, chart.LegendItem{Text: "mean ± sd", Draw: whiskerSample})
	}
}

// setTicks puts the axis's labels below a panel of this width: flat where they fit, else tilted.
func setTicks(p *chart.Panel, axis *sweepAxis, width vg.Length) {
	style := chart.TextStyle(9.5, false, chart.Black)
	ticks := axis.ticks(p.XMin, p.XMax)
	each, tight := width/vg.Length(max(len(ticks), 1)), false
	for _, t := range ticks {
		tight = tight || style.Width(t.Label)+6 > each
	}
	power := func(t plot.Tick) bool { return math.Abs(t.Value-math.Round(t.Value)) < 1e-9 }
	if axis.log && !axis.grid && tight && list.Count(ticks, power) > 1 {
		ticks = list.Filter(ticks, power)
	}
	p.XTicks, p.Tilted = fixedTicks(ticks), tight && !axis.numeric
	if axis.numeric {
		return
	}
	for i, t := range ticks {
		if p.Tilted { // it reaches to the left, at most over the margin
			at := width * vg.Length((t.Value-p.XMin)/(p.XMax-p.XMin))
			ticks[i].Label = fitted(style, t.Label, min(90, (at+32)/vg.Length(math.Cos(chart.Tilt))))
		}
	}
}
