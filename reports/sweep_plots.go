package reports

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// sweepFigure is a plot of a sweep with what its report says below it.
type sweepFigure struct {
	figure  *figure
	alt     string
	caption string
}

const (
	maxPanels    = 12   // swept keys with a panel or an axis of their own
	maxDrawnJobs = 1000 // more would not be seen and make megabytes of SVG
)

// drawPlots draws every figure that the sweep has data for and returns those that were written.
func (v *sweepView) drawPlots() (drawn []sweepFigure, err error) {
	defer func() { // a plot must not keep the report from being written
		if r := recover(); r != nil {
			err = fmt.Errorf("plots: %v", r)
		}
	}()
	if v.count(v.measured) < 2 { // there is nothing to compare
		return nil, nil
	}
	dir := filepath.Join(v.dir, plotsFolder)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("plots: %w", err)
	}
	var errs []error
	for _, f := range v.figures() {
		if err := f.figure.write(dir); err != nil {
			errs = append(errs, fmt.Errorf("plot %s: %w", f.figure.name, err))
			continue
		}
		drawn = append(drawn, f)
	}
	return drawn, errors.Join(errs...)
}

// figures are all plots of a sweep, in the order of its report.
func (v *sweepView) figures() []sweepFigure {
	var out []sweepFigure
	add := func(f *sweepFigure) {
		if f != nil {
			out = append(out, *f)
		}
	}
	if len(v.opt.Objectives) > 1 {
		add(v.frontFigure())
	}
	for i := range v.opt.Objectives {
		add(v.parametersFigure(i))
	}
	if len(v.opt.Objectives) == 1 {
		add(v.cellsFigure())
	}
	add(v.parallelFigure())
	if v.opt.Sweeper != "" && v.opt.Sweeper != "basic" || v.count(func(j SweepJob) bool { return j.State == StatePruned }) > 0 {
		add(v.historyFigure())
	}
	return out
}

