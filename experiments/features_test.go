package experiments_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFeatures: a selector with features is trained on files, goes on after a kill with the same bytes, and predicts where the
// candidates' answers are given. Without them predict refuses.
func TestFeatures(t *testing.T) {
	t.Parallel()
	files := beams(t, records())
	items := filepath.Join(filepath.Dir(strings.TrimPrefix(files[1], "data.beams=")), "items.jsonl")
	var lines strings.Builder
	for row := range fixtureRows {
		fmt.Fprintf(&lines, `{"idx":%d,"question":"what is %d?","answer_counts":{"a%d":6,"a%d":4}}`+"\n", row, row%7, row%5, row%3)
	}
	write(t, items, lines.String())
	dir := folder(t)
	train := small(files, "hydra.run.dir="+dir, "selector=features", "report.plots=false")
	mustRun(t, train...)
	want := read(t, filepath.Join(dir, "checkpoints/last.safetensors"))
	for _, text := range []string{`"selector.features":"similarity,rank,`, "selector.features_mean", "selector.features_scale"} {
		if !strings.Contains(want, text) {
			t.Errorf("the checkpoint says nothing of %s", text)
		}
	}

	killed := folder(t)
	p := start(t, small(files, "hydra.run.dir="+killed, "selector=features", "report.plots=false")...)
	p.Until(func() bool { return exists(filepath.Join(killed, "checkpoints/rce_epoch1.state/state.json")) })
	p.SignalGroup(syscall.SIGKILL)
	p.Wait()
	mustRun(t, "resume", killed)
	if read(t, filepath.Join(killed, "checkpoints/last.safetensors")) != want {
		t.Error("killed and resumed, the weights are others")
	}

	refused(t, run(t, small(files, "hydra.run.dir="+folder(t), "init.checkpoint="+dir, "selector=features",
		"selector.features=[rank,similarity]")...), 2, "selector.features=rank,similarity contradicts", "trained with similarity,rank,")

	predict := func(out string) []string {
		return append([]string{"task=predict", "init.checkpoint=" + dir, "predict.out=" + out, "threads=1",
			"hydra.run.dir=" + folder(t)}, files...)
	}
	first := filepath.Join(dir, "a.jsonl")
	mustRun(t, predict(first)...)
	if err := os.Remove(items); err != nil {
		t.Fatal(err)
	}
	refused(t, run(t, predict(filepath.Join(dir, "b.jsonl"))...), 2, "agreement_0 reads answer_counts", "the data have no items.jsonl")
	write(t, items, strings.ReplaceAll(lines.String(), `"question"`, `"tags":[],"question"`))
	mustRun(t, predict(filepath.Join(dir, "b.jsonl"))...)
	if read(t, first) != read(t, filepath.Join(dir, "b.jsonl")) {
		t.Error("equal facts, other predictions")
	}
}

// TestStandardFeatures: the standard features are those that the data have columns of. Log and report name the others and why. A column
// that some rows lack is refused.
func TestStandardFeatures(t *testing.T) {
	t.Parallel()
	files := beams(t, records())
	items := filepath.Join(filepath.Dir(strings.TrimPrefix(files[1], "data.beams=")), "items.jsonl")
	train := func(want string) {
		dir := folder(t)
		mustRun(t, small(files, "selector=features", "report.plots=false", "hydra.run.dir="+dir)...)
		want = "eatures of candidates: similarity, rank, crowding_mean, crowding_max, " + want
		for _, file := range []string{"run.log", "report.md"} {
			if said := read(t, filepath.Join(dir, file)); !strings.Contains(said, want) {
				t.Errorf("%s does not say %s:\n%.3000s", file, want, said)
			}
		}
	}
	train("chosen_similarity; left out, as they read columns missing from items.jsonl (there is none): agreement_0, agreement_10, " +
		"agreement_30, annotators, question_overlap, chosen_answers")
	var lines strings.Builder
	for row := range fixtureRows {
		fmt.Fprintf(&lines, `{"idx":%d,"question":"what is %d?"}`+"\n", row, row%7)
	}
	write(t, items, lines.String())
	train("question_overlap, chosen_similarity; left out, as they read columns missing from " + items + ": agreement_0, ")
	write(t, items, `{"idx":0,"question":"what?"}`+"\n")
	refused(t, run(t, small(files, "selector=features", "hydra.run.dir="+folder(t))...), 2, "question_overlap reads question", items)
}

// TestScorer: a selector that reads the reader's own score says so wherever it is named, with the calls that it takes; it is no leak. Its
// checkpoint asks for the reader again, and data without one are refused.
func TestScorer(t *testing.T) {
	t.Parallel()
	dir, out := folder(t), "with scorer"
	r := mustRun(t, offline(t, "schedule=[sft]", "sft.epochs=2", "sft.lr=3e-3", "selector=features", "selector.scorer=true",
		"data.shapes.dev_queries=24",
		"hydra.run.dir="+dir)...)
	for where, text := range map[string]string{"stdout": r.Stdout, "report.md": read(t, filepath.Join(dir, "report.md")),
		"summary.json": read(t, filepath.Join(dir, "summary.json")), "comparison": mustRun(t, "report", dir, dir).Stdout} {
		if !strings.Contains(text, out) {
			t.Errorf("%s lacks %q:\n%s", where, out, text)
		}
		if strings.Contains(text, "input_predicts_rewards") {
			t.Errorf("%s: the score is no leak", where)
		}
	}
	// 24 queries for validation and 24 held out, with 32 candidates each
	if report := read(t, filepath.Join(dir, "report.md")); !strings.Contains(report, "up to 32 reader calls a query") ||
		!strings.Contains(report, "and 1,536 for those that judge it") {
		t.Errorf("the account:\n%s", report)
	}
	if checkpoint := read(t, filepath.Join(dir, "checkpoints/last.safetensors")); !strings.Contains(checkpoint, `"selector.scorer":"true"`) {
		t.Error("the checkpoint says nothing of selector.scorer")
	}
	files := beams(t, records())
	items := filepath.Join(filepath.Dir(strings.TrimPrefix(files[1], "data.beams=")), "items.jsonl")
	var lines strings.Builder
	for row := range fixtureRows {
		fmt.Fprintf(&lines, `{"idx":%d,"question":"what?","answer_counts":{"a":6}}`+"\n", row)
	}
	write(t, items, lines.String())
	refused(t, run(t, small(files, "hydra.run.dir="+folder(t), "selector=features", "selector.scorer=true")...), 2, "selector.scorer=true",
		strings.TrimPrefix(files[1], "data.beams="), "want data.reader=FILE.npz")
	refused(t, run(t, small(files, "hydra.run.dir="+folder(t), "selector.scorer=true")...), 2, "selector.scorer", "want selector.features")
	refused(t, run(t, small(files, "hydra.run.dir="+folder(t), "selector=features", "selector.features=[rank,score]")...), 2,
		"score is no feature", "selector.scorer=true asks for it")
}
