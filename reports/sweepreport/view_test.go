package sweepreport

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/list"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/chart"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweeps"
)

// A sweep whose jobs left run folders: its verdicts come from their evaluations.
func TestSweepReport(t *testing.T) {
	dir := t.TempDir()
	var jobs []sweeps.Job
	for i, gain := range []float64{0.01, 0.02, 0.05, 0.06} {
		job := sweeps.Job{Number: i, Dir: filepath.Join(dir, string(rune('0'+i))), State: record.StateDone,
			Overrides: []string{"exp=okvqa_v3", "grpo.lr=" + []string{"1e-5", "1e-4"}[i/2], "seed=" + string(rune('0'+i%2))}}
		reportstest.SweepRun(t, job.Dir, uint64(i), gain, fmt.Sprintf("seed: %d\n", i%2))
		scoreAccuracy(t, job.Dir)
		reportstest.Must(t, os.WriteFile(page.ReportPath(job.Dir), nil, 0o644))
		job.Objectives = []float64{0.08 + gain}
		if i > 1 { // warnings of checks, and in the last job one of none
			summary, err := record.ReadSummary(job.Dir)
			reportstest.Must(t, err)
			summary.Findings = []record.Finding{{Check: "kl_high", Severity: "warning", Message: "KL is 3"},
				{Check: "slow", Severity: "note"}, {Check: "ratio_clipped", Severity: "warning", Message: "many ratios are clipped"},
				{Check: "kl_high", Severity: "warning", Message: "KL is 4"}}[:2*i-2]
			summary.Warnings = []string{"first", "second", "third", "fourth"}[:3*i-5]
			reportstest.Must(t, results.WriteSummary(job.Dir, *summary))
		}
		job.Command = append([]string{"bin/run"}, job.Overrides...)
		jobs = append(jobs, job)
	}
	jobs = append(jobs, sweeps.Job{Number: 4, Dir: filepath.Join(dir, "4"), State: record.StateFailed,
		Overrides: []string{"exp=okvqa_v3", "grpo.lr=10", "seed=0"}, ExitCode: 1, Cause: "grpo epoch 1 step 2: loss is nan"})
	reportstest.Must(t, WriteReport(dir, jobs, sweeps.Options{Title: "okvqa_v3 sweep", Objectives: []sweeps.Objective{{Name: "val_reward"}},
		Command: []string{"bin/run", "-m", "grpo.lr=1e-5,1e-4,10", "seed=0,1"}}))
	golden.File(t, "testdata/sweep.md", []byte(strings.ReplaceAll(reportstest.ReadReport(t, dir), dir, "DIR")))

	reportstest.Must(t, os.WriteFile(filepath.Join(jobs[1].Dir, record.SummaryFile), []byte("{"), 0o644))
	reportstest.Must(t, WriteReport(dir, jobs, sweeps.Options{Objectives: []sweeps.Objective{{Name: "val_loss", Minimize: true}}}))
	got := reportstest.ReadReport(t, dir)
	for _, want := range []string{"**What leads.** First setting grpo.lr=1e-5, mean val_loss", "## Not in this report", "job 1: "} {
		if !strings.Contains(got, want) {
			t.Errorf("minimising, with a damaged summary: no %q in\n%s", want, got)
		}
	}
}

// Figures for a paper lose no setting in silence: those with one seed are drawn beside those with several, what has no room is named, and
// differences say from which setting they are.
func TestPaperFigures(t *testing.T) {
	dir := t.TempDir()
	var jobs []sweeps.Job
	for i, lr := range []int{1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9} { // those from the third on have one seed
		seed := i % 2
		job := sweeps.Job{Number: i, Dir: filepath.Join(dir, fmt.Sprint(i)), State: record.StateDone, Objectives: []float64{1 - float64(lr)/100},
			Overrides: []string{fmt.Sprintf("grpo.lr=%d", lr), fmt.Sprintf("seed=%d", seed)}}
		reportstest.SweepRun(t, job.Dir, uint64(i), 0.1-float64(lr)/100, fmt.Sprintf("seed: %d\ngrpo: {lr: %d}\n", seed, lr))
		reportstest.Must(t, os.WriteFile(filepath.Join(job.Dir, record.MetricsFile), fmt.Appendf(nil, `{"kind":"epoch","phase":"grpo",`+
			`"epoch":1,"step":9,"global_step":9,"time":1,"val_reward":0.%d}`+"\n", 9-i%9), 0o644))
		jobs = append(jobs, job)
	}
	figures := PageOf(dir, jobs, sweeps.Options{Objectives: []sweeps.Objective{{Name: "val_reward"}}}).PaperFigures(chart.Paper{})
	reportstest.Must(t, chart.Paper{}.Write(dir, figures))
	for i, want := range []struct{ name, omits, texts string }{
		{"settings", "lr=7; lr=8; lr=9", "lr=1 lr=2 lr=3 lr=4 lr=5 lr=6"},
		{"differences", "", "minus_lr=1 lr=2 lr=9 worse single_seeds"}} {
		svg, err := os.ReadFile(filepath.Join(dir, want.name+".svg"))
		reportstest.Must(t, err)
		if f := figures[i]; f.Name != want.name || f.Omits != want.omits {
			t.Errorf("%s leaves out %q, want %s and %q", f.Name, f.Omits, want.name, want.omits)
		}
		for _, text := range strings.Fields(want.texts) {
			if !strings.Contains(string(svg), ">"+strings.ReplaceAll(text, "_", " ")+"<") {
				t.Errorf("%s lacks %s", want.name, text)
			}
		}
	}
}

