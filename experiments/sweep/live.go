package sweep

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/regular"
	"fulcrum/internal/stdout"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// tableWidth is the width of the table where the output is no terminal.
const tableWidth = 80

// redrawEvery is how often the table of a sweep is drawn again.
const redrawEvery = 500 * time.Millisecond

// liveTable is the table that a sweep shows on a terminal while it runs, drawn again in place below what else it says. A nil
// one shows nothing.
type liveTable struct {
	ctx   context.Context
	sweep ledger.Sweep
	dir   string
	lines int // on the screen
}

// clear takes the table off the screen, so that something else can be said. After Ctrl-C it stays: what was printed then stands
// below it.
func (l *liveTable) clear() {
	if l != nil && l.lines > 0 && l.ctx.Err() == nil {
		stdout.Writer().Control(fmt.Sprintf("\x1b[%dA\x1b[J", l.lines))
	}
	if l != nil {
		l.lines = 0
	}
}

// draw shows the jobs as they are, no wider or higher than the terminal.
func (l *liveTable) draw(jobs []ledger.Job) {
	if l == nil {
		return
	}
	width, height := stdout.Size()
	opt, rows := ResultOf(l.dir, l.sweep, jobs)
	lines := strings.Split(strings.TrimSuffix(sweeps.Table(rows, opt, width), "\n"), "\n")
	var running []string
	for _, j := range jobs {
		if j.State == launcher.Running {
			running = append(running, page.Clip(fmt.Sprintf("#%-4d %s", j.Num, lastSaid(filepath.Join(l.dir, j.Dir))), width-1))
		}
	}
	const others = 3 // lines of the terminal that are the user's
	if most := max(height-others-len(running), 6); len(lines) > most {
		const head = 4 // counts, a blank line, names and rule
		lines = slices.Concat(lines[:head], []string{"  …"}, lines[len(lines)-(most-head-1):])
	}
	if len(running) > 0 {
		lines = append(append(lines, ""), running...)
	}
	l.clear()
	stdout.Print(strings.Join(lines, "\n") + "\n")
	l.lines = len(lines)
}

// tells reports whether the sweep shows progress: what its command line says for all jobs, which its primary configuration does not
// hold, or that configuration.
func (p *plan) tells() bool {
	said := ""
	for _, o := range p.req.Overrides {
		if key, value, _ := strings.Cut(strings.TrimLeft(o, "+"), "="); key == "logging.progress" {
			said = value
		}
	}
	if said == "" && p.master != nil {
		if text, err := p.master.YAML("job", true, "logging.progress"); err == nil {
			said = text
		}
	}
	return !strings.EqualFold(strings.TrimSpace(said), "false")
}

// differing are the overrides by which a job differs from the others.
func (c *controller) differing(job ledger.Job) []string {
	all := shownOverrides(c.plan.study, job)
	var out []string
	for _, o := range all {
		key, _, _ := strings.Cut(strings.TrimLeft(o, "+"), "=")
		swept := func(d configs.Dimension) bool { return strings.TrimLeft(d.Key, "+") == key }
		if key == sweeps.ArmKey {
			out = append(out, c.plan.study.Sets(job.Arm))
		} else if slices.ContainsFunc(c.plan.dims, swept) {
			out = append(out, o)
		}
	}
	if len(out) == 0 {
		return all
	}
	return out
}

// say prints a line above the live table.
func (c *controller) say(format string, args ...any) {
	c.live.clear()
	stdout.Printf(format, args...)
}

// lastSaid is how far a run is, by the last row that it has written.
func lastSaid(dir string) string {
	row, ok := lastRow(filepath.Join(dir, record.MetricsFile))
	if !ok || row.Phase == "" {
		return "starting"
	}
	text := fmt.Sprintf("%s  epoch %d  step %d", row.Phase, row.Epoch, row.Step)
	for _, name := range []string{"mean_reward", "kl", "loss", "val_reward", "val_loss"} {
		if x, ok := row.Number(name); ok && !(name == "loss" && row.Rewarded()) {
			text += "  " + name + " " + page.Sig(x, 4)
		}
	}
	return text
}

// lastRow reads the last whole line of a file of rows.
func lastRow(path string) (row record.Row, ok bool) {
	f, err := regular.Open(path)
	if err != nil {
		return row, false
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	data := make([]byte, 32<<10)
	n, _ := f.ReadAt(data, max(0, size-int64(len(data))))
	lines := bytes.Split(data[:n], []byte{'\n'})
	if err != nil || len(lines) < 2 { // what stands behind the last end of a line is being written
		return row, false
	}
	row, err = record.ParseRow(lines[len(lines)-2])
	return row, err == nil
}
