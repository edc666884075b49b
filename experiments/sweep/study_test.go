package sweep_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/testkit/slurmtest"
)

// aStudy is a study of three arms in a row and one beside them, two jobs at a time, on tiny's data.
func aStudy(dir string, more ...string) []string {
	args := slices.DeleteFunc(tiny(), func(o string) bool { return strings.HasPrefix(o, "seed=") })
	args = append(args, "-m", "hydra/sweeper=study", "hydra/launcher=local", "hydra.launcher.n_jobs=2", "report.plots=false",
		"hydra.sweep.dir="+dir,
		"+hydra.sweeper.arms={rce: {overrides: ['schedule=[rce]']}, grpo: {from: rce, overrides: ['schedule=[grpo]']}, "+
			"further: {from: grpo, checkpoint: best, overrides: ['schedule=[rce]', 'rce.epochs=1']}, alone: {overrides: ['schedule=[grpo]']}}",
		"hydra.sweeper.questions=[{ask: 'What does GRPO add', arm: grpo, against: rce}, {ask: 'What is RCE worth?', arm: rce, against: init}]")
	return append(args, more...)
}

// attemptsOf are the attempts at a job of a sweep.
func attemptsOf(t *testing.T, dir string, num int) []launcher.Attempt {
	t.Helper()
	attempts, err := launcher.Attempts(filepath.Join(dir, itoa(num)))
	if err != nil || len(attempts) == 0 {
		t.Fatalf("job %d: no attempts (%v)", num, err)
	}
	return attempts
}

// phaseRows are the steps and epochs of a phase, without clock times, the number of the step in the run and the
// name of the checkpoint's run.
func phaseRows(t *testing.T, dir, phase string) []string {
	t.Helper()
	var out []string
	for _, row := range readRows(t, filepath.Join(dir, "metrics.jsonl")) {
		if kind := row["kind"]; row["phase"] != phase || kind != "step" && kind != "epoch" {
			continue
		}
		for _, key := range []string{"time", "step_seconds", "global_step"} {
			delete(row, key)
		}
		var cells []string
		for _, key := range slices.Sorted(maps.Keys(row)) {
			cells = append(cells, fmt.Sprintf("%s=%v", key, row[key]))
		}
		out = append(out, strings.Join(cells, " "))
	}
	return out
}

// A job starts when the one that it starts from is done, from its last checkpoint, and trains what the second
// phase of one run with both trains, number for number.
func TestStudy(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mustRun(t, aStudy(dir, "seed=3,4")...)
	doneOnce(t, dir, 8)
	all := jobs(t, dir)
	for i, job := range all {
		arm := []string{"rce", "grpo", "further", "alone"}[i%4]
		parent := map[string]int{"rce": -1, "grpo": i - 1, "further": i - 1, "alone": -1}[arm]
		if job.Arm != arm || (job.Parent == nil) != (parent < 0) || job.Parent != nil && *job.Parent != parent {
			t.Fatalf("job %d: arm %s, parent %v; want %s, %d", i, job.Arm, job.Parent, arm, parent)
		}
		overrides := read(t, filepath.Join(dir, itoa(i), ".hydra/overrides.yaml"))
		if parent < 0 {
			if strings.Contains(overrides, "init.checkpoint") {
				t.Errorf("job %d starts from a checkpoint:\n%s", i, overrides)
			}
			continue
		}
		if begun, ended := attemptsOf(t, dir, i)[0].Started, attemptsOf(t, dir, parent)[0].Ended; begun.Before(ended) {
			t.Errorf("job %d started at %v, before job %d ended at %v", i, begun, parent, ended)
		}
		file := map[string]string{"grpo": "last", "further": "best"}[arm]
		if want := fmt.Sprintf("init.checkpoint='%s/%d/checkpoints/%s.safetensors'", dir, parent,
			file); !strings.Contains(overrides, strings.ReplaceAll(want, "'", "")) && !strings.Contains(overrides, want) {
			t.Errorf("overrides of job %d lack %s:\n%s", i, want, overrides)
		}
	}
	want, got := phaseRows(t, undrawn(t), "grpo"), phaseRows(t, filepath.Join(dir, "1"), "grpo")
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the arm's GRPO is not that of one run with both phases: %d rows, want %d", len(got), len(want))
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("row %d:\n got %s\nwant %s", i, got[i], want[i])
			}
		}
	}

	needsAnnexes(t)
	report := read(t, filepath.Join(dir, "report.md"))
	for _, want := range []string{"What does GRPO add?", "What is RCE worth?", "2 seeds", "## Jobs", "reward on ", "its best checkpoint",
		"*similarity*", "plots/answers.png"} {
		if !strings.Contains(report, want) {
			t.Errorf("report.md does not mention %q", want)
		}
	}
	if !exists(filepath.Join(dir, "plots/curves.svg")) || exists(filepath.Join(dir, "optimization_results.yaml")) {
		t.Error("plots/curves.svg is missing, or there are results of an optimization")
	}
	if s := mustRun(t, "status", dir).Stdout; !strings.Contains(s, "further") || !strings.Contains(s, "8 done") {
		t.Errorf("status:\n%s", s)
	}
	mustRun(t, "report", dir)
	if again := read(t, filepath.Join(dir, "report.md")); again != report {
		t.Error("run report writes another report")
	}
}

