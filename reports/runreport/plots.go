package runreport

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"

	"fulcrum/internal/atomicfile"
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
)

const PlotsFolder = "plots"

// figureMaker builds a figure from a run, nil when the run has nothing to show in it.
type figureMaker struct {
	Name string
	Make func(*record.Run) *chart.Figure
}

// Figures are all plots of a run, in the order of the report.
func Figures() []figureMaker {
	return []figureMaker{
		{"reward", rewardFigure},
		{"accuracy", accuracyFigure},
		{"sampled_reward", sampledRewardFigure},
		{"points", pointsFigure},
		{"completions", lengthFigure},
		{"losses", lossFigure},
		{"kl", klFigure},
		{"ratio", ratioFigure},
		{"schedules", scheduleFigure},
		{"advantages", advantageFigure},
		{"signal", signalFigure},
		{"grad_norm", gradNormFigure},
	}
}

// DrawPlots draws every figure that the run has data for, as plots/NAME.png and plots/NAME.svg of its
// folder. Files are replaced whole, so a reader never sees half a plot. A figure whose rows are gone, cut off by a
// resume, is removed.
func DrawPlots(run *record.Run) error {
	dir := filepath.Join(run.Dir, PlotsFolder)
	if err := atomicfile.MkdirAll(dir); err != nil {
		return fmt.Errorf("plots: %w", err)
	}
	for _, maker := range Figures() {
		f := maker.Make(run)
		if f == nil {
			for _, ending := range []string{".png", ".svg"} {
				if err := os.Remove(filepath.Join(dir, maker.Name+ending)); err != nil && !errors.Is(err, os.ErrNotExist) {
					return fmt.Errorf("plot %s: %w", maker.Name, err)
				}
			}
			continue
		}
		f.Name = maker.Name
		if err := f.Write(dir); err != nil {
			return fmt.Errorf("plot %s: %w", maker.Name, err)
		}
	}
	return nil
}

// newPanel is an empty panel over the whole run.
func newPanel(run *record.Run, y string) *chart.Panel {
	p := &chart.Panel{Y: y, YMin: math.NaN(), YMax: math.NaN(), Spans: run.Spans()}
	for _, s := range p.Spans {
		p.XMax = max(p.XMax, s.To)
	}
	return p
}

// Stack puts panels with data above each other; only the lowest names the horizontal axis.
func Stack(title, note string, panels ...*chart.Panel) *chart.Figure {
	f := &chart.Figure{Title: title, Note: note}
	for _, p := range panels {
		if !p.Blank() {
			f.Rows = append(f.Rows, []*chart.Panel{p})
		}
	}
	if len(f.Rows) == 0 {
		return nil
	}
	f.Rows[len(f.Rows)-1][0].X = stepAxis
	return f
}

const stepAxis = "optimizer step of the run"

// lossFigure has a column for each phase, since their losses are different quantities.
func lossFigure(run *record.Run) *chart.Figure {
	f := &chart.Figure{Title: "Losses", Note: "Each phase has its own loss and scale.\nThe validation loss is the same quantity in all phases: weighted cross entropy of recorded " + run.Wording("candidates", "completions") + " at a fixed temperature."}
	var train, val []*chart.Panel
	hasVal := false
	for i, s := range run.Spans() {
		t := &chart.Panel{Head: s.Name, XMin: s.From, XMax: s.To, YMin: math.NaN(), YMax: math.NaN(), Spans: []record.Span{{Name: "", From: s.From, To: s.To}}}
		v := &chart.Panel{XMin: s.From, XMax: s.To, YMin: math.NaN(), YMax: math.NaN(), Spans: t.Spans}
		if steps := run.StepsOf(s.Name); steps != nil && t.AddStepsOf(steps, "loss", chart.Blue) {
			t.Legend = append(t.Legend, chart.LegendItem{Text: "training", Draw: chart.LineSample(draw.LineStyle{Color: chart.Blue, Width: 1.6})})
		}
		x, y := run.EpochSeries(s.Name, "val_loss")
		if len(x) > 0 {
			hasVal = true
			v.Layers = append(v.Layers, chart.Line(x, y, chart.Vermillion, 1.2), chart.Points(x, y, chart.Vermillion))
			v.Legend = append(v.Legend, chart.LegendItem{Text: "validation", Draw: chart.DotSample(chart.Vermillion, draw.CircleGlyph{})})
		}
		if i == 0 {
			t.Y, v.Y = "training loss", "validation loss"
		}
		if !t.Blank() {
			train, val = append(train, t), append(val, v)
		}
	}
	if len(train) == 0 {
		return nil
	}
	f.Rows = [][]*chart.Panel{train}
	if hasVal {
		shareRange(val)
		f.Rows = append(f.Rows, val)
	}
	for _, p := range f.Rows[len(f.Rows)-1] {
		p.X = "step"
	}
	return f
}

