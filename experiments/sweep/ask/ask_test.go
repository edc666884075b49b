package ask_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulcrum/experiments"
	"fulcrum/experiments/sweep"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/testkit/runtest"
)

func TestMain(m *testing.M) { os.Exit(runtest.Main(m)) }

// recipe is what both arms of a small question have, without what swept sets.
func recipe(dir string, more ...string) []string {
	args := slices.DeleteFunc(runtest.Tiny(), func(o string) bool { return strings.HasPrefix(o, "seed=") })
	return slices.Concat(args, []string{"grpo.epochs=1", "report.plots=false", "logging.progress=false", "hydra.sweep.dir=" + dir,
		"evidence.ledger=" + dir + ".looks"}, more)
}

// settings is 'schedule=[rce]' against both phases.
const settings = "schedule=[rce],[rce,grpo]"

// estimate is what a sentence says of a difference without its p-value, which a stage corrects.
var estimate = regexp.MustCompile(`[+−]?[0-9.]+ reward per question, 95% interval [^;]*, 3 seeds`)

// A question ends with its plan where nobody can agree to it, goes on when told to, and, killed on the way, comes to the difference and
// interval of the study with the same arms and seeds.
func TestAskAnswersAsTheStudyDoes(t *testing.T) {
	t.Parallel()
	runtest.NeedsAnnexes(t)
	dir := runtest.Folder(t)
	// The ledger cannot be made: what was asked is planned again from the folder.
	obstacle := filepath.Join(dir, ".sweep.jsonl.new/x")
	if err := os.MkdirAll(obstacle, 0o755); err != nil {
		t.Fatal(err)
	}
	asks := slices.Concat([]string{"ask", "--max-seeds=3", "--effect=0.001"}, recipe(dir, settings, "rce.lr=${oc.env:ASK_LR,3e-3}"))
	runtest.Refused(t, runtest.Run(t, asks...), 1, ".sweep.jsonl.new")
	if err := os.RemoveAll(filepath.Dir(obstacle)); err != nil {
		t.Fatal(err)
	}
	first := runtest.MustRun(t, "resume", dir).Stdout
	asked, ran := strings.Index(first, "Is schedule=[rce,grpo] better than schedule=[rce]?"), strings.Index(first, "#0 ")
	if asked < 0 || ran < asked {
		t.Errorf("the question does not come before the first run:\n%s", first)
	}
	for _, want := range []string{"A difference of 0.001 is worth having. Each arm is judged after 2 and 3 seeds",
		"The first two seeds are 4 jobs, all 3 are 6. What they cost is not known",
		"Open after 2 seeds of each arm.", "from the held-out questions", "The next stage, 3 seeds of each arm, costs 2 jobs, ",
		"ask " + dir + " --yes`"} {
		if !strings.Contains(first, want) {
			t.Errorf("the plan does not say %q:\n%s", want, first)
		}
	}
	jobs := func() (done int) {
		_, all, err := ledger.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range all {
			if j.State == launcher.Done && j.Attempts == 1 {
				done++
			}
		}
		return done
	}
	kept := filepath.Join(dir, ".sweep/program/run") // what further seeds run, whatever is built meanwhile
	if !runtest.Exists(kept) {
		t.Errorf("%s is gone before the question has ended", kept)
	}
	if again := runtest.MustRun(t, "resume", dir).Stdout; !strings.Contains(again, "--yes`") || jobs() != 4 {
		t.Errorf("a resume without consent: %d jobs\n%s", jobs(), again)
	}
	if spent := runtest.MustRun(t, "ask", dir, "--yes", "--budget=1ms").Stdout; !strings.Contains(spent, "The budget ends it") || jobs() != 4 {
		t.Errorf("a budget that is spent: %d jobs\n%s", jobs(), spent)
	}
	if s, _, err := ledger.Load(dir); err != nil || !s.Ask.Agreed || s.Ask.Budget != time.Millisecond {
		t.Errorf("the ledger does not know what was agreed to: %+v, %v", s.Ask, err)
	}
	runtest.Refused(t, runtest.Run(t, "ask", dir, "--effect=0.1"), 2, "its rule, fixed before its first run")
	runtest.Refused(t, runtest.Run(t, "ask", dir, "--config-path=conf"), 2, "--config-path", "keeps its configuration")
	runtest.Refused(t, runtest.StartWith(t, "", []string{"ASK_LR=1e-3"}, "ask", dir, "--yes", "--budget=1h").Wait(), 2,
		"the configuration has changed since the question was asked", "another recipe")

	l, err := ledger.Open(dir) // as a kill leaves it between the two steps by which a study grows
	if err != nil {
		t.Fatal(err)
	}
	s := l.Sweep()
	s.Overrides = append(s.Overrides, "seed=range(0,3)")
	if err := errors.Join(l.SetSweep(s), l.Close()); err != nil {
		t.Fatal(err)
	}
	p := runtest.Start(t, "ask", dir, "--yes", "--budget=1h") // trains seed 2
	p.Until(func() bool { return runtest.Exists(filepath.Join(dir, "5/checkpoints")) })
	p.SignalGroup(syscall.SIGKILL)
	if killed := p.Wait().Stdout; !strings.Contains(killed, "The next stage, 3 seeds of each arm, costs 2 jobs, ") {
		t.Errorf("seeds that were agreed to are trained without a word on their cost:\n%s", killed)
	}
	ended := runtest.MustRun(t, "resume", dir).Stdout
	if _, all, err := ledger.Load(dir); err != nil || len(all) != 6 || jobs() < 5 {
		t.Fatalf("%d jobs, %d done at once, %v", len(all), jobs(), err)
	}
	answer := runtest.Read(t, filepath.Join(dir, "answer.md"))
	for file, want := range map[string]string{"answer.md": "after 3 seeds of each arm", "answer.tex": `\toprule`,
		"figures/answers.pdf": "%PDF", "figures/answers.svg": "<svg", "report.md": "it counts 3.4 and 1.4 times"} {
		if text := runtest.Read(t, filepath.Join(dir, file)); !strings.Contains(text, want) {
			t.Errorf("%s does not hold %q", file, want)
		}
	}
	got := estimate.FindString(answer)
	if got == "" || !strings.Contains(ended, got) || !strings.Contains(runtest.Read(t, filepath.Join(dir, "report.md")), got) {
		t.Fatalf("%q of the answer is not in what was printed or in report.md:\n%s\n%s", got, answer, ended)
	}
	report := []string{"report"}
	for i := range 6 {
		report = append(report, filepath.Join(dir, fmt.Sprint(i)))
	}
	if told := runtest.MustRun(t, report...).Stdout; !strings.Contains(told, got) || regexp.MustCompile(`(than|from) arm 1`).MatchString(told) {
		t.Errorf("a report of the jobs has not %q alone:\n%s", got, told)
	}
	if !strings.Contains(answer, "p for stage 2 of 2") {
		t.Errorf("the answer does not name its rule:\n%s", answer)
	}
	if runtest.Exists(kept) {
		t.Errorf("%s is left behind a question that has ended", kept)
	}
	if err := sweep.Grow(experiments.App{}, dir, 2); err != nil { // somebody who has read the ledger before it grew
		t.Error(err)
	}
	if s, all, err := ledger.Load(dir); err != nil || len(all) != 6 || s.Overrides[len(s.Overrides)-1] != "seed=range(0,3)" {
		t.Errorf("a study shrinks: %d jobs of %v, %v", len(all), s.Overrides, err)
	}
	if n := strings.Count(ended, "values: best checkpoints"); n != 1 {
		t.Errorf("the table of the jobs is printed %d times:\n%s", n, ended)
	}
	if r := runtest.Run(t, "verify", dir); r.Code != 0 {
		t.Errorf("verify: %s%s", r.Stdout, r.Stderr)
	}

	study := runtest.Folder(t)
	runtest.MustRun(t, recipe(study, "rce.lr=3e-3", "-m", "seed=range(0,3)", "hydra/sweeper=study",
		"+hydra.sweeper.arms={short: {overrides: ['schedule=[rce]']}, long: {overrides: ['schedule=[rce,grpo]']}}",
		"hydra.sweeper.questions=[{ask: What does GRPO add, arm: long, against: short}]")...)
	if want := estimate.FindString(runtest.Read(t, filepath.Join(study, "report.md"))); got != want {
		t.Errorf("the study says %q, the answer %q", want, got)
	}
	runtest.Refused(t, runtest.Run(t, "ask", study, "--yes"), 2, "a sweep that asks no question", "resume "+study)
}

