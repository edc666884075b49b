package runreport

import (
	"fulcrum/reports/chart"
	"fulcrum/reports/record"

	"gonum.org/v1/plot/vg/draw"
)

func klFigure(run *record.Run) *chart.Figure {
	kl := newPanel(run, "KL (nats per sequence)")
	if !kl.AddSteps(run, "kl", "KL of a step", chart.Blue) {
		return nil
	}
	shown := false
	for _, steps := range run.Steps {
		if steps.Column("kl") == nil {
			continue // rce and sft: their KL is to the initial policy, nats away, and would flatten the band
		}
		if x, y := run.EpochSeries(steps.Phase, "val_kl"); len(x) > 0 {
			kl.Layers = append(kl.Layers, chart.Points(x, y, chart.Vermillion))
			shown = true
		}
	}
	if shown {
		kl.Legend = append(kl.Legend, chart.LegendItem{Text: "validation, at epoch ends",
			Draw: chart.DotSample(chart.Vermillion, draw.CircleGlyph{})})
	}
	var bands []phaseRange
	for _, s := range kl.Spans {
		low, okLow := run.SettingNumber(s.Name, "kl", "target_min")
		high, okHigh := run.SettingNumber(s.Name, "kl", "target_max")
		steps := run.StepsOf(s.Name)
		if !okLow || !okHigh || steps == nil || steps.Column("kl") == nil || run.Setting(s.Name, "kl", "controller") == "fixed" {
			continue
		}
		bands = append(bands, phaseRange{s, low, high})
	}
	addBands(kl, "target band", bands, 0.18)
	kl.YMin = min(0, columnMin(run, "kl"))
	beta := newPanel(run, "KL coefficient β")
	for _, s := range run.Steps {
		x, y := chart.FinitePoints(s.Globals(), s.Column("kl_beta"))
		x, y = changes(x, y)
		if len(x) > 0 {
			l := chart.Line(x, y, chart.Purple, 1.6)
			l.StepsIn = true
			beta.Layers = append(beta.Layers, l)
		}
	}
	beta.LogIfWide()
	token := newPanel(run, "KL (nats per token)")
	token.YMin = min(0, columnMin(run, "kl_per_token"))
	token.AddSteps(run, "kl_per_token", "KL per token", chart.Blue)
	note := ""
	if len(bands) > 0 {
		note = "Adaptive β rises while KL is above the band and falls while it is below."
	}
	return Stack("KL to the reference policy and its coefficient", note, kl, token, beta).Crop(run)
}

// changes keeps the points where a step function moves, and both ends.
func changes(x, y []float64) (cx, cy []float64) {
	for i := range x {
		if i == 0 || i == len(x)-1 || y[i] != y[i-1] {
			cx, cy = append(cx, x[i]), append(cy, y[i])
		}
	}
	return
}
