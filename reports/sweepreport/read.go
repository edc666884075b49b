package sweepreport

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/internal/parallel"
	"fulcrum/reports/arms"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

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
	if v.readMethods(); len(v.methods) == 0 {
		v.compareBest()
	}
}

// readSummaries reads the summaries of jobs by their number, several at once. A job that has none yet is left out.
func readSummaries(jobs []sweeps.Job) (map[int]*record.Summary, []error) {
	reads, errs := make([]*record.Summary, len(jobs)), make([]error, len(jobs))
	parallel.Each(context.Background(), len(jobs), 4, func(i int) error {
		if jobs[i].Dir != "" {
			reads[i], errs[i] = readSummary(jobs[i])
		}
		return nil
	})
	out := map[int]*record.Summary{}
	for i, j := range jobs {
		if reads[i] != nil {
			out[j.Number] = reads[i]
		}
	}
	return out, slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// readSummary reads a job's summary.json without its evaluations, which would fill the memory; nil where there is none.
func readSummary(j sweeps.Job) (*record.Summary, error) {
	s, err := record.ReadSummary(j.Dir)
	if err != nil {
		return nil, fmt.Errorf("job %d: %w", j.Number, err)
	}
	if s != nil {
		s.Evaluations, s.Evaluation = nil, nil
	}
	return s, nil
}

// comparesMethods says whether a job compared methods instead of training a policy.
func (v *View) comparesMethods(j sweeps.Job) bool {
	s := v.summaries[j.Number]
	return s != nil && s.Task == "icl"
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
	run := &record.Run{Dir: j.Dir, Summary: v.summaries[j.Number]}
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
		if s := v.summaries[j.Number]; s != nil {
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
