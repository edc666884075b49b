package experiments_test

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/reports/record"
)

// Data of a user's own has a verdict without a reader: how the policy orders the recorded candidates, against the
// recorded order and similarity.
func TestVerdictWithoutAReader(t *testing.T) {
	t.Parallel()
	rs := records()
	for i := range rs { // best first, by a number that the pool's ids decide
		slices.SortFunc(rs[i].Candidates, func(a, b map[string]any) int { return int(b["pointer"].([]int64)[0] - a["pointer"].([]int64)[0]) })
		for g, c := range rs[i].Candidates {
			rs[i].Candidates[g] = map[string]any{"pointer": c["pointer"], "merit": 1 / float64(g+1),
				"gen_method": []string{"beam", "random"}[g%2]}
		}
	}
	data, dir := beams(t, rs), folder(t)
	held := strings.Replace(data[1], "data.beams=", "data.eval.beams=", 1)
	got := mustRun(t, small(data, "data.reward.field=merit", "data.train_ratio=0.5", "report.console=full", held, "hydra.run.dir="+dir)...)
	evals, err := record.ReadEvals(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, split := range []string{"val", "eval"} {
		for _, metric := range []string{"recorded_reward", "top1_accuracy", "pair_accuracy"} {
			for _, policy := range []string{"random", "similarity", "recorded_order", "init", "rce", "grpo", "best"} {
				i := slices.IndexFunc(evals, func(e record.Evaluation) bool {
					return e.Split == split && e.Metric == metric &&
						e.Policy == policy
				})
				if i < 0 {
					t.Errorf("evals.jsonl lacks %s of %s on %s", metric, policy, split)
					continue
				}
				if n := map[string]int{"val": 12, "eval": 24}[split]; len(evals[i].Scores) != n {
					t.Errorf("%s of %s on %s: %d queries, want %d", metric, policy, split, len(evals[i].Scores), n)
				}
				want := map[string]float64{"recorded_order recorded_reward": 1, "recorded_order top1_accuracy": 1,
					"recorded_order pair_accuracy": 1,
					"random recorded_reward":       (1 + 1.0/2 + 1.0/3 + 1.0/4) / 4, "random top1_accuracy": 0.25, "random pair_accuracy": 0.5}[policy+" "+
					metric]
				if want > 0 && math.Abs(evals[i].Mean()-want) > 1e-12 {
					t.Errorf("%s of %s on %s: got %v, want %v", metric, policy, split, evals[i].Mean(), want)
				}
			}
		}
	}
	var summary record.Summary
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "summary.json"))), &summary); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, s := range summary.Evaluations {
		if s.Policy != "best" {
			continue
		}
		if s.OverSimilarity == nil || s.OverRecorded == nil {
			t.Errorf("%s on %s is not compared with similarity and the recorded order", s.Metric, s.Split)
			continue
		}
		compared++
		if p := s.OverRecorded; !(p.Interval.Low <= p.Mean && p.Mean <= p.Interval.High) || p.Mean >= 0 {
			t.Errorf("%s on %s over the recorded order: %+v", s.Metric, s.Split, *p)
		}
	}
	if compared != 6 {
		t.Errorf("%d comparisons of the best policy, want 6", compared)
	}
	for _, place := range []struct{ name, text, want string }{
		{"the console", got.Stdout, "recorded reward on val, 12 queries"},
		{"the console", got.Stdout, "recorded order (best first)"},
		{"the report", read(t, filepath.Join(dir, "report.md")), "**Verdict.** On the held-out questions (eval, look 1) "},
		{"the report", read(t, filepath.Join(dir, "report.md")), "\n| recorded order (best first) | 1.000 ± 0 | "},
		{"the report", read(t, filepath.Join(dir, "report.md")), "The file lists the best candidate first: its order is an oracle"},
		{"the report", read(t, filepath.Join(dir, "report.md")), "### Pair accuracy on eval, held out"},
		{"the report", read(t, filepath.Join(dir, "report.md")), "| beam | 48 | 0.6667 |\n| random | 48 | 0.3750 |"},
		{"the report", read(t, filepath.Join(dir, "report.md")), "Over the phase before: grpo (epoch 1) "},
		{"the report", read(t, filepath.Join(dir, "report.md")), "It is the latest checkpoint within one paired standard error of the highest: "},
		{"the console", got.Stdout, "; it is the latest checkpoint within one paired standard error of the highest: "},
		{"the console", got.Stdout, "Over random: best ("},
		{"the console", got.Stdout, "\nbest by val_recorded_reward: "},
		{"the console", got.Stderr, " to the initial policy  loss "},
		{"the console", got.Stderr, " to the phase's start  kl_beta "},
	} {
		if !strings.Contains(place.text, place.want) {
			t.Errorf("%s lacks %q:\n%s", place.name, place.want, place.text)
		}
	}
	mustRun(t, "verify", dir)
}
