package grpo

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const toyLoss = `
		// the sum over all tokens
		{Name: "toy", EveryToken: true, Divisor: func(Counts) float64 { return 100 }},
`

const toyKL = `package grpo

import "fulcrum/internal/torchx"

// klToy is r⁴.
func klToy() Estimator {
	return Estimator{Name: "toy_kl", Sampled: func(r torchx.Tensor, _ float64) torchx.Tensor { return torchx.Square(torchx.Square(r)) }}
}
`

const toyAdvantage = `package advantage

// toy is +1 above the group's first reward and -1 elsewhere.
func toy() Method {
	return Method{Name: "toy", ShiftInvariant: true, Group: func(r []float64, _ Options) []float64 {
		out := make([]float64, len(r))
		for i := range r {
			out[i] = -1
			if r[i] > r[0] {
				out[i] = 1
			}
		}
		return out
	}}
}
`

const toyReward = `package reward

import "context"

// ToyOptions rewards completions that have an e.
type ToyOptions struct {
	Weight float64 ` + "`koanf:\"weight\" range:\"[0,inf)\"`" + `
}

func (o ToyOptions) weight() float64 { return o.Weight }

func (o ToyOptions) build() (Reward, error) { return o, nil }

// Score returns 1 where there is an e.
func (o ToyOptions) Score(_ context.Context, items []Item) ([]float64, error) {
	out := make([]float64, len(items))
	for i, item := range items {
		for _, letter := range item.Completion {
			if letter == 'e' {
				out[i] = 1
			}
		}
	}
	return out, nil
}
`

// TestToyEntries adds a loss, a KL estimator, an advantage method and a reward of completions to the program by one file and one line each:
// runs train with them, and the checks of the options know their names. (Tasks and policies: TestToyTaskAndPolicy in experiments/tasks.)
func TestToyEntries(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, overlay := t.TempDir(), map[string]string{}
	put := func(path, text string) {
		t.Helper()
		file := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(root, path)] = file
	}
	put("phases/grpo/kl_toy.go", toyKL)
	put("rewardutil/advantage/toy.go", toyAdvantage)
	put("rewardutil/reward/toy.go", toyReward)
	lines := map[string][]string{ // path → what stands there, what it becomes, and so on
		"phases/grpo/losses.go":           {"return []Loss{", "return []Loss{" + toyLoss, "return []Estimator{", "return []Estimator{klToy(), "},
		"rewardutil/advantage/methods.go": {"return []Method{", "return []Method{toy(), "},
		"rewardutil/reward/rewards.go":    {"type Options struct {", "type Options struct {\n\tToy ToyOptions `koanf:\"toy\"`"},
	}
	for path, line := range lines {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(line); i += 2 {
			if n := strings.Count(string(text), line[i]); n != 1 {
				t.Fatalf("%s: %q stands there %d times", path, line[i], n)
			}
		}
		put(path, strings.NewReplacer(line...).Replace(string(text)))
	}
	replaced, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	put("overlay.json", string(replaced))
	program := filepath.Join(dir, "run")
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./cmd/run")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the program: %v\n%s", err, out)
	}
	run := func(exp string, args ...string) (string, error) {
		dir := filepath.Join(t.TempDir(), "run")
		args = append([]string{"exp=" + exp, "threads=1", "report.plots=false", "schedule=[grpo]", "grpo.epochs=1",
			"hydra.run.dir=" + dir}, args...)
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(root, "bin", "lib"))
		out, err := cmd.CombinedOutput()
		rows, _ := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
		return string(out) + string(rows), err
	}
	pointer := func(args ...string) (string, error) {
		return run("beams_v3", append([]string{"data.batch_size=16", "selector.hidden_dim=32", "data.shapes.train_queries=48",
			"data.shapes.reader_questions=30", "data.shapes.val_queries=12", "data.shapes.dev_queries=0", "grpo.ratio=token"}, args...)...)
	}
	if out, err := pointer("grpo.loss=toy", "grpo.kl.estimator=toy_kl", "grpo.advantage.method=toy"); err != nil {
		t.Errorf("a run with the toys: %v\n%s", err, out)
	}
	text := func(args ...string) (string, error) {
		return run("summaries_tiny", append([]string{"rewards.toy.weight=1", "rewards.rouge.weight=0", "seq2seq.generation.max_new_tokens=8",
			"data.summaries.train=8", "data.summaries.val=4", "data.summaries.test=0", "grpo.loss=toy", "grpo.ratio=token"}, args...)...)
	}
	if out, err := text(); err != nil || !strings.Contains(out, `"reward_toy`) {
		t.Errorf("a run with the toy reward and loss: %v\n%s\nwant its term in the rows", err, out)
	}
	for _, tc := range []struct{ override, want string }{
		{"grpo.loss=toyy", "want one of toy, grpo, bnpo, dapo, dr_grpo, gspo, ppo_clip, got toyy (did you mean toy?)"},
		{"grpo.advantage.method=toys", "want one of toy, z_score, mean_only, batch_std, leave_one_out, rank, reference_rollout, none, got toys"},
		{"rewards.toys.weight=1", "toy"},
		{"grpo.kl.estimator=toy_k", "want one of toy_kl, exact, k1, k2, k3, k3_reversed, got toy_k (did you mean toy_kl?)"},
	} {
		if out, err := pointer(tc.override); err == nil || !strings.Contains(out, tc.want) {
			t.Errorf("%s: %v\n%s\nwant %s", tc.override, err, out, tc.want)
		}
	}
	if out, err := pointer("grpo.loss=toy", "grpo.ratio=sequence"); err == nil || !strings.Contains(out, "toy averages over tokens") {
		t.Errorf("a loss over tokens with one ratio a sequence: %v\n%s", err, out)
	}
}
