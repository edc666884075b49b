// Package export makes tables of runs, for programs and papers: a row for each run, each line of metrics.jsonl, or each
// evaluation with its intervals.
//
//	table, err := export.NewReader(locked).Runs(folders)
//	err = table.CSV(os.Stdout)
package export

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
)

// Folder is a run folder.
type Folder struct {
	Dir  string
	Root string // that it was found below; "" where it was named itself
}

// Run is what a row says of a run: the first columns by name, its results, its overrides.
type Run struct {
	Folder
	Warned bool           // it has ended, with warnings
	Values map[string]any // by column
	Order  []string       // of the columns

	final map[string]record.Number // metrics of the run's last epoch, nil where none has ended
}

// lastEpoch begins the column of a metric of a run's last epoch.
const lastEpoch = "last_"

// Read reads the summary of a run folder; of a run that has not ended, its configuration.
func (reader *Reader) Read(f Folder) (*Run, error) {
	locked := reader.locked(f.Dir) // before the summary: who goes on with a run removes that
	e, err := reader.ended(f)
	if err != nil {
		return nil, err
	}
	r := &Run{Folder: f, Values: map[string]any{}}
	r.set("run", filepath.ToSlash(f.Dir))
	if e == nil {
		r.set("state", record.StateOf(locked, ""))
		return r, r.begun()
	}
	r.Warned = len(e.Warnings) > 0
	r.set("state", record.StateOf(locked, e.State))
	r.set("task", e.Task)
	r.set("title", e.Title)
	r.set("data", e.Data.Name)
	r.set("seed", int(e.Seed))
	r.set("device", e.Device)
	r.set("start", e.Start)
	r.set("wall_seconds", e.WallSeconds)
	var phases []string
	epochs, steps := 0, 0
	for _, p := range e.Phases {
		phases, epochs, steps, r.final = append(phases, p.Name), epochs+p.Epochs, steps+p.Steps, p.Final
	}
	r.set("phases", strings.Join(phases, " "))
	r.set("epochs", epochs)
	r.set("steps", steps)
	if b := e.Best; b != nil {
		r.set("best_metric", b.Metric)
		r.set("best", float64(b.Value))
		r.set("best_phase", b.Phase)
		r.set("best_epoch", b.Epoch)
		r.set("best_checkpoint", b.Checkpoint)
	}
	r.set("overrides", page.ShellCommand(e.Overrides))
	for _, score := range e.Evaluations {
		name := score.Split + "/" + score.Metric
		r.set(name, score.Mean)
		r.set(name+"_se", score.SE)
	}
	for _, name := range slices.Sorted(maps.Keys(r.final)) {
		if strings.HasPrefix(name, "val_") {
			r.set(lastEpoch+name, float64(r.final[name]))
		}
	}
	return r, nil
}

// begun takes from the configuration of a run that has not ended what its summary would say.
func (r *Run) begun() error {
	settings, err := record.Settings(r.Dir)
	if err != nil {
		return err
	}
	overrides, err := record.Overrides(r.Dir)
	if err != nil {
		return err
	}
	r.set("task", settings["task"])
	r.set("title", cmp.Or(record.ExperimentOf(overrides), settings["task"]))
	r.set("seed", typed(settings["seed"]))
	if info, err := os.Stat(filepath.Join(r.Dir, ".hydra", "config.yaml")); err == nil {
		r.set("start", info.ModTime().UTC().Format(time.RFC3339))
	}
	r.set("overrides", page.ShellCommand(overrides))
	return nil
}

func (r *Run) set(column string, value any) {
	if _, known := r.Values[column]; !known {
		r.Order = append(r.Order, column)
	}
	r.Values[column] = value
}

// Column returns the column that a name means: itself, or last_METRIC for a metric of the run's last epoch, given with or without
// last_, which becomes a column by it. "" where the run has neither.
func (r *Run) Column(name string) string {
	if _, ok := r.Values[name]; ok {
		return name
	}
	metric := strings.TrimPrefix(name, lastEpoch)
	v, ok := r.final[metric]
	if !ok {
		return ""
	}
	r.set(lastEpoch+metric, float64(v))
	return lastEpoch + metric
}

// Setting returns a value of the run's configuration, as YAML in a line, and whether it is there.
func (r *Run) Setting(key string) (string, bool, error) {
	settings, err := record.Settings(r.Dir)
	value, ok := settings[key]
	return value, ok, err
}

// endings are the evaluations of what a run ended with, one of each split and metric: its best policy, or its last phase.
func endings(evaluations []record.StageResult) []record.StageResult {
	var out []record.StageResult
	for _, e := range evaluations {
		if !results.Trained(e.Policy) {
			continue
		}
		same := func(o record.StageResult) bool { return o.Split == e.Split && o.Metric == e.Metric }
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i] = e
		} else {
			out = append(out, e)
		}
	}
	return out
}

// columns are the first ones of Table, in their order.
var columns = strings.Fields(`run state task title data seed device start wall_seconds phases epochs steps
	best_metric best best_phase best_epoch best_checkpoint overrides`)

