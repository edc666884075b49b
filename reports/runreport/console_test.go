package runreport

import (
	"testing"

	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// The console says why what it calls best scores below the start.
func TestBelowStart(t *testing.T) {
	below, above := &stats.Paired{Mean: -0.1}, &stats.Paired{Mean: 0.1}
	for _, tc := range []struct {
		split, choice string
		gain          *stats.Paired
		want          string
	}{
		{"dev", "", below, " It was chosen by val_reward (0.6000); these questions say otherwise."},
		{"dev", "", above, ""},
		{"dev", "", nil, ""},
		{"val", "it is the latest within one standard error", below, " It is the latest within one standard error."},
		{"val", "", below, ""},
	} {
		run := &record.Run{Summary: &record.Summary{Best: &record.BestSummary{Metric: "val_reward", Value: 0.6, Choice: tc.choice}}}
		stage := &record.StageResult{Policy: record.PolicyBest, Split: tc.split, OverInit: tc.gain}
		if got := belowStart(run, stage); got != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}
