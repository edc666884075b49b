package experiments_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/reports/record"
)

// A run whose best policy is the initial one says so on the console, in its report and to whoever predicts with it.
func TestAnUntrainedBestIsNamed(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	model, out := folder(t), folder(t)
	r := mustRun(t, small(data, "checkpoint.best.metric=val_loss", "rce.lr=1e-30", "grpo.lr=1e-30", // no weight moves
		"report.console=full", "hydra.run.dir="+model)...)
	if !strings.Contains(r.Stdout, "best is the initial policy: no epoch did better by val_loss (") ||
		!strings.Contains(r.Stderr, "warning: best is the initial policy: no epoch is better, rce epoch 1 has the same val_loss of ") {
		t.Errorf("the console does not say it:\n%s\n%s", r.Stdout, r.Stderr)
	}
	report := read(t, filepath.Join(model, "report.md"))
	for _, want := range []string{
		"By val_loss, which chooses the best checkpoint (checkpoint.best.metric), no epoch is better than the initial policy.",
		"the initial policy, which no epoch did better than, [checkpoints/init_epoch0.safetensors]"} {
		if !strings.Contains(report, want) {
			t.Errorf("report.md lacks %q:\n%s", want, report)
		}
	}
	// What the loss calls worse may be better by the reward of the table: the console and the verdict say so.
	other := folder(t)
	r = mustRun(t, tiny("schedule=[rce]", "rce.epochs=5", "rce.lr=0.002", "data.shapes.train_queries=96", "data.shapes.val_queries=64",
		"report.plots=false", "report.console=full", "checkpoint.best.metric=val_loss", "checkpoint.best.mode=max",
		"hydra.run.dir="+other)...)
	verdict, _, _ := strings.Cut(read(t, filepath.Join(other, "report.md")), "\n## ")
	for _, want := range []string{"By checkpoint.best.metric=val_reward rce epoch ",
		"n val the policy after rce (epoch 5) is better than the initial policy: "} {
		if !strings.Contains(verdict, want) || !strings.Contains(strings.ToLower(r.Stdout), strings.ToLower(want)) {
			t.Errorf("%q is not said:\n%s\n%s", want, r.Stdout, verdict)
		}
	}
	if !strings.Contains(r.Stdout, "warning: the best is untrained, although on val ") {
		t.Errorf("no warning:\n%s", r.Stdout)
	}
	// Where no epoch was within checkpoint.best.kl_max, none is said to be worse.
	var bounded []string
	for _, seed := range []string{"seed=0", "seed=1"} {
		dir := folder(t)
		bounded = append(bounded, dir)
		r = mustRun(t, small(data, "checkpoint.best.kl_max=0", "report.console=full", seed, "hydra.run.dir="+dir)...)
		report = read(t, filepath.Join(dir, "report.md"))
		if said := "o epoch has val_kl ≤ 0 (checkpoint.best.kl_max)"; strings.Count(report, said) < 3 || !strings.Contains(r.Stdout, said) ||
			strings.Contains(report+r.Stdout, "did better") {
			t.Errorf("kl_max is not the reason:\n%s\n%s", r.Stdout, report)
		}
	}
	if r = mustRun(t, append([]string{"report"}, bounded...)...); !strings.Contains(strings.ReplaceAll(r.Stdout, "\n", " "),
		"initial policy, not with a trained one, in 2 of 2 runs: no epoch has val") {
		t.Errorf("the comparison does not say that its arm was trained:\n%s", r.Stdout)
	}
	r = mustRun(t, append([]string{"task=predict", "threads=1", "init.checkpoint=" + model, "hydra.run.dir=" + out}, data...)...)
	if !strings.Contains(r.Stdout, "2 shots, by an untrained policy: the best of its run is the initial one → ") ||
		!strings.Contains(r.Stderr, "is the policy that its run began with") {
		t.Errorf("task=predict does not say it:\n%s\n%s", r.Stdout, r.Stderr)
	}
	// Whoever names the file knows what it is.
	r = mustRun(t, append([]string{"task=predict", "threads=1",
		"init.checkpoint=" + filepath.Join(model, "checkpoints/init_epoch0.safetensors"), "hydra.run.dir=" + folder(t)}, data...)...)
	if strings.Contains(r.Stdout+r.Stderr, "untrained") || strings.Contains(r.Stderr, "began with") {
		t.Errorf("a checkpoint that was named:\n%s\n%s", r.Stdout, r.Stderr)
	}
}

