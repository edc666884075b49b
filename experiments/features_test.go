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
