package sweeps

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// Setting is the jobs of a sweep that differ in their seed only. In a sweep of arms it is an arm under one choice of everything else.
type Setting struct {
	Overrides  []string // that not all settings have
	Jobs       []Job
	Values     [][]float64 // [objective][job]: of those that are done with finite objectives and violate no constraint; of all where all do
	Results    int         // jobs that are done with finite objectives
	Infeasible int         // of these
}

// HasResult says whether a job ran to its end and left numbers to judge it by.
func (v *Model) HasResult(j Job) bool { return j.State == record.StateDone && v.Measured(j) }

// Measured says whether a job left numbers, be it at its end or where it was stopped.
func (v *Model) Measured(j Job) bool {
	n := len(v.Opt.Objectives)
	if v.Opt.Mixed {
		return slices.ContainsFunc(j.Objectives, Finite)
	}
	return len(j.Objectives) >= n && !slices.ContainsFunc(j.Objectives[:n], func(x float64) bool { return !Finite(x) })
}

// Violates says whether a job's result violates the constraints.
func Violates(j Job) bool { return j.Violation > 0 || math.IsNaN(j.Violation) }

// Infeasible says whether a job has a result that violates the constraints.
func (v *Model) Infeasible(j Job) bool { return v.HasResult(j) && Violates(j) }

// Feasible says whether a job has a result that counts.
func (v *Model) Feasible(j Job) bool { return v.HasResult(j) && !Violates(j) }

// class is the order of jobs in tables: results, results that violate a constraint, pruned ones, and
// those without a result.
func (v *Model) class(j Job) int {
	switch {
	case v.Feasible(j):
		return 0
	case v.Infeasible(j):
		return 1
	}
	states := []string{record.StatePruned, record.StateDone, StateRunning, record.StateInterrupted, StateQueued, StateLost}
	if i := slices.Index(states, j.State); i >= 0 {
		return 2 + i
	}
	return 2 + len(states) // failed
}

// sortJobs puts the best job first. With several objectives those of the front come first, and the
// first objective decides.
func (v *Model) sortJobs() {
	slices.SortStableFunc(v.Jobs, func(a, b Job) int {
		class := v.class(a)
		if c := cmp.Or(cmp.Compare(class, v.class(b)), cmp.Compare(stats.BoolInt(v.Front[b.Number]),
			stats.BoolInt(v.Front[a.Number]))); c != 0 {
			return c
		}
		if class == 1 && a.Violation != b.Violation {
			return Objective{Minimize: true}.Compare(a.Violation, b.Violation)
		}
		if v.Unranked {
			return cmp.Compare(a.Number, b.Number)
		}
		return cmp.Or(v.Opt.Objectives[0].Compare(firstOf(a), firstOf(b)), cmp.Compare(a.Number, b.Number))
	})
}

func firstOf(j Job) float64 {
	if len(j.Objectives) == 0 {
		return math.NaN()
	}
	return j.Objectives[0]
}

// leaders are the feasible jobs with the best objective: several where it is the same to the last bit.
func (v *Model) leaders() []Job {
	n := 0
	for !v.Unranked && n < len(v.Jobs) && v.Feasible(v.Jobs[n]) && v.Jobs[n].Objectives[0] == v.Jobs[0].Objectives[0] {
		n++
	}
	return v.Jobs[:n]
}

// Best is the feasible job with the best objective, nil when there is none, or none alone, or when its policy is the one
// that it began with.
func (v *Model) Best() *Job {
	if leaders := v.leaders(); len(leaders) == 1 && !v.Untrained(leaders[0]) {
		return &leaders[0]
	}
	return nil
}

// Leading is the best job or, where jobs repeat settings with other seeds, one of the best setting's; nil where nothing is the best.
func (v *Model) Leading() *Job {
	if !v.HasSeeds() {
		return v.Best()
	}
	if v.Tied() == 1 {
		jobs := v.Settings[0].Jobs
		if i := slices.IndexFunc(jobs, func(j Job) bool { return v.Feasible(j) && !v.Untrained(j) }); i >= 0 {
			return &jobs[i]
		}
	}
	return nil
}