// drawnJobs are the jobs with numbers, best first; of very many the best half and a sample of the rest.
func (v *sweepView) drawnJobs() []SweepJob {
	jobs := slices.DeleteFunc(slices.Clone(v.jobs), func(j SweepJob) bool { return !v.measured(j) })
	if len(jobs) <= maxDrawnJobs {
		return jobs
	}
	const sure = maxDrawnJobs / 2
	out := slices.Clone(jobs[:sure])
	rest := jobs[sure:]
	for i := range sure {
		out = append(out, rest[i*len(rest)/sure])
	}
	return out
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
func scaleOf(o SweepObjective, values, counting []float64) objectiveScale {
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

// clamp moves a value into the range and says whether it was outside.
func (s objectiveScale) clamp(y float64) (float64, bool) {
	c := min(max(y, s.low), s.high)
	return c, c != y
}

// axisRange is the range with air around.
func (s objectiveScale) axisRange() (low, high float64) {
	if s.log {
		return logRange(s.low, s.high)
	}
	return airRange(s.low, s.high)
}

func (v *sweepView) scale(objective int) objectiveScale {
	var values, counting []float64
	for _, j := range v.jobs {
		if v.measured(j) {
			values = append(values, j.Objectives[objective])
			if !violates(j) {
				counting = append(counting, j.Objectives[objective])
			}
		}
	}
	return scaleOf(v.opt.Objectives[objective], values, counting)
}

// clippedWords says in a caption that some jobs lie outside.
func (s objectiveScale) clippedWords() string {
	if s.clipped == 0 {
		return ""
	}
	return fmt.Sprintf(" The axis leaves out %s far worse than the others; triangles at its edge stand for them.", plural(s.clipped, "job"))
}

// marks are the ways in which a job is drawn.
type mark struct {
	text  string
	shape draw.GlyphDrawer
	color colour
	size  vg.Length
	has   func(SweepJob) bool
}

func (v *sweepView) marks(n int) []mark {
	strength := 0.75
	if n > 150 {
		strength = 0.45
	}
	return []mark{
		{"done", draw.CircleGlyph{}, faint(blue, strength), 2.6, v.feasible},
		{"pruned", draw.TriangleGlyph{}, faint(orange, min(1, strength+0.25)), 3, func(j SweepJob) bool { return j.State == StatePruned }},
		{"infeasible", draw.CrossGlyph{}, vermillion, 2.6, v.infeasible},
		{"running or failed", draw.RingGlyph{}, grey, 2.4, func(j SweepJob) bool { return !ended(j.State) || j.State == StateFailed }},
	}
}

// addJobs draws jobs as points at (x, objective), by state; what lies beyond the axis is drawn at its
// edge.
func (p *panel) addJobs(v *sweepView, jobs []SweepJob, objective int, s objectiveScale, x func(SweepJob) (float64, bool)) {
	low, high := s.axisRange()
	p.yMin, p.yMax, p.log = low, high, s.log
	edge := dots{color: grey, shape: draw.PyramidGlyph{}, size: 3}
	inset := 0.025 * (high - low)
	for i := len(v.marks(len(jobs))) - 1; i >= 0; i-- { // done ones on top
		m := v.marks(len(jobs))[i]
		d := dots{color: m.color, shape: m.shape, size: m.size}
		for _, j := range slices.Backward(jobs) {
			u, ok := x(j)
			if !ok || !m.has(j) {
				continue
			}
			if _, out := s.clamp(j.Objectives[objective]); out {
				edge.x, edge.y = append(edge.x, u), append(edge.y, low+inset)
				if v.opt.Objectives[objective].Minimize {
					edge.y[len(edge.y)-1], edge.shape = high-inset, downGlyph{}
				}
				continue
			}
			d.x, d.y = append(d.x, u), append(d.y, j.Objectives[objective])
		}
		if len(d.x) > 0 {
			p.layers = append(p.layers, d)
			p.legend = slices.Insert(p.legend, 0, legendItem{m.text, dotSample(m.color, m.shape)})
		}
	}
	if len(edge.x) > 0 {
		p.layers = append(p.layers, edge)
		p.legend = append(p.legend, legendItem{"beyond the axis", dotSample(grey, edge.shape)})
	}
}

// addBest rings the best job, or those of the front.
func (p *panel) addBest(v *sweepView, objective int, s objectiveScale, x func(SweepJob) (float64, bool)) {
	d := dots{color: black, shape: draw.RingGlyph{}, size: 5}
	for _, j := range v.highlighted() {
		if u, ok := x(j); ok {
			y, _ := s.clamp(j.Objectives[objective])
			d.x, d.y = append(d.x, u), append(d.y, y)
		}
	}
	if len(d.x) > 0 {
		p.layers = append(p.layers, d)
		p.legend = append(p.legend, legendItem{v.highlightWords(), dotSample(black, draw.RingGlyph{})})
	}
}

// highlighted are the best job, or with several objectives the front.
func (v *sweepView) highlighted() []SweepJob {
	if len(v.opt.Objectives) == 1 {
		if best := v.best(); best != nil {
			return []SweepJob{*best}
		}
		return nil
	}
	return slices.DeleteFunc(slices.Clone(v.jobs), func(j SweepJob) bool { return !v.front[j.Number] })
}

func (v *sweepView) highlightWords() string {
	if len(v.opt.Objectives) > 1 {
		return "Pareto front"
	}
	if best := v.best(); best != nil {
		return fmt.Sprintf("best: job %d", best.Number)
	}
	return "best"
}

// downGlyph is a filled triangle that points down.
type downGlyph struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (downGlyph) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := style.Radius
	c.FillPolygon(style.Color, []vg.Point{{X: at.X - r, Y: at.Y + 0.7*r}, {X: at.X + r, Y: at.Y + 0.7*r}, {X: at.X, Y: at.Y - r}})
}

// whiskers are means with their standard deviations.
type whiskers struct {
	x, mean, sd []float64 // sd NaN: one value
	low, high   float64   // limits of the axis
	joined      bool      // the values have an order
}

// Plot implements plot.Plotter.
func (w whiskers) Plot(c draw.Canvas, p *plot.Plot) {
	style := draw.LineStyle{Color: black, Width: 1}
	at := func(u, y float64) vg.Point { // of the nearest point on the axis
		return vg.Point{X: c.X(p.X.Norm(u)), Y: c.Y(p.Y.Norm(min(max(y, w.low), w.high)))}
	}
	inside := func(y float64) bool { return y >= w.low && y <= w.high }
	for i, u := range w.x {
		if w.joined && i > 0 && inside(w.mean[i]) && inside(w.mean[i-1]) {
			from, to := at(w.x[i-1], w.mean[i-1]), at(u, w.mean[i])
			c.StrokeLine2(draw.LineStyle{Color: faint(black, 0.55), Width: 1}, from.X, from.Y, to.X, to.Y)
		}
		if !(w.sd[i] > 0) {
			continue
		}
		low, high := w.mean[i]-w.sd[i], w.mean[i]+w.sd[i]
		if high < w.low || low > w.high {
			continue
		}
		from, to := at(u, low), at(u, high)
		c.StrokeLine2(style, from.X, from.Y, to.X, to.Y)
		for _, y := range []float64{low, high} {
			if end := at(u, y); inside(y) {
				c.StrokeLine2(style, end.X-2.5, end.Y, end.X+2.5, end.Y)
			}
		}
	}
	for i, u := range w.x {
		if inside(w.mean[i]) {
			c.DrawGlyph(draw.GlyphStyle{Color: black, Radius: 2.7, Shape: diamondGlyph{}}, at(u, w.mean[i]))
		}
	}
}

// diamondGlyph is a filled square on its corner.
type diamondGlyph struct{}

// DrawGlyph implements draw.GlyphDrawer.
func (diamondGlyph) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	r := style.Radius * 1.3
	c.FillPolygon(style.Color, []vg.Point{{X: at.X - r, Y: at.Y}, {X: at.X, Y: at.Y + r}, {X: at.X + r, Y: at.Y}, {X: at.X, Y: at.Y - r}})
}

