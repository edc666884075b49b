//go:build !core

package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/sweeper"
	"fulcrum/internal/list"
	"fulcrum/internal/registry"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/export"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// doneWarned is the state of a run that is done and has warnings.
const doneWarned = record.StateDone + " !"

// lsVerb lists runs.
func lsVerb() *verb {
	f := usage.Flags()
	where := f.StringArray("where", nil, "only runs with this value of a column or a configuration key")
	by := f.String("sort", "", "column or metric to sort by, best first")
	asJSON := jsonFlag(f)
	return &verb{
		usage: `run ls
run ls DIR… --where state=done --where grpo.lr=1e-4 --sort val/reward

run ls [DIR…] [--where KEY=VALUE]… [--sort METRIC] [--json]
Lists the runs below folders (outputs and multirun), newest last: how each ended
and what it came to. KEY is a column of --json or a configuration key. METRIC is
a column: best is what chose the best checkpoint, dev/reward what the run ended
with on that split, last_val_reward of the last epoch, whose metrics may be
named without last_ too.
`,
		flags: f,
		run: func(s *session, args []string) error {
			runs, left, err := listed(args, *where)
			if err != nil {
				return err
			}
			column, err := sortRuns(runs, *by)
			if err != nil {
				return err
			}
			if *asJSON {
				return cmp.Or(export.Table(runs).JSON(s.out), left.err())
			}
			if len(runs) == 0 && left.err() != nil {
				return left.err()
			}
			if len(runs) == 0 {
				fmt.Fprintln(s.out, strings.TrimSuffix("no runs with "+strings.Join(*where, " and "), " with "))
				return nil
			}
			table := shortList(runs, column)
			if err := table.ConsoleWithin(s.out, stdout.Width()); err != nil {
				return err
			}
			if slices.ContainsFunc(table.Rows, func(row []any) bool { return row[1] == doneWarned }) {
				fmt.Fprintln(s.errOut, "!: with warnings, which report.md of the run lists")
			}
			return left.err()
		},
	}
}

// leftOut counts runs that cannot be read: damaged ones, and those with no files where there should be some. The others are shown.
type leftOut struct{ n, of int }

func (l *leftOut) leave(dir string, why error) {
	l.n++
	stdout.Message(stdout.Errors(), fmt.Sprintf("warning: left out %s: %v", dir, why))
}

func (l leftOut) err() error {
	if l.n == 0 {
		return nil
	}
	return fmt.Errorf("%d of %s could not be read, as said above", l.n, page.Plural(l.of, "run"))
}

// runFolders are the runs at and below paths, each once. A pipe or a device where a run has a file leaves the run out,
// which a warning says.
func runFolders(paths []string) (out []export.Folder, left leftOut, err error) {
	seen := map[string]bool{}
	for _, path := range paths {
		if err := runfolder.CheckExists(path); err != nil {
			return nil, left, err
		}
		dirs, err := runfolder.Find(path)
		if err != nil {
			return nil, left, err
		}
		for _, dir := range dirs {
			if seen[dir] {
				continue
			}
			seen[dir] = true
			left.of++
			if err := runfolder.Readable(dir); err != nil {
				left.leave(dir, err)
				continue
			}
			out = append(out, export.Folder{Dir: dir, Root: path})
		}
	}
	return out, left, nil
}

// listed reads the runs below the folders that fit all conditions.
func listed(paths, where []string) (runs []*export.Run, left leftOut, err error) {
	if len(paths) == 0 {
		for _, usual := range []string{"outputs", "multirun"} {
			if _, err := os.Stat(usual); err == nil {
				paths = append(paths, usual)
			}
		}
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return nil, left, usage.Errorf("%s is a file: want folders with runs", path)
		}
	}
	folders, left, err := runFolders(paths)
	if err != nil {
		return nil, left, err
	}
	reader := export.NewReader(runfolder.Locked)
	defer reader.Save()
	known := len(where) == 0
	for _, folder := range folders {
		r, err := reader.Read(folder)
		if err != nil {
			left.leave(folder.Dir, err)
			continue
		}
		fits := true
		for _, condition := range where {
			ok, has, err := holds(r, condition)
			if err != nil {
				return nil, left, err
			}
			fits, known = fits && ok, known || has
		}
		if fits {
			runs = append(runs, r)
		}
	}
	if !known && len(folders) > 0 {
		return nil, left, usage.Errorf("--where %s: no run has such a column or configuration key; --json prints the columns of a run, and "+
			"`run explain KEY` knows the keys", strings.Join(where, " --where "))
	}
	return runs, left, nil
}