// Untrained says whether a job's objective is what the policy scores that it began with.
func (v *Model) Untrained(j Job) bool {
	name := v.Opt.Objectives[0].Name
	return j.Untrained && (strings.HasPrefix(name, "val_") || strings.HasPrefix(name, "eval."))
}

// NoWinner says in a sentence why none of the leading jobs is the best one; "" where one is, or nobody leads.
func (v *Model) NoWinner() string {
	if v.Opt.Mixed {
		all := v.Opt.Objectives
		by := all[max(slices.IndexFunc(all, func(o Objective) bool { return !o.Minimize }), 0)] // losses may be of several kinds
		return fmt.Sprintf("the jobs are not ranked: their own metrics are %s, which do not compare; hydra.sweeper.objective=%s judges all "+
			"by one, also in a resume", page.Joined(list.Map(all, func(o Objective) string { return o.Name })), by.Name)
	}
	leaders := v.leaders()
	if len(leaders) == 0 || v.Best() != nil {
		return ""
	}
	untrained := list.Count(leaders, v.Untrained)
	value := v.Opt.Objectives[0].Name + " " + page.Sig(leaders[0].Objectives[0], 4)
	who := fmt.Sprintf("job %d has", leaders[0].Number)
	if n := len(leaders); n > 1 {
		who = fmt.Sprintf("%s (%s) share", page.Plural(n, "job"), JobNumbers(leaders))
	}
	switch {
	case untrained == len(leaders):
		return fmt.Sprintf("%s the best %s, with the policy that training began with: nothing that was trained does better", who, value)
	case untrained > 0:
		return fmt.Sprintf("%s the best %s, some with the policy that training began with: they are equal", who, value)
	}
	return fmt.Sprintf("%s the best %s: they are equal", who, value)
}

// Tied is how many settings share the best mean of the first objective; 0 where none has a result that counts.
func (v *Model) Tied() (n int) {
	if v.Unranked {
		return 0
	}
	for n < len(v.Settings) && v.Settings[n].Class() == 0 && stat.Mean(v.Settings[n].Values[0]) == stat.Mean(v.Settings[0].Values[0]) {
		n++
	}
	return n
}

// Lead says in a few words what leads a sweep: a job or, where jobs differ in their seed, a setting; with several objectives how many jobs,
// and of equals that they are; of a study what its report answers. "" where nothing does.
func (v *Model) Lead() string {
	o, tied := v.Opt.Objectives[0], v.Tied()
	head, how := v.place()
	switch best := v.Best(); {
	case v.Opt.Study != nil:
		told := list.Map(v.Opt.Told, func(t Told) string { return t.Label + ": " + t.Text + ", " + cmp.Or(t.Words, t.Verdict) })
		return strings.ReplaceAll(strings.Join(told, "; "), ": 0, ", ": ")
	case v.Opt.Mixed:
		return "no winner: " + v.NoWinner()
	case v.Unranked || tied == 0:
		return ""
	case len(v.Opt.Objectives) > 1:
		return "Pareto front: " + page.Plural(len(v.Front), "job")
	case !v.HasSeeds() && best != nil:
		return fmt.Sprintf("%s: job %d, %s %s  %s%s", head, best.Number, o.Name, page.Sig(best.Objectives[0], 4),
			page.ShellCommand(v.Own(*best)), how)
	case !v.HasSeeds():
		return "no winner: " + v.NoWinner()
	}
	s := v.Settings[0]
	mean := fmt.Sprintf("mean %s %s", o.Name, page.Sig(stat.Mean(s.Values[0]), 4))
	switch {
	case tied > 1:
		return fmt.Sprintf("%s share the best %s: they are equal", page.Plural(tied, "setting"), mean)
	case v.Leading() == nil:
		return fmt.Sprintf("the best %s is that of the policy that training began with", mean)
	}
	mean = fmt.Sprintf("%s, %s over %s", cmp.Or(strings.Join(s.Overrides, " "), "of all"), mean, page.Plural(len(s.Values[0]), "seed"))
	if len(v.Settings) == 1 || v.Settings[1].Class() != 0 { // nothing to be better than
		return page.Verb(len(v.Settings), "one setting ", "only setting with a result that counts: ") + mean
	}
	return head + " setting " + mean + how
}