// scoreAccuracy adds to a run's rewards the accuracies of the same answers.
func scoreAccuracy(t *testing.T, dir string) {
	t.Helper()
	run, err := record.ReadRun(dir)
	reportstest.Must(t, err)
	for _, e := range run.Evaluations {
		e.Metric, e.Scores = "accuracy", list.Map(e.Scores, func(x float64) float64 { return float64(stats.BoolInt(x > 0.6)) })
		reportstest.Must(t, record.AppendEvals(dir, e))
	}
}

// No winner is named among jobs whose best policy is the one that they began with, nor among equal ones: not in the
// report, on the console or in optimization_results.yaml.
func TestSweepNamesNoWinnerWithoutOne(t *testing.T) {
	job := func(number int, value float64, untrained bool) sweeps.Job {
		return sweeps.Job{Number: number, State: record.StateDone, Overrides: []string{"lr=1e-" + string(rune('1'+number))},
			Params: map[string]string{"lr": "1e-" + string(rune('1'+number))}, Objectives: []float64{value}, Untrained: untrained}
	}
	for _, tc := range []struct {
		name      string
		objective string
		jobs      []sweeps.Job
		want      string // "": there is a winner
	}{
		{"a trained one", "val_reward", []sweeps.Job{job(0, 0.5, false), job(1, 0.4, true)}, ""},
		{"all untrained", "val_reward", []sweeps.Job{job(0, 0.5, true), job(1, 0.5, true)},
			"2 jobs (0, 1) share the best val_reward 0.5000, with the policy that training began with: nothing that was trained does " +
				"better"},
		{"the best is untrained", "val_reward", []sweeps.Job{job(0, 0.5, true), job(1, 0.4, false)},
			"job 0 has the best val_reward 0.5000, with the policy that training began with: nothing that was trained does better"},
		{"equal ones", "val_reward", []sweeps.Job{job(0, 0.5, false), job(1, 0.5, false), job(2, 0.1, false)},
			"2 jobs (0, 1) share the best val_reward 0.5000: they are equal"},
		{"equal ones, one of them trained", "val_reward", []sweeps.Job{job(0, 0.5, false), job(1, 0.5, true)},
			"2 jobs (0, 1) share the best val_reward 0.5000, some with the policy that training began with: they are equal"},
		{"seconds are no policy's", "seconds", []sweeps.Job{job(0, 5, true), job(1, 4, true)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			opt := sweeps.Options{Objectives: []sweeps.Objective{{Name: tc.objective}}, Sweeper: "tpe"}
			reportstest.Must(t, os.WriteFile(filepath.Join(dir, resultsFile), []byte("of an earlier look"), 0o644))
			reportstest.Must(t, WriteOptimizationResults(dir, tc.jobs, opt))
			_, err := os.Stat(filepath.Join(dir, resultsFile))
			if (err == nil) != (tc.want == "") {
				t.Errorf("optimization_results.yaml: %v", err)
			}
			reportstest.Must(t, WriteReport(dir, tc.jobs, opt))
			report, table := reportstest.ReadReport(t, dir), sweeps.Table(tc.jobs, opt, 0)
			if tc.want == "" {
				if !strings.Contains(report, "**What leads.** Best: job 0, ") || !strings.Contains(table, "\nbest: job 0,") {
					t.Errorf("no winner in\n%s\n%s", report, table)
				}
				return
			}
			if strings.Contains(report, "**What leads.**") ||
				!strings.Contains(report, "**No winner.** "+page.Capital(tc.want)+".") ||
				!strings.Contains(table, "\nno winner: "+tc.want+"\n") || strings.Contains(table, "\nbest:") {
				t.Errorf("want %q in\n%s\n%s", tc.want, report, table)
			}
		})
	}
}

