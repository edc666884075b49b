package main

import (
	"path/filepath"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
)

// htmlFlag writes a report that is printed as a page too.
const htmlFlag = "--html"

// reportVerb rebuilds the report of a run or sweep, compares several runs, or judges a published table.
func reportVerb() *verb {
	f := usage.Flags()
	var opt reportOptions
	f.StringVar(&opt.html, htmlFlag[2:], "", "file of the page")
	f.BoolVar(&opt.json, "json", false, "print one JSON document")
	f.Float64Var(&opt.width, widthFlag[2:], 0, "of figures for a paper, mm")
	return &verb{
		usage: `run report outputs/quick
run report outputs/quick outputs/slow --html compared.html

run report RUN_OR_SWEEP_FOLDER [--json]
run report RUN_FOLDER ` + widthFlag + ` MM
run report RUN_FOLDER RUN_FOLDER… [` + htmlFlag + ` FILE] [--json]
run report TABLE.json [` + htmlFlag + ` FILE] [--json]
Writes report.md and report.html of a run or sweep again, prints a comparison of several runs, or says what a table
of published accuracies allows to conclude (docs/statistics.md); ` + htmlFlag + ` writes what is printed as a page too.
` + widthFlag + ` draws the plots of a run for a paper, so many millimetres wide, as PDF and SVG into its folder figures.
`,
		flags: f,
		run: func(s *session, args []string) error {
			if opt.html == "" && f.Changed(htmlFlag[2:]) {
				return usage.Errorf("%s: want a file: `run report A B %s FILE`", htmlFlag, htmlFlag)
			}
			if w := opt.width; f.Changed(widthFlag[2:]) && (len(args) != 1 || !(w >= 50 && w <= 500)) {
				return usage.Errorf("%s %g: want one run and a width in [50, 500] mm: `run report RUN_FOLDER %[1]s 180`", widthFlag, w)
			}
			return s.report(args, opt)
		},
	}
}

// reportOptions are the flags of run report.
type reportOptions struct {
	html  string // file of the page of a comparison; "": none
	json  bool
	width float64 // of figures for a paper, mm; 0: none
}

// widthFlag names the width of figures for a paper.
const widthFlag = "--figure-width"

// report does what run report asks for.
func (s *session) report(paths []string, opt reportOptions) error {
	if len(paths) == 0 {
		return usage.Errorf("want: `run report RUN_FOLDER…`, or `run report TABLE.json`")
	}
	for _, path := range paths {
		if err := runfolder.CheckExists(path); err != nil {
			return err
		}
		if len(paths) > 1 && !runfolder.IsRun(path) {
			hint := ""
			if ledger.Exists(path) {
				hint = ": its jobs are runs, such as " + filepath.Join(path, "0")
			}
			return usage.Errorf("%s: not a run folder%s: want the folders of runs to compare", path, hint)
		}
	}
	if len(paths) > 1 || filepath.Ext(paths[0]) == ".json" {
		if s.annex.report == nil {
			return notBuiltIn("report of several runs, or of a published table", judging)
		}
		return s.annex.report(s, paths, "", opt)
	}
	dir := paths[0]
	if opt.html != "" {
		return usage.Errorf("%s %s: the page of one run or sweep is its report.html; the flag is for comparisons", htmlFlag, opt.html)
	}
	if ledger.Exists(dir) {
		if opt.width > 0 {
			return usage.Errorf("%s %g: %s is a sweep, and figures for a paper are drawn of its runs: `run report %s %[1]s %[2]g`", widthFlag,
				opt.width, dir, filepath.Join(dir, "0"))
		}
		if err := s.app.Report(dir); err != nil {
			return err
		}
	} else {
		if !runfolder.IsRun(dir) {
			return runfolder.NoRun(dir)
		}
		rebuild := runreport.RebuildReport
		if runfolder.TaskOf(dir) == "evaluate" {
			rebuild = tasks.RewriteEvaluation
		}
		if err := rebuild(dir); err != nil {
			return err
		}
		if opt.width > 0 {
			return s.figures(dir, opt.width)
		}
	}
	path := page.ReportPath(dir)
	if opt.json {
		if s.annex.report == nil {
			return notBuiltIn("report --json", judging)
		}
		return s.annex.report(s, paths, path, opt)
	}
	stdout.Printf("report: %s\n", path)
	return nil
}

// figures draws the plots of a run for a paper.
func (s *session) figures(dir string, width float64) error {
	run, err := record.ReadRun(dir)
	if err != nil {
		return err
	}
	if err := runreport.DrawForPaper(run, width); err != nil {
		return err
	}
	stdout.Printf("figures: %s\n", filepath.Join(dir, runreport.FiguresFolder))
	return nil
}
