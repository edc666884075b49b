package board

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
	"fulcrum/reports/stats"
	"fulcrum/reports/sweepreport"
	"fulcrum/reports/sweeps"
	"fulcrum/reports/webchart"
)

// A sweep's page says what its report says: the verdicts to the digit, no seed as the best, and of settings that share a mean that they are
// equal.
func TestSweepTellsItsReport(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "sweep")
	opt := sweeps.Options{Objectives: []sweeps.Objective{{Name: "score"}}, Sweeper: "random"}
	var jobs []sweeps.Job
	for i := range 6 { // two settings, three seeds each
		one := filepath.Join(dir, fmt.Sprint(i))
		lr := fmt.Sprintf("1e-%d", i%2+3)
		reportstest.SweepRun(t, one, uint64(i), 0.06-0.03*float64(i%2), fmt.Sprintf("task: train\nseed: %d\ngrpo: {lr: %s}\n", i/2, lr))
		jobs = append(jobs, sweeps.Job{Number: i, Dir: one, State: record.StateDone,
			Objectives: []float64{1 - 0.25*float64(i%2) + 0.01*float64(i/2)},
			Overrides:  []string{"grpo.lr=" + lr, fmt.Sprintf("seed=%d", i/2)}, Params: map[string]string{"grpo.lr": lr}})
	}
	golden.Write(t, dir, map[string]string{sweepFile: "a ledger"})
	reportstest.Must(t, sweepreport.WriteReport(dir, jobs, opt))
	verdict := regexp.MustCompile(`(?m)^- .* is worse than the best setting: .*$`).FindString(reportstest.ReadReport(t, dir))
	_, numbers, _ := strings.Cut(verdict, "setting: ")
	if len(numbers) < 20 {
		t.Fatalf("the report has no verdict: the test asks nothing:\n%s", reportstest.ReadReport(t, dir))
	}
	b := boardOf(root)
	opt.Told = sweeps.ToldIn(dir)
	b.opt.Sweep = func(string) (sweeps.Options, []sweeps.Job, error) { return opt, jobs, nil }
	b.Scan(true)
	told := func() *told {
		a, err := b.reported(idOf(dir), nil)
		reportstest.Must(t, err)
		return a
	}
	a := told()
	if !strings.Contains(a.HTML, numbers) {
		t.Errorf("no %q in\n%s", numbers, a.HTML)
	}
	if strings.Index(a.HTML, ">Verdicts<") > strings.Index(a.HTML, ">Settings<") ||
		!strings.Contains(a.HTML, "<strong>What leads.</strong> Best setting grpo.lr=1e-3, mean") {
		t.Errorf("the page does not begin with the best setting, verdicts and settings:\n%s", a.HTML)
	}
	svg := a.Figures["parameters"]
	if text := reportstest.SvgText([]byte(svg)); !strings.Contains(a.HTML, `data-plot="parameters"`) || !strings.Contains(text, "score by swept key") ||
		strings.Contains(a.HTML, "Best: job") || strings.Contains(text, "best: job") {
		t.Errorf("the figure of the keys is not there, or a seed is the best job:\n%s\n%s", a.HTML, text)
	}
	if same, err := b.reported(idOf(dir), url.Values{"since": {a.Version}}); err != nil || !same.Same || same.HTML != "" {
		t.Errorf("asked again: %+v, %v", same, err)
	}
	s, _ := b.sweep(idOf(dir))
	if want := "best setting grpo.lr=1e-3, mean score 1.010 over 3 seeds"; s.Lead != want || s.SettingOf[0] != 0 || s.SettingOf[1] != 1 ||
		s.Infeasible != nil {
		t.Errorf("the list: %q, %v, want %q; %v violate a constraint", s.Lead, s.SettingOf, want, s.Infeasible)
	}
	opt.Told = nil
	for n, want := range map[int]string{4: "mean score 1.005 over 2 seeds; their spread separates it from 0 of 1 other",
		3: "mean score 1.005 over 2 seeds; without more seeds nobody knows its luck"} {
		noisy := slices.Clone(jobs[:n])
		noisy[1].Objectives = []float64{1}
		if n == 4 {
			noisy[3].Objectives = []float64{1.001}
		}
		if got := sweeps.ModelOf(noisy, opt).Lead(); got != "first setting grpo.lr=1e-3, "+want {
			t.Errorf("of %d jobs leads: %q, want %q", n, got, want)
		}
	}
	for i := range jobs {
		jobs[i].Objectives = []float64{1}
	}
	jobs[5].Violation = 1 // of a constraint
	golden.Write(t, dir, map[string]string{sweepFile: "a longer ledger"})
	b.sweeps[idOf(dir)].read = time.Time{} // long ago
	b.Scan(true)
	if s, _ := b.sweep(idOf(dir)); !slices.Equal(s.Infeasible, []int{5}) {
		t.Errorf("%v violate a constraint, want job 5", s.Infeasible)
	}
	if a, want := told(), "2 settings share the best mean score 1.000: they are equal"; !strings.Contains(a.HTML, want) ||
		strings.Contains(a.HTML, "<strong>Best") {
		t.Errorf("no %q in\n%s", want, a.HTML)
	}
	jobs = jobs[:2]
	if a, want := told(), "2 jobs (0, 1) share the best score 1.000: they are equal"; !strings.Contains(a.HTML, want) {
		t.Errorf("no %q in\n%s", want, a.HTML)
	}
}

