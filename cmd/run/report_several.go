//go:build !core

package main

import (
	"cmp"

	"fulcrum/experiments/sweep/views"
	"fulcrum/experiments/tasks"
	"fulcrum/internal/list"
	"fulcrum/internal/stdout"
	"fulcrum/reports/chart"
	"fulcrum/reports/compare"
	"fulcrum/reports/page"
	"fulcrum/reports/published"
)

// reportJSON is what run report --json prints: the tables of a report, and where it was written.
type reportJSON struct {
	Paths  []string    `json:"paths"`
	Report string      `json:"report"` // "" of what is only printed
	Tables []tableJSON `json:"tables"`
}

// tableJSON is a table of a report: cells are text as a reader sees it.
type tableJSON struct {
	Title   string     `json:"title"` // the heading that it stands under
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

func reportOf(paths []string, report string, tables []*page.Table) reportJSON {
	of := func(t *page.Table) tableJSON { return tableJSON{t.Title, t.Names(), t.Texts()} }
	return reportJSON{Paths: paths, Report: report, Tables: list.Map(tables, of)}
}

// reportOfSeveral prints a comparison of runs, what a published table allows to conclude, or the tables of the one report that was
// written to path, as JSON.
func reportOfSeveral(s *session, paths []string, path string, opt reportOptions) error {
	if path != "" {
		tables, left, err := exportTables(paths, "table")
		if err != nil {
			return err
		}
		return cmp.Or(writeJSON(s.out, reportOf(paths, path, tables)), left.err())
	}
	document := func() (*page.Document, error) { return published.Report(paths[0]) }
	if len(paths) > 1 {
		document = func() (d *page.Document, err error) { d, _, err = compare.Compare(paths); return d, err }
	}
	d, err := document()
	if err != nil {
		return err
	}
	if opt.json {
		err = writeJSON(s.out, reportOf(paths, "", d.Tables))
	} else {
		text := d.Text()
		if width := stdout.Width(); width > 0 {
			text = d.Console(width)
		}
		err = s.write(text, nil)
	}
	if err != nil || opt.html == "" {
		return err
	}
	if err := tasks.PrepareOut("--html", opt.html, nil, false); err != nil {
		return err
	}
	return page.WritePage(opt.html, d.Text())
}

// paperFigures are those of a sweep, or of what compares runs.
func paperFigures(paths []string, paper chart.Paper) ([]*chart.Figure, error) {
	if len(paths) > 1 {
		return compare.PaperFigures(paths, paper.Wide())
	}
	v, err := views.Page(paths[0])
	if err != nil {
		return nil, err
	}
	return v.PaperFigures(paper), nil
}
