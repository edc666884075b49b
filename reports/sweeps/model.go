// Package sweeps is the model of a sweep's result: jobs, the settings that they are, what was swept and what was asked beforehand. It ranks
// them and makes the table of a terminal. It reads no file: what jobs left in their folders is the business of reports.
//
//	text := sweeps.Table(jobs, opt, 0)
package sweeps

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// States of a sweep's job that are none of a run's.
const (
	StateQueued  = "queued"
	StateRunning = "running"
	StateLost    = "lost"
	StateSkipped = "skipped"
)

// Objective is a number that the jobs of a sweep are judged by.
type Objective struct {
	Name     string `json:"name"`
	Minimize bool   `json:"minimize"` // a smaller one is better
}

// Dimension is a swept key.
type Dimension struct {
	Key      string   `json:"key"`              // as in Job.Params
	Log      bool     `json:"log"`              // tagged log
	Interval bool     `json:"-"`                // continuous, or an interval of integers
	Values   []string `json:"values,omitempty"` // of a grid or of a choice between words, in order, as written
}

// Job is one run of a sweep as its controller knows it. Its JSON is what the board's page has.
type Job struct {
	Number     int               `json:"number"`
	Dir        string            `json:"-"`                   // of the run
	Overrides  []string          `json:"overrides"`           // of this job
	State      string            `json:"state"`               // queued, running, done, failed, pruned or lost
	Params     map[string]string `json:"params"`              // swept key → value as written: a part of the overrides
	Objectives []float64         `json:"-"`                   // as Options.Objectives; nil when unknown
	Violation  float64           `json:"-"`                   // of the constraints; 0: feasible
	Untrained  bool              `json:"untrained,omitempty"` // its best checkpoint is the policy that it began with
	Epochs     int               `json:"epochs"`              // trained, of all phases and attempts
	Seconds    float64           `json:"seconds"`             // wall time of all attempts
	Attempts   int               `json:"attempts"`
	ExitCode   int               `json:"-"`
	Cause      string            `json:"cause,omitempty"` // why it failed: one sentence
	Tail       []string          `json:"-"`               // last lines of a failed job's log
	Command    []string          `json:"-"`               // argv that repeats it
}

// Options describe the sweep as a whole.
type Options struct {
	Title       string
	Objectives  []Objective // what the jobs are judged by
	Mixed       bool        // each job by one of them, its own: they have no rank
	Constraints []string    // as written: "val_kl <= 0.1"
	Dimensions  []Dimension // swept keys; taken from the jobs' Params where there are none
	Sweeper     string      // basic, random, tpe, …
	Launcher    string
	Pruner      string   // none or "": no pruner
	Command     []string // argv of the sweep
	Study       *Study   // of a sweep of arms, whose report answers its questions; nil: no study
	Ask         *Ask     // of a study that grows until its questions are settled; nil: its seeds are known
	Told        []Told   // by the report in the sweep's folder; nil: there is none
}

// Model is the jobs of a sweep, ranked.
type Model struct {
	Unjudged bool // the objectives are not known
	Unranked bool // nor will they be: what the jobs did has none, or each has its own
	Opt      Options
	Jobs     []Job // best first
	ByNumber []Job
	Dims     []Dimension  // swept keys; seed only where there is no other
	Common   []string     // overrides that all jobs have
	Front    map[int]bool // numbers of the jobs that no other beats
	Settings []*Setting   // best first; arms in their order
}

// ModelOf ranks jobs and settings.
func ModelOf(jobs []Job, opt Options) *Model {
	unjudged := len(opt.Objectives) == 0 // no run has said yet what its best metric is
	if unjudged {
		opt.Objectives = []Objective{{Name: "objective"}}
	}
	v := &Model{Opt: opt, Unjudged: unjudged, Jobs: slices.Clone(jobs), Common: commonOverrides(jobs)}
	v.Unranked = opt.Mixed || unjudged && v.Count(func(j Job) bool { return j.State == record.StateDone }) > 0
	v.Front = v.paretoFront()
	v.sortJobs()
	v.ByNumber = slices.SortedStableFunc(slices.Values(v.Jobs), func(a, b Job) int { return cmp.Compare(a.Number, b.Number) })
	v.Dims = Swept(v.ByNumber, opt.Dimensions)
	if others := list.Filter(v.Dims, func(d Dimension) bool { return !IsSeed(d.Key) }); len(others) > 0 {
		v.Dims = others // the values of seed have no order and no meaning
	}
	v.Settings = v.settingsOf()
	return v
}