// place calls what leads the best or, where the verdicts of a report of this ranking do not, the first, with what they say. Without
// verdicts a job is the best that was tried, and of settings their seeds decide.
func (v *Model) place() (head, how string) {
	by, apart, seeded, others := "by the verdicts it is better than", 0, 0, len(v.Opt.Told)
	for i, t := range v.Opt.Told {
		if i+1 >= len(v.Settings) || t.Label != strings.ReplaceAll(page.CodeList(v.Settings[i+1].Overrides), "`", "") {
			apart, others = 0, 0
			break
		}
		apart += stats.BoolInt(t.Verdict == string(stats.Worse))
	}
	if others == 0 && v.HasSeeds() {
		by = "their spread separates it from"
		if apart, seeded, others = v.Apart(); seeded == 0 {
			return "first", "; without more seeds nobody knows its luck"
		}
	}
	if apart < others {
		return "first", fmt.Sprintf("; %s %d of %s", by, apart, page.Plural(others, "other"))
	}
	if others == 0 && len(v.Opt.Told) > 0 { // verdicts of another ranking, or of some of this one: nobody knows
		return "first", ""
	}
	return "best", ""
}

// Apart says from how many of the other settings with results the first one is separate by the spread of the seeds, and how many have
// several seeds, as it has: only these can be.
func (v *Model) Apart() (apart, seeded, others int) {
	best := v.Settings[0].Values[0]
	for _, s := range v.Settings[1:] {
		if s.Class() != 0 {
			continue
		}
		others++
		if len(best) > 1 && len(s.Values[0]) > 1 {
			seeded++
			apart += stats.BoolInt(math.Abs(stat.Mean(best)-stat.Mean(s.Values[0])) > welchMargin(best, s.Values[0]))
		}
	}
	return apart, seeded, others
}

// welchMargin is how far apart the means of two settings' seeds may lie by chance in 95 % of cases: Student's t with the degrees of
// freedom of Welch (1947). Two seeds each have one or two, so that it is 4 to 13 standard errors.
func welchMargin(a, b []float64) float64 {
	_, x := stat.MeanSE(a)
	_, y := stat.MeanSE(b)
	if x+y == 0 {
		return 0
	}
	u, w := x*x, y*y
	freedom := (u + w) * (u + w) / (u*u/float64(len(a)-1) + w*w/float64(len(b)-1))
	return distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile(0.975) * math.Sqrt(u+w)
}

// JobNumbers lists the numbers of the first jobs.
func JobNumbers(jobs []Job) string {
	numbers := list.Map(jobs[:min(len(jobs), 10)], func(j Job) string { return fmt.Sprint(j.Number) })
	if len(numbers) < len(jobs) {
		numbers = append(numbers, "…")
	}
	return strings.Join(numbers, ", ")
}

// paretoFront returns the numbers of the feasible jobs that no other dominates: none is at least as
// good in every objective and better in one. With one objective these are the best job and its equals.
func (v *Model) paretoFront() map[int]bool {
	results := slices.DeleteFunc(slices.Clone(v.Jobs), func(j Job) bool { return v.Unranked || !v.Feasible(j) })
	front := map[int]bool{}
	for _, j := range results {
		if !slices.ContainsFunc(results, func(other Job) bool { return v.dominates(other, j) }) {
			front[j.Number] = true
		}
	}
	return front
}

func (v *Model) dominates(a, b Job) (better bool) {
	for i, o := range v.Opt.Objectives {
		switch o.Compare(a.Objectives[i], b.Objectives[i]) {
		case 1:
			return false
		case -1:
			better = true
		}
	}
	return better
}