// What is no question is refused in a line, and leaves nothing.
func TestAskRefuses(t *testing.T) {
	t.Parallel()
	runtest.NeedsAnnexes(t)
	taken := runtest.Folder(t)
	if err := os.MkdirAll(taken, 0o755); err != nil {
		t.Fatal(err)
	}
	runtest.Write(t, filepath.Join(taken, "notes.txt"), "mine")
	for _, tc := range []struct{ args, want []string }{
		{nil, []string{"one arm is no question"}},
		{[]string{"rce.lr=1e-3"}, []string{"one arm is no question"}},
		{[]string{settings, "seed=0,1"}, []string{"chooses the seeds itself", "leave seed out"}},
		{[]string{settings, "seed=7"}, []string{"leave seed out"}},
		{[]string{settings, "hydra/sweeper=tpe"}, []string{"hydra/sweeper=tpe", "no sweeper"}},
		{[]string{settings, "exp=shapes_study"}, []string{"hydra/sweeper=study"}},
		{[]string{"rce.lr=interval(1e-4,1e-3)"}, []string{"rce.lr=interval"}},
		{[]string{"rce.lr=1e-3,1e-3"}, []string{"same configuration"}},
		{[]string{"rce.lr=1e-3,-1"}, []string{"arm B: rce.lr=-1"}},
		{[]string{"rce.batch=range(0,40)"}, []string{"40 arms", "at most 26"}},
		{[]string{settings, "--effect=0"}, []string{"--effect 0", "above 0"}},
		{[]string{settings, "--effect=inf"}, []string{"--effect +Inf"}},
		{[]string{settings, "--effect=1"}, []string{"--effect 1: rewards lie between 0 and 1 here: want", "below 1, as in --effect 0.02"}},
		{[]string{settings, "--max-seeds=2"}, []string{"--max-seeds 2", "from 3 to 100"}},
		{[]string{settings, "--budget=0"}, []string{"--budget 0s", "as in --budget 2h"}},
		{[]string{settings, "--budget=2"}, []string{"--budget 2", "want a time, as in 2h"}},
		{[]string{"multirun/no_such_folder"}, []string{"multirun/no_such_folder: neither an override", "a folder with a question",
			"resume", "no_such_folder"}},
		{[]string{settings, "hydra.sweep.dir=" + taken}, []string{taken, "is not empty (notes.txt)"}},
	} {
		dir := runtest.Folder(t)
		args := slices.Concat([]string{"ask"}, recipe(dir), tc.args)
		if slices.ContainsFunc(tc.args, func(o string) bool { return strings.HasPrefix(o, "exp=") }) {
			args = slices.Concat([]string{"ask", "hydra.sweep.dir=" + dir}, tc.args)
		}
		runtest.Refused(t, runtest.Run(t, args...), 2, tc.want...)
		if runtest.Exists(dir) {
			t.Errorf("%v leaves a folder", tc.args)
		}
	}
	if names, err := os.ReadDir(taken); err != nil || len(names) != 1 {
		t.Errorf("a refused question wrote into a folder: %v, %v", names, err)
	}
}
