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

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/runreport"
	"fulcrum/reports/stats"
)

// States of a sweep's job that are none of a run's.
const (
	stateQueued  = "queued"
	stateRunning = "running"
	stateLost    = "lost"
	stateSkipped = "skipped"
)

// Objective is a number that the jobs of a sweep are judged by.
type Objective struct {
	Name     string
	Minimize bool // a smaller one is better
}

// Dimension is a swept key.
type Dimension struct {
	Key      string   // as in Job.Params
	Log      bool     // tagged log
	Interval bool     // continuous, or an interval of integers
	Values   []string // of a grid or of a choice between words, in order, as written
}

// Job is one run of a sweep as its controller knows it.
type Job struct {
	Number     int
	Dir        string            // of the run
	Overrides  []string          // of this job
	State      string            // queued, running, done, failed, pruned or lost
	Params     map[string]string // swept key → value as written: a part of the overrides
	Objectives []float64         // as Options.Objectives; nil when unknown
	Violation  float64           // of the constraints; 0: feasible
	Untrained  bool              // its best checkpoint is the policy that it began with
	Epochs     int               // trained, of all phases and attempts
	Seconds    float64           // wall time of all attempts
	Attempts   int
	ExitCode   int
	Cause      string   // why it failed: one sentence
	Tail       []string // last lines of a failed job's log
	Command    []string // argv that repeats it
}

// Options describe the sweep as a whole.
type Options struct {
	Title       string
	Objectives  []Objective // what the jobs are judged by
	Constraints []string    // as written: "val_kl <= 0.1"
	Dimensions  []Dimension // swept keys; taken from the jobs' Params where there are none
	Sweeper     string      // basic, random, tpe, …
	Launcher    string
	Pruner      string   // none or "": no pruner
	Command     []string // argv of the sweep
	Study       *Study   // of a sweep of arms, whose report answers its questions; nil: no study
}

