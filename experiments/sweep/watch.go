//go:build !core

package sweep

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/hostmem"
	"fulcrum/internal/list"
	"fulcrum/internal/program"
	"fulcrum/internal/stdout"
	"fulcrum/reports/curves"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// watchEvery is how often a watched folder is looked at.
const watchEvery = time.Second

// Watch shows a run or a sweep until it ends: on a terminal a picture that is drawn again in place, elsewhere a picture
// whenever it has changed. It reads and writes nothing, and a signal ends it.
func Watch(dir string) error {
	if err := checkStatus(dir); err != nil {
		return err
	}
	w := newWatcher(dir)
	width := stdout.Width()
	shown, lines := "", 0
	for {
		picture, ended, err := w.picture(cmp.Or(width, 80))
		if err != nil {
			return err
		}
		if picture != shown {
			if width > 0 && lines > 0 {
				stdout.Writer().Control(fmt.Sprintf("\x1b[%dA\x1b[J", lines)) // up, and clear what is below
			}
			stdout.Print(picture)
			shown, lines = picture, strings.Count(picture, "\n")
		}
		if ended {
			return nil
		}
		time.Sleep(watchEvery)
	}
}

// watcher keeps what it has read of a run's rows.
type watcher struct {
	dir  string
	rows *curves.Curves
	run  *record.Run // its configuration
}

func newWatcher(dir string) *watcher {
	w := &watcher{dir: dir, rows: curves.New(), run: &record.Run{Dir: dir}}
	w.rows.Unsaved = true
	return w
}

// picture is what a watcher sees now, in lines of at most width characters.
func (w *watcher) picture(width int) (text string, ended bool, err error) {
	if ledger.Exists(w.dir) {
		return w.sweep(width)
	}
	ended = !runfolder.Locked(w.dir) // before all that is read: the last picture is of the end
	if _, err = w.rows.Update(w.dir, math.MaxInt64/2); err != nil {
		return "", false, err
	}
	if n := w.rows.Damaged; n > 0 {
		return "", false, fmt.Errorf("%s: %s %s damaged", filepath.Join(w.dir, record.MetricsFile), page.Plural(n, "line"),
			page.Verb(n, "is", "are"))
	}
	if w.run.Tree == nil {
		if err := w.run.ReadConfig(); err != nil {
			return "", false, err
		}
	}
	if w.run.Summary, err = record.ReadSummary(w.dir); err != nil {
		return "", false, err
	}
	system, err := record.ReadSystem(w.dir)
	if err != nil {
		return "", false, err
	}
	state := runStatus(w.dir)
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(stdout.Fold(fmt.Sprintf(format, args...), width, 4) + "\n")
	}
	line("%s: %s", w.dir, state)
	for _, p := range w.rows.Phases {
		line("%s", w.phase(p))
		for _, name := range []string{"loss", "kl", "mean_reward"} {
			values := w.rows.Steps.Means(name, p.From, p.To)
			if spark := sparkline(values, width-30); spark != "" {
				line("  %-12s %s %s", name, spark, page.Sig(last(values), 4))
			}
		}
	}
	for _, name := range []string{"val_reward", "val_loss"} {
		values := w.rows.Epochs.Means(name, 0, math.MaxInt64)
		if spark := sparkline(values, width-30); spark != "" {
			line("%-14s %s %s", name, spark, page.Sig(last(values), 4))
		}
	}
	if n := len(system); n > 0 {
		text := "memory " + hostmem.Size(system[n-1].Memory) + ", peak " + hostmem.Size(system[n-1].MemoryPeak)
		if system[n-1].GPUPeak > 0 {
			text += "; GPU " + hostmem.Size(system[n-1].GPU) + ", peak " + hostmem.Size(system[n-1].GPUPeak) + ", free " +
				hostmem.Size(system[n-1].GPUFree)
		}
		line("%s", text)
	}
	if found := (&record.Run{Events: w.rows.EventRows()}).Findings(); len(found) > 0 {
		line("%s: %s", cmp.Or(found[len(found)-1].Severity, "note"), found[len(found)-1].Message)
	}
	if s := w.run.Summary; ended && s != nil && s.Best != nil && s.Best.Phase != "" { // of an evaluation the report says it
		line("best %s %s (%s epoch %d); report: %s", s.Best.Metric, page.Sig(float64(s.Best.Value), 4), s.Best.Phase, s.Best.Epoch,
			page.ReportPath(w.dir))
	}
	return b.String(), ended, nil
}

// phase says how far a phase is and how long its steps take.
func (w *watcher) phase(p curves.Span) string {
	text := fmt.Sprintf("%s  epoch %d", p.Name, p.Epoch)
	if epochs, ok := w.run.SettingNumber(p.Name, "epochs"); ok {
		text += fmt.Sprintf("/%.0f", epochs)
	}
	text += fmt.Sprintf("  step %d", p.Step)
	recent := w.rows.Steps.Means("step_seconds", p.From, p.To)
	recent = slices.DeleteFunc(recent[max(0, len(recent)-20):], math.IsNaN)
	if len(recent) > 0 {
		slices.Sort(recent)
		text += "  " + page.Duration(recent[len(recent)/2]) + "/step"
	}
	return text
}

// sweep is the table of status, whatever its jobs say.
func (w *watcher) sweep(width int) (text string, ended bool, err error) {
	s, jobs, err := observed(w.dir)
	if err != nil {
		return "", false, err
	}
	opt, rows := ResultOf(w.dir, s, jobs)
	state := standing(runfolder.Locked(w.dir), s, jobs)
	ended = state != record.StateRunning
	switch state {
	case record.StateRunning:
		state = "its controller is running"
	case stopped:
		state = "nobody controls it now; go on: " + program.OnFolder("resume", w.dir)
	}
	return stdout.Fold(w.dir+": "+state, width, 4) + "\n" + sweeps.Table(rows, opt, width), ended, nil
}

func last(values []float64) float64 { return values[len(values)-1] }

// sparkline draws values as at most width small bars between their least and their largest, each the mean of its share;
// "" where there are fewer than two.
func sparkline(values []float64, width int) string {
	values = slices.DeleteFunc(slices.Clone(values), func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	width = min(width, len(values))
	if width < 2 {
		return ""
	}
	means := make([]float64, width)
	for i := range means {
		part := values[i*len(values)/width : (i+1)*len(values)/width]
		means[i] = list.Sum(part, func(x float64) float64 { return x / float64(len(part)) })
	}
	bars := []rune("▁▂▃▄▅▆▇█")
	low, high := slices.Min(means), slices.Max(means)
	out := make([]rune, width)
	for i, x := range means {
		at := 0
		if high > low {
			at = int((x - low) / (high - low) * float64(len(bars)-1))
		}
		out[i] = bars[at]
	}
	return string(out)
}
