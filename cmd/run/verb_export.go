//go:build !core

package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/sweep/views"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/atomicfile"
	"fulcrum/internal/list"
	"fulcrum/internal/registry"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/arms"
	"fulcrum/reports/compare"
	"fulcrum/reports/export"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
)

// tableFormats are the ways to write a table.
func tableFormats() map[string]tableWriter {
	return map[string]tableWriter{"csv": (*page.Table).CSV, "json": (*page.Table).JSON,
		"latex": (*page.Table).LaTeX, "markdown": (*page.Table).Markdown, "parquet": (*page.Table).Parquet}
}

// exported are the tables that there are of runs.
func exported() map[string]func([]export.Folder) (*page.Table, error) {
	runs := func(folders []export.Folder) (*page.Table, error) {
		reader := export.NewReader(runfolder.Locked)
		defer reader.Save()
		return reader.Runs(folders)
	}
	return map[string]func([]export.Folder) (*page.Table, error){"runs": runs, "metrics": export.Metrics, "evals": export.Evaluations}
}

// exportVerb writes tables of runs for programs and papers.
func exportVerb() *verb {
	f := usage.Flags()
	what := f.String("what", "runs", "runs, metrics, evals or table")
	format := f.String("format", "csv", "csv, json, latex, markdown or parquet")
	formulas := f.String("formulas", "defuse", "of csv: defuse puts ' before texts that a spreadsheet would compute, keep does not")
	out := f.String("out", "", "file to write; default: the standard output")
	var paper export.Paper
	f.StringSliceVar(&paper.Metrics, "metric", nil, "of the table for a paper: METRIC or SPLIT/METRIC")
	f.StringSliceVar(&paper.Columns, "columns", nil, strings.Join(export.PaperColumns(), ", ")+" and keys")
	f.IntVar(&paper.Digits, "digits", -1, "decimals; default: two significant digits of the interval")
	return &verb{
		usage: `run export outputs --what runs --format csv
run export RUN_FOLDER --what metrics --format parquet --out metrics.parquet
run export multirun/lr --what table --format latex --metric dev/reward,dev/accuracy --columns seeds,score

run export PATH… --what runs|metrics|evals|table
    --format csv|json|latex|markdown|parquet [--formulas defuse|keep] [--out FILE]
    [--metric METRIC,…] [--columns NAME,…] [--digits N]
Writes a table of the runs at and below folders: a row for each run, for each
line of metrics.jsonl, for each evaluation with its intervals, or the tables of
the report: of a run's results, of a sweep, of the comparison of several runs.
In CSV a text that begins with =, +, - or @ and is no number has ' before it, so
that no spreadsheet computes it; --formulas keep leaves it.
--what table --format latex is for a column of a paper instead: a row for each
setting over its seeds (of one run, for each policy), intervals as ±, the best
bold, and a paragraph on the settings. --columns chooses among
` + strings.Join(export.PaperColumns(), ", ") + `
and keys like grpo.lr.
`,
		flags: f,
		run: func(s *session, args []string) error {
			if len(args) == 0 {
				return usage.Errorf("want: `run export PATH… --what runs|metrics|evals|table --format csv|json|latex|markdown|parquet`")
			}
			if _, err := os.Stat(args[0]); err != nil && (exported()[args[0]] != nil || args[0] == "table") {
				return usage.Errorf("%s: no such folder (did you mean --what %[1]s?)", args[0])
			}
			write, ok := tableFormats()[*format]
			if !ok {
				return usage.Errorf("%v", registry.Unknown("--format", *format, slices.Sorted(maps.Keys(tableFormats()))))
			}
			switch {
			case *formulas != "defuse" && *formulas != "keep":
				return usage.Errorf("%v", registry.Unknown("--formulas", *formulas, []string{"defuse", "keep"}))
			case *formulas == "keep" && *format == "csv":
				write = (*page.Table).CSVAsIs
			case f.Changed("formulas") && *format != "csv":
				return usage.Errorf("--formulas %s: only CSV is read by spreadsheets: want --format csv", *formulas)
			}
			forPaper := *what == "table" && *format == "latex"
			for _, name := range []string{"metric", "columns", "digits"} {
				if f.Changed(name) && !forPaper {
					return usage.Errorf("--%s is of the table for a paper: want --what table --format latex with it", name)
				}
			}
			if f.Changed("digits") && (paper.Digits < 0 || paper.Digits > 9) {
				return usage.Errorf("--digits %d: want a number of decimals in [0, 9]", paper.Digits)
			}
			var tables []*page.Table
			var left leftOut
			var err error
			if forPaper {
				tables, left, write, err = s.paperTable(args, paper, write)
			} else {
				tables, left, err = exportTables(args, *what)
			}
			if err != nil {
				return err
			}
			if len(tables) == 0 {
				return fmt.Errorf("%s: no results yet, and so no table of them", filepath.Clean(args[0]))
			}
			if together := *format != "latex" && *format != "markdown"; *what == "table" && together {
				tables = []*page.Table{export.Merge(tables)}
			}
			if *out == "" && *format == "parquet" && stdout.Width() > 0 {
				return usage.Errorf("--format parquet is no text for a terminal: give --out FILE.parquet")
			}
			if *out == "" {
				to := s.out
				if *format == "parquet" {
					to = s.data()
				}
				return cmp.Or(writeTables(to, tables, write), left.err())
			}
			if err := tasks.PrepareOut("--out", *out, nil, false); err != nil {
				return err
			}
			file, err := atomicfile.Create(*out)
			if err != nil {
				return err
			}
			defer file.Abort()
			if err := writeTables(file, tables, write); err != nil {
				return err
			}
			return cmp.Or(file.Commit(), left.err())
		},
	}
}