// WriteReport draws the plots and writes report.md of a sweep folder: the best job or the Pareto
// front, settings with their standard deviation over seeds, what each swept key does, every job, and failures with
// their causes. It reads the jobs' summary.json, of the best settings also the scores and epochs, replaces files whole, and
// may be called while the sweep runs. Plots that cannot be drawn keep no report from being written.
func WriteReport(dir string, jobs []Job, opt Options) error {
	p := PageOf(dir, jobs, opt)
	figures, plotErr := drawFigures(dir, p.Figures)
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

// PageOf returns the view that the report of a sweep or a study is written from.
func PageOf(dir string, jobs []Job, opt Options) *View {
	v := newView(dir, jobs, opt)
	v.read()
	return v
}

// View is a sweep in the order in which its report tells it. A study is a sweep with questions.
type View struct {
	unjudged  bool // the objectives are not known
	unranked  bool // nor will they be: what the jobs did has none
	dir       string
	opt       Options
	jobs      []Job // best first: see ranked
	byNumber  []Job
	dims      []Dimension       // swept keys; seed only where there is no other
	common    []string          // overrides that all jobs have
	front     map[int]bool      // numbers of the jobs that no other beats
	settings  []*setting        // best first; arms in their order
	summaries map[int]recorded  // by job
	gains     map[int]seedGain  // over a baseline on gainSplit, by job
	gainSplit string            // the held-out split, or val
	verdicts  *results.ArmTable // of a sweep that asks nothing; nil: no two jobs left scores to compare
	methods   []comparedMethods // of each setting
	notes     []string          // what went wrong with the report itself

	conditions []*condition // of a sweep of arms: one, unless more than arms and seeds was swept
	answers    []*answer    // of all conditions, in the order of the questions
}

// newView sorts jobs and settings, and reads nothing.
func newView(dir string, jobs []Job, opt Options) *View {
	unjudged := len(opt.Objectives) == 0 // no run has said yet what its best metric is
	if unjudged {
		opt.Objectives = []Objective{{Name: "objective"}}
	}
	v := &View{dir: dir, opt: opt, unjudged: unjudged, jobs: slices.Clone(jobs), common: commonOverrides(jobs), gains: map[int]seedGain{}}
	v.unranked = unjudged && v.count(func(j Job) bool { return j.State == record.StateDone }) > 0
	v.front = v.paretoFront()
	v.sortJobs()
	v.byNumber = slices.SortedStableFunc(slices.Values(v.jobs), func(a, b Job) int { return cmp.Compare(a.Number, b.Number) })
	v.dims = withoutSeed(swept(v.byNumber, opt.Dimensions))
	v.settings = v.settingsOf()
	return v
}

// gainHead is the header of gains: over what the jobs were compared with.
func (v *View) gainHead() string {
	over := ""
	for _, g := range v.gains {
		if over = cmp.Or(over, g.over); over != g.over {
			over = "the baseline"
			break
		}
	}
	return "gain over " + over + " on " + page.Plain(v.gainSplit)
}

// Report returns report.md with the plots that could be drawn: the answers to what was asked, if anything was, then the rest.
func (v *View) Report(drawn []sweepFigure) string {
	return v.document(drawn).Text()
}

// Tables are those of the report.
func (v *View) Tables() []*page.Table { return v.document(nil).Tables }

func (v *View) document(drawn []sweepFigure) *page.Document {
	title := cmp.Or(v.opt.Title, filepath.Base(v.dir))
	if name := record.ExperimentOf(v.common); name != "" && v.opt.Study != nil {
		title = "Study " + name
	}
	var d page.Document
	d.Heading(1, "%s", page.Plain(title))
	for _, write := range []func(*page.Document){
		v.writeSummary, v.writeAnswers, v.writeReading, v.writeMethods, v.writeBest, v.writeSettings, v.writeVerdicts, v.writeArms, v.writeSplits,
		func(d *page.Document) { v.writePlots(d, drawn) }, v.writeBeta, v.writeOthers, v.writeImportance, v.writeJobs, v.writeFailures,
		v.writeSkipped, v.writeWarnings, v.writeRepeat, v.writeAdvice,
	} {
		write(&d)
	}
	return &d
}

// writeSummary says how many jobs ended how, what they cost, and how to repeat or go on.
func (v *View) writeSummary(d *page.Document) {
	d.Paragraph("%s", v.countLine(page.Plain))
	if data := v.dataSentence(); data != "" {
		d.Paragraph("%s", data)
	}
	if warned := warned(v.byNumber, v.summaries); warned != "" {
		d.Paragraph("**%s.** Read their reports before the numbers below.", warned)
	}
	var parts []string
	for _, p := range []struct{ what, name string }{{"sweeper", v.opt.Sweeper}, {"launcher", v.opt.Launcher}, {"pruner", v.opt.Pruner}} {
		if p.name != "" && p.name != "none" {
			parts = append(parts, p.what+" "+page.Plain(p.name))
		}
	}
	if len(parts) > 0 {
		d.Paragraph("%s.", page.Capital(strings.Join(parts, ", ")))
	}
	if len(v.jobs) == 0 {
		d.Paragraph("**This sweep has no jobs yet.**")
	}
	if waiting := v.count(func(j Job) bool { return !ended(j.State) }); waiting > 0 {
		text := fmt.Sprintf("**This sweep has not ended:** %s.", v.states(func(s string) bool { return !ended(s) }))
		if v.count(func(j Job) bool { return j.State == stateLost }) > 0 {
			text += " The process of a lost job is gone and left no word."
		}
		d.Paragraph("%s If its controller is gone, this goes on with the sweep and runs no finished job again:", text)
		d.Code("run resume SWEEP_FOLDER")
		if len(v.answers) > 0 {
			d.Paragraph("What follows compares the seeds that both sides of a question have.")
		}
	}
	if len(v.common) > 0 {
		d.Paragraph("All jobs have %s.", page.CodeList(v.common))
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

// countLine is one paragraph of counts: jobs by state, settings, costs, objectives.
func (v *View) countLine(name func(string) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", page.Capital(page.Plural(len(v.jobs), "job")))
	if len(v.jobs) > 0 {
		fmt.Fprintf(&b, " in %s: %s", page.Plural(len(v.settings), "setting"), v.states(nil))
	}
	b.WriteString(".")
	epochs, seconds, attempts := 0, 0.0, 0
	for _, j := range v.jobs {
		epochs, seconds, attempts = epochs+j.Epochs, seconds+j.Seconds, attempts+max(j.Attempts-1, 0)
	}
	var costs []string
	if epochs > 0 {
		costs = append(costs, page.Plural(epochs, "epoch"))
	}
	if seconds > 0 {
		cost := page.Duration(seconds) + " of job time"
		if elapsed := v.elapsed(); elapsed > 0 {
			cost += " in " + page.Duration(elapsed) + " from the first start to the last end"
		}
		costs = append(costs, cost)
	}
	if attempts > 0 {
		costs = append(costs, page.Thousands(attempts)+" repeated "+page.Verb(attempts, "attempt", "attempts"))
	}
	if len(costs) > 0 {
		fmt.Fprintf(&b, " %s.", page.Capital(strings.Join(costs, ", ")))
	}
	if len(v.jobs) == 0 || v.unjudged {
		return b.String()
	}
	var judged []string
	for _, o := range v.opt.Objectives {
		judged = append(judged, fmt.Sprintf("%s (%s is better)", name(o.Name), o.direction()))
	}
	fmt.Fprintf(&b, " Judged by %s", strings.Join(judged, " and "))
	if len(v.opt.Constraints) > 0 {
		fmt.Fprintf(&b, ", subject to %s", page.CodeList(v.opt.Constraints))
	}
	b.WriteString(".")
	return b.String()
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

// states counts jobs by state: 28 done, 7 pruned, 3 failed. A nil want means all states.
func (v *View) states(want func(string) bool) string {
	order := []string{record.StateDone, record.StatePruned, record.StateFailed, stateSkipped, stateLost, record.StateInterrupted,
		stateRunning, stateQueued}
	counts := map[string]int{}
	for _, j := range v.jobs {
		counts[j.State]++
	}
	for _, s := range slices.Sorted(maps.Keys(counts)) {
		if !slices.Contains(order, s) {
			order = append(order, s)
		}
	}
	var parts []string
	for _, s := range order {
		if counts[s] > 0 && (want == nil || want(s)) {
			parts = append(parts, page.Thousands(counts[s])+" "+cmp.Or(page.Plain(s), "unknown"))
		}
	}
	return strings.Join(parts, ", ")
}

func (v *View) count(want func(Job) bool) int {
	n := 0
	for _, j := range v.jobs {
		if want(j) {
			n++
		}
	}
	return n
}

// own are a job's overrides that not all jobs have.
func (v *View) own(j Job) []string {
	return slices.DeleteFunc(slices.Clone(j.Overrides), func(o string) bool { return slices.Contains(v.common, o) })
}

// link is a job's number, linked to its report where there is one.
func (v *View) link(j Job) string {
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
	for _, f := range figures {
		fmt.Fprintf(&d.B, "![%s](%s/%s.png)\n\n", f.alt, runreport.PlotsFolder, f.Figure.Name)
		d.Paragraph("%s", f.caption)
	}
}

// writeRepeat gives the command, the environment and the data's fingerprint.
func (v *View) writeRepeat(d *page.Document) {
	var all []*record.Summary
	for _, j := range v.byNumber {
		if s := v.summaries[j.Number].Summary; s != nil && s.Versions != nil {
			all = append(all, s)
		}
	}
	if len(all) == 0 && len(v.opt.Command) == 0 {
		return
	}
	d.Heading(2, "To repeat it")
	if len(v.opt.Command) > 0 {
		d.Code(page.ShellCommand(v.opt.Command))
	}
	d.Paragraph("The same command with `--cfg sweep` prints the jobs and runs none. With another `hydra.sweep.dir` it makes the sweep " +
		"again: on a CPU of this kind with the same numbers, but for times. `run report FOLDER` writes this report anew from the runs " +
		"in its folder.")
	if len(all) == 0 {
		return
	}
	var rows [][]string
	row := func(name string, of func(*record.Summary) string) {
		values := slices.Compact(slices.Sorted(slices.Values(list.Map(all, func(s *record.Summary) string { return page.Plain(of(s)) }))))
		cell := values[0]
		if n := len(values); n > 1 {
			cell = "**not the same in all runs:** " + strings.Join(values[:min(n, maxWarned)], "; ")
		}
		rows = append(rows, []string{name, cell})
	}
	row("data", func(s *record.Summary) string { return s.Data.Name })
	row("data fingerprint", func(s *record.Summary) string { return s.Data.Fingerprint })
	row("device", func(s *record.Summary) string { return s.Device })
	for _, name := range slices.Sorted(maps.Keys(all[0].Versions)) {
		if name != "config" { // differs between settings by design
			row(page.Plain(name), func(s *record.Summary) string { return s.Versions[name] })
		}
	}
	d.Table([]string{"", "of every run"}, rows)
}

func (v *View) writeAdvice(d *page.Document) {
	var items []string
	if v.opt.Study == nil && v.best() != nil && v.count(v.feasible) > 1 && len(v.opt.Objectives) == 1 {
		extreme := "largest"
		if v.opt.Objectives[0].Minimize {
			extreme = "smallest"
		}
		items = append(items, fmt.Sprintf("The best of several jobs is a little lucky: its number is the %s of several noisy ones. Run "+
			"the best setting with new seeds before relying on it.", extreme))
	}
	if v.hasSeeds() && !v.unranked {
		items = append(items, "± is the standard deviation over seeds; the intervals in each job's report are over questions.")
	}
	if v.count(func(j Job) bool { return j.State == record.StatePruned }) > 0 {
		items = append(items, "A pruned job was stopped early: its value is the one that it had reached, is compared with no finished "+
			"job, and enters no mean.")
	}
	if len(v.notes) > 0 {
		d.Heading(2, "Not in this report")
		d.List(v.notes...)
	}
	if len(items) > 0 {
		d.Heading(2, "How to read this")
		d.List(items...)
	}
}

func (o Objective) direction() string {
	if o.Minimize {
		return "smaller"
	}
	return "larger"
}

// compareObjectives sorts better ones first and those that are no finite number last.
func (o Objective) compare(a, b float64) int {
	switch {
	case !finite(a) || !finite(b):
		return cmp.Compare(stats.BoolInt(!finite(a)), stats.BoolInt(!finite(b)))
	case o.Minimize:
		return cmp.Compare(a, b)
	}
	return cmp.Compare(b, a)
}

// finite says whether x can be compared and drawn: differences of such numbers are finite too.
func finite(x float64) bool { return math.Abs(x) < 1e305 }

// ended says whether a job stays in its state.
func ended(state string) bool {
	return state == record.StateDone || state == record.StateFailed || state == stateSkipped || state == record.StatePruned
}
