package runreport

import (
	"bytes"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// LOOK=/some/folder go test -run TestPlots leaves a whole run folder there: look at the PNGs after
// changing a figure.
func TestPlots(t *testing.T) {
	dir := reportstest.FakeRun(t, 1)
	run, err := record.ReadRun(dir)
	reportstest.Must(t, err)
	reportstest.Must(t, DrawPlots(run))
	names := drawnNames(dir)
	if want := len(Figures()) - 4; len(names) != want { // three are of policies that write, one of those without a reader
		t.Fatalf("drawn %v, want %d of %d figures", names, want, len(Figures()))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, PlotsFolder, name+".png"))
			reportstest.Must(t, err)
			img, err := png.DecodeConfig(bytes.NewReader(data))
			reportstest.Must(t, err)
			svg, err := os.ReadFile(filepath.Join(dir, PlotsFolder, name+".svg"))
			reportstest.Must(t, err)
			if img.Width != 1296 || img.Height < 500 {
				t.Errorf("picture of %d×%d", img.Width, img.Height)
			}
			reportstest.CheckTextInside(t, svg)
			golden.File(t, filepath.Join("testdata", "plots", name+".txt"), []byte(reportstest.SvgText(svg)+seriesText(run, name)))
		})
	}
	if out := os.Getenv("LOOK"); out != "" {
		reportstest.Must(t, WriteReport(dir))
		reportstest.Must(t, os.CopyFS(out, os.DirFS(dir)))
	}
}

// Without a reader the curve is of recorded rewards. The file's order, which may be an oracle's, does not flatten the closer panel.
func TestPlotOfRecordedRewards(t *testing.T) {
	dir := t.TempDir()
	log := reportstest.OpenTestLog(t, dir, io.Discard)
	for epoch, score := range []float64{0.3, 0.4, 0.35} {
		reportstest.Record(t, log, record.KindEpoch, "rce", epoch+1, 10*(epoch+1), 10*(epoch+1), map[string]any{"val_recorded_reward": score})
	}
	reportstest.Must(t, log.Close())
	for policy, score := range map[string]float64{"recorded_order": 0.9, "similarity": 0.32, "init": 0.31} {
		reportstest.Must(t, record.AppendEvals(dir, record.Evaluation{Split: "val", Policy: policy, Metric: "recorded_reward",
			QueryIDs: []int64{1, 2}, Scores: []float64{score, score}}))
	}
	run, err := record.ReadRun(dir)
	reportstest.Must(t, err)
	reportstest.Must(t, DrawPlots(run))
	if names := drawnNames(dir); !slices.Equal(names, []string{"recorded_reward"}) {
		t.Fatalf("drawn %v", names)
	}
	f := recordedRewardFigure(run)
	for row, want := range [][]string{{"similarity 0.320", "recorded order 0.900", "initial policy 0.310"},
		{"similarity 0.320", "initial policy 0.310"}} {
		var got []string
		for _, l := range f.Rows[row][0].Labels {
			got = append(got, l.Text)
		}
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("panel %d names %q, want %q", row, got, want)
		}
	}
	if f.Title != "Recorded reward that the policy expects on validation queries" || f.Rows[0][0].Y != "mean validation recorded reward" {
		t.Errorf("%q, %q", f.Title, f.Rows[0][0].Y)
	}
}

// seriesText sums up what is drawn: of each layer its points, first and last, and its range.
func seriesText(run *record.Run, name string) string {
	var b strings.Builder
	for _, maker := range Figures() {
		if maker.Name != name {
			continue
		}
		for i, row := range maker.Make(run).Rows {
			for j, p := range row {
				for _, layer := range p.Layers {
					fmt.Fprintf(&b, "panel %d,%d ", i, j)
					switch l := layer.(type) {
					case chart.Curve:
						fmt.Fprintf(&b, "curve %s\n", seriesLine(l.X, l.Y))
					case chart.Dots:
						fmt.Fprintf(&b, "dots %s\n", seriesLine(l.X, l.Y))
					case chart.Ribbon:
						fmt.Fprintf(&b, "ribbon %s to %s\n", seriesLine(l.X, l.Low), seriesLine(l.X, l.High))
					case chart.LevelOf:
						fmt.Fprintf(&b, "level %.4g\n", l.Y)
					}
				}
			}
		}
	}
	return b.String()
}

func seriesLine(x, y []float64) string {
	_, _, low, high := chart.RangeOf(x, y)
	n := len(x) - 1
	return fmt.Sprintf("%d points (%.4g, %.4g) … (%.4g, %.4g) in [%.4g, %.4g]", n+1, x[0], y[0], x[n], y[n], low, high)
}