// The first run of a new user, exp=beams_v3 on data of their own, may end with any policy that it trained, however far that is from
// the initial one: no bound on val_kl rules it out.
func TestThePresetBoundsNoKL(t *testing.T) {
	t.Parallel()
	data, dir := beams(t, records()), folder(t)
	mustRun(t, small(append(data, "exp=beams_v3", "rce.lr=0.1", "rce.epochs=3", "data.train_ratio=0.5",
		"checkpoint.best.metric=val_kl", "checkpoint.best.mode=max", "hydra.run.dir="+dir))...)
	summary, err := record.ReadSummary(dir)
	if err != nil {
		t.Fatal(err)
	}
	if b := summary.Best; b.Untrained() || b.Value < 1 {
		t.Errorf("the epoch furthest from its reference is %s epoch %d with %g nats, want a trained one, more than 1", b.Phase, b.Epoch, b.Value)
	}
}

// evaluations reads evals.jsonl of a run.
func evaluations(t *testing.T, dir string) map[string]record.Evaluation {
	t.Helper()
	evals, err := record.ReadEvals(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]record.Evaluation{}
	for _, e := range evals {
		out[e.Split+"/"+e.Policy+"/"+e.Metric] = e
	}
	return out
}

// A run knows from how many checkpoints its best was chosen, and is judged by that on the questions that chose it.
func TestARunKnowsWhatItChoseFrom(t *testing.T) {
	t.Parallel()
	dir, _ := trained(t) // 2 phases of 2 epochs
	evals := evaluations(t, dir)
	for name, want := range map[string]int{"val/best/reward": 5, "val/best/accuracy": 5, "dev/best/reward": 0, "val/grpo/reward": 0,
		"val/init/reward": 0} {
		e, ok := evals[name]
		if !ok || e.ChosenFrom != want {
			t.Errorf("%s (there: %v): chosen from %d checkpoints, want %d", name, ok, e.ChosenFrom, want)
		}
	}
	if e := evals["val/best/reward"]; e.Clusters != nil { // one question of each scene
		t.Errorf("clusters %v, want none", e.Clusters)
	}
	summary, err := record.ReadSummary(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range summary.Evaluations {
		if p := s.OverSimilarity; p != nil && s.Split == "val" && s.Policy == "best" &&
			(p.ChosenFrom != 5 || math.Abs(p.IntervalLevel-0.99) > 1e-12) {
			t.Errorf("best over similarity on val: %+v, want it corrected for 5 checkpoints", p)
		}
	}
}

// Two result files on questions that share images are compared image by image, or by a key of the annotations.
func TestEvaluationsCountImages(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	var results, annotations []string
	for id := range 8 {
		results = append(results, fmt.Sprintf(`{"question_id": %d, "answer": "cat"}`, id))
		annotations = append(annotations, fmt.Sprintf(`{"question_id": %d, "image_id": %d, "scene": "s%d", "answers": [%s{"answer": "cow"}]}`, id,
			700+id/2, id%3, strings.Repeat(`{"answer": "cat"},`, 9)))
	}
	write(t, filepath.Join(work, "results.json"), "["+strings.Join(results, ",")+"]")
	write(t, filepath.Join(work, "truth.json"), `{"annotations": [`+strings.Join(annotations, ",")+`]}`)
	args := []string{"task=evaluate", "evaluate.results=" + work + "/results.json", "evaluate.annotations=" + work + "/truth.json"}
	for _, tc := range []struct{ cluster, want string }{{"null", "[0 0 1 1 2 2 3 3]"}, {"image", "[0 0 1 1 2 2 3 3]"},
		{"scene", "[0 1 2 0 1 2 0 1]"}, {"question_id", "[]"}} {
		dir := folder(t)
		mustRun(t, append(args, "eval.cluster="+tc.cluster, "hydra.run.dir="+dir)...)
		if got := fmt.Sprint(evaluations(t, dir)["vqa/results/accuracy"].Clusters); got != tc.want {
			t.Errorf("eval.cluster=%s: clusters %s, want %s", tc.cluster, got, tc.want)
		}
	}
	for _, tc := range []struct{ cluster, want string }{
		{"scnee", "eval.cluster=scnee: no question that is evaluated has the key scnee"},
		{"''", "eval.cluster"},
	} {
		if r := run(t, append(args, "eval.cluster="+tc.cluster, "hydra.run.dir="+folder(t))...); r.Code != 2 ||
			!strings.Contains(r.Stderr, tc.want) {
			t.Errorf("eval.cluster=%s: exit code %d, %s", tc.cluster, r.Code, r.Stderr)
		}
	}
	if r := run(t, "task=evaluate", "evaluate.metric=rouge", "evaluate.predictions=a", "evaluate.references=b",
		"eval.cluster=image"); r.Code != 2 || !strings.Contains(r.Stderr, "eval.cluster") {
		t.Errorf("metric=rouge: exit code %d, %s", r.Code, r.Stderr)
	}
	if r := run(t, tiny("eval.cluster=topic", "hydra.run.dir="+folder(t))...); r.Code != 2 ||
		!strings.Contains(r.Stderr, "no question that is evaluated has the key topic") {
		t.Errorf("a key that no built-in question has: exit code %d, %s", r.Code, r.Stderr)
	}
	if r := run(t, tiny("checkpoint.best.metric=val_kl")...); r.Code != 2 ||
		!strings.Contains(r.Stderr, "val_kl is 0 for the initial policy") || !strings.Contains(r.Stderr, "best.kl_max") {
		t.Errorf("checkpoint.best.metric=val_kl: exit code %d, %s", r.Code, r.Stderr)
	}
}

// Training questions about one scene, which are evaluated beside the held-out ones, are clusters; by another key of the
// data they are not.
func TestARunKnowsItsClusters(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mustRun(t, tiny("schedule=[rce]", "rce.epochs=1", "data.eval.train_queries=48", "report.plots=false",
		"hydra.run.dir="+dir)...)
	evals := evaluations(t, dir)
	for _, name := range []string{"train/random/reward", "train/init/accuracy", "train/best/reward"} {
		e := evals[name]
		seen := map[int64]bool{}
		for _, c := range e.Clusters {
			seen[c] = true
		}
		if len(e.Clusters) != 48 || len(seen) != 16 {
			t.Errorf("%s: %d questions in clusters %v, want 16 of 3", name, len(e.Scores), e.Clusters)
		}
	}
	report := read(t, filepath.Join(dir, "report.md"))
	want := "Questions that belong together, such as those about one image, count as one: 48 questions in 16 clusters."
	if !strings.Contains(report, want) {
		t.Errorf("report.md lacks %q", want)
	}
}

// schedule=[] trains nothing: it scores the checkpoint that it starts from, as the run scored it that wrote it.
func TestAnEmptyScheduleScoresItsStart(t *testing.T) {
	t.Parallel()
	trained, again := folder(t), folder(t)
	mustRun(t, tiny("schedule=[rce]", "report.plots=false", "hydra.run.dir="+trained)...)
	mustRun(t, tiny("schedule=[]", "report.plots=false", "init.checkpoint="+trained, "hydra.run.dir="+again)...)
	scored := func(dir, policy string) []float64 {
		run, err := record.ReadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range run.Evaluations {
			if e.Split == "val" && e.Policy == policy && e.Metric == "reward" {
				return e.Scores
			}
		}
		t.Fatalf("%s: %s was not scored on val", dir, policy)
		return nil
	}
	if was, is := scored(trained, "best"), scored(again, "init"); !slices.Equal(was, is) {
		t.Errorf("scored %v, by the run that trained it %v", is, was)
	}
	report := read(t, filepath.Join(again, "report.md"))
	if !strings.Contains(report, "**Verdict.** Nothing was trained: the schedule is empty") {
		t.Errorf("report.md does not say that nothing was trained:\n%s", report)
	}
}
