package sweep_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"fulcrum/reports/record"
	"fulcrum/reports/stats"
)

// What exp=shapes_vl promises: on held-out questions GRPO beats SFT that its own validation has stopped, and
// the same number of further SFT steps, by more than the paired 95 % interval, for every seed. One seed takes
// about a quarter of an hour.
func TestStudyShapesVL(t *testing.T) {
	if testing.Short() {
		t.Skip("long: three runs of exp=shapes_vl and as many controls")
	}
	for seed := range 3 {
		dir, control := folder(t), folder(t)
		slow(t, "exp=shapes_vl", fmt.Sprintf("seed=%d", seed), "hydra.run.dir="+dir)
		handed := regexp.MustCompile(`sft hands on its epoch (\d+)`).FindStringSubmatch(read(t, filepath.Join(dir, "metrics.jsonl")))
		epoch := "10" // the last is the best: nothing was restored
		if handed != nil {
			epoch = handed[1]
		}
		slow(t, "exp=shapes_vl", fmt.Sprintf("seed=%d", seed), "schedule=[sft]", "sft.epochs=5", "sft.lr=3e-4",
			// 590 steps; rce and grpo: 564
			"init.checkpoint="+filepath.Join(dir, "checkpoints", "sft_epoch"+epoch+".safetensors"), "hydra.run.dir="+control)
		grpo := devAccuracy(t, dir, "best")
		for name, other := range map[string][]float64{"sft": devAccuracy(t, dir, "sft"), "further sft": devAccuracy(t, control, "sft")} {
			p, err := stats.ComparePaired(grpo, other, nil, stats.DefaultOptions())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("seed %d: GRPO over %s %+.4f [%+.4f, %+.4f]", seed, name, p.Mean, p.Interval.Low, p.Interval.High)
			if !(p.Interval.Low > 0) {
				t.Errorf("seed %d: GRPO is not better than %s", seed, name)
			}
		}
	}
}

// slow is mustRun for runs of many minutes.
func slow(t *testing.T, args ...string) {
	t.Helper()
	p := start(t, args...)
	p.Limit = time.Hour
	if r := p.Wait(); r.Code != 0 {
		t.Fatalf("run %v: exit code %d\n%s", args, r.Code, r.Stderr)
	}
}

// devAccuracy are the accuracies of a policy on the held-out questions, the last evaluation of that name.
func devAccuracy(t *testing.T, dir, policy string) []float64 {
	t.Helper()
	all, err := record.ReadEvals(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(all) - 1; i >= 0; i-- {
		if e := all[i]; e.Split == "dev" && e.Policy == policy && e.Metric == "accuracy" {
			return e.Scores
		}
	}
	t.Fatalf("%s has no accuracies of %s on dev", dir, policy)
	return nil
}