// panelDims are the keys that get a panel or an axis: those that vary, the most important ones where
// there are too many.
func (v *sweepView) panelDims() []SweepDimension {
	if len(v.dims) <= maxPanels {
		return v.dims
	}
	order := map[string]int{}
	for i, row := range v.importances(0) {
		order[row.dim.Key] = i - len(v.dims)
	}
	dims := slices.Clone(v.dims)
	slices.SortStableFunc(dims, func(a, b SweepDimension) int { return cmp.Compare(order[a.Key], order[b.Key]) })
	return dims[:maxPanels]
}

// parametersFigure has a panel for each swept key: objective against value.
func (v *sweepView) parametersFigure(objective int) *sweepFigure {
	dims := v.panelDims()
	if len(dims) == 0 {
		return nil
	}
	o := v.opt.Objectives[objective]
	s := v.scale(objective)
	columns := min(len(dims), 3)
	if len(dims) == 4 {
		columns = 2
	}
	name := "parameters"
	if objective > 0 {
		name = fmt.Sprintf("parameters_%d", objective+1)
	}
	f := &figure{name: name, title: fitted(textStyle(13, true, black), o.Name+" by swept key", figureWidth-2*marginLeft-20),
		note: "Every job in every panel, by its value of one key; the other keys differ between the points of a column."}
	caption := fmt.Sprintf("*%s by swept key.* Every job is a point in every panel. A key that matters moves the whole cloud; where the spread within a value is as large as the difference between values, other keys or the seed decide.", plain(o.Name))
	if len(dims) == 1 {
		f.note = "Every job by its value of the only swept key."
		caption = fmt.Sprintf("*%s by %s.* Every job is a point.", plain(o.Name), inlineCode(dims[0].Key))
	}
	jobs := v.drawnJobs()
	grids, any := false, false
	room := (figureWidth - marginLeft - labelWidth - marginRight - 16*vg.Length(columns-1)) / vg.Length(columns)
	for i, dim := range dims {
		axis := newSweepAxis(dim, v.byNumber)
		p := v.keyPanel(axis, jobs, objective, s, room-34)
		grids = grids || axis.shared
		any = any || !p.blank()
		if i > 0 { // one legend for all panels
			first := f.rows[0][0]
			for _, item := range p.legend {
				if !slices.ContainsFunc(first.legend, func(l legendItem) bool { return l.text == item.text }) {
					first.legend = append(first.legend, item)
				}
			}
			p.legend = nil
		}
		if i%columns == 0 {
			p.y = o.label(panelHeight - 30)
			f.rows = append(f.rows, nil)
		}
		f.rows[len(f.rows)-1] = append(f.rows[len(f.rows)-1], p)
	}
	if !any {
		return nil
	}
	last := &f.rows[len(f.rows)-1]
	for len(*last) < columns {
		*last = append(*last, &panel{yMin: math.NaN(), yMax: math.NaN()})
	}
	if grids {
		caption += " Diamonds are means per value, whiskers ± one standard deviation over the finished jobs that share the value; points are moved a little sideways so that they can be told apart."
	}
	if len(dims) < len(v.dims) {
		caption += fmt.Sprintf(" Of %d keys these are the %d that explain most.", len(v.dims), len(dims))
	}
	return &sweepFigure{f, "objective by swept key", caption + s.clippedWords() + v.sampleWords()}
}

