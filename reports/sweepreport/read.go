package sweepreport

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/parallel"
	"fulcrum/reports/arms"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/runreport"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
)

// recorded is a job's summary.json without its evaluations, which would fill the memory: of them the gain alone is kept.
type recorded struct {
	*record.Summary
	gain *seedGain // by the planned comparison; nil: none
}

// seedGain is what a job's summary.json says of its best policy against a baseline.
type seedGain struct {
	over    string // as the column of results.Yardstick
	split   string // where it was measured
	mean    float64
	text    string // mean with the decimals of its interval
	verdict stats.Verdict
}

// comparedMethods is what the jobs of a setting compared with task=icl, each with a seed of its own.
type comparedMethods struct {
	setting *setting
	table   *arms.MethodTable
}

// maxCompared is how many settings of a sweep that asks nothing are compared question by question, best first.
const maxCompared = 8

// read reads what the jobs left: all summaries, and the scores and epochs of the settings that are compared. What cannot be read becomes
// a note of the report.
func (v *View) read() {
	var errs []error
	v.summaries, errs = readSummaries(v.ByNumber)
	for _, err := range errs {
		v.note(err)
	}
	if v.Opt.Study != nil {
		for _, s := range v.settings {
			v.readRuns(s, func(j sweeps.Job) bool { return j.State == record.StateDone })
		}
		v.answer()
		return
	}
	for _, j := range v.Jobs {
		if r := v.summaries[j.Number]; j.State == record.StateDone && r.gain != nil && !v.comparesMethods(j) {
			v.gains[j.Number] = *r.gain
		}
	}
	v.oneSplit()
	if v.readMethods(); len(v.methods) == 0 {
		v.compareBest()
	}
}

// readSummaries reads the summaries of jobs by their number, several at once. A job that has none yet is left out.
func readSummaries(jobs []sweeps.Job) (map[int]recorded, []error) {
	reads, errs := make([]recorded, len(jobs)), make([]error, len(jobs))
	parallel.Each(context.Background(), len(jobs), 4, func(i int) error {
		if jobs[i].Dir != "" {
			reads[i], errs[i] = readSummary(jobs[i])
		}
		return nil
	})
	out := map[int]recorded{}
	for i, j := range jobs {
		if reads[i].Summary != nil {
			out[j.Number] = reads[i]
		}
	}
	return out, slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

func readSummary(j sweeps.Job) (recorded, error) {
	s, err := record.ReadSummary(j.Dir)
	if err != nil {
		return recorded{}, fmt.Errorf("job %d: %w", j.Number, err)
	}
	if s == nil {
		return recorded{}, nil
	}
	r := recorded{s, gainOf(s)}
	s.Evaluations, s.Evaluation = nil, nil
	return r, nil
}

// gainOf is the planned comparison with similarity or, where that is worse, with random, of a pretrained policy with its
// start; nil for none.
func gainOf(s *record.Summary) *seedGain {
	if r := runreport.PlannedResult(s.Evaluations); r != nil {
		for i, y := range results.YardsticksOf(results.TableOf(s.Evaluations, *r), s.Evaluations) {
			if p := *y.Gain(r); p != nil && y.Policy != record.PolicyRecorded && (y.Policy != record.PolicyInit || i == 0) {
				mean, _, _ := p.Texts()
				return &seedGain{y.Short, r.Split, p.Mean, mean, p.Verdict}
			}
		}
	}
	return nil
}

// comparesMethods says whether a job compared methods instead of training a policy.
func (v *View) comparesMethods(j sweeps.Job) bool {
	r := v.summaries[j.Number]
	return r.Summary != nil && r.Task == "icl"
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

// readRuns reads the runs of a setting's jobs that count, one for each seed, by seed. A job that cannot be read whole is no run of it.
func (v *View) readRuns(s *setting, counts func(sweeps.Job) bool) {
	for _, j := range s.Jobs {
		if j.Dir == "" || !counts(j) {
			continue
		}
		run, err := v.readRun(j)
		if _, seeded := run.SettingNumber("seed"); err == nil && v.Opt.Study != nil && (!seeded || run.Summary == nil) {
			err = fmt.Errorf("%s: the config names no seed, or there is no %s", j.Dir, record.SummaryFile)
		}
		switch {
		case err != nil:
			v.note(fmt.Errorf("job %d: %w", j.Number, err))
		case (len(run.Evaluations) > 0 || v.Opt.Study != nil) && !slices.Contains(s.seeds(), run.Seed()):
			s.runs = append(s.runs, run)
		}
	}
	slices.SortStableFunc(s.runs, func(x, y *record.Run) int { return cmp.Compare(x.Seed(), y.Seed()) })
}

// readRun reads a job's scores, epochs and configuration; its steps, which are nearly all that it left, stay unread.
func (v *View) readRun(j sweeps.Job) (*record.Run, error) {
	run := &record.Run{Dir: j.Dir, Summary: v.summaries[j.Number].Summary}
	var err error
	run.Evaluations, err = record.ReadEvals(j.Dir)
	return run, cmp.Or(err, run.ReadConfig(), run.ReadEpochs())
}

func (v *View) runs() []*record.Run {
	return slices.Concat(list.Map(v.settings, func(s *setting) []*record.Run { return s.runs })...)
}

// readMethods joins the comparisons of task=icl over the seeds of each setting.
func (v *View) readMethods() {
	for _, s := range v.settings[:min(len(v.settings), maxCompared)] {
		v.readRuns(s, v.comparesMethods)
		t, err := arms.JoinMethods(s.runs)
		if err != nil {
			v.note(err)
		} else if t != nil {
			v.methods = append(v.methods, comparedMethods{s, t})
		}
	}
}

// writeMethods says what task=icl found, over the seeds of each setting.
func (v *View) writeMethods(d *page.Document) {
	for _, m := range v.methods {
		title := "Methods"
		if len(v.methods) > 1 {
			title = fmt.Sprintf("Methods with %s", page.CodeList(m.setting.Overrides))
		}
		d.Heading(2, "%s", title)
		m.table.Write(d, title)
	}
}

// note says in the report what went wrong with it, naming files as they stand in the sweep's folder, which may be moved.
func (v *View) note(err error) { v.notes = append(v.notes, page.Plain(v.within(err.Error()))) }

func (v *View) within(text string) string { return strings.ReplaceAll(text, v.dir+"/", "") }

// writeWarnings repeats the words of the jobs' warnings, alike ones once.
func (v *View) writeWarnings(d *page.Document) {
	var all []record.Finding // the first of each name
	of := map[string][]sweeps.Job{}
	for _, j := range v.ByNumber {
		if s := v.summaries[j.Number].Summary; s != nil {
			for _, f := range record.Warnings(s.Warnings, s.Findings) {
				if of[f.Check] == nil {
					all = append(all, f)
				}
				of[f.Check] = append(of[f.Check], j)
			}
		}
	}
	if len(all) == 0 {
		return
	}
	d.Heading(2, "What the jobs warn of")
	var items []string
	for _, f := range all[:min(len(all), sweeps.MaxWarned)] {
		jobs := of[f.Check]
		items = append(items, fmt.Sprintf("%s, %s %s: %s.", page.InlineCode(f.Check), page.Verb(len(jobs), "job", "jobs"),
			sweeps.JobNumbers(jobs),
			strings.TrimSuffix(page.Plain(f.Message), ".")))
	}
	if n := len(all) - len(items); n > 0 {
		items = append(items, fmt.Sprintf("And %d more.", n))
	}
	d.List(items...)
	d.Paragraph("The words are those of the first job that warned so.")
}
