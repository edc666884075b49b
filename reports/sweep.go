package reports

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"fulcrum/internal/atomicfile"
)

// SweepJob is one run of a sweep as its controller knows it.
type SweepJob struct {
	Number    int
	Dir       string   // of the run
	Overrides []string // of this job
	State     string   // done, failed, interrupted, or another word for one that has not ended
	Objective *float64 // nil when unknown
	Error     string   // why it failed
	Command   []string // argv that repeats it
}

// SweepOptions describe the sweep as a whole.
type SweepOptions struct {
	Title     string
	Objective string   // what the jobs are judged by
	Minimize  bool     // a smaller objective is better
	Command   []string // argv of the sweep
}

// setting is the jobs of a sweep that differ in their seed only.
type setting struct {
	overrides []string
	jobs      []SweepJob
	values    []float64 // objectives
	gains     []float64 // over similarity on the held-out split
	better    int       // jobs whose verdict over similarity is better
}

// WriteSweepReport writes report.md of a sweep folder: settings by objective with the spread over
// seeds, every job, failures with their causes, and the best job's command.
func WriteSweepReport(dir string, jobs []SweepJob, opt SweepOptions) error {
	settings, err := settingsOf(jobs, opt)
	if err != nil {
		return err
	}
	var d document
	d.heading(1, "%s", plain(cmp.Or(opt.Title, filepath.Base(dir))))
	failed := 0
	for _, j := range jobs {
		if j.State == StateFailed {
			failed++
		}
	}
	d.paragraph("%s in %s, %d failed. Judged by %s (%s is better).", capital(plural(len(jobs), "job")), plural(len(settings), "setting"), failed, plain(opt.Objective), direction(opt))
	if len(opt.Command) > 0 {
		d.paragraph("To repeat the sweep:")
		d.code(shellCommand(opt.Command))
	}
	if best := bestJob(jobs, opt); best != nil {
		d.paragraph("**Best job.** Number %d with %s %s (%s).", best.Number, plain(opt.Objective), sig(*best.Objective, 4), codeList(best.Overrides))
		if len(best.Command) > 0 {
			d.code(shellCommand(best.Command))
		}
	}
	sweepSettings(&d, settings, opt)
	sweepJobs(&d, dir, jobs, opt)
	d.heading(2, "How to read this")
	d.list("The best of several jobs is a little lucky: its number is the largest of several noisy ones. Run the best setting with new seeds before relying on it.",
		"± is the standard deviation over seeds; the intervals in each job's report are over questions.")
	return atomicfile.Write(filepath.Join(dir, reportFile), []byte(strings.TrimRight(d.b.String(), "\n")+"\n"), 0o644)
}

func direction(opt SweepOptions) string {
	if opt.Minimize {
		return "smaller"
	}
	return "larger"
}

// settingsOf groups jobs by their overrides without the seed, best mean objective first.
func settingsOf(jobs []SweepJob, opt SweepOptions) ([]*setting, error) {
	var settings []*setting
	index := map[string]*setting{}
	common := commonOverrides(jobs)
	for _, j := range jobs {
		overrides := slices.DeleteFunc(slices.Clone(j.Overrides), func(o string) bool {
			return strings.HasPrefix(strings.TrimLeft(o, "+"), "seed=") || slices.Contains(common, o)
		})
		key := strings.Join(overrides, "\x00")
		s := index[key]
		if s == nil {
			s = &setting{overrides: overrides}
			index[key] = s
			settings = append(settings, s)
		}
		s.jobs = append(s.jobs, j)
		if j.Objective != nil {
			s.values = append(s.values, *j.Objective)
		}
		summary, err := ReadSummary(j.Dir)
		if err != nil {
			return nil, err
		}
		if summary == nil {
			continue
		}
		if r := plannedResult(summary.Evaluations); r != nil && r.OverSimilarity != nil {
			s.gains = append(s.gains, r.OverSimilarity.Mean)
			if r.OverSimilarity.Verdict == Better {
				s.better++
			}
		}
	}
	slices.SortStableFunc(settings, func(a, b *setting) int {
		return compareObjectives(meanOf(a.values), meanOf(b.values), opt.Minimize)
	})
	return settings, nil
}

