package runreport

import (
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
)

func accuracyPlot() Figure {
	return Figure{
		Name:    "accuracy",
		Make:    accuracyFigure,
		Caption: scoreCaption,
	}
}

func accuracyFigure(run *record.Run) *chart.Figure {
	if rewardIsAccuracy(run) {
		return nil // the same figure again
	}
	return scoreFigure(run, "accuracy")
}
