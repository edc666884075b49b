package sweepreport

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fulcrum/internal/list"
	"fulcrum/reports/arms"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/sweeps"
)

// PaperFigures returns the figures of the report for a paper, after those that lay the settings over each other and tell their differences.
func (v *View) PaperFigures(paper chart.Paper) []*chart.Figure {
	v.wide = paper.Wide()
	all, others := v.settings, 0
	if len(v.conditions) > 0 {
		all = v.conditions[0].arms
		others = len(v.settings) - len(all)
	}
	figures := v.Figures()
	told, without := v.Arms()
	out := []*chart.Figure{overlay(all, others), DifferencesFigure(v.wide, told)}
	if f := out[1]; f != nil && f.Omits == "" && len(without) > 0 {
		f.Omits = page.Verb(len(without), "job ", "jobs ") + page.Joined(without)
	}
	out = append(out, list.Map(figures, func(f sweepFigure) *chart.Figure { return f.Figure })...)
	return slices.DeleteFunc(out, func(f *chart.Figure) bool { return f == nil })
}

// Arms are the settings in the order of their jobs, with the runs that count, and the jobs that are in none.
func (v *View) Arms() (out []arms.ComparedArm, without []string) {
	first := func(s *setting) int { return slices.Min(list.Map(s.Jobs, func(j sweeps.Job) int { return j.Number })) }
	for _, s := range slices.SortedFunc(slices.Values(v.settings), func(a, b *setting) int { return cmp.Compare(first(a), first(b)) }) {
		if len(s.runs) == 0 {
			v.readRuns(s, v.Feasible)
		}
		for _, j := range s.Jobs {
			if !slices.ContainsFunc(s.runs, func(r *record.Run) bool { return r.Dir == j.Dir }) {
				without = append(without, fmt.Sprint(j.Number))
			}
		}
		name := s.label()
		if s.condition != nil {
			name = strings.Join(append([]string{name}, s.condition.what...), ", ")
		}
		if len(s.runs) > 0 {
			out = append(out, v.judged(s, arms.ComparedArm{Name: name, Runs: s.runs}))
		}
	}
	return out, without
}

// judged is a setting as its study judges it: by the policy that it ended with and, against the first arm where nothing else differs,
// by the rule of the answers.
func (v *View) judged(s *setting, out arms.ComparedArm) arms.ComparedArm {
	if s.arm == nil {
		return out
	}
	out.Policy = s.last()
	first := v.settings[0]
	out.Answered = func(split, metric string) *arms.ArmComparison {
		for _, a := range v.answers {
			asked := s.condition == first.condition && a.condition == first.condition && a.Arm == s.arm.Name && a.Against == first.arm.Name
			for i, m := range append([]measure{{}}, v.measures()...) {
				if asked && !m.best && cmp.Or(m.split, a.split) == split && cmp.Or(m.metric, a.Metric) == metric {
					return append([]*arms.ArmComparison{a.c}, a.others...)[i]
				}
			}
		}
		return nil
	}
	return out
}

// Overlay lays the validation scores of arms over each other: means over seeds, in bands. nil: none has one.
func Overlay(of []arms.ComparedArm) *chart.Figure {
	return overlay(list.Map(of, func(a arms.ComparedArm) *setting {
		return &setting{Setting: &sweeps.Setting{Overrides: []string{a.Name}}, runs: a.Runs}
	}), 0)
}

// curveLook tells curves apart in grey print too.
type curveLook struct {
	color  chart.Colour
	shape  draw.GlyphDrawer
	dashes []vg.Length
}

// curveLooks are as many as can be told apart.
func curveLooks() []curveLook {
	return []curveLook{{chart.Blue, draw.CircleGlyph{}, nil}, {chart.Vermillion, draw.BoxGlyph{}, []vg.Length{6, 2}},
		{chart.Green, draw.PyramidGlyph{}, []vg.Length{1.5, 2}}, {chart.Black, draw.RingGlyph{}, []vg.Length{6, 2, 1.5, 2}},
		{chart.Orange, draw.SquareGlyph{}, []vg.Length{3, 3}}, {chart.Purple, draw.TriangleGlyph{}, []vg.Length{10, 3}}}
}

// overlay draws the first settings that have a curve of one score; others is how many there are beside all.
func overlay(all []*setting, others int) *chart.Figure {
	names := arms.ShortNames(list.Map(all, (*setting).label))
	p := &chart.Panel{X: "optimizer steps", YMin: math.NaN(), YMax: math.NaN()}
	looks := curveLooks()
	var omitted []string
	var drawn []*setting
	for i, s := range all {
		c, y := lineOf(s.learning(), "val_"+s.score()), "validation "+results.MetricName(s.score())
		if len(c.X) == 0 || len(p.Legend) == len(looks) || p.Y != "" && p.Y != y {
			omitted = append(omitted, names[i])
			continue
		}
		look := looks[len(p.Legend)]
		if !slices.ContainsFunc(c.Low, math.IsNaN) {
			p.Layers = append(p.Layers, chart.Ribbon{X: c.X, Low: c.Low, High: c.High, Color: chart.Faint(look.color, 0.15)})
		}
		line := chart.Curve{X: c.X, Y: c.Mean, Style: draw.LineStyle{Color: look.color, Width: 1.4, Dashes: look.dashes}}
		p.Layers = append(p.Layers, line, chart.Dots{X: c.X, Y: c.Mean, Color: look.color, Shape: look.shape, Size: 2.8})
		p.Legend = append(p.Legend, chart.LegendItem{Text: names[i], Draw: func(c draw.Canvas, from, to vg.Point) {
			chart.LineSample(line.Style)(c, from, to)
			chart.DotSample(look.color, look.shape)(c, from, to)
		}})
		p.Y, p.XMax = y, max(p.XMax, c.X[len(c.X)-1])
		drawn = append(drawn, s)
	}
	if p.Blank() {
		return nil
	}
	shareBands([]*chart.Panel{p})
	title := page.Capital(p.Y)
	if seeds := seedCounts(drawn); seeds != "1" {
		title += ": mean over " + seeds + " seeds with its 95% interval"
	}
	omits := strings.Join(omitted, "; ")
	if n := len(omitted) + others; n > len(looks) || others > 0 {
		omits = page.Plural(n, "setting")
	}
	return &chart.Figure{Name: "settings", Title: title, Rows: [][]*chart.Panel{{p}}, Omits: omits}
}
