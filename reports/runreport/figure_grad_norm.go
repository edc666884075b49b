package runreport

import (
	"fmt"
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
)

func gradNormFigure(run *record.Run) *chart.Figure {
	p := newPanel(run, "global norm before clipping")
	if !p.AddSteps(run, "grad_norm", "gradient norm", chart.Blue) {
		return nil
	}
	p.Log = columnMin(run, "grad_norm") > 0
	if clip, ok := run.SettingNumber("optim", "grad_clip_norm"); ok && clip > 0 {
		p.Layers = append(p.Layers, chart.LevelOf{Y: clip, Style: chart.Dashed(chart.Vermillion)})
		p.Legend = append(p.Legend, chart.LegendItem{Text: fmt.Sprintf("clipped above %.4g", clip),
			Draw: chart.LineSample(chart.Dashed(chart.Vermillion))})
	}
	return Stack("Gradient norm", "Steps above the dashed line are scaled down to it.", p)
}
