package tasks_test

import (
	"path/filepath"
	"testing"
)

// A policy that may stop trains on recorded and on sampled groups, reports examples and predicts 1 to S examples.
func TestAdaptiveShots(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	mustRun(t, tiny("exp=okvqa_online", "selector=v4_10", "selector.hidden_dim=32", "selector.shot_num=3",
		"rce.epochs=4", "rce.lr=0.01", "grpo.epochs=1", "grpo_online.epochs=1", // recorded selections of two teach it to stop
		"hydra.run.dir="+dir)...)
	out := filepath.Join(t.TempDir(), "predictions.jsonl")
	mustRun(t, "task=predict", "init.checkpoint="+dir, "data.shapes.train_queries=48", "data.shapes.reader_questions=30",
		"data.shapes.val_queries=16", "data.shapes.dev_queries=16", "predict.beam_size=2",
		"predict.out="+out, "hydra.run.dir="+filepath.Join(t.TempDir(), "predict"))
	counts := map[int]int{}
	for _, p := range predictions(t, out) {
		n := len(p.Pointer)
		counts[n]++
		sum := 0.0
		for _, s := range p.Scores {
			sum += s
		}
		if n < 1 || n > 3 || len(p.PointerPos) != n || len(p.Scores) != n || n < 3 && p.LogProb >= sum || n == 3 && p.LogProb-sum > 1e-4 {
			t.Errorf("query %d: %d examples at %v, log-probability %g, scores %v", p.QueryID, n, p.PointerPos, p.LogProb, p.Scores)
		}
	}
	if len(counts) < 2 {
		t.Errorf("selections of %v examples, want different numbers", counts)
	}
}
