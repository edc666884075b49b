package runreport

import (
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
)

// lengthFigure shows how long completions are and how many were cut.
func lengthFigure(run *record.Run) *chart.Figure {
	length := newPanel(run, "tokens per completion")
	length.YMin = 0
	for _, s := range run.Steps {
		length.AddRange(s, "completion_length_min", "completion_length_max", chart.Faint(chart.Blue, 0.15))
	}
	if !length.AddSteps(run, "completion_length", "mean of a step", chart.Blue) {
		return nil
	}
	if len(length.Layers) > 1 {
		length.Legend = append(length.Legend, chart.LegendItem{Text: "shortest to longest of some steps",
			Draw: chart.AreaSample(chart.Faint(chart.Blue, 0.25))})
	}
	length.AddEpochDots(run, "val_completion_length", "greedy, on validation questions", chart.Vermillion)
	cut := newPanel(run, "share of completions")
	cut.Share, cut.YMin = true, 0
	cut.AddSteps(run, "truncated_share", "cut at the limit", chart.Blue)
	cut.AddEpochDots(run, "val_truncated_share", "greedy, on validation questions", chart.Vermillion)
	return Stack("Length of completions", "The end token counts. A completion that reaches generation.max_new_tokens without it is "+
		"cut.\nPhases that imitate show the lengths of their targets.", length, cut)
}