func ParseFloat(t *testing.T, b []byte) float64 {
	t.Helper()
	var n record.Number
	reportstest.Must(t, n.UnmarshalJSON(b))
	return float64(n)
}

func TestPlotsOfOddRuns(t *testing.T) {
	for _, tc := range []struct {
		name string
		fill func(*testing.T, *record.Log)
		want string
	}{
		{"nothing recorded", func(*testing.T, *record.Log) {}, ""},
		{"one step", func(t *testing.T, log *record.Log) {
			reportstest.Record(t, log, record.KindStep, "grpo", 1, 1, 1,
				map[string]any{"loss": 0.0, "kl": 0.0, "kl_beta": 0.0, "mean_ratio": 1.0, "clip_fraction": 0.0, "grad_norm": 0.0, "lr": 0.0})
		}, "losses kl ratio schedules grad_norm"},
		{"numbers that are none", func(t *testing.T, log *record.Log) {
			for i, x := range []float64{math.NaN(), math.Inf(1), 1, math.Inf(-1)} {
				reportstest.Record(t, log, record.KindStep, "rce", 1, i+1, i+1, map[string]any{"loss": x, "grad_norm": x})
			}
		}, "losses grad_norm"},
		{"nothing finite", func(t *testing.T, log *record.Log) {
			reportstest.Record(t, log, record.KindStep, "rce", 1, 1, 1, map[string]any{"loss": math.NaN()})
		}, ""},
		{"a phase without steps", func(t *testing.T, log *record.Log) {
			reportstest.Record(t, log, record.KindEpoch, "rce", 1, 0, 0, map[string]any{"val_reward": 0.5, "val_loss": 1.0})
			reportstest.Record(t, log, record.KindEpoch, "rce", 2, 0, 0, map[string]any{"val_reward": 0.5, "val_loss": 1.0})
		}, "reward"},
		{"huge and tiny values", func(t *testing.T, log *record.Log) {
			for i := range 5 {
				x := math.Pow(10, float64(60*i-120))
				reportstest.Record(t, log, record.KindStep, "grpo", 1, i+1, i+1,
					map[string]any{"loss": x, "grad_norm": x, "lr": x, "kl": x, "kl_beta": x})
			}
		}, "losses kl schedules grad_norm"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			log := reportstest.OpenTestLog(t, dir, &bytes.Buffer{})
			tc.fill(t, log)
			run, err := record.ReadRun(dir)
			reportstest.Must(t, err)
			reportstest.Must(t, DrawPlots(run))
			if got := strings.Join(drawnNames(dir), " "); got != tc.want {
				t.Errorf("drawn %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTicks(t *testing.T) {
	for _, tc := range []struct {
		name      string
		low, high float64
		ticks     chart.LinearTicks
		want      string
	}{
		{"fifths of a small range", 0.07, 0.12, chart.LinearTicks{}, "0.07 0.08 0.09 0.10 0.11 0.12"},
		{"through zero", -1, 4.2, chart.LinearTicks{}, "0 2 4"},
		{"negative numbers have a minus sign", -0.2, 0.1, chart.LinearTicks{}, "−0.2 −0.1 0 0.1"},
		{"steps are whole", 0, 3, chart.LinearTicks{Integers: true}, "0 1 2 3"},
		{"thousands", 0, 25000, chart.LinearTicks{Integers: true}, "0 5,000 10,000 15,000 20,000 25,000"},
		{"percent", 0, 0.17, chart.LinearTicks{Percent: true}, "0% 5% 10% 15%"},
		{"tiny", 0, 2e-9, chart.LinearTicks{}, "0 5e−10 1e−09 1.5e−09 2e−09"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var labels []string
			for _, tick := range tc.ticks.Ticks(tc.low, tc.high) {
				labels = append(labels, tick.Label)
			}
			if got := strings.Join(labels, " "); got != tc.want {
				t.Errorf("ticks of [%g, %g]: %s, want %s", tc.low, tc.high, got, tc.want)
			}
		})
	}
}

func TestSmoothKeepsLevelsAndLength(t *testing.T) {
	y := make([]float64, 200)
	for i := range y {
		y[i] = 3
	}
	golden.Close(t, chart.Smooth(y), y, 1e-12)
	y[100] = 14 // spread over the 11 points of the window
	if got := chart.Smooth(y); math.Abs(got[100]-4) > 1e-12 || got[94] != 3 || got[106] != 3 {
		t.Errorf("around a spike: %v", got[94:107])
	}
}

func TestBucketsBoundTheNumberOfPoints(t *testing.T) {
	x, y := make([]float64, 100_001), make([]float64, 100_001)
	for i := range x {
		x[i], y[i] = float64(i), float64(i%2)
	}
	bx, mean, low, high := chart.Buckets(x, y)
	if len(bx) > chart.DrawnPoints || len(bx) < chart.DrawnPoints/2 || low[0] != 0 || high[0] != 1 || math.Abs(mean[3]-0.5) > 0.01 {
		t.Errorf("%d points, first from %g to %g, fourth mean %g", len(bx), low[0], high[0], mean[3])
	}
}

func TestPlotterDrawsBesideAndAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	log := reportstest.OpenTestLog(t, dir, &bytes.Buffer{})
	synctest.Test(t, func(t *testing.T) { // its clock moves only while somebody waits
		p := StartPlotter(dir, time.Hour, func(err error) { t.Error(err) })
		reportstest.Record(t, log, record.KindStep, "rce", 1, 1, 1, map[string]any{"loss": 1.0})
		begin := time.Now()
		for range 1000 {
			p.Redraw()
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("1000 requests waited %v: a request must not wait", took)
		}
		if synctest.Wait(); len(drawnNames(dir)) > 0 {
			t.Fatal("drawn before its time: a short run would be drawn twice")
		}
		time.Sleep(time.Hour)
		if synctest.Wait(); len(drawnNames(dir)) == 0 {
			t.Fatal("nothing drawn")
		}
		reportstest.Record(t, log, record.KindStep, "rce", 1, 2, 2, map[string]any{"loss": 1.0, "grad_norm": 1.0})
		reportstest.Must(t, p.Close())
		reportstest.Must(t, p.Close())
		if got := strings.Join(drawnNames(dir), " "); got != "losses grad_norm" {
			t.Errorf("after Close: %q, want losses grad_norm", got)
		}
	})
}

func TestPlotterReportsErrorsOnce(t *testing.T) {
	dir := t.TempDir()
	reportstest.Must(t, os.WriteFile(filepath.Join(dir, record.MetricsFile), []byte("{broken\n"), 0o644))
	synctest.Test(t, func(t *testing.T) {
		said := 0
		p := StartPlotter(dir, 0, func(error) { said++ })
		for range 3 {
			p.Redraw()
			synctest.Wait() // it was tried
			time.Sleep(time.Second)
		}
		if err := p.Close(); err == nil || errors.Is(err, os.ErrNotExist) || said != 1 {
			t.Errorf("said %d times, Close says %v; want once and the damaged line", said, err)
		}
	})
}

func BenchmarkDrawPlots(b *testing.B) {
	run, err := record.ReadRun(reportstest.FakeRun(b, 1))
	reportstest.Must(b, err)
	for b.Loop() {
		reportstest.Must(b, DrawPlots(run))
	}
}

// drawnNames returns the names of the figures that a run folder holds.
func drawnNames(dir string) []string {
	var names []string
	for _, f := range drawnFigures(dir, Figures()) {
		names = append(names, f.Name)
	}
	return names
}

func toyFigure(run *record.Run) *chart.Figure {
	p := newPanel(run, "seconds")
	p.AddSteps(run, "step_seconds", "seconds of a step", chart.Blue)
	return Stack("Toy", "", p)
}

// A new figure is one entry: it is drawn beside the others and stands in the report with its caption.
func TestAToyFigureIsOneEntry(t *testing.T) {
	run, err := record.ReadRun(reportstest.FakeRun(t, 1))
	reportstest.Must(t, err)
	figures := append(Figures(), Figure{Name: "toy", Make: toyFigure, Caption: "Seconds of a step."})
	reportstest.Must(t, drawPlots(run, figures))
	for _, ending := range []string{".png", ".svg"} {
		if _, err := os.Stat(filepath.Join(run.Dir, PlotsFolder, "toy"+ending)); err != nil {
			t.Error(err)
		}
	}
	var d page.Document
	reportFigures(&d, run, 0, drawnFigures(run.Dir, figures)...)
	want := fmt.Sprintf("![toy](plots/toy.png)\n\n*Figure %d.* Seconds of a step.\n\n", len(drawnNames(run.Dir))+1)
	if got := d.B.String(); !strings.HasSuffix(got, want) {
		t.Errorf("the report ends with %q", got[max(0, len(got)-120):])
	}
}

// Every figure says how to read it, and its name is a file's.
func TestEveryFigureHasItsCaption(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Figures() {
		if f.Caption == "" || f.Make == nil || seen[f.Name] || f.Name != filepath.Base(f.Name) {
			t.Errorf("figure %q: caption %q, drawn %v, twice %v", f.Name, f.Caption, f.Make != nil, seen[f.Name])
		}
		seen[f.Name] = true
		if _, err := os.Stat("figure_" + f.Name + ".go"); err != nil {
			t.Error(err)
		}
	}
}
