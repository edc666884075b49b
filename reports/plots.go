package reports

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
)

const plotsFolder = "plots"

// figureMaker builds a figure from a run, nil when the run has nothing to show in it.
type figureMaker struct {
	name string
	make func(*Run) *figure
}

// figures are all plots of a run, in the order of the report.
func figures() []figureMaker {
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
func DrawPlots(run *Run) error {
	dir := filepath.Join(run.Dir, plotsFolder)
	if err := atomicfile.MkdirAll(dir); err != nil {
		return fmt.Errorf("plots: %w", err)
	}
	for _, maker := range figures() {
		f := maker.make(run)
		if f == nil {
			for _, ending := range []string{".png", ".svg"} {
				if err := os.Remove(filepath.Join(dir, maker.name+ending)); err != nil && !errors.Is(err, os.ErrNotExist) {
					return fmt.Errorf("plot %s: %w", maker.name, err)
				}
			}
			continue
		}
		f.name = maker.name
		if err := f.write(dir); err != nil {
			return fmt.Errorf("plot %s: %w", maker.name, err)
		}
	}
	return nil
}

// newPanel is an empty panel over the whole run.
func newPanel(run *Run, y string) *panel {
	p := &panel{y: y, yMin: math.NaN(), yMax: math.NaN(), spans: run.spans()}
	for _, s := range p.spans {
		p.xMax = max(p.xMax, s.to)
	}
	return p
}

// stack puts panels with data above each other; only the lowest names the horizontal axis.
func stack(title, note string, panels ...*panel) *figure {
	f := &figure{title: title, note: note}
	for _, p := range panels {
		if !p.blank() {
			f.rows = append(f.rows, []*panel{p})
		}
	}
	if len(f.rows) == 0 {
		return nil
	}
	f.rows[len(f.rows)-1][0].x = stepAxis
	return f
}

const stepAxis = "optimizer step of the run"

// lossFigure has a column for each phase, since their losses are different quantities.
func lossFigure(run *Run) *figure {
	f := &figure{title: "Losses", note: "Each phase has its own loss and scale.\nThe validation loss is the same quantity in all phases: weighted cross entropy of recorded " + run.wording("candidates", "completions") + " at a fixed temperature."}
	var train, val []*panel
	hasVal := false
	for i, s := range run.spans() {
		t := &panel{head: s.name, xMin: s.from, xMax: s.to, yMin: math.NaN(), yMax: math.NaN(), spans: []span{{"", s.from, s.to}}}
		v := &panel{xMin: s.from, xMax: s.to, yMin: math.NaN(), yMax: math.NaN(), spans: t.spans}
		if steps := run.StepsOf(s.name); steps != nil && t.addStepsOf(steps, "loss", blue) {
			t.legend = append(t.legend, legendItem{"training", lineSample(draw.LineStyle{Color: blue, Width: 1.6})})
		}
		x, y := run.epochSeries(s.name, "val_loss")
		if len(x) > 0 {
			hasVal = true
			v.layers = append(v.layers, line(x, y, vermillion, 1.2), points(x, y, vermillion))
			v.legend = append(v.legend, legendItem{"validation", dotSample(vermillion, draw.CircleGlyph{})})
		}
		if i == 0 {
			t.y, v.y = "training loss", "validation loss"
		}
		if !t.blank() {
			train, val = append(train, t), append(val, v)
		}
	}
	if len(train) == 0 {
		return nil
	}
	f.rows = [][]*panel{train}
	if hasVal {
		shareRange(val)
		f.rows = append(f.rows, val)
	}
	for _, p := range f.rows[len(f.rows)-1] {
		p.x = "step"
	}
	return f
}

// shareRange gives panels side by side the same vertical range.
func shareRange(panels []*panel) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range panels {
		for _, layer := range p.layers {
			if l, ok := layer.(curve); ok {
				_, _, a, b := l.DataRange()
				low, high = min(low, a), max(high, b)
			}
		}
	}
	low, high = airRange(low, high)
	for _, p := range panels {
		p.yMin, p.yMax = low, high
	}
}

