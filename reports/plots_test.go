package reports

import (
	"bytes"
	"errors"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fulcrum/internal/golden"
)

// LOOK=/some/folder go test -run TestPlots leaves a whole run folder there: look at the PNGs after
// changing a figure.
func TestPlots(t *testing.T) {
	dir := fakeRun(t, 1)
	run, err := ReadRun(dir)
	must(t, err)
	must(t, DrawPlots(run))
	names := plotFiles(dir)
	if want := len(figures()) - 3; len(names) != want { // three are of policies that write
		t.Fatalf("drawn %v, want %d of %d figures", names, want, len(figures()))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, plotsFolder, name+".png"))
			must(t, err)
			img, err := png.DecodeConfig(bytes.NewReader(data))
			must(t, err)
			svg, err := os.ReadFile(filepath.Join(dir, plotsFolder, name+".svg"))
			must(t, err)
			if img.Width != 1296 || img.Height < 500 {
				t.Errorf("picture of %d×%d", img.Width, img.Height)
			}
			checkTextInside(t, svg)
			golden.File(t, filepath.Join("testdata", "plots", name+".txt"), []byte(svgText(svg)+seriesText(run, name)))
		})
	}
	if out := os.Getenv("LOOK"); out != "" {
		must(t, WriteReport(dir))
		must(t, os.CopyFS(out, os.DirFS(dir)))
	}
}

// svgText is what a reader can read in a plot, in drawing order.
func svgText(svg []byte) string {
	var b strings.Builder
	for _, m := range regexp.MustCompile(`>([^<>]+)</text>`).FindAllSubmatch(svg, -1) {
		b.Write(m[1])
		b.WriteByte('\n')
	}
	return b.String()
}

// seriesText sums up what is drawn: of each layer its points, first and last, and its range.
func seriesText(run *Run, name string) string {
	var b strings.Builder
	for _, maker := range figures() {
		if maker.name != name {
			continue
		}
		for i, row := range maker.make(run).rows {
			for j, p := range row {
				for _, layer := range p.layers {
					fmt.Fprintf(&b, "panel %d,%d ", i, j)
					switch l := layer.(type) {
					case curve:
						fmt.Fprintf(&b, "curve %s\n", seriesLine(l.x, l.y))
					case dots:
						fmt.Fprintf(&b, "dots %s\n", seriesLine(l.x, l.y))
					case ribbon:
						fmt.Fprintf(&b, "ribbon %s to %s\n", seriesLine(l.x, l.low), seriesLine(l.x, l.high))
					case level:
						fmt.Fprintf(&b, "level %.4g\n", l.y)
					}
				}
			}
		}
	}
	return b.String()
}

func seriesLine(x, y []float64) string {
	_, _, low, high := rangeOf(x, y)
	n := len(x) - 1
	return fmt.Sprintf("%d points (%.4g, %.4g) … (%.4g, %.4g) in [%.4g, %.4g]", n+1, x[0], y[0], x[n], y[n], low, high)
}

// checkTextInside finds labels that leave the picture: every unrotated text must start and, at half an em
// a letter, end inside.
func checkTextInside(t *testing.T, svg []byte) {
	t.Helper()
	found := 0
	for _, m := range regexp.MustCompile(`(?s)<text (?:textLength="[^"]*" lengthAdjust="[^"]*" )?x="([-0-9.e]+)" y="([-0-9.e]+)"[^>]*font-size:([0-9.]+)px[^>]*>([^<]+)<`).FindAllSubmatch(svg, -1) {
		found++
		x, size := parseFloat(t, m[1]), parseFloat(t, m[3])
		width := size * 0.47 * float64(len([]rune(string(m[4]))))
		if x < -300 { // rotated: its coordinates are another system's
			continue
		}
		if x+width > 648 {
			t.Errorf("%q reaches from %.0f to about %.0f, the picture ends at 648", m[4], x, x+width)
		}
	}
	if found < 10 {
		t.Errorf("only %d texts found", found)
	}
}

func parseFloat(t *testing.T, b []byte) float64 {
	t.Helper()
	var n Number
	must(t, n.UnmarshalJSON(b))
	return float64(n)
}

