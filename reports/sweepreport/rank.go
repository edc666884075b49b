package sweepreport

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"fulcrum/internal/stat"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/runreport"
	"fulcrum/reports/stats"
)

// setting is the jobs of a sweep that differ in their seed only. In a sweep of arms it is an arm under one choice of everything else.
type setting struct {
	overrides  []string
	jobs       []Job
	values     [][]float64   // [objective][job]: of those that are done with finite objectives
	infeasible int           // of these
	runs       []*record.Run // by seed: of the jobs that count, where the setting is compared; else nil

	arm       *StudyArm // nil: the sweep has no arms
	from      *setting  // the arm whose runs its own start from; nil: fresh weights
	condition *condition
}

// hasResult says whether a job ran to its end and left numbers to judge it by.
func (v *View) hasResult(j Job) bool { return j.State == record.StateDone && v.measured(j) }

// measured says whether a job left numbers, be it at its end or where it was stopped.
func (v *View) measured(j Job) bool {
	n := len(v.opt.Objectives)
	return len(j.Objectives) >= n && !slices.ContainsFunc(j.Objectives[:n], func(x float64) bool { return !finite(x) })
}

func violates(j Job) bool { return j.Violation > 0 || math.IsNaN(j.Violation) }

// infeasible says whether a job has a result that violates the constraints.
func (v *View) infeasible(j Job) bool { return v.hasResult(j) && violates(j) }

// feasible says whether a job has a result that counts.
func (v *View) feasible(j Job) bool { return v.hasResult(j) && !violates(j) }

// class is the order of jobs in tables: results, results that violate a constraint, pruned ones, and
// those without a result.
func (v *View) class(j Job) int {
	switch {
	case v.feasible(j):
		return 0
	case v.infeasible(j):
		return 1
	}
	states := []string{record.StatePruned, record.StateDone, stateRunning, record.StateInterrupted, stateQueued, stateLost}
	if i := slices.Index(states, j.State); i >= 0 {
		return 2 + i
	}
	return 2 + len(states) // failed
}

// sortJobs puts the best job first. With several objectives those of the front come first, and the
// first objective decides.
func (v *View) sortJobs() {
	slices.SortStableFunc(v.jobs, func(a, b Job) int {
		class := v.class(a)
		if c := cmp.Or(cmp.Compare(class, v.class(b)), cmp.Compare(stats.BoolInt(v.front[b.Number]),
			stats.BoolInt(v.front[a.Number]))); c != 0 {
			return c
		}
		if class == 1 && a.Violation != b.Violation {
			return Objective{Minimize: true}.compare(a.Violation, b.Violation)
		}
		first := v.opt.Objectives[0]
		return cmp.Or(first.compare(firstOf(a), firstOf(b)), cmp.Compare(a.Number, b.Number))
	})
}

func firstOf(j Job) float64 {
	if len(j.Objectives) == 0 {
		return math.NaN()
	}
	return j.Objectives[0]
}

// leaders are the feasible jobs with the best objective: several where it is the same to the last bit.
func (v *View) leaders() []Job {
	n := 0
	for n < len(v.jobs) && v.feasible(v.jobs[n]) && v.jobs[n].Objectives[0] == v.jobs[0].Objectives[0] {
		n++
	}
	return v.jobs[:n]
}

// best is the feasible job with the best objective, nil when there is none, or none alone, or when its policy is the one
// that it began with.
func (v *View) best() *Job {
	if leaders := v.leaders(); len(leaders) == 1 && !v.untrained(leaders[0]) {
		return &leaders[0]
	}
	return nil
}

// untrained says whether a job's objective is what the policy scores that it began with.
func (v *View) untrained(j Job) bool {
	name := v.opt.Objectives[0].Name
	return j.Untrained && (strings.HasPrefix(name, "val_") || strings.HasPrefix(name, "eval."))
}

// noWinner says in a sentence why none of the leading jobs is the best one; "" where one is, or nobody leads.
func (v *View) noWinner() string {
	leaders := v.leaders()
	if len(leaders) == 0 || v.best() != nil {
		return ""
	}
	untrained := 0
	for _, j := range leaders {
		untrained += stats.BoolInt(v.untrained(j))
	}
	value := v.opt.Objectives[0].Name + " " + page.Sig(leaders[0].Objectives[0], 4)
	who := fmt.Sprintf("job %d has", leaders[0].Number)
	if n := len(leaders); n > 1 {
		who = fmt.Sprintf("%s (%s) share", page.Plural(n, "job"), jobNumbers(leaders))
	}
	switch {
	case untrained == len(leaders):
		return fmt.Sprintf("%s the best %s, with the policy that training began with: nothing that was trained does better", who, value)
	case untrained > 0:
		return fmt.Sprintf("%s the best %s, some with the policy that training began with: they are equal", who, value)
	}
	return fmt.Sprintf("%s the best %s: they are equal", who, value)
}

