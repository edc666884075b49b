package compare

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
	"fulcrum/reports/results"
)

// Runs with other limits of tokens answer the same questions.
func TestCompareAnswers(t *testing.T) {
	a, b := answers(t, 1), answers(t, 2)
	path := filepath.Join(b, record.EvalsFile)
	evals, err := os.ReadFile(path)
	reportstest.Must(t, err)
	reportstest.Must(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(evals), `"shots":16`, `"shots":32`)), 0o644))
	got, err := compareText([]string{a, b})
	reportstest.Must(t, err)
	golden.File(t, "testdata/answers/compare.md", []byte(strings.NewReplacer(page.Plain(a), "DIR/a", page.Plain(b), "DIR/b").Replace(got)))
}

// answers writes the folder of a run of a token policy that gains over the most frequent answer. The reward is mostly its accuracy.
func answers(t *testing.T, seed uint64) string {
	t.Helper()
	r := reportstest.Begin(t, "answers", filepath.Join(t.TempDir(), "answers"), record.LoggingOptions{LogEverySteps: 1})
	for _, phase := range []struct {
		name  string
		steps int
	}{{"sft", 60}, {"grpo", 90}} {
		r.Global += phase.steps
		r.Record(record.KindStep, phase.name, 2, phase.steps, map[string]any{"loss": 1.0})
		r.Record(record.KindEpoch, phase.name, 2, phase.steps, map[string]any{"loss": 1.0})
	}
	for _, of := range []struct {
		policy, phase string
		epoch         int
		mean          float64
	}{{"majority", "", 0, 0.2}, {"init", "init", 0, 0}, {"best", "grpo", 2, 0.46}} {
		for i, split := range []string{"val", "dev"} {
			n := 200 * (i + 1)
			rng := rand.New(rand.NewPCG(seed, uint64(n+len(of.policy))))
			ids, rewards, accuracies := make([]int64, n), make([]float64, n), make([]float64, n)
			for q := range ids {
				ids[q] = int64(q)
				if rng.Float64() < of.mean {
					rewards[q], accuracies[q] = 1, 1
				} else if of.mean > 0 {
					rewards[q] = 0.1 // of its format
				}
			}
			r.Evaluate(record.Evaluation{Split: split, Policy: of.policy, Phase: of.phase, Epoch: of.epoch, Shots: 16, QueryIDs: ids}, 0,
				map[string]any{"reward": stat.Mean(rewards), "accuracy": stat.Mean(accuracies)}, rewards, accuracies)
		}
	}
	reportstest.Must(t, results.WriteSummary(r.Dir, r.End()))
	return r.Dir
}

func TestCompare(t *testing.T) {
	dir := t.TempDir()
	var dirs []string
	for i, gain := range []float64{0.01, 0.05, 0.012} {
		dirs = append(dirs, filepath.Join(dir, string(rune('a'+i))))
		reportstest.SweepRun(t, dirs[i], uint64(i), gain, "seed: 1\ngrpo: {lr: "+[]string{"1.0e-5", "1.0e-4", "1.0e-5"}[i]+", epochs: 2}\n")
	}
	got, err := compareText(dirs)
	reportstest.Must(t, err)
	golden.File(t, "testdata/compare.md", []byte(strings.ReplaceAll(got, page.Plain(dir), "DIR")))

	other := filepath.Join(dir, "other")
	reportstest.SweepRun(t, other, 9, 0.1, "seed: 2\n")
	evals, err := os.ReadFile(filepath.Join(other, record.EvalsFile))
	reportstest.Must(t, err)
	reportstest.Must(t, os.WriteFile(filepath.Join(other, record.EvalsFile),
		[]byte(strings.ReplaceAll(string(evals), `"query_ids":[0,`, `"query_ids":[777,`)), 0o644))
	got, err = compareText([]string{dirs[0], other})
	reportstest.Must(t, err)
	if !strings.Contains(got, "were not scored on the same questions: no verdict") || strings.Contains(got, "| similarity |") {
		t.Errorf("other questions were compared, or have a baseline of one run:\n%s", got)
	}
	reportstest.Must(t, os.WriteFile(filepath.Join(other, record.EvalsFile),
		[]byte(strings.ReplaceAll(string(evals), `"shots":2`, `"shots":4`)), 0o644))
	if got, err = compareText([]string{dirs[0], other}); err != nil || !strings.Contains(got, "B is better than A (of these two runs") {
		t.Errorf("a run of more shots, as an arm of such runs, is compared: %v\n%s", err, got)
	}
	if _, err := compareText(dirs[:1]); err == nil || err.Error() != "comparison: 1 run given: want at least 2" {
		t.Errorf("got %v", err)
	}
}

// Two runs have the later look, shared with those before it; a look that nobody counted is said.
func TestCompareSaysLooks(t *testing.T) {
	looked := func(seed uint64, look string) string {
		dir := reportstest.FakeRun(t, seed)
		reportstest.Must(t, os.WriteFile(filepath.Join(dir, record.LooksFile),
			[]byte(`{"id": "a", "looks": [{"split": "dev", "metric": "reward", `+look+`}]}`), 0o644))
		return dir
	}
	five, four, none := looked(1, `"look": 5, "level": 0.0012`), looked(2, `"look": 4, "level": 0.0019`), looked(3, `"missing": "disk full"`)
	for _, tc := range []struct {
		dirs []string
		want string
	}{
		{[]string{five, four}, "corrected for look 5, p for "},
		{[]string{five, four}, "This was look 5 at these questions (evidence.ledger): all looks share a level of 0.05, and this one has 0.00024"},
		{[]string{five, none}, "the level is not corrected for it: there is no ledger of looks (disk full)"},
	} {
		got, err := compareText(tc.dirs)
		reportstest.Must(t, err)
		if !strings.Contains(got, tc.want) {
			t.Errorf("the comparison lacks %q:\n%s", tc.want, got)
		}
	}
}

// compareText is a comparison as run report prints it.
func compareText(dirs []string) (string, error) {
	d, _, err := Compare(dirs)
	if err != nil {
		return "", err
	}
	return d.Text(), nil
}
