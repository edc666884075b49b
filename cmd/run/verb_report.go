package main

import (
	"path/filepath"

	"fulcrum/experiments/runfolder"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/stdout"
	"fulcrum/internal/usage"
	"fulcrum/reports/compare"
	"fulcrum/reports/page"
	"fulcrum/reports/published"
	"fulcrum/reports/runreport"
)

// htmlFlag writes a report that is printed as a page too.
const htmlFlag = "--html"

// reportVerb rebuilds the report of a run or sweep, compares several runs, or judges a published table.
func reportVerb() *verb {
	f := noFlags()
	page := f.String(htmlFlag[2:], "", "file of the page")
	return &verb{
		usage: `run report RUN_OR_SWEEP_FOLDER
run report RUN_FOLDER RUN_FOLDER… [` + htmlFlag + ` FILE]
run report TABLE.json [` + htmlFlag + ` FILE]
Writes report.md and report.html of a run or sweep again, prints a comparison of several runs, or says what a table
of published accuracies allows to conclude (docs/statistics.md); ` + htmlFlag + ` writes what is printed as a page too.
`,
		flags: f,
		run: func(_ *session, args []string) error {
			if *page == "" && f.Changed(htmlFlag[2:]) {
				return usage.Errorf("%s: want a file: run report A B %s FILE", htmlFlag, htmlFlag)
			}
			return report(args, *page)
		},
	}
}

// report does what run report asks for; page is the file of --html, "" for none.
func report(paths []string, htmlPath string) error {
	if len(paths) == 0 {
		return usage.Errorf("want: run report RUN_FOLDER…, or run report TABLE.json")
	}
	for _, path := range paths {
		if err := runfolder.CheckExists(path); err != nil {
			return err
		}
		if len(paths) > 1 && !runfolder.IsRun(path) {
			return usage.Errorf("%s: not a run folder: want the folders of runs to compare", path)
		}
	}
	if len(paths) > 1 || filepath.Ext(paths[0]) == ".json" {
		var text string
		var err error
		if len(paths) > 1 {
			text, err = compare.Compare(paths)
		} else {
			text, err = published.Report(paths[0])
		}
		if err != nil {
			return err
		}
		stdout.Print(text)
		if htmlPath == "" {
			return nil
		}
		if err := tasks.PrepareOut(htmlFlag, htmlPath, nil); err != nil {
			return err
		}
		return page.WritePage(htmlPath, text)
	}
	dir := paths[0]
	if htmlPath != "" {
		return usage.Errorf("%s %s: the page of one run or sweep is its report.html; the flag is for comparisons", htmlFlag, htmlPath)
	}
	if ledger.Exists(dir) {
		if err := sweep.WriteReport(dir); err != nil {
			return err
		}
	} else {
		if !runfolder.IsRun(dir) {
			return usage.Errorf("%s: neither a run folder nor a sweep folder", dir)
		}
		rebuild := runreport.RebuildReport
		if runfolder.TaskOf(dir) == "evaluate" {
			rebuild = tasks.RewriteEvaluation
		}
		if err := rebuild(dir); err != nil {
			return err
		}
	}
	stdout.Printf("report: %s\n", filepath.Join(dir, "report.md"))
	return nil
}