// compareObjectives sorts better ones first and unknown ones last.
func compareObjectives(a, b float64, minimize bool) int {
	switch {
	case math.IsNaN(a) || math.IsNaN(b):
		return cmp.Compare(boolInt(math.IsNaN(a)), boolInt(math.IsNaN(b)))
	case minimize:
		return cmp.Compare(a, b)
	}
	return cmp.Compare(b, a)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func meanOf(x []float64) float64 { m, _ := meanSE(x); return m }

// commonOverrides are those that every job of several has.
func commonOverrides(jobs []SweepJob) []string {
	if len(jobs) < 2 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(jobs[0].Overrides), func(o string) bool {
		return slices.ContainsFunc(jobs, func(j SweepJob) bool { return !slices.Contains(j.Overrides, o) })
	})
}

func bestJob(jobs []SweepJob, opt SweepOptions) *SweepJob {
	var best *SweepJob
	for i, j := range jobs {
		if j.Objective == nil || math.IsNaN(*j.Objective) {
			continue
		}
		if best == nil || compareObjectives(*j.Objective, *best.Objective, opt.Minimize) < 0 {
			best = &jobs[i]
		}
	}
	return best
}

func sweepSettings(d *document, settings []*setting, opt SweepOptions) {
	d.heading(2, "Settings")
	var rows [][]string
	for _, s := range settings {
		verdict := "–"
		if len(s.gains) > 0 {
			verdict = fmt.Sprintf("better in %d of %d", s.better, len(s.gains))
		}
		rows = append(rows, []string{codeList(s.overrides), fmt.Sprintf("%d/%d", len(s.values), len(s.jobs)), meanSD(s.values, sig4), meanSD(s.gains, func(x float64) string { return fixed(x, 4) }), verdict})
	}
	d.table([]string{"setting", ">jobs with a result", ">" + plain(opt.Objective) + " (mean ± sd)", ">gain over similarity (mean ± sd)", "per-seed verdict"}, rows)
}

// meanSD writes the mean and the spread over seeds.
func meanSD(x []float64, format func(float64) string) string {
	if len(x) == 0 {
		return "–"
	}
	mean, se := meanSE(x)
	if len(x) == 1 {
		return format(mean)
	}
	return fmt.Sprintf("%s ± %s", format(mean), sig(se*math.Sqrt(float64(len(x))), 2))
}

func sweepJobs(d *document, dir string, jobs []SweepJob, opt SweepOptions) {
	d.heading(2, "Jobs")
	sorted := slices.Clone(jobs)
	value := func(j SweepJob) float64 {
		if j.Objective == nil {
			return math.NaN()
		}
		return *j.Objective
	}
	slices.SortStableFunc(sorted, func(a, b SweepJob) int {
		return cmp.Or(compareObjectives(value(a), value(b), opt.Minimize), cmp.Compare(a.Number, b.Number))
	})
	var rows [][]string
	var failures []string
	for _, j := range sorted {
		objective := "–"
		if j.Objective != nil {
			objective = sig(*j.Objective, 4)
		}
		link := filepath.ToSlash(j.Dir)
		if rel, err := filepath.Rel(dir, j.Dir); err == nil {
			link = filepath.ToSlash(rel)
		}
		rows = append(rows, []string{fmt.Sprintf("[%d](%s/%s)", j.Number, link, reportFile), codeList(j.Overrides), plain(j.State), objective})
		if j.Error != "" {
			failures = append(failures, fmt.Sprintf("job %d (%s): %s", j.Number, codeList(j.Overrides), plain(j.Error)))
		}
	}
	d.table([]string{">job", "overrides", "state", ">" + plain(opt.Objective)}, rows)
	if len(failures) > 0 {
		d.heading(2, "Failures")
		d.list(failures...)
	}
}

func codeList(overrides []string) string {
	if len(overrides) == 0 {
		return "as configured"
	}
	return "`" + strings.Join(overrides, "` `") + "`"
}