// Swept returns the swept keys: dims, or where there are none the keys of the jobs' Params, in the
// order of the overrides that set them.
func Swept(jobs []Job, dims []Dimension) []Dimension {
	if len(dims) > 0 {
		return dims
	}
	for _, j := range jobs {
		var keys []string
		for _, o := range j.Overrides {
			key, _, _ := strings.Cut(o, "=")
			if _, ok := j.Params[key]; ok {
				keys = append(keys, key)
			}
		}
		for _, key := range slices.Concat(keys, slices.Sorted(maps.Keys(j.Params))) {
			if !slices.ContainsFunc(dims, func(d Dimension) bool { return d.Key == key }) {
				dims = append(dims, Dimension{Key: key})
			}
		}
	}
	return dims
}

// IsSeed says whether an override or a key is that of the seed.
func IsSeed(override string) bool {
	key, _, _ := strings.Cut(strings.TrimLeft(override, "+"), "=")
	return key == "seed"
}

// commonOverrides are those that every job of several has.
func commonOverrides(jobs []Job) []string {
	if len(jobs) < 2 {
		return nil
	}
	count := list.Tally(slices.Concat(list.Map(jobs, func(j Job) []string { return j.Overrides })...))
	return slices.DeleteFunc(slices.Clone(jobs[0].Overrides), func(o string) bool { return count[o] < len(jobs) })
}

// settingsOf groups jobs by their overrides without the seed, best mean objective first; settings
// whose results all violate the constraints come behind, those without results last. Arms stay in their order.
func (v *Model) settingsOf() []*Setting {
	overrides := func(j Job) []string { return slices.DeleteFunc(v.Own(j), IsSeed) }
	var settings []*Setting
	for _, jobs := range stats.GroupBy(v.ByNumber, func(j Job) string { return strings.Join(overrides(j), "\x00") }) {
		jobs = v.Distinct(jobs)
		s := &Setting{Overrides: overrides(jobs[0]), Jobs: jobs, Values: make([][]float64, len(v.Opt.Objectives)),
			Results: list.Count(jobs, v.HasResult), Infeasible: list.Count(jobs, v.Infeasible)}
		for _, j := range jobs {
			if !v.HasResult(j) || Violates(j) && s.Infeasible < s.Results {
				continue
			}
			for i := range s.Values {
				if !v.Opt.Mixed || Finite(j.Objectives[i]) {
					s.Values[i] = append(s.Values[i], j.Objectives[i])
				}
			}
		}
		settings = append(settings, s)
	}
	if v.Opt.Study != nil || v.Unranked {
		return settings
	}
	slices.SortStableFunc(settings, func(a, b *Setting) int {
		return cmp.Or(cmp.Compare(a.Class(), b.Class()), v.Opt.Objectives[0].Compare(stat.Mean(a.Values[0]), stat.Mean(b.Values[0])))
	})
	return settings
}

// Distinct takes one job of each seed of a setting, the first with a result: another is no further draw.
func (v *Model) Distinct(jobs []Job) []Job {
	seeds := stats.GroupBy(jobs, func(j Job) string { return strings.Join(v.Own(j), "\x00") })
	return list.Map(seeds, func(same []Job) Job { return same[max(slices.IndexFunc(same, v.HasResult), 0)] })
}

// Class is the order of settings in tables: results, results that all violate a constraint, none.
func (s *Setting) Class() int {
	switch s.Results {
	case 0:
		return 2
	case s.Infeasible:
		return 1
	}
	return 0
}

// SeedSD is the standard deviation over seeds within a setting, pooled over settings; NaN when no
// setting has two results.
func (v *Model) SeedSD() float64 {
	squares, freedom := 0.0, 0
	for _, s := range v.Settings {
		if x := s.Values[0]; len(x) > 1 {
			sd := stat.SD(x)
			squares, freedom = squares+sd*sd*float64(len(x)-1), freedom+len(x)-1
		}
	}
	if freedom == 0 {
		return math.NaN()
	}
	return math.Sqrt(squares / float64(freedom))
}
