package board

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fulcrum/internal/list"
	"fulcrum/internal/regular"
	"fulcrum/internal/usage"
	"fulcrum/reports/curves"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/runreport"
	"fulcrum/reports/stats"
)

// stateUnread is the state of a run that the board has not looked into yet.
const stateUnread = "unread"

// entry is a line of the list of runs.
type entry struct {
	ID        string              `json:"id"`
	Path      string              `json:"path"`
	Sweep     string              `json:"sweep,omitempty"` // id
	Job       string              `json:"job,omitempty"`
	State     string              `json:"state"`
	Error     string              `json:"error,omitempty"`
	Title     string              `json:"title,omitempty"`
	Task      string              `json:"task,omitempty"`
	Seed      *int64              `json:"seed,omitempty"`
	Overrides []string            `json:"overrides,omitempty"`
	Phase     string              `json:"phase,omitempty"`
	Epoch     int                 `json:"epoch,omitempty"` // of the phase, finished
	Step      int64               `json:"step,omitempty"`  // global
	Start     float64             `json:"start,omitempty"` // seconds since 1970
	Seconds   float64             `json:"seconds,omitempty"`
	Updated   float64             `json:"updated,omitempty"`
	Progress  *float64            `json:"progress,omitempty"` // share of all epochs
	Left      *float64            `json:"left,omitempty"`     // seconds, about
	Metric    string              `json:"metric,omitempty"`   // what best, baseline and gain are
	Split     string              `json:"split,omitempty"`
	Policy    string              `json:"policy,omitempty"` // the phase that the score is of the end of; "": the best policy, or rows of one that goes on
	Data      string              `json:"data,omitempty"`   // name and fingerprint, of a run that has ended: scores on other data are no rivals
	Best      *float64            `json:"best,omitempty"`
	Score     string              `json:"score,omitempty"` // best as the report writes it, of a run that has ended
	Baseline  *float64            `json:"baseline,omitempty"`
	Over      string              `json:"over,omitempty"`      // name of the baseline
	Untrained bool                `json:"untrained,omitempty"` // the best is the policy that it began with
	Gain      *results.Difference `json:"gain,omitempty"`
	Warnings  int                 `json:"warnings,omitempty"`
	Stops     int                 `json:"stops,omitempty"`  // findings that say stop
	Warned    []string            `json:"warned,omitempty"` // names of what they are
	Tags      []string            `json:"tags,omitempty"`
	Note      string              `json:"note,omitempty"`
	Version   int64               `json:"version"`

	dir   string
	stamp stamp
}

// stamp is what changes when a run does.
type stamp struct {
	Metrics, Summary, Notes regular.Identity
	Locked                  bool
}

// stampOf looks at a run's files, and at its lock unless it has ended: whoever goes on with it writes rows.
func (b *Board) stampOf(e *entry) stamp {
	return stamp{regular.Identify(filepath.Join(e.dir, record.MetricsFile)), regular.Identify(filepath.Join(e.dir, record.SummaryFile)),
		regular.Identify(filepath.Join(e.dir, NotesFile)), !e.ended() && b.opt.Locked(e.dir)}
}

// ended reports whether a run was done when it was read.
func (e *entry) ended() bool {
	return !e.stamp.Locked && (e.State == record.StateDone || e.State == record.StatePruned)
}

// read returns an entry as its folder has it now. What cannot be read is left out; the entry says so.
func (b *Board) read(was entry) entry {
	e := &entry{ID: was.ID, Path: was.Path, Sweep: was.Sweep, Job: was.Job, dir: was.dir}
	e.stamp = b.stampOf(e)
	dir, at := e.dir, e.stamp
	n, wrong := readNotes(dir)
	e.Tags, e.Note, e.Error = n.Tags, n.Note, wrong
	var s record.Summary
	data, err := regular.ReadDocument(filepath.Join(dir, record.SummaryFile))
	if err != nil {
		e.Error = cmp.Or(unread(record.SummaryFile, err), e.Error)
	} else if json.Unmarshal(data, &s) != nil {
		s, e.Error = record.Summary{}, record.SummaryFile+" is damaged"
	}
	if e.State = record.StateOf(at.Locked, s.State); e.State == s.State {
		e.summarized(&s)
		if e.State == record.StateInterrupted {
			b.progressed(e)
		}
	} else {
		b.live(e)
	}
	return *e
}

