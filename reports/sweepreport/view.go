package sweepreport

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

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
	if opt.Study != nil {
		v.readArms()
	} else {
		v.readGains()
	}
	return v
}

func (v *View) note(err error) { v.notes = append(v.notes, page.Plain(err.Error())) }

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
	settings  []*setting        // best first
	gains     map[int]seedGain  // over a baseline on gainSplit, by job
	gainSplit string            // the held-out split, or val
	verdicts  *results.ArmTable // nil: no two jobs left scores to compare
	compared  []comparedSetting // of verdicts, best first
	compares  map[int]bool      // numbers of the jobs that compared methods
	methods   []comparedMethods // of each setting
	seeded    *studySetting     // those with several seeds; nil: their epochs are not read
	notes     []string          // what went wrong with the report itself

	armSettings []*studySetting // of a study: one, unless more than arms and seeds was swept
	answers     []*studyAnswer  // of all settings, in the order of the questions
}

// seedGain is what a job's summary.json says of its best policy against a baseline.
type seedGain struct {
	over    string // similarity, majority or random
	split   string // where it was measured
	mean    float64
	verdict stats.Verdict
}

// newView sorts jobs and settings. Gains are read by readGains.
func newView(dir string, jobs []Job, opt Options) *View {
	unjudged := len(opt.Objectives) == 0 // no run has said yet what its best metric is
	if unjudged {
		opt.Objectives = []Objective{{Name: "objective"}}
	}
	v := &View{dir: dir, opt: opt, unjudged: unjudged, jobs: slices.Clone(jobs), common: commonOverrides(jobs), gains: map[int]seedGain{},
		compares: map[int]bool{}}
	v.unranked = unjudged && v.count(func(j Job) bool { return j.State == record.StateDone }) > 0
	v.front = v.paretoFront()
	v.sortJobs()
	v.byNumber = slices.SortedStableFunc(slices.Values(v.jobs), func(a, b Job) int { return cmp.Compare(a.Number, b.Number) })
	v.dims = withoutSeed(swept(v.byNumber, opt.Dimensions))
	v.settings = v.settingsOf()
	return v
}

// readGains takes the gain over a baseline from the summary.json of every finished job that has it, and
// compares the best settings.
func (v *View) readGains() {
	type read struct {
		gain     *seedGain
		compares bool
		err      error
	}
	reads := make([]read, len(v.jobs))
	n := min(4, runtime.GOMAXPROCS(0))
	var workers sync.WaitGroup
	for w := range n {
		workers.Go(func() {
			for i := w; i < len(v.jobs); i += n {
				if j := v.jobs[i]; j.Dir != "" && j.State == record.StateDone {
					r := &reads[i]
					r.gain, r.compares, r.err = readGain(j.Dir)
				}
			}
		})
	}
	workers.Wait()
	for i, r := range reads {
		if r.err != nil {
			v.notes = append(v.notes, fmt.Sprintf("job %d: %s", v.jobs[i].Number, page.Plain(r.err.Error())))
		}
		v.compares[v.jobs[i].Number] = r.compares
		if r.gain != nil && !r.compares {
			v.gains[v.jobs[i].Number] = *r.gain
		}
	}
	v.oneSplit()
	v.readMethods()
	if len(v.methods) == 0 {
		v.readVerdicts()
	}
}

// oneSplit keeps the gains on the split by which most jobs are judged, the held-out one where there are as many: a column
// holds numbers of one set of questions.
func (v *View) oneSplit() {
	count := map[string]int{}
	for _, g := range v.gains {
		count[g.split]++
	}
	for _, split := range slices.Sorted(maps.Keys(count)) {
		most := count[v.gainSplit]
		if n := count[split]; n > most || n == most && record.HeldOut(split) && !record.HeldOut(v.gainSplit) {
			v.gainSplit = split
		}
	}
	maps.DeleteFunc(v.gains, func(_ int, g seedGain) bool { return g.split != v.gainSplit })
}

// readGain reads what summary.json says of the planned comparison with similarity, with the majority answer or, where those are
// worse, with random (nil: there is none), and whether the job compared methods instead.
func readGain(dir string) (gain *seedGain, compares bool, err error) {
	var summary struct { // a thousand summaries have 40 MB: no more than these
		Task        string               `json:"task"`
		Evaluations []record.StageResult `json:"evaluations"`
	}
	if err := record.ReadJSON(filepath.Join(dir, record.SummaryFile), &summary); err != nil {
		return nil, false, err
	}
	if r := runreport.PlannedResult(summary.Evaluations); r != nil {
		for _, y := range results.YardsticksOf(results.TableOf(summary.Evaluations, *r), summary.Evaluations) {
			if p := *y.Gain(r); p != nil && y.Policy != record.PolicyRecorded && y.Policy != record.PolicyInit {
				gain = &seedGain{y.Short, r.Split, p.Mean, p.Verdict}
				break
			}
		}
	}
	return gain, summary.Task == "icl", nil
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

// Report returns report.md with the plots that could be drawn: of a study the answers first, then what they rest on.
func (v *View) Report(drawn []sweepFigure) string {
	return v.document(drawn).Text()
}

// Tables are those of the report.
func (v *View) Tables() []*page.Table { return v.document(nil).Tables }

func (v *View) document(drawn []sweepFigure) *page.Document {
	title := cmp.Or(v.opt.Title, filepath.Base(v.dir))
	plots := func(d *page.Document) { v.writePlots(d, drawn) }
	sections := []func(*page.Document){
		v.writeSummary, v.writeMethods, v.writeBest, v.writeSettings, v.writeVerdicts, plots, v.writeImportance, v.writeJobs, v.writeFailures,
		v.writeAdvice,
	}
	if v.opt.Study != nil {
		title = v.studyTitle()
		sections = []func(*page.Document){
			v.writeStanding, v.writeAnswers, v.writeReading, v.writeArms, v.writeSplits, plots, v.writeBeta, v.writeOthers, v.writeSeeds,
			v.writeSettingsOfArms, v.writeFindings, v.writeFailures, v.writeSkipped, v.writeCosts, v.writeRepeat, v.writeNotes,
		}
	}
	var d page.Document
	d.Heading(1, "%s", page.Plain(title))
	for _, write := range sections {
		write(&d)
	}
	return &d
}

// writeSummary says how many jobs ended how, what they cost, and how to repeat or go on.
func (v *View) writeSummary(d *page.Document) {
	d.Paragraph("%s", v.countLine(page.Plain))
	if warned := Warned(v.byNumber); warned != "" {
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
	}
	if len(v.opt.Command) > 0 {
		d.Paragraph("To repeat the sweep:")
		d.Code(page.ShellCommand(v.opt.Command))
	}
	if len(v.common) > 0 {
		d.Paragraph("All jobs have %s.", page.CodeList(v.common))
	}
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
		costs = append(costs, page.Duration(seconds)+" of job time")
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

func (v *View) writeAdvice(d *page.Document) {
	var items []string
	if v.best() != nil && v.count(v.feasible) > 1 && len(v.opt.Objectives) == 1 {
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