// What starts from a failed job is skipped, with the cause, also behind another that is skipped; the other arms
// run, and a resume runs what is missing.
func TestStudyFailedParent(t *testing.T) {
	t.Parallel()
	data, dir := beams(t, records()), folder(t)
	good := strings.TrimPrefix(data[1], "data.beams=")
	later := filepath.Join(filepath.Dir(good), "later.json")
	args := small([]string{data[0], data[2]}, "-m", "hydra/sweeper=study", "hydra.sweep.dir="+dir, "logging.progress=false",
		fmt.Sprintf("+hydra.sweeper.arms={bad: {overrides: ['schedule=[rce]', 'data.beams=%s']}, child: {from: bad, overrides: "+
			"['schedule=[grpo]', 'data.beams=%[2]s']}, "+
			"grandchild: {from: child, overrides: ['schedule=[rce]', 'data.beams=%[2]s']}, other: {overrides: ['schedule=[rce]', "+
			"'data.beams=%[2]s']}}", later, good))
	r := run(t, args...)
	if last := lastLine(r.Stderr); r.Code != 1 || !strings.Contains(last, "1 of 4 jobs failed and 2 that start from them were skipped") {
		t.Errorf("exit code %d: %s", r.Code, r.Stderr)
	}
	for i, state := range []string{"failed", "skipped", "skipped", "done"} {
		if job := jobs(t, dir)[i]; job.State != state {
			t.Errorf("job %d is %s (%s), want %s", i, job.State, job.Cause, state)
		}
	}
	if cause := jobs(t, dir)[2].Cause; cause != "it starts from job 1 (arm child), which was skipped" {
		t.Errorf("cause of job 2: %s", cause)
	}
	status := mustRun(t, "status", dir).Stdout
	for _, want := range []string{"1 done, 1 failed, 2 skipped", "job 1 skipped: it starts from job 0 (arm bad), which failed", "ended"} {
		if !strings.Contains(status, want) {
			t.Errorf("status does not say %q:\n%s", want, status)
		}
	}
	report := ""
	if path := filepath.Join(dir, "report.md"); exists(path) {
		report = read(t, path)
	}
	write(t, later, read(t, good))
	mustRun(t, "resume", dir)
	doneOnce(t, dir, 4)
	needsAnnexes(t)
	if !strings.Contains(report, "2 skipped") || !strings.Contains(report, "no such file") {
		t.Errorf("report.md before the resume:\n%s", report)
	}
}

// A study whose controller is killed while a first arm runs, and again while a second one does, comes to what it
// comes to undisturbed, byte for byte.
func TestStudyKilled(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	args := aStudy(dir, "seed=4", "rce.epochs=3")
	for i, o := range args { // two arms are enough to be killed in
		if arms, _, ok := strings.Cut(o, ", further: "); ok {
			args[i] = arms + "}"
		}
	}
	mustRun(t, args...)
	calm := dir + ".calm" // the same folder: where an arm starts is part of its configuration
	if err := os.Rename(dir, calm); err != nil {
		t.Fatal(err)
	}
	p := start(t, args...)
	p.Until(func() bool { return exists(filepath.Join(dir, "0/checkpoints/rce_epoch1.state")) })
	p.Signal(syscall.SIGKILL)
	p.Wait()
	if state := jobs(t, dir)[1].State; state != launcher.Queued {
		t.Errorf("job 1 is %s before the job that it starts from is done", state)
	}
	p = start(t, "resume", dir)
	p.Until(func() bool { return exists(filepath.Join(dir, "1/checkpoints")) })
	p.Signal(syscall.SIGKILL)
	p.Wait()
	mustRun(t, "resume", dir)
	doneOnce(t, dir, 2)
	for i := range 2 {
		want, got := outcomeOf(t, filepath.Join(calm, itoa(i))), outcomeOf(t, filepath.Join(dir, itoa(i)))
		want.Same(t, got, got.Resumes)
	}
	if text := run(t, "resume", dir).Stdout; !strings.Contains(text, "all 2 jobs of this sweep have ended") {
		t.Errorf("a resume of a whole study: %s", text)
	}
}

