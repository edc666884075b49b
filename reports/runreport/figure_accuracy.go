package runreport

import (
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
)

func accuracyFigure(run *record.Run) *chart.Figure {
	if rewardIsAccuracy(run) {
		return nil // the same figure again
	}
	return scoreFigure(run, "accuracy")
}