// summarized takes all from the summary.
func (e *entry) summarized(s *record.Summary) {
	seed := s.Seed // a pointer into the summary would keep all of it
	e.Title, e.Task, e.Seed, e.Overrides = s.Title, s.Task, &seed, s.Overrides
	if s.Error != "" {
		e.Error = s.Error
	}
	e.Seconds = s.WallSeconds
	e.warned(s.Warnings, s.Findings)
	e.Data, e.Untrained = strings.TrimSpace(s.Data.Name+" "+s.Data.Fingerprint), s.Best.Untrained()
	if start, err := time.Parse(time.RFC3339, s.Start); err == nil {
		e.Start = float64(start.UnixMilli()) / 1000
	}
	for _, p := range s.Phases {
		e.Phase, e.Epoch = p.Name, p.Epochs
		e.Step += int64(p.Steps)
	}
	if s.Over() {
		one := 1.0
		e.Progress = &one
	}
	e.judged(s.Evaluations)
	if e.Best == nil && s.Best != nil {
		e.Split, e.Metric, e.Best = "val", strings.TrimPrefix(s.Best.Metric, "val_"), finite(float64(s.Best.Value))
	}
}

// warned takes what a run's report warns of.
func (e *entry) warned(warnings []string, findings []record.Finding) {
	e.Warnings, e.Warned = len(warnings), record.Warned(warnings, findings)
	e.Stops += list.Count(findings, func(f record.Finding) bool { return f.Severity == "stop" })
}

// judged takes the result that the run's report judges it by, and what it gains.
func (e *entry) judged(stages []record.StageResult) {
	planned, over, p := plannedGain(stages)
	if planned == nil {
		return
	}
	e.Split, e.Metric, e.Best, e.Score = planned.Split, planned.Metric, finite(planned.Mean), page.Score(planned.Mean, planned.SE)
	if planned.Policy != record.PolicyBest {
		e.Policy = planned.Policy
	}
	if p != nil {
		e.Over, e.Gain, e.Baseline = over.Short, results.DifferenceOf("", p), finite(planned.Mean-p.Mean)
	}
}

// plannedGain is the result that a run's report judges it by, and what it gains over the first baseline that it has; nil: none.
func plannedGain(stages []record.StageResult) (planned *record.StageResult, over results.Yardstick, p *stats.Paired) {
	if planned = runreport.PlannedResult(stages); planned != nil {
		for _, over = range results.YardsticksOf(results.TableOf(stages, *planned), stages) {
			if p = *over.Gain(planned); p != nil {
				break
			}
		}
	}
	return planned, over, p
}

func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// live fills an entry from the rows of a run that has not ended.
func (b *Board) live(e *entry) {
	e.Overrides, _ = record.Overrides(e.dir) // of one that cannot be read nothing is shown
	e.Title = cmp.Or(record.ExperimentOf(e.Overrides), e.Title)
	err := b.rows(e.ID, e.dir, func(c *curves.Curves, complete bool) {
		e.Start, e.Updated = c.Started, c.Updated
		if info, err := os.Stat(filepath.Join(e.dir, configFile)); err == nil && e.Start == 0 { // the newest, before its first row
			e.Start = float64(info.ModTime().UnixMilli()) / 1000
		}
		if !complete {
			e.stamp.Metrics = regular.Identity{} // read on at the next look
		}
		e.follow(c)
	})
	if err != nil {
		e.Error = "metrics.jsonl cannot be read: " + usage.Reason(err).Error()
	}
	b.progressed(e)
}