// The list says of a study what its report answers: the differences as its page has them.
func TestListTellsAnswersOfAStudy(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "study")
	differences := func(rows ...results.Difference) any {
		return map[string]any{"differences": results.Differences{Rows: rows}}
	}
	one := results.Difference{Label: "1  x=<b> − slow_one", Text: "+0.10 [+0.07, +0.14]", Verdict: stats.Better, Words: "better †"}
	old := results.Difference{Label: "old", Text: "+0.1 [+0.0, +0.2]", Verdict: stats.Worse} // of a report without words
	for want, data := range map[string]any{"": map[string]any{"runs": 3},
		"old: +0.1 [+0.0, +0.2], worse":                       differences(old),
		"1  x=<b> − slow_one: +0.10 [+0.07, +0.14], better †": differences(one),
		"1  x=<b> − slow_one: +0.10 [+0.07, +0.14], better †; 2  c − a: same scores": differences(one,
			results.Difference{Label: "2  c − a", Text: "0", Verdict: stats.NotSeparable, Words: "same scores"})} {
		more, err := webchart.Lively(data)
		reportstest.Must(t, err)
		golden.Write(t, dir, map[string]string{sweepFile: "a ledger"})
		reportstest.Must(t, page.WriteLively(dir, "# Study\n", more))
		opt := sweeps.Options{Objectives: []sweeps.Objective{{Name: "score"}}, Sweeper: "study", Told: sweeps.ToldIn(dir),
			Study: &sweeps.Study{Questions: make([]sweeps.StudyQuestion, 2)}}
		b := boardOf(root)
		b.opt.Sweep = func(string) (sweeps.Options, []sweeps.Job, error) { return opt, nil, nil }
		b.Scan(true)
		if s, _ := b.sweep(idOf(dir)); s.Lead != want {
			t.Errorf("the list says %q, want %q", s.Lead, want)
		}
	}
}

// An arm is called by what it sets where its label says that.
func TestArmsByWhatTheySet(t *testing.T) {
	study := &sweeps.Study{Arms: []sweeps.StudyArm{{Name: "A", Label: "lr=1"}, {Name: "rce", Label: "RCE"}}}
	if got := study.Sets("A") + " " + study.Sets("rce"); got != "lr=1 arm=rce" {
		t.Error(got)
	}
}

