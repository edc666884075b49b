package runreport

import (
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
)

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
