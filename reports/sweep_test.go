package reports

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/golden"
)

// sweepRun writes the folder of a small run whose best policy gains about gain over similarity.
func sweepRun(t *testing.T, dir string, seed uint64, gain float64, config string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(dir, ".hydra"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, ".hydra", "config.yaml"), []byte(config), 0o644))
	rng := rand.New(rand.NewPCG(seed, 1))
	similarity, best := Evaluation{Split: "dev", Policy: "similarity", Metric: "reward", Shots: 2}, Evaluation{Split: "dev", Policy: "best", Phase: "grpo", Epoch: 2, Metric: "reward", Shots: 2}
	shared := rand.New(rand.NewPCG(42, 1))
	for i := range 200 {
		s := shared.Float64()
		similarity.QueryIDs, best.QueryIDs = append(similarity.QueryIDs, int64(i)), append(best.QueryIDs, int64(i))
		similarity.Scores, best.Scores = append(similarity.Scores, s), append(best.Scores, s+gain+0.2*(rng.Float64()-0.5))
	}
	must(t, AppendEvals(dir, similarity, best))
	must(t, WriteSummary(dir, Summary{State: StateDone, Command: []string{"bin/run", "seed=1"}}))
}

// A sweep whose jobs left run folders: gains over similarity come from their summaries.
func TestSweepReport(t *testing.T) {
	dir := t.TempDir()
	var jobs []SweepJob
	for i, gain := range []float64{0.01, 0.02, 0.05, 0.06} {
		job := SweepJob{Number: i, Dir: filepath.Join(dir, string(rune('0'+i))), State: StateDone, Overrides: []string{"exp=okvqa_v3", "grpo.lr=" + []string{"1e-5", "1e-4"}[i/2], "seed=" + string(rune('0'+i%2))}}
		sweepRun(t, job.Dir, uint64(i), gain, "seed: 1\n")
		must(t, os.WriteFile(ReportPath(job.Dir), nil, 0o644))
		job.Objectives = []float64{0.08 + gain}
		job.Command = append([]string{"bin/run"}, job.Overrides...)
		jobs = append(jobs, job)
	}
	jobs = append(jobs, SweepJob{Number: 4, Dir: filepath.Join(dir, "4"), State: StateFailed, Overrides: []string{"exp=okvqa_v3", "grpo.lr=10", "seed=0"}, ExitCode: 1, Cause: "grpo epoch 1 step 2: loss is nan"})
	must(t, WriteSweepReport(dir, jobs, SweepOptions{Title: "okvqa_v3 sweep", Objectives: []SweepObjective{{Name: "val_reward"}}, Command: []string{"bin/run", "-m", "grpo.lr=1e-5,1e-4,10", "seed=0,1"}}))
	golden.File(t, "testdata/sweep.md", []byte(strings.ReplaceAll(readReport(t, dir), dir, "DIR")))

	must(t, os.WriteFile(filepath.Join(jobs[1].Dir, summaryFile), []byte("{"), 0o644))
	must(t, WriteSweepReport(dir, jobs, SweepOptions{Objectives: []SweepObjective{{Name: "val_loss", Minimize: true}}}))
	got := readReport(t, dir)
	for _, want := range []string{"**Best job.** Number 0 ", "## Not in this report", "job 1: "} {
		if !strings.Contains(got, want) {
			t.Errorf("minimising, with a damaged summary: no %q in\n%s", want, got)
		}
	}
}

func readReport(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(ReportPath(dir))
	must(t, err)
	return string(text)
}

func TestCompare(t *testing.T) {
	dir := t.TempDir()
	var dirs []string
	for i, gain := range []float64{0.01, 0.05, 0.012} {
		dirs = append(dirs, filepath.Join(dir, string(rune('a'+i))))
		sweepRun(t, dirs[i], uint64(i), gain, "seed: 1\ngrpo: {lr: "+[]string{"1.0e-5", "1.0e-4", "1.0e-5"}[i]+", epochs: 2}\n")
	}
	got, err := Compare(dirs)
	must(t, err)
	golden.File(t, "testdata/compare.md", []byte(strings.ReplaceAll(got, plain(dir), "DIR")))

	other := filepath.Join(dir, "other")
	sweepRun(t, other, 9, 0.1, "seed: 2\n")
	evals, err := os.ReadFile(filepath.Join(other, evalsFile))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(other, evalsFile), []byte(strings.ReplaceAll(string(evals), `"query_ids":[0,`, `"query_ids":[777,`)), 0o644))
	got, err = Compare([]string{dirs[0], other})
	must(t, err)
	if !strings.Contains(got, "were not scored on the same questions: no verdict") {
		t.Errorf("other questions were compared:\n%s", got)
	}
	if _, err := Compare(dirs[:1]); err == nil || err.Error() != "comparison: 1 run given: want at least 2" {
		t.Errorf("got %v", err)
	}
}
