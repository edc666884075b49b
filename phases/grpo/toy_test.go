package grpo

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const toyLoss = `package grpo

// lossToy is the sum over all tokens.
func lossToy() Loss { return Loss{Name: "toy", EveryToken: true, Divisor: func(Counts) float64 { return 100 }} }
`

const toyKL = `package grpo

import "fulcrum/internal/torchx"

// klToy is r⁴.
func klToy() Estimator {
	return Estimator{Name: "toy_kl", Sampled: func(r torchx.Tensor, _ float64) torchx.Tensor { return torchx.Square(torchx.Square(r)) }}
}
`

// TestToyEntries adds a loss and a KL estimator to the program by one file and one line each: a run trains with them, the
// checks of the options know their names, and so does the printed configuration's schema.
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
		file := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(root, path)] = file
	}
	put("phases/grpo/loss_toy.go", toyLoss)
	put("phases/grpo/kl_toy.go", toyKL)
	for path, line := range map[string][2]string{
		"phases/grpo/losses.go": {"return []Loss{", "return []Loss{lossToy(), "},
		"phases/grpo/kl.go":     {"return []Estimator{", "return []Estimator{klToy(), "},
	} {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || strings.Count(string(text), line[0]) != 1 {
			t.Fatalf("%s: %q stands there %d times (%v)", path, line[0], strings.Count(string(text), line[0]), err)
		}
		put(path, strings.Replace(string(text), line[0], line[1], 1))
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
	run := func(args ...string) (string, error) {
		args = append([]string{"exp=okvqa_v3", "threads=1", "data.batch_size=16", "selector.hidden_dim=32", "report.plots=false",
			"data.shapes.train_queries=48", "data.shapes.reader_questions=30", "data.shapes.val_queries=12", "data.shapes.dev_queries=0",
			"schedule=[grpo]", "grpo.epochs=1", "grpo.ratio=token", "hydra.run.dir=" + filepath.Join(t.TempDir(), "run")}, args...)
		cmd := exec.Command(program, args...)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(root, "bin", "lib"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("grpo.loss=toy", "grpo.kl.estimator=toy_kl"); err != nil {
		t.Errorf("a run with the toys: %v\n%s", err, out)
	}
	for _, tc := range []struct{ override, want string }{
		{"grpo.loss=toyy", "want one of toy, grpo, bnpo, dapo, dr_grpo, gspo, ppo_clip, got toyy (did you mean toy?)"},
		{"grpo.kl.estimator=toy_k", "want one of toy_kl, exact, k1, k2, k3, k3_reversed, got toy_k (did you mean toy_kl?)"},
	} {
		if out, err := run(tc.override); err == nil || !strings.Contains(out, tc.want) {
			t.Errorf("%s: %v\n%s\nwant %s", tc.override, err, out, tc.want)
		}
	}
	if out, err := run("grpo.loss=toy", "grpo.ratio=sequence"); err == nil || !strings.Contains(out, "toy averages over tokens") {
		t.Errorf("a loss over tokens with one ratio a sequence: %v\n%s", err, out)
	}
}