// progressed says how far a run has come that is not done, by its rows and its configuration.
func (b *Board) progressed(e *entry) {
	run := &record.Run{Dir: e.dir}
	if run.ReadConfig() != nil || run.Tree == nil {
		return
	}
	e.Task, _ = run.Setting("task").(string)
	if _, ok := run.SettingNumber("seed"); ok {
		seed := run.Seed()
		e.Seed = &seed
	}
	epochs := map[string]int{}
	phases, _ := run.Setting("schedule").([]any)
	schedule := list.Map(phases, func(phase any) string { return fmt.Sprint(phase) })
	for _, phase := range schedule {
		n, _ := run.SettingNumber(phase, "epochs")
		epochs[phase] = int(n)
	}
	_ = b.rows(e.ID, e.dir, func(c *curves.Curves, _ bool) {
		if share, left, ok := progressOf(c.Phases, schedule, epochs, c.Updated); ok {
			e.Progress = &share
			if e.State == record.StateRunning {
				e.Left = left
			}
		}
	})
}

// follow takes from rows what a summary would say.
func (e *entry) follow(c *curves.Curves) {
	for _, p := range c.Phases {
		e.Phase, e.Epoch, e.Step = p.Name, p.Epochs, max(e.Step, p.To)
	}
	if c.Started > 0 {
		e.Seconds = c.Updated - c.Started - c.Paused
	}
	var told record.Summary // of the rows so far
	told.AddRecorded(&record.Run{Events: c.EventRows()})
	e.warned(told.Warnings, told.Findings)
	for _, name := range judging() {
		column := c.Epochs.Of(name)
		if column == nil {
			continue
		}
		smallest := name == "val_loss"
		if best, ok := column.Best(smallest); ok {
			e.Split, e.Metric, e.Best = "val", strings.TrimPrefix(name, "val_"), &best
			break
		}
	}
	rows := c.EvalRows()
	similarity := slices.ContainsFunc(rows, func(row record.Row) bool { return row.Text("policy") == record.PolicySimilarity })
	for _, y := range results.YardsticksBy(similarity) {
		for _, row := range rows {
			if y.Policy == record.PolicyRandom || row.Text("policy") != y.Policy || row.Text("split") != "val" {
				continue
			}
			if top, ok := row.Number("top1_accuracy"); ok && top == 1 && y.Policy == record.PolicyRecorded { // an oracle
				continue
			}
			if x, ok := row.Number(e.Metric); ok && e.Metric != "" {
				e.Over, e.Baseline = y.Short, finite(x)
				return
			}
		}
	}
}

// progressOf returns the share of epochs that are done and about how many seconds the others take, by the epochs that
// the run has taken so far. left is nil before the first.
func progressOf(seen []curves.Span, schedule []string, epochs map[string]int, now float64) (share float64, left *float64, ok bool) {
	done, total, seconds, timed, remaining := 0.0, 0.0, 0.0, 0.0, 0.0
	per := map[string]float64{} // seconds of an epoch
	for _, p := range seen {
		if p.Epochs > 0 {
			per[p.Name] = (p.EpochEnd - p.Began) / float64(p.Epochs)
			seconds, timed = seconds+p.EpochEnd-p.Began, timed+float64(p.Epochs)
		}
	}
	for _, name := range schedule {
		n := float64(epochs[name])
		total += n
		finished := 0.0
		for _, p := range seen {
			if p.Name == name {
				finished = min(float64(p.Epochs), n)
				if p.Epochs > 0 && finished < n { // the epoch in progress, by its steps
					finished += min(float64(p.To-p.ToEpoch)/max(float64(p.ToEpoch-p.From+1)/float64(p.Epochs), 1), 0.99)
				}
			}
		}
		done += finished
		pace, known := per[name]
		if !known && timed > 0 {
			pace = seconds / timed
		}
		remaining += (n - finished) * pace
	}
	if total == 0 {
		return 0, nil, false
	}
	if timed > 0 {
		left = &remaining
	}
	return min(done/total, 1), left, true
}