// tableWriter writes a table in a format.
type tableWriter = func(*page.Table, io.Writer) error

// paperTable returns one table and what writes it for a paper: of the runs at and below paths that are done. Of runs without scores it is
// the tables of the report.
func (s *session) paperTable(paths []string, paper export.Paper, latex tableWriter) ([]*page.Table, leftOut, tableWriter, error) {
	var seeded []arms.ComparedArm
	var without []string
	var left leftOut
	if len(paths) == 1 && ledger.Exists(paths[0]) {
		v, err := views.Page(paths[0])
		if err != nil {
			return nil, left, nil, err
		}
		if seeded, without = v.Arms(); len(without) > 0 {
			without = []string{page.Verb(len(without), "job ", "jobs ") + page.Joined(without)}
		}
	} else {
		var folders []export.Folder
		var err error
		if folders, left, err = runFolders(paths); err != nil {
			return nil, left, nil, err
		}
		var runs []*record.Run
		for _, f := range folders {
			run, err := record.ReadRun(f.Dir)
			if err != nil {
				return nil, left, nil, err
			}
			if len(folders) > 1 && (run.Summary == nil || run.Summary.State != record.StateDone) {
				without = append(without, f.Dir)
			} else {
				runs = append(runs, run)
			}
		}
		seeded = compare.Settings(runs)
	}
	for _, what := range without {
		stdout.Message(stdout.Errors(), fmt.Sprintf("warning: the table leaves out %s: not done, or without scores", what))
	}
	if len(seeded) > 0 {
		c, err := s.composed(nil)
		if err != nil {
			return nil, left, nil, err
		}
		paper.Default = c.Value
		text, err := paper.Table(seeded)
		if err != nil {
			return nil, left, nil, usage.Errorf("%v", err)
		}
		if text != "" {
			return []*page.Table{{}}, left, func(_ *page.Table, w io.Writer) error { _, err := io.WriteString(w, text); return err }, nil
		}
	}
	if len(paper.Metrics)+len(paper.Columns) > 0 {
		return nil, left, nil, usage.Errorf("%s: no run there has scores to choose from", strings.Join(paths, ", "))
	}
	tables, left, err := exportTables(paths, "table")
	return tables, left, latex, err
}

// writeTables writes tables with an empty line between them.
func writeTables(w io.Writer, tables []*page.Table, write tableWriter) error {
	out := bufio.NewWriterSize(w, 1<<16)
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := write(t, out); err != nil {
			return err
		}
	}
	return out.Flush()
}

// exportTables reads what is asked for of the runs at and below paths.
func exportTables(paths []string, what string) (tables []*page.Table, left leftOut, err error) {
	if what == "table" && len(paths) == 1 && ledger.Exists(paths[0]) {
		v, err := views.Page(paths[0])
		if err != nil {
			return nil, left, err
		}
		return v.Tables(), left, nil
	}
	folders, left, err := runFolders(paths)
	if err == nil && len(folders) == 0 {
		err = left.err()
	}
	if err != nil {
		return nil, left, err
	}
	if len(folders) == 0 && len(paths) == 1 {
		return nil, left, runfolder.NoRun(paths[0])
	}
	if len(folders) == 0 {
		return nil, left, usage.Errorf("%s: no run folder there or below", strings.Join(paths, ", "))
	}
	if what != "table" {
		read, ok := exported()[what]
		if !ok {
			return nil, left, usage.Errorf("%v", registry.Unknown("--what", what, append(slices.Sorted(maps.Keys(exported())), "table")))
		}
		t, err := read(folders)
		if err != nil { // the others, if there are some
			folders = slices.DeleteFunc(folders, func(f export.Folder) bool {
				_, err := read([]export.Folder{f})
				if err != nil {
					left.leave(f.Dir, err)
				}
				return err != nil
			})
			if len(folders) == 0 {
				return nil, left, left.err()
			}
			t, err = read(folders)
		}
		return []*page.Table{t}, left, err
	}
	if len(folders) == 1 {
		run, err := record.ReadRun(folders[0].Dir)
		if err != nil {
			return nil, left, err
		}
		if tables, err = runreport.Tables(run); err != nil {
			return nil, left, err
		}
	} else {
		d, _, err := compare.Compare(list.Map(folders, func(f export.Folder) string { return f.Dir }))
		if err != nil {
			return nil, left, err
		}
		tables = d.Tables
	}
	return tables, left, nil
}
