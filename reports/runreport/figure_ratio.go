package runreport

import (
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
	"slices"

	"gonum.org/v1/plot"
)

func ratioPlot() Figure {
	return Figure{
		Name: "ratio",
		Make: ratioFigure,
		Caption: "How much more likely the policy makes what a step learns from than the old policy did. A ratio that " +
			"has left the clip range no longer pulls further that way.",
	}
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
		band := chart.Ribbon{X: []float64{s.From, s.To}, Low: []float64{1 - low, 1 - low}, High: []float64{1 + high, 1 + high},
			Color: chart.Faint(chart.Green, 0.16)}
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