func klFigure(run *Run) *figure {
	kl := newPanel(run, "KL (nats per sequence)")
	if !kl.addSteps(run, "kl", "KL of a step", blue) {
		return nil
	}
	shown := false
	for _, steps := range run.Steps {
		if steps.Column("kl") == nil {
			continue // rce and sft: their KL is to the initial policy, nats away, and would flatten the band
		}
		if x, y := run.epochSeries(steps.Phase, "val_kl"); len(x) > 0 {
			kl.layers = append(kl.layers, points(x, y, vermillion))
			shown = true
		}
	}
	if shown {
		kl.legend = append(kl.legend, legendItem{"validation, at epoch ends", dotSample(vermillion, draw.CircleGlyph{})})
	}
	var bands []phaseRange
	for _, s := range kl.spans {
		low, okLow := run.settingNumber(s.name, "kl", "target_min")
		high, okHigh := run.settingNumber(s.name, "kl", "target_max")
		steps := run.StepsOf(s.name)
		if !okLow || !okHigh || steps == nil || steps.Column("kl") == nil || run.setting(s.name, "kl", "controller") == "fixed" {
			continue
		}
		band := ribbon{[]float64{s.from, s.to}, []float64{low, low}, []float64{high, high}, faint(green, 0.18)}
		kl.layers = slices.Insert(kl.layers, 0, plot.Plotter(band))
		bands = append(bands, phaseRange{s.name, low, high})
	}
	addRangeLegend(kl, "target band", bands)
	kl.yMin = min(0, columnMin(run, "kl"))
	beta := newPanel(run, "KL coefficient β")
	for _, s := range run.Steps {
		x, y := finitePoints(s.globals(), s.Column("kl_beta"))
		x, y = changes(x, y)
		if len(x) > 0 {
			l := line(x, y, purple, 1.6)
			l.steps = true
			beta.layers = append(beta.layers, l)
		}
	}
	beta.logIfWide()
	token := newPanel(run, "KL (nats per token)")
	token.yMin = min(0, columnMin(run, "kl_per_token"))
	token.addSteps(run, "kl_per_token", "KL per token", blue)
	return stack("KL to the reference policy and its coefficient", "Adaptive β rises while KL is above the band and falls while it is below.", kl, token, beta).crop(run)
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

func columnMin(run *Run, name string) float64 {
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

func ratioFigure(run *Run) *figure {
	ratio := newPanel(run, "mean ratio new / old")
	if !ratio.addSteps(run, "mean_ratio", run.wording("mean over candidates", "mean of a step"), blue) {
		return nil
	}
	var ranges []phaseRange
	for _, s := range ratio.spans {
		low, ok := run.settingNumber(s.name, "clip", "epsilon")
		steps := run.StepsOf(s.name)
		if !ok || steps == nil || steps.Column("mean_ratio") == nil {
			continue
		}
		high, ok := run.settingNumber(s.name, "clip", "epsilon_high")
		if !ok {
			high = low
		}
		band := ribbon{[]float64{s.from, s.to}, []float64{1 - low, 1 - low}, []float64{1 + high, 1 + high}, faint(green, 0.16)}
		ratio.layers = slices.Insert(ratio.layers, 0, plot.Plotter(band))
		ranges = append(ranges, phaseRange{s.name, 1 - low, 1 + high})
	}
	addRangeLegend(ratio, "clip range", ranges)
	ratio.layers = append(ratio.layers, level{y: 1, style: dashed(grey), inRange: true})
	clip := newPanel(run, "share of ratios")
	clip.share, clip.yMin = true, 0
	clip.addSteps(run, "clip_fraction", "outside the clip range", vermillion)
	if run.answers() {
		clip.addSteps(run, "clip_fraction_low", "below it, the gradient stopped", blue)
		clip.addSteps(run, "clip_fraction_high", "above it, stopped", orange)
	}
	if columnMax(run, "clamp_fraction") > 0 {
		clip.addSteps(run, "clamp_fraction", "log-ratio clamped at ±20", purple)
	}
	return stack("Probability ratios", "Exactly 1 at the first step after the old policy is refreshed.", ratio, clip).crop(run)
}

func columnMax(run *Run, name string) float64 {
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

func scheduleFigure(run *Run) *figure {
	lr := newPanel(run, "learning rate")
	top := math.Inf(1) // the smallest peak of a phase: what lies far below it is the end of a schedule
	for _, s := range run.Steps {
		x, mean, _, _ := buckets(s.globals(), s.Column("lr"))
		if len(x) > 0 {
			lr.layers = append(lr.layers, line(x, mean, blue, 1.6))
			top = min(top, slices.Max(mean))
		}
	}
	lr.logIfPeaksDiffer(top)
	tau := newPanel(run, "RCE temperature τ (reward units)")
	tau.yMin = 0
	for _, s := range run.Steps {
		x, mean, _, _ := buckets(s.globals(), s.Column("temperature"))
		if len(x) > 0 {
			tau.layers = append(tau.layers, line(x, mean, vermillion, 1.6))
		}
	}
	policy := newPanel(run, "policy temperature")
	policy.addSteps(run, "policy_temperature", "temperature of the policy in GRPO", purple)
	return stack("Schedules", "Values used in each step.", lr, tau, policy)
}

func gradNormFigure(run *Run) *figure {
	p := newPanel(run, "global norm before clipping")
	if !p.addSteps(run, "grad_norm", "gradient norm", blue) {
		return nil
	}
	p.log = columnMin(run, "grad_norm") > 0
	if clip, ok := run.settingNumber("optim", "grad_clip_norm"); ok && clip > 0 {
		p.layers = append(p.layers, level{y: clip, style: dashed(vermillion), inRange: true})
		p.legend = append(p.legend, legendItem{fmt.Sprintf("clipped above %.4g", clip), lineSample(dashed(vermillion))})
	}
	return stack("Gradient norm", "Steps above the dashed line are scaled down to it.", p)
}

func signalFigure(run *Run) *figure {
	share := newPanel(run, "share of groups")
	share.share, share.yMin = true, 0
	share.addSteps(run, "signal_share", "with a learning signal", blue)
	if !equalColumns(run, "signal_share", "signal_share_top_k") {
		share.addSteps(run, "signal_share_top_k", "left by the curriculum", orange)
	}
	ess := newPanel(run, run.wording("candidates per query", "completions per question"))
	ess.yMin = 0
	ess.addSteps(run, "effective_sample_size", "effective sample size of the RCE weights", green)
	entropy := newPanel(run, run.wording("nats per step", "nats per token"))
	entropy.yMin = min(0, columnMin(run, "entropy"))
	entropy.addSteps(run, "entropy", "entropy of the policy", purple)
	note := "A group whose rewards are all equal teaches nothing."
	if !ess.blank() {
		note += "\nRCE weights spread over all " + run.wording("candidates", "completions") + " (a large sample size) teach little."
	}
	return stack("Learning signal", note, share, ess, entropy).crop(run)
}

// addRangeLegend explains bands: target band 0.01–0.1, or each phase's own where they differ.
func addRangeLegend(p *panel, what string, bands []phaseRange) {
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
	p.legend = append(p.legend, legendItem{text, areaSample(faint(green, 0.25))})
}