// shareRange gives panels side by side the same vertical range.
func shareRange(panels []*chart.Panel) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range panels {
		for _, layer := range p.Layers {
			if l, ok := layer.(chart.Curve); ok {
				_, _, a, b := l.DataRange()
				low, high = min(low, a), max(high, b)
			}
		}
	}
	low, high = chart.AirRange(low, high)
	for _, p := range panels {
		p.YMin, p.YMax = low, high
	}
}

func klFigure(run *record.Run) *chart.Figure {
	kl := newPanel(run, "KL (nats per sequence)")
	if !kl.AddSteps(run, "kl", "KL of a step", chart.Blue) {
		return nil
	}
	shown := false
	for _, steps := range run.Steps {
		if steps.Column("kl") == nil {
			continue // rce and sft: their KL is to the initial policy, nats away, and would flatten the band
		}
		if x, y := run.EpochSeries(steps.Phase, "val_kl"); len(x) > 0 {
			kl.Layers = append(kl.Layers, chart.Points(x, y, chart.Vermillion))
			shown = true
		}
	}
	if shown {
		kl.Legend = append(kl.Legend, chart.LegendItem{Text: "validation, at epoch ends", Draw: chart.DotSample(chart.Vermillion, draw.CircleGlyph{})})
	}
	var bands []phaseRange
	for _, s := range kl.Spans {
		low, okLow := run.SettingNumber(s.Name, "kl", "target_min")
		high, okHigh := run.SettingNumber(s.Name, "kl", "target_max")
		steps := run.StepsOf(s.Name)
		if !okLow || !okHigh || steps == nil || steps.Column("kl") == nil || run.Setting(s.Name, "kl", "controller") == "fixed" {
			continue
		}
		band := chart.Ribbon{X: []float64{s.From, s.To}, Low: []float64{low, low}, High: []float64{high, high}, Color: chart.Faint(chart.Green, 0.18)}
		kl.Layers = slices.Insert(kl.Layers, 0, plot.Plotter(band))
		bands = append(bands, phaseRange{s.Name, low, high})
	}
	addRangeLegend(kl, "target band", bands)
	kl.YMin = min(0, columnMin(run, "kl"))
	beta := newPanel(run, "KL coefficient β")
	for _, s := range run.Steps {
		x, y := chart.FinitePoints(s.Globals(), s.Column("kl_beta"))
		x, y = changes(x, y)
		if len(x) > 0 {
			l := chart.Line(x, y, chart.Purple, 1.6)
			l.StepsIn = true
			beta.Layers = append(beta.Layers, l)
		}
	}
	beta.LogIfWide()
	token := newPanel(run, "KL (nats per token)")
	token.YMin = min(0, columnMin(run, "kl_per_token"))
	token.AddSteps(run, "kl_per_token", "KL per token", chart.Blue)
	return Stack("KL to the reference policy and its coefficient", "Adaptive β rises while KL is above the band and falls while it is below.", kl, token, beta).Crop(run)
}

// phaseRange is a band that a phase's config sets.
type phaseRange struct {
	phase     string
	low, high float64
}

// changes keeps the points where a step function moves, and both ends.
func changes(x, y []float64) (cx, cy []float64) {
	for i := range x {
		if i == 0 || i == len(x)-1 || y[i] != y[i-1] {
			cx, cy = append(cx, x[i]), append(cy, y[i])
		}
	}
	return
}

func columnMin(run *record.Run, name string) float64 {
	low := math.Inf(1)
	for _, s := range run.Steps {
		for _, v := range s.Column(name) {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				low = min(low, v)
			}
		}
	}
	return low
}

func ratioFigure(run *record.Run) *chart.Figure {
	ratio := newPanel(run, "mean ratio new / old")
	if !ratio.AddSteps(run, "mean_ratio", run.Wording("mean over candidates", "mean of a step"), chart.Blue) {
		return nil
	}
	var ranges []phaseRange
	for _, s := range ratio.Spans {
		low, ok := run.SettingNumber(s.Name, "clip", "epsilon")
		steps := run.StepsOf(s.Name)
		if !ok || steps == nil || steps.Column("mean_ratio") == nil {
			continue
		}
		high, ok := run.SettingNumber(s.Name, "clip", "epsilon_high")
		if !ok {
			high = low
		}
		band := chart.Ribbon{X: []float64{s.From, s.To}, Low: []float64{1 - low, 1 - low}, High: []float64{1 + high, 1 + high}, Color: chart.Faint(chart.Green, 0.16)}
		ratio.Layers = slices.Insert(ratio.Layers, 0, plot.Plotter(band))
		ranges = append(ranges, phaseRange{s.Name, 1 - low, 1 + high})
	}
	addRangeLegend(ratio, "clip range", ranges)
	ratio.Layers = append(ratio.Layers, chart.LevelOf{Y: 1, Style: chart.Dashed(chart.Grey), InRange: true})
	clip := newPanel(run, "share of ratios")
	clip.Share, clip.YMin = true, 0
	clip.AddSteps(run, "clip_fraction", "outside the clip range", chart.Vermillion)
	if run.Answers() {
		clip.AddSteps(run, "clip_fraction_low", "below it, the gradient stopped", chart.Blue)
		clip.AddSteps(run, "clip_fraction_high", "above it, stopped", chart.Orange)
	}
	if columnMax(run, "clamp_fraction") > 0 {
		clip.AddSteps(run, "clamp_fraction", "log-ratio clamped at ±20", chart.Purple)
	}
	return Stack("Probability ratios", "Exactly 1 at the first step after the old policy is refreshed.", ratio, clip).Crop(run)
}

