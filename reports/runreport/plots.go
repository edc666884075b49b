package runreport

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"

	"fulcrum/internal/atomicfile"
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
)

const PlotsFolder = "plots"

// Figure is a plot of a run: its files' name, what it shows and how to read it. An entry is one file, figure_NAME.go, and
// one line of Figures.
type Figure struct {
	Name    string
	Make    func(*record.Run) *chart.Figure // nil when the run has nothing to show in it
	Caption string
}

// Figures returns all plots of a run, in the order of the report.
func Figures() []Figure {
	const score = "Dashed lines are baselines on the same validation questions; the ring marks the best checkpoint. Moves smaller than " +
		"the intervals of the results table are noise."
	return []Figure{
		{Name: "reward", Make: rewardFigure, Caption: score},
		{Name: "accuracy", Make: accuracyFigure, Caption: score},
		{Name: "recorded_reward", Make: recordedRewardFigure, Caption: "Nothing scores new selections of this data: the curve is the " +
			"recorded reward that the policy expects among a query's recorded candidates, each drawn by its probability. " + score},
		{Name: "sampled_reward", Make: sampledRewardFigure, Caption: "What the groups earn that a step learns from. Where the spread " +
			"within groups falls to 0, there is nothing left to learn from."},
		{Name: "points", Make: pointsFigure, Caption: "Where the negative points of sampled completions fall. More of them in the " +
			"confusion region is what the reward asks for; points on the object cost."},
		{Name: "completions", Make: lengthFigure, Caption: "Lengths of sampled and of greedy answers. A growing share that is cut says " +
			"that the limit is too low, or that the policy has stopped ending its answers."},
		{Name: "losses", Make: lossFigure, Caption: "The training losses of different phases are different quantities. A validation loss " +
			"that rises while the training loss falls is the mark of overfitting."},
		{Name: "kl", Make: klFigure, Caption: "How far the policy has moved from its reference. Within its target band, where there is " +
			"one, β rests; it grows above and shrinks below."},
		{Name: "ratio", Make: ratioFigure, Caption: "How much more likely the policy makes what a step learns from than the old policy " +
			"did. A ratio that has left the clip range no longer pulls further that way."},
		{Name: "schedules", Make: scheduleFigure, Caption: "The learning rate, and where a phase has one the temperature, in each step."},
		{Name: "signal", Make: signalFigure, Caption: "The share of groups whose rewards differ: the others teach nothing."},
		{Name: "grad_norm", Make: gradNormFigure, Caption: "The size of the gradient before it is clipped. Spikes are steps that one " +
			"batch dominates."},
	}
}

// DrawPlots draws every figure that the run has data for, as plots/NAME.png and plots/NAME.svg of its folder. Files are
// replaced whole, so a reader never sees half a plot. A figure whose rows are gone, cut off by a resume, is removed. A panic of the
// plotting library is an error: a plot must not end a training.
func DrawPlots(run *record.Run) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("plots: %v", r)
		}
	}()
	return drawPlots(run, Figures())
}

func drawPlots(run *record.Run, figures []Figure) error {
	dir := filepath.Join(run.Dir, PlotsFolder)
	if err := atomicfile.MkdirAll(dir); err != nil {
		return fmt.Errorf("plots: %w", err)
	}
	for _, maker := range figures {
		f := maker.Make(run)
		if f == nil {
			for _, ending := range []string{".png", ".svg"} {
				if err := os.Remove(filepath.Join(dir, maker.Name+ending)); err != nil && !errors.Is(err, os.ErrNotExist) {
					return fmt.Errorf("plot %s: %w", maker.Name, err)
				}
			}
			continue
		}
		f.Name = maker.Name
		if err := f.Write(dir); err != nil {
			return fmt.Errorf("plot %s: %w", maker.Name, err)
		}
	}
	return nil
}

// FiguresFolder has the figures of a run at the width of a paper.
const FiguresFolder = "figures"

// PaperFigures returns the figures that the run has data for.
func PaperFigures(run *record.Run) []*chart.Figure {
	var out []*chart.Figure
	for _, maker := range Figures() {
		if f := maker.Make(run); f != nil {
			f.Name = maker.Name
			out = append(out, f)
		}
	}
	return out
}

func newPanel(run *record.Run, y string) *chart.Panel {
	p := &chart.Panel{Y: y, YMin: math.NaN(), YMax: math.NaN(), Spans: run.Spans()}
	for _, s := range p.Spans {
		p.XMax = max(p.XMax, s.To)
	}
	return p
}

// stack puts panels with data above each other; only the lowest names the horizontal axis.
func Stack(title, note string, panels ...*chart.Panel) *chart.Figure {
	f := &chart.Figure{Title: title, Note: note}
	for _, p := range panels {
		if !p.Blank() {
			f.Rows = append(f.Rows, []*chart.Panel{p})
		}
	}
	if len(f.Rows) == 0 {
		return nil
	}
	f.Rows[len(f.Rows)-1][0].X = stepAxis
	return f
}

const stepAxis = "optimizer step of the run"

// phaseRange is a band that a phase's config sets.
type phaseRange struct {
	record.Span
	low, high float64
}

func columnMin(run *record.Run, name string) float64 {
	low := math.Inf(1)
	for _, s := range run.Steps {
		for _, v := range s.Column(name) {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				low = min(low, v)
			}
		}
	}
	return low
}

// addBands draws bands below the curves and explains them: target band 0.01–0.1, or each phase's own where they differ.
func addBands(p *chart.Panel, what string, bands []phaseRange, strength float64) {
	if len(bands) == 0 {
		return
	}
	for _, b := range bands {
		p.Layers = slices.Insert(p.Layers, 0, plot.Plotter(chart.Ribbon{X: []float64{b.From, b.To}, Low: []float64{b.low, b.low},
			High: []float64{b.high, b.high}, Color: chart.Faint(chart.Green, strength)}))
	}
	same := true
	var each []string
	for _, b := range bands {
		same = same && b.low == bands[0].low && b.high == bands[0].high
		each = append(each, fmt.Sprintf("%s %.4g–%.4g", b.Name, b.low, b.high))
	}
	text := fmt.Sprintf("%s %.4g–%.4g", what, bands[0].low, bands[0].high)
	if !same {
		text = what + ": " + strings.Join(each, ", ")
	}
	p.Legend = append(p.Legend, chart.LegendItem{Text: text, Draw: chart.AreaSample(chart.Faint(chart.Green, 0.25))})
}

// CloseTo reports whether two means of equal numbers may differ by rounding alone.
func CloseTo(a, b float64) bool { return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9 }

// rewardIsAccuracy says whether the validation reward of a token policy is its accuracy, as where the
// reward has no other term.
func rewardIsAccuracy(r *record.Run) bool {
	_, reward := r.EpochSeries("", "val_reward")
	_, accuracy := r.EpochSeries("", "val_accuracy")
	return r.Answers() && len(reward) > 0 && slices.EqualFunc(reward, accuracy, CloseTo)
}

// equalColumns says whether two step metrics are the same in every phase, rounding aside.
func equalColumns(r *record.Run, a, b string) bool {
	return !slices.ContainsFunc(r.Steps, func(s *record.Steps) bool { return !slices.EqualFunc(s.Column(a), s.Column(b), CloseTo) })
}

// drawnFigures returns the figures whose plots a run folder holds.
func drawnFigures(dir string, figures []Figure) []Figure {
	return slices.DeleteFunc(slices.Clone(figures), func(f Figure) bool {
		_, err := os.Stat(filepath.Join(dir, PlotsFolder, f.Name+".png"))
		return errors.Is(err, os.ErrNotExist)
	})
}