// A job that repeats another is no further seed.
func TestRepeatedJobsCountOnce(t *testing.T) {
	var jobs []sweeps.Job
	for i, seed := range []string{"0", "0", "0", "1", "1"} {
		jobs = append(jobs, sweeps.Job{Number: i, State: record.StateDone, Overrides: []string{"rce.lr=1e-3", "seed=" + seed},
			Objectives: []float64{float64(seed[0])}})
	}
	jobs[0].State = record.StateFailed
	s := newView("", jobs, sweeps.Options{Objectives: []sweeps.Objective{{Name: "val_reward"}}}).settings[0]
	if len(s.Jobs) != 2 || s.Jobs[0].Number != 1 || s.Jobs[1].Number != 3 || len(s.Values[0]) != 2 {
		t.Errorf("jobs %+v with the values %v, want one result of each seed", s.Jobs, s.Values)
	}
}

// A result that violates a constraint counts in its setting's mean only where all do.
func TestMeansOfSettingsAreOfFeasibleJobs(t *testing.T) {
	var jobs []sweeps.Job
	for i, value := range []float64{0.5, 0.9, 0.4, 0.6} {
		jobs = append(jobs, sweeps.Job{Number: i, State: record.StateDone, Objectives: []float64{value},
			Overrides: []string{fmt.Sprintf("rce.lr=1e-%d", 3+i/2), fmt.Sprintf("seed=%d", i%2)}, Violation: []float64{0, 1, 1, 1}[i]})
	}
	v := newView("", jobs, sweeps.Options{Objectives: []sweeps.Objective{{Name: "val_reward"}}})
	for i, want := range []string{"[0.5] 2 1 0", "[0.4 0.6] 2 2 1"} {
		s := v.settings[i]
		if got := fmt.Sprint(s.Values[0], s.Results, s.Infeasible, s.Class()); got != want {
			t.Errorf("%s: values, results, infeasible and class %s, want %s", s.label(), got, want)
		}
	}
}

// Seeds that differ by no digit that is shown have no deviation.
func TestMeanOverSeeds(t *testing.T) {
	for want, values := range map[string][]float64{"–": nil, "0.2660": {0.266}, "0.2660 each": {0.266, 0.26600001},
		"0.27 ± 0.12": {0.35, 0.18}} {
		if got := meanSD(values); got != want {
			t.Errorf("%v are %q, want %q", values, got, want)
		}
	}
}

// A sweep that ranks its settings by the questions that it judges them on is corrected for all that the ranking compares.
func TestSweepVerdictsCountTheRanking(t *testing.T) {
	dir := t.TempDir()
	var jobs []sweeps.Job
	for i := range 12 {
		job := sweeps.Job{Number: i, Dir: filepath.Join(dir, string(rune('a'+i))), State: record.StateDone,
			Overrides: []string{"lr=" + string(rune('a'+i))}, Objectives: []float64{0.1 * float64(i)}}
		reportstest.SweepRun(t, job.Dir, uint64(i), 0.01, "seed: 1\n")
		jobs = append(jobs, job)
	}
	// 8 over similarity and 7 minus the best, or all pairs
	for objective, want := range map[string]int{"val_reward": 15, "eval.dev.best": 12*11/2 + 2*12} {
		v := newView(dir, jobs, sweeps.Options{Objectives: []sweeps.Objective{{Name: objective}}})
		v.read()
		for _, r := range v.verdicts.Rows {
			for _, c := range r.Made() {
				if c.Family != want {
					t.Fatalf("%s: corrected for %d comparisons, want %d", objective, c.Family, want)
				}
			}
		}
		var d page.Document
		v.writeVerdicts(&d)
		if text := d.B.String(); !strings.Contains(text, "corrected for the "+page.Plural(want, "comparison")) {
			t.Errorf("%s: %d comparisons are not named in\n%s", objective, want, text)
		}
	}
}

// Jobs with metrics of their own have no leader, and no spread of one metric over seeds.
func TestOwnMetricsHaveNoLuck(t *testing.T) {
	var jobs []sweeps.Job
	for i, value := range []float64{0.5, 0.6, 0.1, 0.2} {
		jobs = append(jobs, sweeps.Job{Number: i, State: record.StateDone, Objectives: []float64{value, math.NaN()},
			Overrides: []string{fmt.Sprintf("grpo.lr=1e-%d", 3+i/2), fmt.Sprintf("seed=%d", i%2)}})
	}
	objectives := []sweeps.Objective{{Name: "val_reward"}, {Name: "val_loss", Minimize: true}}
	report := PageOf(t.TempDir(), jobs, sweeps.Options{Objectives: objectives, Mixed: true}).Report(nil)
	if !strings.Contains(report, "**No winner.** The jobs are not ranked") || strings.Contains(report, "Seeds alone") {
		t.Errorf("%s", report)
	}
}