func (v *sweepView) sampleWords() string {
	n := v.count(v.measured)
	if n <= maxDrawnJobs {
		return ""
	}
	return fmt.Sprintf(" Of %s the best %d and an even sample of the others are drawn.", plural(n, "job"), maxDrawnJobs/2)
}

// label names the objective beside an axis of this length, and which way is better if there is room.
func (o SweepObjective) label(length vg.Length) string {
	style := textStyle(10.5, false, black)
	if text := fmt.Sprintf("%s (%s is better)", o.Name, o.direction()); style.Width(text) <= length {
		return text
	}
	return fitted(style, o.Name, length)
}

// keyPanel draws the objective against one key; width is that of the panel.
func (v *sweepView) keyPanel(axis *sweepAxis, jobs []SweepJob, objective int, s objectiveScale, width vg.Length) *panel {
	p := &panel{yMin: math.NaN(), yMax: math.NaN(), x: fitted(textStyle(10.5, false, black), axis.dim.Key, width)}
	p.xMin, p.xMax = axis.bounds()
	p.setTicks(axis, width)
	spread := axis.spread(p.xMax-p.xMin, width)
	x := func(j SweepJob) (float64, bool) {
		u, ok := axis.at(j.Params)
		return u + spread*sideways(j.Number), ok
	}
	p.addJobs(v, jobs, objective, s, x)
	p.addMeans(v, axis, objective, s)
	p.addBest(v, objective, s, x)
	return p
}

