package reports

import (
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// rewardFigure shows the validation reward of greedy decoding against its baselines.
func rewardFigure(run *Run) *figure {
	sampled := newPanel(run, "mean reward")
	if run.answers() { // the figure of sampled rewards has more of it
		return scoreFigure(run, "reward")
	}
	sampled.addSteps(run, "mean_reward", "of the training groups, recorded or sampled", green)
	return scoreFigure(run, "reward", sampled)
}

func accuracyFigure(run *Run) *figure {
	if rewardIsAccuracy(run) {
		return nil // the same figure again
	}
	return scoreFigure(run, "accuracy")
}

// scoreFigure shows a validation score twice, with all baselines and closer, and further panels.
func scoreFigure(run *Run, metric string, more ...*panel) *figure {
	all := scorePanel(run, metric, true)
	if all == nil {
		return nil
	}
	panels := append([]*panel{all, scorePanel(run, metric, false)}, more...)
	name := capital(metric)
	if metric == "reward" && rewardIsAccuracy(run) {
		name += ", here the accuracy,"
	}
	f := stack(name+run.wording(" of the greedy selection on validation queries", " of greedy answers to validation questions"),
		"After every epoch, against baselines on the same "+run.wording("queries", "questions")+"; below, the same closer. Verdicts with intervals are in report.md.", panels...)
	f.right = 132
	return f
}

// scorePanel draws an epoch metric, the initial policy at step 0 and baselines of the validation split:
// all of them, or only those near the curve.
func scorePanel(run *Run, metric string, all bool) *panel {
	field := "val_" + metric
	p := newPanel(run, "mean validation "+metric)
	x, y := run.epochSeries("", field)
	if initial, ok := run.score("val", policyInit, metric); ok {
		x, y = append([]float64{0}, x...), append([]float64{initial}, y...)
	}
	if len(x) == 0 || len(x) == 1 && len(run.Epochs) > 0 {
		return nil
	}
	p.layers = append(p.layers, line(x, y, blue, 1.6), points(x, y, blue))
	p.legend = append(p.legend, legendItem{run.wording("greedy selection, at epoch ends", "greedy answers, at epoch ends"), dotSample(blue, draw.CircleGlyph{})})
	if s := run.Summary; s != nil && s.Best != nil {
		for _, e := range run.Epochs {
			if v, ok := e.Number(field); ok && e.Phase == s.Best.Phase && e.Epoch == s.Best.Epoch {
				p.layers = append(p.layers, dots{x: []float64{float64(e.GlobalStep)}, y: []float64{v}, color: vermillion, shape: draw.RingGlyph{}, size: vg.Length(5)})
				p.legend = append(p.legend, legendItem{"best checkpoint", dotSample(vermillion, draw.RingGlyph{})})
			}
		}
	}
	addBaselines(p, run, metric, y, all)
	return p
}

// addBaselines draws horizontal lines and names them at the right. Not all: those within the range of
// the curve and half of it around, and similarity or majority.
func addBaselines(p *panel, run *Run, metric string, y []float64, all bool) {
	low, high := slices.Min(y), slices.Max(y)
	yardstick := func(policy string) bool { return stageRank(policy) == rankYardstick }
	for _, b := range []struct {
		policy, title string
		color         colour
	}{
		{policyRandom, "random", grey}, {policySimilarity, "similarity", orange}, {policyMajority, "majority", orange}, {policyInit, "initial policy", blue}, {policyOracle, "oracle", black}, {policyReference, "reference", black},
	} {
		v, ok := run.score("val", b.policy, metric)
		near := v >= low-(high-low)/2 && v <= high+(high-low)/2
		if !ok || !all && !near && !yardstick(b.policy) {
			continue
		}
		if n := len(p.labels); b.policy == policyInit && n > 0 && p.labels[n-1].y == v {
			p.labels[n-1].text = strings.Fields(p.labels[n-1].text)[0] + ", initial " + sig(v, 3) // selectors may start as similarity
			continue
		}
		p.labels = append(p.labels, rightLabel{v, b.title + " " + sig(v, 3), b.color})
		if b.policy != policyInit { // its dot at step 0 is enough
			p.layers = append(p.layers, level{y: v, style: dashed(b.color), inRange: true})
		}
	}
}