// jobNumbers lists the numbers of the first jobs.
func jobNumbers(jobs []Job) string {
	var numbers []string
	for _, j := range jobs[:min(len(jobs), 2*shownFailed)] {
		numbers = append(numbers, fmt.Sprint(j.Number))
	}
	if len(numbers) < len(jobs) {
		numbers = append(numbers, "…")
	}
	return strings.Join(numbers, ", ")
}

// paretoFront returns the numbers of the feasible jobs that no other dominates: none is at least as
// good in every objective and better in one. With one objective these are the best job and its equals.
func (v *View) paretoFront() map[int]bool {
	results := slices.DeleteFunc(slices.Clone(v.jobs), func(j Job) bool { return !v.feasible(j) })
	front := map[int]bool{}
	for _, j := range results {
		if !slices.ContainsFunc(results, func(other Job) bool { return v.dominates(other, j) }) {
			front[j.Number] = true
		}
	}
	return front
}

func (v *View) dominates(a, b Job) bool {
	better := false
	for i, o := range v.opt.Objectives {
		switch o.compare(a.Objectives[i], b.Objectives[i]) {
		case 1:
			return false
		case -1:
			better = true
		}
	}
	return better
}

// swept returns the swept keys: dims, or where there are none the keys of the jobs' Params, in the
// order of the overrides that set them.
func swept(jobs []Job, dims []Dimension) []Dimension {
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

// withoutSeed leaves out seed, whose values have no order and no meaning, unless there is no other key.
func withoutSeed(dims []Dimension) []Dimension {
	others := slices.DeleteFunc(slices.Clone(dims), func(d Dimension) bool { return isSeed(d.Key) })
	if len(others) == 0 {
		return dims
	}
	return others
}

// isSeed says whether an override or a key is that of the seed.
func isSeed(override string) bool {
	key, _, _ := strings.Cut(strings.TrimLeft(override, "+"), "=")
	return key == "seed"
}

// commonOverrides are those that every job of several has.
func commonOverrides(jobs []Job) []string {
	if len(jobs) < 2 {
		return nil
	}
	count := map[string]int{}
	for _, j := range jobs {
		for _, o := range j.Overrides {
			count[o]++
		}
	}
	return slices.DeleteFunc(slices.Clone(jobs[0].Overrides), func(o string) bool { return count[o] < len(jobs) })
}

// Setting is the jobs of a sweep that differ in their seed only, and the overrides that not all settings have.
type Setting struct {
	Overrides []string
	Jobs      []Job
}

// Settings returns those of a sweep, in the order of its report: best mean objective first.
func Settings(jobs []Job, opt Options) []Setting {
	var out []Setting
	for _, s := range newView("", jobs, opt).settings {
		out = append(out, Setting{Overrides: s.overrides, Jobs: s.jobs})
	}
	return out
}

// settingsOf groups jobs by their overrides without the seed, best mean objective first; settings
// whose results all violate the constraints come behind, those without results last. Arms stay in their order.
func (v *View) settingsOf() []*setting {
	overrides := func(j Job) []string { return slices.DeleteFunc(v.own(j), isSeed) }
	var settings []*setting
	for _, jobs := range stats.GroupBy(v.byNumber, func(j Job) string { return strings.Join(overrides(j), "\x00") }) {
		jobs = v.distinct(jobs)
		s := &setting{overrides: overrides(jobs[0]), jobs: jobs, values: make([][]float64, len(v.opt.Objectives))}
		for _, j := range jobs {
			if !v.hasResult(j) {
				continue
			}
			s.infeasible += stats.BoolInt(violates(j))
			for i := range s.values {
				s.values[i] = append(s.values[i], j.Objectives[i])
			}
		}
		settings = append(settings, s)
		if v.opt.Study != nil {
			v.place(s)
		}
	}
	if v.opt.Study != nil {
		return settings
	}
	slices.SortStableFunc(settings, func(a, b *setting) int {
		return cmp.Or(cmp.Compare(a.class(), b.class()), v.opt.Objectives[0].compare(stat.Mean(a.values[0]), stat.Mean(b.values[0])))
	})
	return settings
}

// distinct takes one job of each seed of a setting, the first with a result: another is no further draw.
func (v *View) distinct(jobs []Job) []Job {
	var out []Job
	for _, same := range stats.GroupBy(jobs, func(j Job) string { return strings.Join(v.own(j), "\x00") }) {
		out = append(out, same[max(slices.IndexFunc(same, v.hasResult), 0)])
	}
	return out
}

func (s *setting) class() int {
	switch n := len(s.values[0]); {
	case n == 0:
		return 2
	case s.infeasible == n:
		return 1
	}
	return 0
}

// meanSD writes the mean and the standard deviation over seeds.
func meanSD(x []float64, format func(float64) string) string {
	switch len(x) {
	case 0:
		return "–"
	case 1:
		return format(x[0])
	}
	return fmt.Sprintf("%s ± %s", format(stat.Mean(x)), page.Sig(stat.SD(x), 2))
}

// seedSD is the standard deviation over seeds within a setting, pooled over settings; NaN when no
// setting has two results.
func (v *View) seedSD() float64 {
	squares, freedom := 0.0, 0
	for _, s := range v.settings {
		if x := s.values[0]; len(x) > 1 {
			sd := stat.SD(x)
			squares, freedom = squares+sd*sd*float64(len(x)-1), freedom+len(x)-1
		}
	}
	if freedom == 0 {
		return math.NaN()
	}
	return math.Sqrt(squares / float64(freedom))
}

// luck says how much of the best job's lead seeds alone explain.
func (v *View) luck() string {
	n := v.count(v.feasible)
	sd := v.seedSD()
	if n < 2 || !(sd > 0) {
		return ""
	}
	lead := sd * LuckOf(n)
	return fmt.Sprintf("Seeds alone spread %s by %s (standard deviation within a setting). If all %d jobs were equally good, the best "+
		"of them would still look about %s better than it is.", page.Plain(v.opt.Objectives[0].Name), page.Sig(sd, 2), n, page.Sig(lead, 2))
}

// LuckOf is the expected largest of n standard normal values (Blom 1958).
func LuckOf(n int) float64 {
	return distuv.UnitNormal.Quantile((float64(n) - 0.375) / (float64(n) + 0.25))
}

// tied says whether the first two settings have the same mean objective.
func (v *View) tied() bool {
	return len(v.settings) > 1 && v.settings[1].class() == 0 && stat.Mean(v.settings[0].values[0]) == stat.Mean(v.settings[1].values[0])
}

// bestSetting compares the settings' means, which are less a matter of luck than single jobs.
func (v *View) bestSetting() string {
	if len(v.settings) < 2 || v.settings[0].class() != 0 || len(v.settings[0].values[0]) < 2 {
		return ""
	}
	best := v.settings[0]
	if v.tied() || !slices.ContainsFunc(best.jobs, func(j Job) bool { return v.feasible(j) && !v.untrained(j) }) {
		return ""
	}
	name := page.Plain(v.opt.Objectives[0].Name)
	text := fmt.Sprintf("**Best setting.** %s with a mean %s of %s over %s.", page.CodeList(best.overrides), name,
		meanSD(best.values[0], runreport.Sig4), page.Plural(len(best.values[0]), "seed"))
	if v.verdicts != nil && len(v.verdicts.Rows) > 1 { // they count the questions too, and are corrected
		return text + " The verdicts hold it against the others."
	}
	compared, near := 0, 0
	for _, s := range v.settings[1:] {
		if s.class() != 0 || len(s.values[0]) < 2 {
			continue
		}
		compared++
		if math.Abs(stat.Mean(best.values[0])-stat.Mean(s.values[0])) <= welchMargin(best.values[0], s.values[0]) {
			near++
		}
	}
	switch {
	case compared == 0:
	case near == 0 && compared == 1:
		text += " Its lead over the other setting is beyond the spread of the seeds (Welch's t, 95%)."
	case near == 0:
		text += fmt.Sprintf(" Its lead over each of the other %d settings is beyond the spread of the seeds (Welch's t, 95%%).", compared)
	case compared == 1:
		text += " The other setting lies within the spread of the seeds (Welch's t, 95%): they do not separate the two."
	default:
		text += fmt.Sprintf(" %d of the other %d settings lie within the spread of the seeds (Welch's t, 95%%): they do not separate them.",
			near, compared)
	}
	return text
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
