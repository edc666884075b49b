package runreport

import (
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// rewardFigure shows the validation reward of greedy decoding against its baselines.
func rewardFigure(run *record.Run) *chart.Figure {
	sampled := newPanel(run, "mean reward")
	if run.Answers() { // the figure of sampled rewards has more of it
		return scoreFigure(run, "reward")
	}
	sampled.AddSteps(run, "mean_reward", "of the training groups, recorded or sampled", chart.Green)
	return scoreFigure(run, "reward", sampled)
}

// scoreFigure shows a validation score with all baselines, closer where that leaves some out, and further panels.
func scoreFigure(run *record.Run, metric string, more ...*chart.Panel) *chart.Figure {
	all := scorePanel(run, metric, true)
	if all == nil {
		return nil
	}
	panels, below := []*chart.Panel{all}, ""
	if closer := scorePanel(run, metric, false); len(closer.Labels) < len(all.Labels) {
		panels, below = append(panels, closer), "; below, the same closer"
	}
	panels = append(panels, more...)
	name := page.Capital(results.MetricName(metric))
	if metric == "reward" && rewardIsAccuracy(run) {
		name += ", here the accuracy,"
	}
	name += run.Wording(" of the greedy selection on validation queries", " of greedy answers to validation questions")
	if metric == "recorded_reward" {
		name = "Recorded reward that the policy expects on validation queries"
	}
	f := Stack(name,
		"After every epoch, against baselines on the same "+run.Wording("queries", "questions")+below+
			". Verdicts with intervals are in report.md.", panels...)
	f.Right = 132
	return f
}

// scorePanel draws an epoch metric, the initial policy at step 0 and baselines of the validation split:
// all of them, or only those near the curve.
func scorePanel(run *record.Run, metric string, all bool) *chart.Panel {
	field := "val_" + metric
	p := newPanel(run, "mean validation "+results.MetricName(metric))
	x, y := run.EpochSeries("", field)
	if initial, ok := run.Score("val", record.PolicyInit, metric); ok {
		x, y = append([]float64{0}, x...), append([]float64{initial}, y...)
	}
	if len(x) == 0 || len(x) == 1 && len(run.Epochs) > 0 {
		return nil
	}
	p.Layers = append(p.Layers, chart.Line(x, y, chart.Blue, 1.6), chart.Points(x, y, chart.Blue))
	what := run.Wording("greedy selection", "greedy answers")
	if metric == "recorded_reward" {
		what = "policy"
	}
	p.Legend = append(p.Legend, chart.LegendItem{Text: what + ", at epoch ends", Draw: chart.DotSample(chart.Blue, draw.CircleGlyph{})})
	if s := run.Summary; s != nil && s.Best != nil {
		for _, e := range run.Epochs {
			if v, ok := e.Number(field); ok && e.Phase == s.Best.Phase && e.Epoch == s.Best.Epoch {
				p.Layers = append(p.Layers, chart.Dots{X: []float64{float64(e.GlobalStep)}, Y: []float64{v}, Color: chart.Vermillion,
					Shape: draw.RingGlyph{}, Size: vg.Length(5)})
				p.Legend = append(p.Legend, chart.LegendItem{Text: "best checkpoint", Draw: chart.DotSample(chart.Vermillion, draw.RingGlyph{})})
			}
		}
	}
	addBaselines(p, run, metric, y, all)
	return p
}

// addBaselines draws horizontal lines and names them at the right. Not all: those within the range of
// the curve and half of it around, and similarity or majority.
func addBaselines(p *chart.Panel, run *record.Run, metric string, y []float64, all bool) {
	low, high := slices.Min(y), slices.Max(y)
	yardstick := func(policy string) bool { return policy == record.PolicySimilarity || policy == record.PolicyMajority }
	for _, b := range []struct {
		policy, title string
		color         chart.Colour
	}{
		{record.PolicyRandom, "random", chart.Grey}, {record.PolicySimilarity, "similarity", chart.Orange},
		{record.PolicyMajority, "majority", chart.Orange}, {record.PolicyInit, "initial policy", chart.Blue},
		{record.PolicyRecorded, "recorded order", chart.Black}, {record.PolicyOracle, "oracle", chart.Black},
		{record.PolicyReference, "reference", chart.Black},
	} {
		v, ok := run.Score("val", b.policy, metric)
		near := v >= low-(high-low)/2 && v <= high+(high-low)/2
		if !ok || !all && !near && !yardstick(b.policy) {
			continue
		}
		if n := len(p.Labels); b.policy == record.PolicyInit && n > 0 && p.Labels[n-1].Y == v {
			p.Labels[n-1].Text = strings.Fields(p.Labels[n-1].Text)[0] + ", initial " + page.Sig(v, 3) // selectors may start as similarity
			continue
		}
		p.Labels = append(p.Labels, chart.RightLabel{Y: v, Text: b.title + " " + page.Sig(v, 3), Color: b.color})
		if b.policy != record.PolicyInit { // its dot at step 0 is enough
			p.Layers = append(p.Layers, chart.LevelOf{Y: v, Style: chart.Dashed(b.color)})
		}
	}
}
