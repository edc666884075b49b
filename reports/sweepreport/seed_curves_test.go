package sweepreport

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot"

	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/chart"
	"fulcrum/reports/curves"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// The band of a setting is the interval of the mean over its seeds, t(0.975, 2) = 4.3027 standard errors to either side.
func TestSeedCurves(t *testing.T) {
	dir := t.TempDir()
	jobs := seededJobs(t, dir)
	v := PageOf(dir, jobs, sweeps.Options{Objectives: []sweeps.Objective{{Name: "val_reward"}}})
	f := v.curvesFigure()
	if f == nil || len(v.notes) > 0 {
		t.Fatalf("no figure; notes %q", v.notes)
	}
	if !strings.Contains(f.caption, "mean over 3 seeds with its 95% interval") || !strings.Contains(f.caption, "2 settings") {
		t.Errorf("caption %q", f.caption)
	}
	panels := f.Figure.Rows[0]
	if panels[0].Head != "rce.lr=1e-4" || panels[1].Head != "rce.lr=1e-3" || !panels[2].Blank() {
		t.Errorf("panels %q, %q", panels[0].Head, panels[1].Head)
	}
	if _, band := panels[0].Layers[0].(chart.Ribbon); band || !strings.HasSuffix(f.caption, "where most of one is wider, it is left out.") {
		t.Errorf("a band that fills its panel: %t, caption %q", band, f.caption)
	}
	if strings.Contains(f.caption+f.Figure.Note, "rey") {
		t.Errorf("a sweep has no arm to start from: %q", f.caption)
	}
	more, err := v.Explore()
	reportstest.Must(t, err)
	var page struct{ Runs []curves.Shown }
	reportstest.Must(t, json.Unmarshal(more.Data, &page))
	if len(page.Runs) != 2 || page.Runs[0].Label != "rce.lr=1e-4" || page.Runs[0].Seeds != 3 {
		t.Fatalf("the page has %+v", page.Runs)
	}
	band, half := page.Runs[0].Epochs.Series["val_reward"], 4.302653*0.1/math.Sqrt(3)
	if len(band.Low) != 2 || math.Abs(band.Low[0]-(0.2-half)) > 1e-6 || math.Abs(band.High[1]-(0.3+half)) > 1e-6 {
		t.Errorf("band %v to %v", band.Low, band.High)
	}
	svg, err := f.Figure.Svg()
	reportstest.Must(t, err)
	reportstest.CheckTextInside(t, svg)

	reportstest.Must(t, os.WriteFile(filepath.Join(dir, "0", record.MetricsFile), []byte("{\"kind\":\n"), 0o644))
	v = PageOf(dir, jobs, sweeps.Options{Objectives: []sweeps.Objective{{Name: "val_reward"}}})
	if len(v.notes) != 1 || !strings.Contains(v.notes[0], "line 1") {
		t.Errorf("damaged rows: notes %q", v.notes)
	}
	if v := PageOf(dir, jobs[6:], sweeps.Options{Objectives: []sweeps.Objective{{Name: "val_reward"}}}); v.curvesFigure() != nil {
		t.Error("one seed has curves with bands")
	}
}

// seededJobs makes three seeds of two settings and one of a third.
func seededJobs(t *testing.T, dir string) (jobs []sweeps.Job) {
	for i := range 7 {
		setting, seed := []string{"1e-4", "1e-3", "1e-2"}[i/3], i%3
		job := sweeps.Job{Number: i, Dir: filepath.Join(dir, fmt.Sprint(i)), State: record.StateDone,
			Overrides: []string{"rce.lr=" + setting, fmt.Sprintf("seed=%d", seed)},
			Params:    map[string]string{"rce.lr": setting, "seed": fmt.Sprint(seed)}, Objectives: []float64{0.6 - 0.1*float64(i/3)}}
		reportstest.SweepRun(t, job.Dir, uint64(i), 0.02, fmt.Sprintf("seed: %d\n", seed))
		log := reportstest.OpenTestLog(t, job.Dir, nil)
		for epoch := 1; epoch <= 2+i%2; epoch++ { // not all seeds have the third
			reportstest.Record(t, log, record.KindStep, "rce", epoch, epoch, epoch, map[string]any{"loss": 1.0})
			reportstest.Record(t, log, record.KindEpoch, "rce", epoch, epoch, epoch,
				map[string]any{"val_reward": 0.1*float64(epoch) + 0.1*float64(seed)})
		}
		reportstest.Must(t, log.Close())
		jobs = append(jobs, job)
	}
	return jobs
}

// What a sweep's page shows before a reader opens anything: these parts in this order, and no other. The digests come last.
func TestWhatASweepShowsAtOnce(t *testing.T) {
	dir := t.TempDir()
	jobs := seededJobs(t, dir)
	jobs[1].Objectives[0] = 0.61
	v := PageOf(dir, jobs, sweeps.Options{Objectives: []sweeps.Objective{{Name: "val_reward"}}, Command: []string{"bin/run", "-m"}})
	shown, folded, _ := strings.Cut(v.Report(v.Figures()), "\n---\n")
	part := regexp.MustCompile(`(?m)^(?:#+ .*|!\[.*\.png\))$`)
	if got, want := part.FindAllString(shown, -1), []string{"# " + filepath.Base(dir),
		"![learning curves of settings with several seeds](plots/curves.png)", "## Verdicts", "## What to try next"}; !slices.Equal(got, want) {
		t.Errorf("the page shows %q, want %q", got, want)
	}
	if n := len(strings.Fields(shown)); n < 200 || n > 560 {
		t.Errorf("%d words, want 200 to 560:\n%s", n, shown)
	}
	if got := part.FindAllString(folded, -1); got[0] != "## Settings" || got[len(got)-1] != "## To repeat it" {
		t.Errorf("folded are %q", got)
	}
	if !strings.Contains(shown, "'seed=range(3,5)'`.\n- `rce.lr` below 1e-4: ") {
		t.Errorf("neither seeds nor values to try next:\n%s", shown)
	}
}

