package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
)

// reportVerb rebuilds the report of a run or sweep, compares several runs, judges a published table, or draws figures for a paper.
func reportVerb() *verb {
	f := usage.Flags()
	var opt reportOptions
	f.StringVar(&opt.html, "html", "", "file of the page")
	f.BoolVar(&opt.json, "json", false, "print one JSON document")
	f.StringSliceVar(&opt.paper.Names, "figure", nil, "figures for a paper, by name; none: all")
	f.Float64Var(&opt.paper.Width, "figure-width", 0, "of figures for a paper, mm")
	f.BoolVar(&opt.paper.NoTitle, "no-title", false, "figures for a paper without their titles")
	f.StringVar(&opt.figures, "figure-dir", "", "folder of figures for a paper")
	return &verb{
		usage: `run report outputs/quick
run report outputs/quick outputs/slow --html compared.html
run report multirun/lr --figure settings --figure-width 85 --no-title

run report RUN_OR_SWEEP_FOLDER [--json]
run report RUN_FOLDER RUN_FOLDER… [--html FILE] [--json]
run report TABLE.json [--html FILE] [--json]
run report FOLDER… [--figure NAME,…] [--figure-width MM] [--no-title] [--figure-dir DIR]
Writes report.md and report.html of a run or sweep again, prints a comparison of several runs, or says what a table
of published accuracies allows to conclude (docs/statistics.md); --html writes what is printed as a page too.
With --figure, --figure-width or --no-title it draws figures for a paper instead, as PDF and SVG: of a run, of a sweep's
settings, or of what compares several runs; all or those named, 170 mm wide or MM, into the folder figures of the run or sweep (of a
comparison: figures) or DIR.
`,
		flags: f,
		run: func(s *session, args []string) error {
			if opt.html == "" && f.Changed("html") {
				return usage.Errorf("--html: want a file: `run report A B --html FILE`")
			}
			if f.Changed("figure") && len(opt.paper.Names) == 0 {
				return usage.Errorf("--figure: want names of figures; without the flag all are drawn")
			}
			if w := opt.paper.Width; f.Changed("figure-width") && !(w >= 50 && w <= 500) {
				return usage.Errorf("--figure-width %g: want a width in [50, 500] mm", w)
			}
			for _, name := range []string{"figure", "figure-width", "no-title", "figure-dir"} {
				opt.draws = opt.draws || f.Changed(name)
			}
			if opt.draws && (opt.json || opt.html != "") {
				return usage.Errorf("figures for a paper are files of their own: want no --json or --html with --figure, --figure-width, " +
					"--no-title or --figure-dir")
			}
			return s.report(args, opt)
		},
	}
}

// reportOptions are the flags of run report.
type reportOptions struct {
	html    string // file of the page of a comparison; "": none
	json    bool
	draws   bool // figures for a paper, and nothing else
	paper   chart.Paper
	figures string // their folder; "": that of the run
}

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
	if opt.draws {
		return s.drawFigures(paths, opt)
	}
	if len(paths) > 1 || filepath.Ext(paths[0]) == ".json" {
		if s.annex.report == nil {
			return notBuiltIn("report of several runs, or of a published table", judging)
		}
		return s.annex.report(s, paths, "", opt)
	}
	dir := paths[0]
	if opt.html != "" {
		return usage.Errorf("--html %s: the page of one run or sweep is its report.html; the flag is for comparisons", opt.html)
	}
	if ledger.Exists(dir) {
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

// drawFigures draws the figures of a run, of a sweep or of a comparison for a paper.
func (s *session) drawFigures(paths []string, opt reportOptions) (err error) {
	var figures []*chart.Figure
	dir := cmp.Or(opt.figures, runreport.FiguresFolder)
	if opt.figures == "" && len(paths) == 1 {
		dir = filepath.Join(paths[0], runreport.FiguresFolder)
	}
	switch several := len(paths) > 1 || ledger.Exists(paths[0]); {
	case several && s.annex.figures == nil:
		return notBuiltIn("figures of several runs", judging)
	case several:
		figures, err = s.annex.figures(paths, opt.paper)
	case !runfolder.IsRun(paths[0]):
		return runfolder.NoRun(paths[0])
	default:
		var run *record.Run
		if run, err = record.ReadRun(paths[0]); err == nil {
			figures = runreport.PaperFigures(run)
		}
	}
	if err != nil {
		return err
	}
	if len(figures) == 0 {
		return usage.Errorf("%s: nothing is recorded that a figure shows", strings.Join(paths, ", "))
	}
	if figures, err = opt.paper.Choose(figures); err != nil {
		return usage.Errorf("%v", err)
	}
	if err := opt.paper.Write(dir, figures); err != nil {
		return err
	}
	for _, f := range figures {
		if f.Omits != "" {
			stdout.Message(stdout.Errors(), fmt.Sprintf("warning: figure %s leaves out %s", f.Name, f.Omits))
		}
		stdout.Printf("figure: %s.pdf, %[1]s.svg\n", filepath.Join(dir, f.Name))
	}
	return nil
}
