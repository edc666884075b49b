package sweepreport

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot/vg"

	"fulcrum/internal/atomicfile"
	"fulcrum/internal/list"
	"fulcrum/reports/arms"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/runreport"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
)

// WriteReport draws the plots and writes report.md of a sweep folder: the best job or the Pareto
// front, settings with their standard deviation over seeds, what each swept key does, every job, and failures with
// their causes. It reads the jobs' summary.json, of the best settings also the scores and epochs, replaces files whole, and
// may be called while the sweep runs. Plots that cannot be drawn keep no report from being written.
func WriteReport(dir string, jobs []sweeps.Job, opt sweeps.Options) error {
	p := PageOf(dir, jobs, opt)
	figures, plotErr := drawFigures(p.Figures, func(f *chart.Figure) error {
		plots := filepath.Join(dir, runreport.PlotsFolder)
		return cmp.Or(atomicfile.MkdirAll(plots), f.Write(plots))
	})
	if plotErr != nil {
		p.note(plotErr)
	}
	more, err := p.Explore()
	if err != nil {
		return err
	}
	if err := page.WriteLively(dir, p.Report(figures), more); err != nil {
		return err
	}
	return plotErr
}

// View is a sweep in the order in which its report tells it. A study is a sweep with questions.
type View struct {
	*sweeps.Model
	dir       string
	settings  []*setting              // as Model.Settings
	summaries map[int]*record.Summary // by job
	verdicts  *arms.ArmTable          // of a sweep that asks nothing; nil: no two jobs left scores to compare
	accuracy  []arms.ArmTable         // of the same settings, by accuracy
	methods   []comparedMethods       // of each setting
	notes     []string                // what went wrong with the report itself
	wide      vg.Length               // of figures for a paper; 0: the report's

	conditions []*condition // of a sweep of arms: one, unless more than arms and seeds was swept
	answers    []*answer    // of all conditions, in the order of the questions
}

// PageOf returns the view that the report of a sweep or a study is written from.
func PageOf(dir string, jobs []sweeps.Job, opt sweeps.Options) *View {
	v := newView(dir, jobs, opt)
	v.read()
	v.Opt.Told = nil // an earlier report's
	if d := v.differences(); d != nil {
		v.Opt.Told = list.Map(d.Rows, func(r results.Difference) sweeps.Told {
			return sweeps.Told{Label: r.Label, Text: r.Text, Verdict: string(r.Verdict), Words: r.Words}
		})
	}
	return v
}

// newView is PageOf without what the jobs left in their folders.
func newView(dir string, jobs []sweeps.Job, opt sweeps.Options) *View {
	v := &View{Model: sweeps.ModelOf(jobs, opt), dir: dir}
	for _, s := range v.Settings {
		v.settings = append(v.settings, &setting{Setting: s})
		if v.Opt.Study != nil {
			v.place(v.settings[len(v.settings)-1])
		}
	}
	return v
}

// Report returns report.md with the plots that could be drawn: the answers to what was asked, if anything was, then the rest.
func (v *View) Report(drawn []sweepFigure) string { return v.document(drawn).Text() }

func (v *View) Tables() []*page.Table { return v.document(nil).Tables }

func (v *View) document(drawn []sweepFigure) *page.Document {
	title := cmp.Or(v.Opt.Title, filepath.Base(v.dir))
	if name := record.ExperimentOf(v.Common); name != "" && v.Opt.Study != nil {
		title = "Study " + name
	}
	var d page.Document
	d.Heading(1, "%s", page.Plain(title))
	drawn = slices.Clone(drawn)
	later := func(f sweepFigure) int { return stats.BoolInt(f.Figure.Name != curvesName) } // the learning curves are seen at once
	slices.SortStableFunc(drawn, func(a, b sweepFigure) int { return later(a) - later(b) })
	first := min(1, len(drawn))
	for _, write := range []func(*page.Document){
		v.writeAnswers, v.writeSummary, v.writeMethods, v.writeBest, func(d *page.Document) { writeFigures(d, drawn[:first]) }, v.writeVerdicts,
		v.writeNext, (*page.Document).Fold, v.writeReading, v.writeSettings, v.writeAccuracies, v.writeArms, v.writeSplits,
		func(d *page.Document) { v.writePlots(d, drawn[first:]) }, v.writeOthers, v.writeImportance, v.writePairs, v.writeJobs, v.writeFailures,
		v.writeSkipped, v.writeWarnings, v.writeAdvice, v.writeRepeat,
	} {
		write(&d)
	}
	return &d
}