// Arms are crossed with all that is swept; each starts from the arm under the same values. The command line wins
// over an arm, and nothing runs.
func TestStudyJobs(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	text := mustRun(t, aStudy(dir, "--cfg", "sweep", "seed=7,8", "grpo.lr=1e-3,1e-4", "rce.epochs=2")...).Stdout
	if n := strings.Count(text, "\n# job ") + 1; n != 16 {
		t.Errorf("%d jobs, want 16", n)
	}
	_, last, _ := strings.Cut(text, "# job 14: arm further, from job 13 (arm grpo)\n")
	last, _, _ = strings.Cut(last, "# job 15")
	want := "- - schedule=[rce]\n" // rce.epochs=1 of the arm is gone
	if !strings.HasPrefix(last, want) || strings.Contains(last, "rce.epochs=1") || !strings.Contains(last, "- rce.epochs=2\n") ||
		!strings.Contains(last, "- seed=8\n") || !strings.Contains(last, "- grpo.lr=0.0001\n") ||
		!strings.Contains(last, "init.checkpoint='"+dir+"/13/checkpoints/best.safetensors'") {
		t.Errorf("job 14:\n%s", last)
	}
	if exists(dir) {
		t.Error("--cfg sweep leaves a folder")
	}
}

// What is wrong with a study is said before anything runs, with the place and the nearest name.
func TestStudyChecksFirst(t *testing.T) {
	t.Parallel()
	dir, conf := folder(t), t.TempDir()
	if err := os.MkdirAll(filepath.Join(conf, "exp"), 0o755); err != nil {
		t.Fatal(err)
	}
	study := func(arms, questions string) []string {
		write(t, filepath.Join(conf, "exp/mine.yaml"), "# @package _global_\ndefaults:\n  - override /hydra/sweeper: study\nhydra:\n  "+
			"sweeper:\n    arms:\n"+arms+"    questions:\n"+questions)
		return []string{"--config-dir", conf, "-m", "exp=mine", "hydra.sweep.dir=" + dir}
	}
	const two = "      rce: {overrides: [\"schedule=[rce]\"]}\n      grpo: {from: rce, overrides: [\"schedule=[grpo]\"]}\n"
	const ask = "      - {ask: Why, arm: grpo, against: rce}\n"
	for _, tc := range []struct {
		arms, questions string
		more            []string
		want            []string
	}{
		{strings.Replace(two, "from: rce", "from: rec", 1), ask, nil,
			[]string{"mine.yaml:8:20", `arms.grpo.from: unknown arm "rec" (did you mean rce?)`}},
		{strings.Replace(two, "rce: {", "rce: {from: grpo, ", 1), ask, nil,
			[]string{"mine.yaml:8", "the arms grpo ← rce ← grpo start from each other"}},
		{two + "      rce: {}\n", ask, nil, []string{"mine.yaml:9", "duplicate key rce"}},
		{strings.Replace(two, "from:", "form:", 1), ask, nil, []string{"mine.yaml:8", "did you mean", "arms.grpo.from"}},
		{strings.Replace(two, "from: rce", "from: rce, checkpoint: frist", 1), ask, nil, []string{"mine.yaml:8", "want one of last, best"}},
		{two, "      - {ask: Why, arm: gpro, against: rce}\n", nil,
			[]string{"mine.yaml:10", `questions.0.arm: unknown arm "gpro" (did you mean grpo?)`}},
		{two, "      - {ask: Why, arm: grpo, against: similarty}\n", nil, []string{"mine.yaml:10", "did you mean similarity?"}},
		{two, "      - {ask: Why, arm: grpo, against: grpo}\n", nil, []string{"mine.yaml:10", "want another arm than grpo"}},
		{two + "      init: {}\n", ask, nil, []string{"init is a baseline"}},
		{two + "      x: {overrides: [seed=3]}\n", ask, nil, []string{"the study itself sets seed"}},
		{two + "      x: {from: rce, overrides: [\"schedule=[grpo]\"]}\n", ask, nil,
			[]string{"the arms grpo and x come to the same configuration", "jobs 1 and 2"}},
		{two, ask, []string{"hydra/sweeper=tpe"}, []string{"hydra/sweeper=tpe has no arms"}},
		{two, ask, []string{"hydra.sweeper.pruner.name=asha"}, []string{"want pruner.name=none"}},
		{two, ask, []string{"hydra.sweep.subdir=same"}, []string{"jobs 0", "would share the folder same"}},
		{two, ask, []string{"data=okvqa"}, []string{"data=okvqa needs the folder of its files, data.root=DIR"}},
		{two, ask, []string{"rce.lr=-1"}, []string{"rce.lr=-1"}},
	} {
		refused(t, run(t, append(study(tc.arms, tc.questions), tc.more...)...), 2, tc.want...)
	}
	refused(t, run(t, "-m", "hydra/sweeper=study", "hydra.sweep.dir="+dir), 2, "no arms", "exp=shapes_study")
	if exists(dir) {
		t.Error("a refused study leaves a folder")
	}
}