// holds reports whether a run fulfils KEY=VALUE, and whether it has the key at all.
func holds(r *export.Run, condition string) (ok, has bool, err error) {
	key, want, cut := strings.Cut(condition, "=")
	if !cut || key == "" {
		return false, false, usage.Errorf("--where %s: want KEY=VALUE", condition)
	}
	value := r.Values[r.Column(key)]
	if value == nil {
		setting, there, err := r.Setting(key)
		if err != nil || !there {
			return false, false, err
		}
		value = setting
	}
	got := fmt.Sprint(value)
	x, errX := strconv.ParseFloat(got, 64)
	y, errY := strconv.ParseFloat(want, 64)
	return got == want || errX == nil && errY == nil && x == y, true, nil
}

// sortRuns puts the best run first by a column or metric, those that do not have it last, and returns its column; without one the
// newest last.
func sortRuns(runs []*export.Run, metric string) (column string, err error) {
	if metric == "" {
		slices.SortStableFunc(runs, func(a, b *export.Run) int { return cmp.Compare(text(a, "start"), text(b, "start")) })
		return "", nil
	}
	for _, r := range runs {
		column = cmp.Or(r.Column(metric), column)
	}
	if column == "" && len(runs) > 0 {
		columns := slices.Concat(list.Map(runs, func(r *export.Run) []string { return r.Order })...)
		slices.Sort(columns)
		return "", usage.Errorf("%v, or a metric of the last epoch", registry.Unknown("--sort", metric, slices.Compact(columns)))
	}
	slices.SortStableFunc(runs, func(a, b *export.Run) int {
		ka, kb := rankOf(a, column), rankOf(b, column)
		return cmp.Or(cmp.Compare(ka.measure, kb.measure), cmp.Compare(ka.number, kb.number), cmp.Compare(ka.word, kb.word))
	})
	return column, nil
}

// rank is where a run stands in a column: the smallest comes first.
type rank struct {
	measure string  // of best: values of two measures cannot be compared
	number  float64 // less is better; +Inf for none
	word    string
}

func rankOf(r *export.Run, column string) rank {
	k := rank{number: math.Inf(1), word: text(r, column)}
	name := strings.TrimPrefix(filepath.Base(column), "last_")
	if column == "best" {
		name = text(r, "best_metric")
		k.measure = cmp.Or(name, "~") // a run without a best one comes behind all measures
	}
	sign := -1.0
	if (sweeper.Objective{Name: name}).Minimizes(false) || strings.HasSuffix(name, "_seconds") {
		sign = 1
	}
	switch v := r.Values[column].(type) {
	case float64:
		if !math.IsNaN(v) {
			k.number = sign * v
		}
	case int:
		k.number = sign * float64(v)
	}
	return k
}

// text is a column of a run as text, "" where there is none.
func text(r *export.Run, column string) string {
	s, _ := r.Values[column].(string)
	return s
}

// shortList is the table of a terminal of 80 columns; metric is one to be shown beside the best value, "" for none.
func shortList(runs []*export.Run, metric string) *page.Table {
	t := page.NewData("", "run", "state", "what", "best", "time")
	if shown := append(t.Names(), "title", "wall_seconds"); metric != "" && !slices.Contains(shown, metric) {
		t.Columns = append(t.Columns, page.NewData("", metric).Columns...)
	}
	for i := 3; i < len(t.Columns); i++ {
		t.Columns[i].Right = true
	}
	for _, r := range runs {
		best, took := "", ""
		if x, ok := r.Values["best"].(float64); ok {
			best = page.Sig(x, 4) + " " + text(r, "best_metric")
		}
		if x, ok := r.Values["wall_seconds"].(float64); ok {
			took = page.Duration(x)
		}
		state := text(r, "state")
		if r.Warned && state == record.StateDone {
			state = doneWarned
		}
		row := []any{clipPath(r.Dir, 32), state, page.Clip(text(r, "title"), 14), best, took}
		if len(t.Columns) > len(row) {
			row = append(row, r.Values[metric])
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// clipPath shortens a path to width characters; its end tells it apart.
func clipPath(path string, width int) string {
	runes := []rune(path)
	if len(runes) <= width {
		return path
	}
	return "…" + string(runes[len(runes)-width+1:])
}
