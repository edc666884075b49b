package runreport

import (
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
)

// recordedRewardFigure shows the score of a run without a reader: nothing tells what its selections earn.
func recordedRewardFigure(run *record.Run) *chart.Figure { return scoreFigure(run, "recorded_reward") }
