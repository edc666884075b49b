package experiments_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// selector.shot_num = null takes the checkpoint's number of shots; a number given wins over it. What is
// evaluated and what the new checkpoints say agree.
func TestShotsOfACheckpoint(t *testing.T) {
	t.Parallel()
	brief := func(more ...string) []string {
		return with(tiny("schedule=[rce]", "rce.epochs=1", "report.plots=false", "logging.tensorboard=false"), more)
	}
	three := folder(t)
	mustRun(t, brief("selector.shot_num=3", "hydra.run.dir="+three)...)
	for _, tc := range []struct{ override, want string }{
		{"", "3"}, // the data has 2
		{"selector.shot_num=1", "1"},
	} {
		t.Run("shots "+tc.want, func(t *testing.T) {
			dir := folder(t)
			args := brief("init.checkpoint="+three, "hydra.run.dir="+dir)
			if tc.override != "" {
				args = append(args, tc.override)
			}
			mustRun(t, args...)
			evals := read(t, filepath.Join(dir, "evals.jsonl"))
			if n, all := strings.Count(evals, `"shots":`+tc.want+","), strings.Count(evals, "\n"); n != all || n < 5 {
				t.Errorf("%d of %d evaluations are of %s shots", n, all, tc.want)
			}
			for _, name := range []string{"init_epoch0", "rce_epoch1"} {
				said := mustRun(t, "checkpoint", "inspect", filepath.Join(dir, "checkpoints", name+".safetensors")).Stdout
				if !strings.Contains(said, "selector.shot_num = "+tc.want+"\n") {
					t.Errorf("%s: want selector.shot_num = %s:\n%s", name, tc.want, said)
				}
			}
		})
	}
}

// eval.max_queries asks every policy the same few validation queries, whatever the seed, and all held-out ones; the report says so.
func TestFewerValidationQueries(t *testing.T) {
	t.Parallel()
	few := []string{"eval.max_queries=5", "logging.tensorboard=false"}
	asked := map[string][]int64{} // by policy
	for name, args := range map[string][]string{
		"pointer": tiny("report.plots=false"), "pointer, another seed": tiny("report.plots=false", "seed=4", "schedule=[rce]"),
		"t5": tinySummaries("t5", "schedule=[grpo]", "grpo.epochs=1", "data.summaries.train=8", "report.plots=false"),
	} {
		dir := folder(t)
		mustRun(t, with(with(args, few), []string{"hydra.run.dir=" + dir})...)
		val, other := 0, 0
		for what, e := range evaluations(t, dir) {
			if e.Split != "val" {
				if other++; len(e.Scores) <= 5 {
					t.Errorf("%s: %s has %d queries, want all", name, what, len(e.Scores))
				}
				continue
			}
			policy, _, _ := strings.Cut(name, ",")
			if asked[policy] == nil {
				asked[policy] = e.QueryIDs
			}
			if val++; len(e.QueryIDs) != 5 || !slices.Equal(e.QueryIDs, asked[policy]) {
				t.Errorf("%s: %s has queries %v, want %v", name, what, e.QueryIDs, asked[policy])
			}
		}
		if val < 3 || other == 0 {
			t.Errorf("%s: %d evaluations on validation queries, %d on others", name, val, other)
		}
		if report := read(t, filepath.Join(dir, "report.md")); !strings.Contains(report, "Validation asks 5 of its ") {
			t.Errorf("%s: the report does not say how many queries were asked", name)
		}
		verifies(t, dir)
	}
	dir := folder(t)
	refused(t, run(t, "task=evaluate", "evaluate.results=x", "evaluate.annotations=y", "eval.max_queries=5", "hydra.run.dir="+dir), 2,
		"eval.max_queries", "want null with task=evaluate")
}