// writeSummary says how many jobs ended how, what they cost, and how to repeat or go on.
func (v *View) writeSummary(d *page.Document) {
	if len(v.answers) > 0 {
		d.Heading(2, "What ran")
	}
	d.Paragraph("%s", v.CountLine(page.Plain, v.elapsed()))
	d.Paragraph("%s", v.dataSentence())
	if warned := sweeps.Warned(v.ByNumber, func(j sweeps.Job) *record.Summary { return v.summaries[j.Number] }); warned != "" {
		d.Paragraph("**%s.** Read their reports before any number here.", warned)
	}
	var parts []string
	for _, p := range []struct{ what, name string }{{"sweeper", v.Opt.Sweeper}, {"launcher", v.Opt.Launcher}, {"pruner", v.Opt.Pruner}} {
		if p.name != "" && p.name != "none" {
			parts = append(parts, p.what+" "+page.Plain(p.name))
		}
	}
	if len(parts) > 0 {
		d.Paragraph("%s.", page.Capital(strings.Join(parts, ", ")))
	}
	if waiting := v.Count(func(j sweeps.Job) bool { return !sweeps.Ended(j.State) }); waiting > 0 {
		text := fmt.Sprintf("**This sweep has not ended:** %s.", v.States(func(s string) bool { return !sweeps.Ended(s) }))
		if v.Count(func(j sweeps.Job) bool { return j.State == sweeps.StateLost }) > 0 {
			text += " The process of a lost job is gone and left no word."
		}
		d.Paragraph("%s If its controller is gone, this goes on with the sweep and runs no finished job again:", text)
		d.Code("run resume SWEEP_FOLDER")
	}
	if len(v.Common) > 0 {
		d.Paragraph("All jobs have %s.", page.CodeList(v.Common))
	}
}

// dataSentence says what the questions are, where all runs that were read had the same.
func (v *View) dataSentence() string {
	runs := v.runs()
	if len(runs) == 0 || slices.ContainsFunc(runs, func(r *record.Run) bool {
		return r.Summary == nil || r.Summary.Data.Name == "" || r.Summary.Data.Fingerprint != runs[0].Summary.Data.Fingerprint
	}) {
		return ""
	}
	run, data, counts := runs[0], runs[0].Summary.Data, []string{}
	for _, name := range slices.Sorted(maps.Keys(data.Counts)) {
		what := name
		for _, unit := range []string{"_queries", "_samples"} {
			what = strings.TrimSuffix(what, unit)
		}
		counts = append(counts, fmt.Sprintf("%s %s", page.Thousands(data.Counts[name]), page.Plain(strings.ReplaceAll(what, "_", " "))))
	}
	text := fmt.Sprintf("Data %s (%s %s)", page.Plain(data.Name), strings.Join(counts, ", "), run.Wording("queries", "samples"))
	if !run.Answers() {
		text += ", " + page.Plural(data.Shots, "shot")
	}
	text += "."
	if data.Synthetic {
		text += " " + page.Capital(strings.TrimSuffix(page.Plain(data.Notice), ".")) + "."
	}
	return text
}

// elapsed is the time from the first start of a run to the last end of one, in seconds; 0 when unknown.
func (v *View) elapsed() float64 {
	var first, last time.Time
	for _, r := range v.summaries {
		start, err := time.Parse(time.RFC3339, r.Start)
		if err != nil {
			return 0
		}
		end := start.Add(time.Duration(r.WallSeconds * float64(time.Second)))
		if first.IsZero() || start.Before(first) {
			first = start
		}
		if end.After(last) {
			last = end
		}
	}
	return math.Round(last.Sub(first).Seconds())
}

// link is a job's number, linked to its report where there is one.
func (v *View) link(j sweeps.Job) string {
	if _, err := os.Stat(filepath.Join(j.Dir, page.ReportFile)); j.Dir == "" || err != nil {
		return fmt.Sprint(j.Number)
	}
	return fmt.Sprintf("[%d](%s/%s)", j.Number, v.relative(j.Dir), page.ReportFile)
}