// Of a search the list and the console crown no trial that the report's verdicts call a tie, and believe nothing of a report of another
// ranking.
func TestLeadIsTheReports(t *testing.T) {
	opt := sweeps.Options{Objectives: []sweeps.Objective{{Name: "score"}}, Sweeper: "random"}
	for gain, want := range map[float64]string{0.001: "first: job 0, score 1.000  lr=0; by the verdicts it is better than 0 of 2 others",
		0.2: "best: job 0, score 1.000  lr=0"} {
		dir := t.TempDir()
		var jobs []sweeps.Job
		for i := range 3 {
			lr := fmt.Sprintf("lr=%d", i)
			one := filepath.Join(dir, fmt.Sprint(i))
			reportstest.SweepRun(t, one, uint64(i), gain*float64(2-i), "seed: 1\n")
			jobs = append(jobs, sweeps.Job{Number: i, Dir: one, State: record.StateDone, Objectives: []float64{1 - float64(i)},
				Overrides: []string{lr}, Params: map[string]string{"lr": lr[3:]}})
		}
		reportstest.Must(t, sweepreport.WriteReport(dir, jobs, opt))
		if text := reportstest.ReadReport(t, dir); strings.Contains(text, "**What leads.** First: job 0") != strings.HasPrefix(want, "first") {
			t.Fatalf("the test asks nothing:\n%s", text)
		}
		opt.Told = sweeps.ToldIn(dir)
		if got := sweeps.ModelOf(jobs, opt).Lead(); got != want {
			t.Errorf("gains of %g: %q leads, want %q", gain, got, want)
		}
		if table := sweeps.Table(jobs, opt, 0); !strings.Contains(table, "\n"+want+"\n") {
			t.Errorf("the console: %s", table)
		}
		reportstest.Must(t, os.Remove(filepath.Join(jobs[1].Dir, record.EvalsFile)))
		reportstest.Must(t, sweepreport.WriteReport(dir, jobs, opt))
		if text := reportstest.ReadReport(t, dir); !strings.Contains(text, "**What leads.** First: job 0, score 1.000, lr=0.\n") {
			t.Errorf("the scores of a job are gone, and another one is the best:\n%s", text)
		}
		jobs[2].Objectives[0] = 9
		if got := sweeps.ModelOf(jobs, opt).Lead(); got != "first: job 2, score 9.000  lr=2" {
			t.Errorf("after another job came first leads %q", got)
		}
		opt.Told = nil
	}
}

// The figures of a search stand on the page as the report has them: each key's slices, the Pareto front, and how much a key explains.
func TestSweepShowsItsSearch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sweep")
	golden.Write(t, dir, map[string]string{sweepFile: "a ledger"})
	opt := sweeps.Options{Objectives: []sweeps.Objective{{Name: "score"}, {Name: "kl", Minimize: true}}, Sweeper: "nsga2"}
	var jobs []sweeps.Job
	for i := range 16 {
		params := map[string]string{"a": fmt.Sprint(i % 4), "b": fmt.Sprint(i / 4)}
		jobs = append(jobs, sweeps.Job{Number: i, State: record.StateDone, Objectives: []float64{float64(i % 4), float64(i%4) + float64(i/4)},
			Params: params, Overrides: []string{"a=" + params["a"], "b=" + params["b"]}})
	}
	b := boardOf(dir)
	b.opt.Sweep = func(string) (sweeps.Options, []sweeps.Job, error) { return opt, jobs, nil }
	b.Scan(true)
	both := opt.Objectives
	for n, want := range map[int][]string{1: {"parameters", ">Which keys matter<", ">Two keys together<"},
		2: {"pareto", "parameters", "parameters_2", "history", ">Which keys matter<", ">Pareto front<"}} {
		opt.Objectives = both[:n]
		a, err := b.reported(idOf(dir), nil)
		reportstest.Must(t, err)
		for _, what := range want {
			if !strings.Contains(a.HTML, what) && a.Figures[what] == "" || a.Figures[what] != "" && !strings.Contains(a.HTML, `data-plot="`+what+`"`) {
				t.Errorf("%d objectives: no %s in\n%s", n, what, a.HTML)
			}
		}
	}
}