// CountLine is one paragraph of counts: jobs by state, settings, costs, objectives. elapsed is the time from the first start to the last
// end in seconds, 0 where it is not known.
func (v *Model) CountLine(name func(string) string, elapsed float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", page.Capital(page.Plural(len(v.Jobs), "job")))
	if len(v.Jobs) > 0 {
		fmt.Fprintf(&b, " in %s: %s", page.Plural(len(v.Settings), "setting"), v.States(nil))
	}
	b.WriteString(".")
	epochs, seconds, attempts := 0, 0.0, 0
	for _, j := range v.Jobs {
		epochs, seconds, attempts = epochs+j.Epochs, seconds+j.Seconds, attempts+max(j.Attempts-1, 0)
	}
	var costs []string
	if epochs > 0 {
		costs = append(costs, page.Plural(epochs, "epoch"))
	}
	if seconds > 0 {
		cost := page.Duration(seconds) + " of job time"
		if elapsed > 0 {
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
	if len(v.Jobs) == 0 || v.Unjudged || v.Opt.Mixed {
		return b.String()
	}
	judged := list.Map(v.Opt.Objectives, func(o Objective) string { return fmt.Sprintf("%s (%s is better)", name(o.Name), o.Direction()) })
	fmt.Fprintf(&b, " Judged by %s", strings.Join(judged, " and "))
	if len(v.Opt.Constraints) > 0 {
		fmt.Fprintf(&b, ", subject to %s", page.CodeList(v.Opt.Constraints))
	}
	b.WriteString(".")
	return b.String()
}

// States counts jobs by state: 28 done, 7 pruned, 3 failed. A nil want means all states.
func (v *Model) States(want func(string) bool) string {
	order := []string{record.StateDone, record.StatePruned, record.StateFailed, StateSkipped, StateLost, record.StateInterrupted,
		StateRunning, StateQueued}
	counts := list.Tally(list.Map(v.Jobs, func(j Job) string { return j.State }))
	order = list.Unique(append(order, slices.Sorted(maps.Keys(counts))...))
	var parts []string
	for _, s := range order {
		if counts[s] > 0 && (want == nil || want(s)) {
			parts = append(parts, page.Thousands(counts[s])+" "+cmp.Or(page.Plain(s), "unknown"))
		}
	}
	return strings.Join(parts, ", ")
}

// Count returns how many jobs are wanted.
func (v *Model) Count(want func(Job) bool) int { return list.Count(v.Jobs, want) }

// Own are a job's overrides that not all jobs have.
func (v *Model) Own(j Job) []string {
	return slices.DeleteFunc(slices.Clone(j.Overrides), func(o string) bool { return slices.Contains(v.Common, o) })
}

// HasSeeds says whether some setting is more than one job.
func (v *Model) HasSeeds() bool {
	return slices.ContainsFunc(v.Settings, func(s *Setting) bool { return len(s.Jobs) > 1 })
}

// Direction says which values are better.
func (o Objective) Direction() string {
	if o.Minimize {
		return "smaller"
	}
	return "larger"
}

// Compare sorts better ones first and those that are no finite number last.
func (o Objective) Compare(a, b float64) int {
	switch {
	case !Finite(a) || !Finite(b):
		return cmp.Compare(stats.BoolInt(!Finite(a)), stats.BoolInt(!Finite(b)))
	case o.Minimize:
		return cmp.Compare(a, b)
	}
	return cmp.Compare(b, a)
}

// Finite says whether x can be compared and drawn: differences of such numbers are finite too.
func Finite(x float64) bool { return math.Abs(x) < 1e305 }

// Ended says whether a job stays in its state.
func Ended(state string) bool {
	return state == record.StateDone || state == record.StateFailed || state == StateSkipped || state == record.StatePruned
}

// MaxWarned is how many jobs, and how many warnings, are named.
const MaxWarned = 20

// Warned says which jobs' summaries warn of what: "2 of 3 jobs have warnings: #0 kl_high; #2 kl_high and best is the initial policy". ""
// where none does. A job without a summary warns of nothing.
func Warned(jobs []Job, summary func(Job) *record.Summary) string {
	var parts []string
	for _, j := range jobs {
		if s := summary(j); s != nil {
			if names := record.Warned(s.Warnings, s.Findings); names != nil {
				parts = append(parts, fmt.Sprintf("#%d %s", j.Number, page.Joined(list.Map(names, page.InlineCode))))
			}
		}
	}
	n := len(parts)
	if n == 0 {
		return ""
	}
	if n > MaxWarned {
		parts = append(parts[:MaxWarned], fmt.Sprintf("and %d more", n-MaxWarned))
	}
	return fmt.Sprintf("%d of %s %s warnings: %s", n, page.Plural(len(jobs), "job"), page.Verb(n, "has", "have"), strings.Join(parts, "; "))
}