// spread is how far points of one value are moved to the sides on an axis of this range and length: a
// fifth of the gap between values, at most 10 points.
func (a *sweepAxis) spread(span float64, length vg.Length) float64 {
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

// addMeans draws the mean per value of a grid, over finished jobs.
func (p *panel) addMeans(v *sweepView, axis *sweepAxis, objective int, s objectiveScale) {
	if !axis.grid {
		return
	}
	values := map[float64][]float64{}
	for _, j := range v.jobs {
		if u, ok := axis.at(j.Params); ok && v.hasResult(j) {
			values[u] = append(values[u], j.Objectives[objective])
		}
	}
	w := whiskers{joined: axis.numeric, low: p.yMin, high: p.yMax}
	several := false
	for _, u := range axis.stops {
		if x := values[u]; len(x) > 0 {
			w.x, w.mean, w.sd = append(w.x, u), append(w.mean, meanOf(x)), append(w.sd, sdOf(x))
			several = several || len(x) > 1
		}
	}
	if several {
		p.layers = append(p.layers, w)
		p.legend = append(p.legend, legendItem{"mean ± sd", whiskerSample})
	}
}

func whiskerSample(c draw.Canvas, from, to vg.Point) {
	at := vg.Point{X: (from.X + to.X) / 2, Y: from.Y}
	c.StrokeLine2(draw.LineStyle{Color: black, Width: 1}, at.X, at.Y-5, at.X, at.Y+5)
	c.DrawGlyph(draw.GlyphStyle{Color: black, Radius: 2.7, Shape: diamondGlyph{}}, at)
}

// setTicks puts the axis's labels below a panel of this width: flat where they fit, else tilted.
func (p *panel) setTicks(axis *sweepAxis, width vg.Length) {
	style := textStyle(9.5, false, black)
	ticks := axis.ticks(p.xMin, p.xMax)
	if axis.numeric {
		p.xTicks = fixedTicks(thinned(ticks, p.xMin, p.xMax, width, func(s string) vg.Length { return style.Width(s) + 8 }))
		return
	}
	each := width / vg.Length(max(len(ticks), 1))
	for _, t := range ticks {
		p.tilted = p.tilted || style.Width(t.Label)+6 > each
	}
	for i, t := range ticks {
		if p.tilted { // it reaches to the left, at most over the margin
			at := width * vg.Length((t.Value-p.xMin)/(p.xMax-p.xMin))
			ticks[i].Label = fitted(style, t.Label, min(90, (at+32)/vg.Length(math.Cos(tilt))))
		}
	}
	if p.tilted {
		ticks = thinned(ticks, p.xMin, p.xMax, width, func(string) vg.Length { return 13 / vg.Length(math.Sin(tilt)) / 1.6 })
	}
	p.xTicks = fixedTicks(ticks)
}

// historyFigure shows the objective in the order of the jobs with the best so far, and what each cost.
func (v *sweepView) historyFigure() *sweepFigure {
	byNumber := v.byNumber
	last := float64(byNumber[len(byNumber)-1].Number)
	number := func(j SweepJob) (float64, bool) { return float64(j.Number), true }
	var panels []*panel
	clipped := ""
	for i, o := range v.opt.Objectives {
		s := v.scale(i)
		p := &panel{}
		p.addJobs(v, v.drawnJobs(), i, s, number)
		p.y = o.label(panelHeight - 30)
		var x, y []float64
		for _, j := range byNumber {
			if v.feasible(j) && (len(y) == 0 || o.compare(j.Objectives[i], y[len(y)-1]) < 0) {
				x, y = append(x, float64(j.Number)), append(y, j.Objectives[i])
			}
		}
		if len(x) > 0 {
			x, y = append(x, last+0.5), append(y, y[len(y)-1])
			for k := range y {
				y[k], _ = s.clamp(y[k])
			}
			l := line(x, y, black, 1.4)
			l.steps = true
			p.layers = append(p.layers, l)
			p.legend = append(p.legend, legendItem{"best so far", lineSample(l.style)})
		}
		p.addBest(v, i, s, number)
		panels = append(panels, p)
		clipped = cmp.Or(clipped, s.clippedWords())
	}
	caption := "*History.* Objective by job number; the line is the best so far. A sweep whose line has been flat for most of its jobs has found what it can find in these ranges; one that still rises deserves more trials."
	if v.opt.Objectives[0].Minimize {
		caption = strings.Replace(caption, "still rises", "still falls", 1)
	}
	if p, text := v.epochsPanel(byNumber); p != nil {
		panels = append(panels, p)
		caption += " " + text
	}
	f := stack("History of the sweep", "Jobs in the order in which the sweeper proposed them.", panels...)
	if f == nil {
		return nil
	}
	f.name = "history"
	for _, p := range panels {
		p.xMin, p.xMax, p.xTicks = -0.5, last+0.5, linearTicks{integers: true}
	}
	f.rows[len(f.rows)-1][0].x = "job"
	return &sweepFigure{f, "history of the sweep", caption + clipped + v.sampleWords()}
}

// stems are vertical bars from zero.
type stems struct {
	x, y  []float64
	wide  float64 // jobs that a bar stands for; 0: one
	style draw.LineStyle
}

// DataRange implements plot.DataRanger.
func (s stems) DataRange() (xmin, xmax, ymin, ymax float64) { return rangeOf(s.x, s.y) }

// Plot implements plot.Plotter.
func (s stems) Plot(c draw.Canvas, p *plot.Plot) {
	style := s.style
	style.Width = min((c.Max.X-c.Min.X)/vg.Length(p.X.Max-p.X.Min)*vg.Length(0.75*max(s.wide, 1)), 9)
	for i, u := range s.x {
		x := c.X(p.X.Norm(u))
		c.StrokeLine2(style, x, c.Y(p.Y.Norm(0)), x, c.Y(p.Y.Norm(s.y[i])))
	}
}

// epochsPanel shows what pruning saved: the epochs of every job.
func (v *sweepView) epochsPanel(jobs []SweepJob) (*panel, string) {
	pruned := v.count(func(j SweepJob) bool { return j.State == StatePruned && j.Epochs > 0 })
	if pruned == 0 {
		return nil, ""
	}
	p := &panel{y: "epochs trained", yMin: 0, yMax: math.NaN()}
	full, spent, finished, stopped := 0, 0, 0, 0
	caption := "Below, the epochs that each job trained"
	if len(jobs) > maxStems {
		p.y = "mean epochs trained"
		caption = "Below, the mean epochs of jobs in succession"
		p.layers = append(p.layers, meanEpochs(jobs))
	} else {
		p.addEpochs(jobs)
	}
	for _, j := range jobs {
		switch {
		case j.State == StateDone:
			full, finished, spent = max(full, j.Epochs), finished+1, spent+j.Epochs
		case j.State == StatePruned:
			spent += j.Epochs
			stopped++
		}
	}
	if finished == 0 {
		return p, caption + "."
	}
	whole := full * (finished + stopped)
	return p, fmt.Sprintf("%s: finished and pruned jobs took %s of the %s that all of them would have taken in full.", caption, thousands(spent), plural(whole, "epoch"))
}

// maxStems is how many jobs have room for a bar each.
const maxStems = 200

// addEpochs draws a bar for every job, coloured by how it ended.
func (p *panel) addEpochs(jobs []SweepJob) {
	for _, m := range []struct {
		text  string
		color colour
		has   func(SweepJob) bool
	}{
		{"done", faint(blue, 0.8), func(j SweepJob) bool { return j.State == StateDone }},
		{"pruned", orange, func(j SweepJob) bool { return j.State == StatePruned }},
		{"failed or not ended", faint(grey, 0.7), func(j SweepJob) bool { return j.State != StateDone && j.State != StatePruned }},
	} {
		s := stems{style: draw.LineStyle{Color: m.color}}
		for _, j := range jobs {
			if j.Epochs > 0 && m.has(j) {
				s.x, s.y = append(s.x, float64(j.Number)), append(s.y, float64(j.Epochs))
			}
		}
		if len(s.x) > 0 {
			p.layers = append(p.layers, s)
			p.legend = append(p.legend, legendItem{m.text, areaSample(m.color)})
		}
	}
}

// meanEpochs draws bars for the means of many jobs in succession.
func meanEpochs(jobs []SweepJob) stems {
	s := stems{style: draw.LineStyle{Color: faint(blue, 0.8)}}
	size := (len(jobs) + maxStems/4 - 1) / (maxStems / 4)
	for chunk := range slices.Chunk(jobs, size) {
		sum := 0.0
		for _, j := range chunk {
			sum += float64(j.Epochs)
		}
		s.x = append(s.x, float64(chunk[0].Number+chunk[len(chunk)-1].Number)/2)
		s.y = append(s.y, sum/float64(len(chunk)))
	}
	s.wide = float64(size)
	return s
}
