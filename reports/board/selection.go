package board

import (
	"cmp"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/compare"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
	"fulcrum/reports/webchart"
)

// Most runs of a comparison: its settings, and its intervals, which are computed anew.
const (
	maxSelected = 200
	maxCompared = 24
)

// comparison is what a selection of runs is compared by besides its curves.
type comparison struct {
	Runs     []entry           `json:"runs"`
	Settings []compare.Setting `json:"settings"` // those that differ
	Report   string            `json:"report"`   // HTML: run report's comparison
	Pairs    []compare.Pairing `json:"pairs"`
	Arms     [][]string        `json:"arms,omitempty"` // ids, where some runs differ in their seed only: pairs are then of arms
	Note     string            `json:"note,omitempty"` // what a question of the runs answers, or why there are no intervals
}

func (b *Board) selected(ids string) ([]entry, error) {
	var runs []entry
	for _, id := range strings.Split(ids, ",") {
		e, ok := b.run(id)
		if !ok {
			return nil, refusal{404, "a run of this selection is not there"}
		}
		runs = append(runs, e)
	}
	if len(runs) > maxSelected {
		return nil, refusal{400, "too many runs: select at most 200"}
	}
	return runs, nil
}

// jobsOf are the ids of a sweep's runs by the number of their job, with commas.
func (b *Board) jobsOf(sweep string) string {
	var jobs []entry
	b.mu.Lock()
	for _, e := range b.runs {
		if e.Sweep == sweep {
			jobs = append(jobs, *e)
		}
	}
	b.mu.Unlock()
	slices.SortFunc(jobs, func(x, y entry) int {
		return cmp.Or(cmp.Compare(len(x.Job), len(y.Job)), cmp.Compare(x.Job, y.Job))
	})
	return strings.Join(list.Map(jobs, func(e entry) string { return e.ID }), ",")
}

func (b *Board) comparison(ids string) (*comparison, error) {
	runs, err := b.selected(ids)
	if err != nil {
		return nil, err
	}
	settings := list.Map(runs, func(e entry) map[string]string { return settingsOf(e.dir) })
	c := &comparison{Runs: runs, Settings: compare.Differing(settings), Pairs: []compare.Pairing{}}
	if len(runs) < 2 {
		return c, nil
	}
	if len(runs) > maxCompared {
		c.Note = "Intervals are computed for at most 24 runs at a time."
		return c, nil
	}
	if slices.ContainsFunc(runs, func(e entry) bool {
		return max(sizeOf(e.dir, record.EvalsFile), sizeOf(e.dir, record.MetricsFile)) > maxFile
	}) {
		c.Note = "A run's files are too large to compare here: `run report A B`."
		return c, nil
	}
	dirs := list.Map(runs, func(e entry) string { return e.dir })
	document, pairs, err := compare.Compare(dirs)
	if err != nil {
		c.Note = err.Error()
		return c, nil
	}
	c.Pairs = append(c.Pairs, pairs...)
	c.Note = page.PlainText(page.Markup(strings.Join(compare.Answers(dirs), " ")))
	arms, err := b.arms(ids)
	if err != nil {
		return nil, err
	}
	if len(arms) < len(runs) {
		c.Arms = list.Map(arms, func(a alike) []string { return a.ids })
	}
	c.Report = page.Fragment(document.Text())
	return c, nil
}

// sweepAnswer is a sweep's page.
type sweepAnswer struct {
	Sweep      sweepEntry         `json:"sweep"`
	Dir        string             `json:"dir"`
	Command    []string           `json:"command"`
	Launcher   string             `json:"launcher"`
	Pruner     string             `json:"pruner"`
	Study      bool               `json:"study"`
	Objectives []sweeps.Objective `json:"objectives"`
	Mixed      bool               `json:"mixed,omitempty"` // each job by one of them: none is the best
	Dimensions []sweeps.Dimension `json:"dimensions"`
	Jobs       []sweepJob         `json:"jobs"`
}

type sweepJob struct {
	sweeps.Job
	Objectives webchart.Numbers `json:"objectives"`
	Run        string           `json:"run,omitempty"` // id, where its folder is there
	Infeasible bool             `json:"infeasible,omitempty"`
	Progress   *float64         `json:"progress,omitempty"`
	Warned     []string         `json:"warned,omitempty"` // names of its run's warnings
}

// ledgerOf reads the ledger of a sweep.
func (b *Board) ledgerOf(id string) (s sweepEntry, opt sweeps.Options, jobs []sweeps.Job, err error) {
	s, ok := b.sweep(id)
	if !ok {
		return s, opt, nil, refusal{404, "no such sweep"}
	}
	opt, jobs, err = b.opt.Sweep(s.dir)
	return s, opt, jobs, err
}

func (b *Board) sweepPage(id string) (*sweepAnswer, error) {
	s, opt, jobs, err := b.ledgerOf(id)
	if err != nil {
		return nil, err
	}
	s.Running, s.Left = b.opt.Locked(s.dir), leftOf(jobs)
	a := &sweepAnswer{Sweep: s, Dir: s.dir, Command: opt.Command, Launcher: opt.Launcher, Pruner: opt.Pruner, Study: opt.Study != nil,
		Objectives: append([]sweeps.Objective{}, opt.Objectives...), Mixed: opt.Mixed,
		Dimensions: append([]sweeps.Dimension{}, sweeps.Swept(jobs, opt.Dimensions)...), Jobs: []sweepJob{}}
	for _, j := range jobs {
		one := sweepJob{Job: j, Objectives: j.Objectives, Infeasible: sweeps.Violates(j)}
		if e, ok := b.run(idOf(j.Dir)); ok {
			one.Run, one.Progress, one.Warned = e.ID, e.Progress, e.Warned
		}
		a.Jobs = append(a.Jobs, one)
	}
	return a, nil
}
