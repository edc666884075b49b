package runreport

import (
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
	"math"
	"slices"
)

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
		if x, mean, _, _ := chart.Buckets(s.Globals(), s.Column("temperature")); len(x) > 0 {
			tau.Layers = append(tau.Layers, chart.Line(x, mean, chart.Vermillion, 1.6))
		}
	}
	policy := newPanel(run, "policy temperature")
	policy.AddSteps(run, "policy_temperature", "temperature of the policy in GRPO", chart.Purple)
	return Stack("Schedules", "Values used in each step.", lr, tau, policy)
}