// A KL to another reference begins another line: the means of a sweep say where its phases do.
func TestPhasesOfMeans(t *testing.T) {
	rows := []record.Row{{Phase: "rce", Epoch: 1, GlobalStep: 10}, {Phase: "rce", Epoch: 2, GlobalStep: 20},
		{Phase: "grpo", Epoch: 1, GlobalStep: 35}}
	first := &setting{runs: []*record.Run{{Epochs: rows}}}
	for _, tc := range []struct {
		arm  *setting
		want string
	}{{first, "rce 0-20 grpo 21-35 "}, {&setting{runs: first.runs, from: first}, "rce 35-55 grpo 56-70 "}} {
		var got string
		for _, p := range tc.arm.phases() {
			got += fmt.Sprintf("%s %d-%d ", p.Name, p.From, p.To)
		}
		if got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

// A band much wider than the curves leaves the axis to them; a curve of one seed has no band.
func TestBandsShareAnAxis(t *testing.T) {
	p := &chart.Panel{Layers: []plot.Plotter{chart.Ribbon{X: []float64{1, 2}, Low: []float64{-5, -5}, High: []float64{5, 0.45}},
		chart.Line([]float64{1, 2}, []float64{0.4, 0.5}, chart.Blue, 1)}}
	if cut := shareBands([]*chart.Panel{p}); !cut || len(p.Layers) != 2 { // half of the band fits
		t.Errorf("%d layers, cut: %t", len(p.Layers), cut)
	}
	if p.YMin < 0.25 || p.YMin > 0.3 || p.YMax < 0.6 || p.YMax > 0.65 {
		t.Errorf("axis from %g to %g, want 0.3 to 0.6 with air", p.YMin, p.YMax)
	}
	low, high := curves.MeanBand("val_reward", []float64{0.4})
	one := line{X: []float64{1}, Mean: []float64{0.4}, Low: []float64{low}, High: []float64{high}}
	addCurve(p, one, chart.Blue)
	for _, layer := range p.Layers[2:] {
		if _, ok := layer.(chart.Ribbon); ok {
			t.Error("a band of one seed")
		}
	}
	wide := chart.Ribbon{X: []float64{1, 2, 3}, Low: []float64{-5, -5, 0.4}, High: []float64{5, 5, 0.45}}
	p.Layers = append(p.Layers, wide)
	if shareBands([]*chart.Panel{p}); slices.ContainsFunc(p.Layers, func(layer plot.Plotter) bool {
		band, ok := layer.(chart.Ribbon)
		return ok && len(band.X) == len(wide.X)
	}) {
		t.Error("a band fills its panel")
	}
	p.Layers = p.Layers[1:2]
	if shareBands([]*chart.Panel{p}) {
		t.Error("a curve without a band is cut")
	}
}

// Without a reader the curves are those of recorded rewards. A sweep that is judged by the loss says which setting the recorded reward
// would put first, and only where that is another one.
func TestSweepWithoutAReader(t *testing.T) {
	for _, second := range []float64{0.3, 0.5} {
		dir := t.TempDir()
		var jobs []sweeps.Job
		for i := range 4 {
			job := sweeps.Job{Number: i, Dir: filepath.Join(dir, fmt.Sprint(i)), State: record.StateDone, Objectives: []float64{14 + float64(i)},
				Overrides: []string{fmt.Sprintf("rce.lr=1e-%d", 3+i/2), fmt.Sprintf("seed=%d", i%2)}}
			reportstest.Must(t, os.Mkdir(job.Dir, 0o755))
			reportstest.Must(t, os.Mkdir(filepath.Join(job.Dir, ".hydra"), 0o755))
			reportstest.Must(t, os.WriteFile(filepath.Join(job.Dir, ".hydra/config.yaml"), fmt.Appendf(nil, "seed: %d\n", i%2), 0o644))
			log := reportstest.OpenTestLog(t, job.Dir, io.Discard)
			reportstest.Record(t, log, record.KindEpoch, "rce", 1, 1, 1, map[string]any{"val_recorded_reward": 0.3})
			reportstest.Record(t, log, record.KindEpoch, "rce", 2, 2, 2, map[string]any{"val_recorded_reward": 0.4})
			reportstest.Must(t, log.Close())
			score := []float64{0.4, second}[i/2]
			reportstest.Must(t, record.AppendEvals(job.Dir, record.Evaluation{Split: "val", Policy: "init", Metric: "recorded_reward",
				QueryIDs: []int64{1, 2, 3}, Scores: []float64{0.2, 0.2, 0.2}}, record.Evaluation{Split: "val", Policy: "best", Phase: "rce", Epoch: 2,
				Metric: "recorded_reward", QueryIDs: []int64{1, 2, 3}, Scores: []float64{score, score, score + 0.01*float64(i%2)}}))
			jobs = append(jobs, job)
		}
		v := PageOf(dir, jobs, sweeps.Options{Objectives: []sweeps.Objective{{Name: "val_loss", Minimize: true}}})
		if f := v.curvesFigure(); f == nil || f.Figure.Rows[0][0].Y != "val recorded reward" || len(f.Figure.Rows[0][0].Layers) == 0 ||
			!strings.Contains(f.caption, "nothing scores its selections") {
			t.Errorf("learning curves: %+v", f)
		}
	}
}
