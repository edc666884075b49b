package runreport

import (
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
)

// pointsFigure shows how many negative points completions name, how many of them fall into the confusion region and how
// many on the object, and what share of them that is.
func pointsFigure(run *record.Run) *chart.Figure {
	if !run.Answers() {
		return nil
	}
	number := newPanel(run, "negative points per completion")
	number.YMin = 0
	share := newPanel(run, "share of those named")
	share.Share, share.YMin = true, 0
	dots := ""
	for i, m := range pointMeasures() {
		c := []chart.Colour{chart.Black, chart.Green, chart.Vermillion}[i]
		if !number.AddSteps(run, "reward_"+m[0], m[1], c) && i == 0 {
			return nil
		}
		if x, y := run.EpochSeries("", "val_reward_"+m[0]); len(x) > 0 {
			number.Layers = append(number.Layers, chart.Points(x, y, c))
			dots = "\nDots: greedy completions of validation questions."
		}
		if i > 0 {
			share.AddShareOfSteps(run, "reward_"+m[0], "reward_points_named", m[1], c)
		}
	}
	note := "A point counts once, however often it is named. Points in the confusion region steer a segmenter away from its mistake;\n" +
		"points on the object cost the mask." + dots
	return Stack("Negative points", note, number, share).Crop(run)
}

// pointMeasures are the columns of the points term beside its value, with what they show.
func pointMeasures() [][2]string {
	return [][2]string{
		{"points_named", "named"}, {"points_in_confusion", "in the confusion region"}, {"points_on_object", "on the object"},
	}
}