// Questions may be asked anew of a study that has run; its arms may not change.
func TestStudyAsksAnew(t *testing.T) {
	t.Parallel()
	dir, conf := folder(t), t.TempDir()
	if err := os.MkdirAll(filepath.Join(conf, "exp"), 0o755); err != nil {
		t.Fatal(err)
	}
	const text = "# @package _global_\ndefaults:\n  - override /hydra/sweeper: study\nhydra:\n  sweeper:\n    arms:\n      rce: " +
		"{overrides: [\"schedule=[rce]\"]}\n      grpo: {from: rce, overrides: [\"schedule=[grpo]\"]}\n    questions:\n      - {ask: " +
		"QUESTION, arm: grpo, against: rce, split: val}\n"
	file := filepath.Join(conf, "exp/mine.yaml")
	write(t, file, strings.Replace(text, "QUESTION", "What is it worth", 1))
	mustRun(t, append([]string{"--config-dir", conf, "-m", "hydra.sweep.dir=" + dir, "report.plots=false"},
		append(tiny()[1:], "exp=mine")...)...)
	doneOnce(t, dir, 2)
	write(t, file, strings.Replace(text, "QUESTION", "Was it worth it", 1))
	mustRun(t, "resume", dir)
	write(t, file, strings.Replace(text, "schedule=[grpo]", "schedule=[sft]", 1))
	refused(t, run(t, "resume", dir), 2, "the arms of this study have changed")
	if s, _, err := ledger.Load(dir); err != nil || s.Study == nil || s.Study.Questions[0].Ask != "Was it worth it" {
		t.Errorf("the ledger's study: %+v, %v", s.Study, err)
	}
	needsAnnexes(t)
	if report := read(t, filepath.Join(dir, "report.md")); !strings.Contains(report, "Was it worth it?") {
		t.Errorf("the new question is not in the report:\n%s", report)
	}
}

// On Slurm an arm is submitted when the one that it starts from is done, also by another controller than the one that
// submitted that.
func TestOnSlurmStudy(t *testing.T) {
	slurmtest.Start(t)
	dir := folder(t)
	args := slices.DeleteFunc(aStudy(dir, "seed=2"), func(o string) bool { return strings.HasPrefix(o, "hydra.launcher.n_jobs") })
	p := start(t, append(args, "hydra/launcher=slurm")...)
	p.Until(func() bool { return exists(filepath.Join(dir, "0/checkpoints/rce_epoch1.state")) })
	p.Signal(syscall.SIGKILL)
	p.Wait()
	mustRun(t, "resume", dir)
	doneOnce(t, dir, 4)
	for _, job := range jobs(t, dir) {
		if job.Parent == nil {
			continue
		}
		parents := attemptsOf(t, dir, *job.Parent)
		if begun, ended := attemptsOf(t, dir, job.Num)[0].Started, parents[len(parents)-1].Ended; begun.Before(ended) {
			t.Errorf("job %d started at %v, before job %d ended at %v", job.Num, begun, *job.Parent, ended)
		}
	}
}