func columnMax(run *record.Run, name string) float64 {
	high := math.Inf(-1)
	for _, s := range run.Steps {
		for _, v := range s.Column(name) {
			if !math.IsNaN(v) {
				high = max(high, v)
			}
		}
	}
	return high
}

func scheduleFigure(run *record.Run) *chart.Figure {
	lr := newPanel(run, "learning rate")
	top := math.Inf(1) // the smallest peak of a phase: what lies far below it is the end of a schedule
	for _, s := range run.Steps {
		x, mean, _, _ := chart.Buckets(s.Globals(), s.Column("lr"))
		if len(x) > 0 {
			lr.Layers = append(lr.Layers, chart.Line(x, mean, chart.Blue, 1.6))
			top = min(top, slices.Max(mean))
		}
	}
	lr.LogIfPeaksDiffer(top)
	tau := newPanel(run, "RCE temperature τ (reward units)")
	tau.YMin = 0
	for _, s := range run.Steps {
		x, mean, _, _ := chart.Buckets(s.Globals(), s.Column("temperature"))
		if len(x) > 0 {
			tau.Layers = append(tau.Layers, chart.Line(x, mean, chart.Vermillion, 1.6))
		}
	}
	policy := newPanel(run, "policy temperature")
	policy.AddSteps(run, "policy_temperature", "temperature of the policy in GRPO", chart.Purple)
	return Stack("Schedules", "Values used in each step.", lr, tau, policy)
}

func gradNormFigure(run *record.Run) *chart.Figure {
	p := newPanel(run, "global norm before clipping")
	if !p.AddSteps(run, "grad_norm", "gradient norm", chart.Blue) {
		return nil
	}
	p.Log = columnMin(run, "grad_norm") > 0
	if clip, ok := run.SettingNumber("optim", "grad_clip_norm"); ok && clip > 0 {
		p.Layers = append(p.Layers, chart.LevelOf{Y: clip, Style: chart.Dashed(chart.Vermillion), InRange: true})
		p.Legend = append(p.Legend, chart.LegendItem{Text: fmt.Sprintf("clipped above %.4g", clip), Draw: chart.LineSample(chart.Dashed(chart.Vermillion))})
	}
	return Stack("Gradient norm", "Steps above the dashed line are scaled down to it.", p)
}

func signalFigure(run *record.Run) *chart.Figure {
	share := newPanel(run, "share of groups")
	share.Share, share.YMin = true, 0
	share.AddSteps(run, "signal_share", "with a learning signal", chart.Blue)
	if !equalColumns(run, "signal_share", "signal_share_top_k") {
		share.AddSteps(run, "signal_share_top_k", "left by the curriculum", chart.Orange)
	}
	ess := newPanel(run, run.Wording("candidates per query", "completions per question"))
	ess.YMin = 0
	ess.AddSteps(run, "effective_sample_size", "effective sample size of the RCE weights", chart.Green)
	entropy := newPanel(run, run.Wording("nats per step", "nats per token"))
	entropy.YMin = min(0, columnMin(run, "entropy"))
	entropy.AddSteps(run, "entropy", "entropy of the policy", chart.Purple)
	note := "A group whose rewards are all equal teaches nothing."
	if !ess.Blank() {
		note += "\nRCE weights spread over all " + run.Wording("candidates", "completions") + " (a large sample size) teach little."
	}
	return Stack("Learning signal", note, share, ess, entropy).Crop(run)
}

// addRangeLegend explains bands: target band 0.01–0.1, or each phase's own where they differ.
func addRangeLegend(p *chart.Panel, what string, bands []phaseRange) {
	if len(bands) == 0 {
		return
	}
	same := true
	var each []string
	for _, b := range bands {
		same = same && b.low == bands[0].low && b.high == bands[0].high
		each = append(each, fmt.Sprintf("%s %.4g–%.4g", b.phase, b.low, b.high))
	}
	text := fmt.Sprintf("%s %.4g–%.4g", what, bands[0].low, bands[0].high)
	if !same {
		text = what + ": " + strings.Join(each, ", ")
	}
	p.Legend = append(p.Legend, chart.LegendItem{Text: text, Draw: chart.AreaSample(chart.Faint(chart.Green, 0.25))})
}