func TestPlotsOfOddRuns(t *testing.T) {
	for _, tc := range []struct {
		name string
		fill func(*testing.T, *Log)
		want string
	}{
		{"nothing recorded", func(*testing.T, *Log) {}, ""},
		{"one step", func(t *testing.T, log *Log) {
			record(t, log, KindStep, "grpo", 1, 1, 1, map[string]any{"loss": 0.0, "kl": 0.0, "kl_beta": 0.0, "mean_ratio": 1.0, "clip_fraction": 0.0, "grad_norm": 0.0, "lr": 0.0})
		}, "losses kl ratio schedules grad_norm"},
		{"numbers that are none", func(t *testing.T, log *Log) {
			for i, x := range []float64{math.NaN(), math.Inf(1), 1, math.Inf(-1)} {
				record(t, log, KindStep, "rce", 1, i+1, i+1, map[string]any{"loss": x, "grad_norm": x})
			}
		}, "losses grad_norm"},
		{"nothing finite", func(t *testing.T, log *Log) {
			record(t, log, KindStep, "rce", 1, 1, 1, map[string]any{"loss": math.NaN()})
		}, ""},
		{"a phase without steps", func(t *testing.T, log *Log) {
			record(t, log, KindEpoch, "rce", 1, 0, 0, map[string]any{"val_reward": 0.5, "val_loss": 1.0})
			record(t, log, KindEpoch, "rce", 2, 0, 0, map[string]any{"val_reward": 0.5, "val_loss": 1.0})
		}, "reward"},
		{"huge and tiny values", func(t *testing.T, log *Log) {
			for i := range 5 {
				x := math.Pow(10, float64(60*i-120))
				record(t, log, KindStep, "grpo", 1, i+1, i+1, map[string]any{"loss": x, "grad_norm": x, "lr": x, "kl": x, "kl_beta": x})
			}
		}, "losses kl schedules grad_norm"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			log := openTestLog(t, dir, &bytes.Buffer{}, nil)
			tc.fill(t, log)
			run, err := ReadRun(dir)
			must(t, err)
			must(t, drawSafely(run))
			if got := strings.Join(plotFiles(dir), " "); got != tc.want {
				t.Errorf("drawn %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTicks(t *testing.T) {
	for _, tc := range []struct {
		name      string
		low, high float64
		ticks     linearTicks
		want      string
	}{
		{"fifths of a small range", 0.07, 0.12, linearTicks{}, "0.07 0.08 0.09 0.10 0.11 0.12"},
		{"through zero", -1, 4.2, linearTicks{}, "0 2 4"},
		{"negative numbers have a minus sign", -0.2, 0.1, linearTicks{}, "−0.2 −0.1 0 0.1"},
		{"steps are whole", 0, 3, linearTicks{integers: true}, "0 1 2 3"},
		{"thousands", 0, 25000, linearTicks{integers: true}, "0 5,000 10,000 15,000 20,000 25,000"},
		{"percent", 0, 0.17, linearTicks{percent: true}, "0% 5% 10% 15%"},
		{"tiny", 0, 2e-9, linearTicks{}, "0 5e−10 1e−09 1.5e−09 2e−09"},
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
	golden.Close(t, smooth(y), y, 1e-12)
	y[100] = 14 // spread over the 11 points of the window
	if got := smooth(y); math.Abs(got[100]-4) > 1e-12 || got[94] != 3 || got[106] != 3 {
		t.Errorf("around a spike: %v", got[94:107])
	}
}

func TestBucketsBoundTheNumberOfPoints(t *testing.T) {
	x, y := make([]float64, 100_001), make([]float64, 100_001)
	for i := range x {
		x[i], y[i] = float64(i), float64(i%2)
	}
	bx, mean, low, high := buckets(x, y)
	if len(bx) > drawnPoints || len(bx) < drawnPoints/2 || low[0] != 0 || high[0] != 1 || math.Abs(mean[3]-0.5) > 0.01 {
		t.Errorf("%d points, first from %g to %g, fourth mean %g", len(bx), low[0], high[0], mean[3])
	}
}

func TestPlotterDrawsBesideAndAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	log := openTestLog(t, dir, &bytes.Buffer{}, nil)
	p := StartPlotter(dir, time.Hour, func(err error) { t.Error(err) })
	record(t, log, KindStep, "rce", 1, 1, 1, map[string]any{"loss": 1.0})
	begin := time.Now()
	for range 1000 {
		p.Redraw()
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("1000 requests took %v: a request must not wait", took)
	}
	for deadline := time.Now().Add(20 * time.Second); len(plotFiles(dir)) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing drawn")
		}
	}
	record(t, log, KindStep, "rce", 1, 2, 2, map[string]any{"loss": 1.0, "grad_norm": 1.0})
	must(t, p.Close())
	must(t, p.Close())
	if got := strings.Join(plotFiles(dir), " "); got != "losses grad_norm" {
		t.Errorf("after Close: %q, want losses grad_norm", got)
	}
}

func TestPlotterReportsErrorsOnce(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, metricsFile), []byte("{broken\n"), 0o644))
	var said atomic.Int32
	p := StartPlotter(dir, 0, func(error) { said.Add(1) })
	for deadline := time.Now().Add(300 * time.Millisecond); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		p.Redraw()
	}
	if err := p.Close(); err == nil || errors.Is(err, os.ErrNotExist) || said.Load() != 1 {
		t.Errorf("said %d times, Close says %v; want once and the damaged line", said.Load(), err)
	}
}

func BenchmarkDrawPlots(b *testing.B) {
	run, err := ReadRun(fakeRun(b, 1))
	must(b, err)
	for b.Loop() {
		must(b, DrawPlots(run))
	}
}