// relative is a path as a link in report.md.
func (v *View) relative(path string) string {
	if rel, err := filepath.Rel(v.dir, path); err == nil {
		path = rel
	}
	return strings.NewReplacer(" ", "%20", "(", "%28", ")", "%29").Replace(filepath.ToSlash(path))
}

func (v *View) writePlots(d *page.Document, figures []sweepFigure) {
	if len(figures) == 0 {
		return
	}
	d.Heading(2, "Plots")
	writeFigures(d, figures)
}

func writeFigures(d *page.Document, figures []sweepFigure) {
	for _, f := range figures {
		fmt.Fprintf(&d.B, "![%s](%s/%s.png)\n\n", f.alt, runreport.PlotsFolder, f.Figure.Name)
		d.Paragraph("%s", f.caption)
	}
}

// writeRepeat gives the command, the environment and the data's fingerprint.
func (v *View) writeRepeat(d *page.Document) {
	var all []*record.Summary
	for _, j := range v.ByNumber {
		if s := v.summaries[j.Number]; s != nil && s.Versions != nil {
			all = append(all, s)
		}
	}
	if len(all) == 0 && len(v.Opt.Command) == 0 {
		return
	}
	d.Heading(2, "To repeat it")
	if len(v.Opt.Command) > 0 {
		d.Code(page.ShellCommand(v.Opt.Command))
	}
	listed := ""
	if v.Opt.Ask == nil {
		listed = "The same command with `--cfg sweep` prints the jobs and runs none. "
	}
	d.Paragraph("%sWith another `hydra.sweep.dir` it makes the sweep again: on a CPU of this kind with the same numbers, but for times. "+
		"`run report FOLDER` writes this report anew from the runs in its folder.", listed)
	if len(all) == 0 {
		return
	}
	var rows [][]string
	row := func(name string, of func(*record.Summary) string) {
		values := slices.Compact(slices.Sorted(slices.Values(list.Map(all, func(s *record.Summary) string { return page.Plain(of(s)) }))))
		cell := values[0]
		if n := len(values); n > 1 {
			cell = "**not the same in all runs:** " + strings.Join(values[:min(n, sweeps.MaxWarned)], "; ")
		}
		rows = append(rows, []string{name, cell})
	}
	row("device", func(s *record.Summary) string { return s.Device })
	for _, name := range slices.Sorted(maps.Keys(all[0].Versions)) {
		if name != "config" { // differs between settings by design
			row(page.Plain(name), func(s *record.Summary) string { return s.Versions[name] })
		}
	}
	row("data, its fingerprint", func(s *record.Summary) string { return strings.Trim(s.Data.Name+", "+s.Data.Fingerprint, ", ") })
	d.Table([]string{"", "of every run"}, rows)
}

func (v *View) writeAdvice(d *page.Document) {
	if len(v.notes) > 0 {
		d.Heading(2, "Not in this report")
		d.List(v.notes...)
	}
	if v.Count(func(j sweeps.Job) bool { return j.State == record.StatePruned }) > 0 {
		d.Heading(2, "How to read this")
		d.Paragraph("A pruned job was stopped early: its value is the one that it had reached, is compared with no finished job, and enters " +
			"no mean.")
	}
}

// Told is what the board has of a sweep's report, as markdown, with its figures by their names as SVG: verdicts and settings first. What
// the board draws itself so that it answers the mouse, jobs, their curves and their history, is left out.
func (v *View) Told() (markdown string, figures map[string]string) {
	figures = map[string]string{}
	drawn, err := drawFigures(func() []sweepFigure {
		return slices.DeleteFunc(v.Figures(), func(f sweepFigure) bool {
			name := f.Figure.Name
			return v.Opt.Study == nil && (name == curvesName || name == historyName && len(v.Opt.Objectives) == 1)
		})
	}, func(f *chart.Figure) error {
		svg, err := f.Svg()
		figures[f.Name] = string(svg)
		return err
	})
	if err != nil {
		v.note(err)
	}
	var d page.Document
	for _, write := range []func(*page.Document){v.writeBest, v.writeMethods, v.writeVerdicts, v.writeAnswers, v.writeSettings,
		func(d *page.Document) { v.writePlots(d, drawn) }, v.writeImportance, v.writePairs, v.writeNext, (*page.Document).Fold, v.writeReading,
		v.writeAccuracies, v.writeArms, v.writeSplits, v.writeOthers, v.writeWarnings, v.writeAdvice} {
		write(&d)
	}
	return d.Text(), figures
}
