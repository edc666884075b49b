package runreport

import (
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
	"slices"
)

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
		ranges = append(ranges, phaseRange{s, 1 - low, 1 + high})
	}
	addBands(ratio, "clip range", ranges, 0.16)
	ratio.Layers = append(ratio.Layers, chart.LevelOf{Y: 1, Style: chart.Dashed(chart.Grey)})
	clip := newPanel(run, "share of ratios")
	clip.Share, clip.YMin = true, 0
	clip.AddSteps(run, "clip_fraction", "outside the clip range", chart.Vermillion)
	if run.Answers() {
		clip.AddSteps(run, "clip_fraction_low", "below it, the gradient stopped", chart.Blue)
		clip.AddSteps(run, "clip_fraction_high", "above it, stopped", chart.Orange)
	}
	clamps := func(s *record.Steps) bool {
		return slices.ContainsFunc(s.Column("clamp_fraction"), func(share float64) bool { return share > 0 })
	}
	if slices.ContainsFunc(run.Steps, clamps) {
		clip.AddSteps(run, "clamp_fraction", "log-ratio clamped at ±20", chart.Purple)
	}
	return Stack("Probability ratios", "Exactly 1 at the first step after the old policy is refreshed.", ratio, clip).Crop(run)
}