// Table makes a table of rows, with the columns that any of them has a value for; settings come last.
func Table(runs []*Run, settings ...string) *page.Table {
	names := list.Unique(slices.Concat(columns, slices.Concat(list.Map(runs, func(r *Run) []string { return r.Order })...)))
	names = slices.DeleteFunc(append(names, settings...), func(name string) bool {
		return !slices.ContainsFunc(runs, func(r *Run) bool { return r.Values[name] != nil && r.Values[name] != "" })
	})
	t := page.NewData("Runs", names...)
	t.Rows = list.Map(runs, func(r *Run) []any { return list.Map(names, func(name string) any { return r.Values[name] }) })
	alignNumbers(t)
	return t
}

// alignNumbers aligns to the right what holds no text.
func alignNumbers(t *page.Table) {
	for i := range t.Columns {
		t.Columns[i].Right = !slices.ContainsFunc(t.Rows, func(row []any) bool {
			_, text := row[i].(string)
			return text
		})
	}
}

// Runs is a row for each run: how it ended, what it came to, and the settings in which the runs differ.
func (reader *Reader) Runs(folders []Folder) (*page.Table, error) {
	var runs []*Run
	var settings []map[string]string
	all := map[string]string{}
	for _, f := range folders {
		r, err := reader.Read(f)
		if err != nil {
			return nil, err
		}
		flat, err := record.Settings(f.Dir)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, flat)
		runs, settings = append(runs, r), append(settings, flat)
	}
	var varied []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		differ := slices.ContainsFunc(settings, func(s map[string]string) bool { return s[key] != settings[0][key] })
		if !differ || slices.Contains(columns, key) {
			continue
		}
		varied = append(varied, key)
		for i, r := range runs {
			if value, ok := settings[i][key]; ok {
				r.Values[key] = typed(value)
			}
		}
	}
	return Table(runs, varied...), nil
}

// typed is a setting as a number or a truth value where it is one.
func typed(value string) any {
	if n, err := strconv.Atoi(value); err == nil {
		return n
	}
	if x, err := strconv.ParseFloat(value, 64); err == nil {
		return x
	}
	switch value {
	case "true", "false":
		return value == "true"
	case "null":
		return nil
	}
	return value
}

// Evaluations is a row for each policy of each run on each split and metric, with its gains over the yardsticks: mean,
// interval, corrected p-value and verdict.
func Evaluations(folders []Folder) (*page.Table, error) {
	t := page.NewData("Evaluations", "run", "split", "metric", "shots", "policy", "phase", "epoch", "queries", "mean", "se")
	yards := results.Yardsticks()
	for _, y := range yards {
		over := "over_" + strings.ReplaceAll(strings.TrimSuffix(y.Short, " policy"), " ", "_")
		for _, what := range []string{"", "_low", "_high", "_p", "_verdict"} {
			t.Columns = append(t.Columns, page.NewData("", over+what).Columns...)
		}
	}
	for _, f := range folders {
		run, err := record.ReadRun(f.Dir)
		if err != nil {
			return nil, err
		}
		stages, err := results.StagesOf(run)
		if err != nil {
			return nil, err
		}
		for _, s := range stages {
			row := []any{filepath.ToSlash(f.Dir), s.Split, s.Metric, s.Shots, s.Policy, s.Phase, s.Epoch, s.Queries, s.Mean, s.SE}
			for _, y := range yards {
				row = append(row, gain(*y.Gain(&s))...)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	alignNumbers(t)
	return t, nil
}

// gain is a comparison as cells: mean, interval, p-value, verdict.
func gain(p *stats.Paired) []any {
	if p == nil {
		return []any{nil, nil, nil, nil, nil}
	}
	return []any{p.Mean, p.Interval.Low, p.Interval.High, p.PHolm, string(p.Verdict)}
}

// Merge makes one table of several: the first column names the table that a row is of, the others are all columns that
// any has. A column without a name is the verdict beside the one before it.
func Merge(tables []*page.Table) *page.Table {
	var names []string
	columns := make([][]int, len(tables)) // of each table, where its columns went
	for k, t := range tables {
		last := ""
		for i, name := range t.Names() {
			switch {
			case name == "" && i == 0:
				name = "row"
			case name == "":
				name = last + ", verdict"
			case slices.Contains(t.Names()[:i], name):
				name = fmt.Sprintf("%s (%d)", name, i+1)
			}
			last = name
			at := slices.Index(names, name)
			if at < 0 {
				at, names = len(names), append(names, name)
			}
			columns[k] = append(columns[k], at)
		}
	}
	out := page.NewData("", append([]string{"table"}, names...)...)
	for k, t := range tables {
		for _, row := range t.Rows {
			cells := make([]any, 1+len(names))
			cells[0] = t.Title
			for i, cell := range row {
				cells[1+columns[k][i]] = cell
			}
			out.Rows = append(out.Rows, cells)
		}
	}
	return out
}
