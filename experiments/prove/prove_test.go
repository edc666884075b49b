package prove

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/runtest"
)

func TestMain(m *testing.M) { os.Exit(runtest.Main(m)) }

// TestProve: an honest run is proven, from its oldest kept state and from its start, by another number of processes; what was changed
// afterwards is named, whatever the run's own digests say.
func TestProve(t *testing.T) {
	dir := runtest.Folder(t)
	runtest.MustRun(t, runtest.Tiny("parallel.shards=3", "hydra.run.dir="+dir, "report.plots=false")...)
	for _, tc := range []struct {
		name   string
		o      Options
		tamper func(t *testing.T, dir string)
		want   string // of the sentence, or of the error
		fails  bool
	}{
		{"honest", Options{Steps: 2}, nil, "by 2 processes, shards in the other order", false},
		{"from the start", Options{FromStart: true}, nil, "12 of 12 steps repeated from the start", false},
		{"a weight", Options{Steps: 1}, func(t *testing.T, dir string) { changeWeight(t, dir) }, "differs when it is computed again", true},
		{"a row", Options{}, func(t *testing.T, dir string) {
			runtest.Change(t, filepath.Join(dir, "metrics.jsonl"), `"global_step":12,`, `"global_step":12,"more":1,`)
		}, "step 12 differs", true},
		{"a learning rate", Options{}, func(t *testing.T, dir string) {
			runtest.Change(t, filepath.Join(dir, ".hydra", "config.yaml"), `(?m)^  lr: .*$`, "  lr: 0.01")
		}, "could not be repeated", true},
		{"a seed", Options{FromStart: true}, func(t *testing.T, dir string) {
			runtest.Change(t, filepath.Join(dir, ".hydra", "config.yaml"), `(?m)^seed: 3$`, "seed: 4")
		}, "differs", true},
		{"its end", Options{}, func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "summary.json")); err != nil {
				t.Fatal(err)
			}
		}, "has trained and is finished", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			of := dir
			if tc.tamper != nil {
				of = runtest.Copied(t, dir)
				tc.tamper(t, of)
			}
			tc.o.Program = runtest.Program(t)
			said, err := Run(t.Context(), of, tc.o)
			if err != nil {
				said = err.Error()
			}
			if (err != nil) != tc.fails || !strings.Contains(said, tc.want) {
				t.Errorf("%s (%v), want %q", said, err, tc.want)
			}
		})
	}
}

// TestProveUnloggedSteps: steps are counted, not their rows; where none has a row, checkpoints alone are compared.
func TestProveUnloggedSteps(t *testing.T) {
	for every, want := range map[string]string{"4": "proven: 3 of 12 steps repeated", "1000": "0 rows drawn and 1 checkpoint have"} {
		dir := runtest.Folder(t)
		runtest.MustRun(t, runtest.Tiny("logging.log_every_steps="+every, "hydra.run.dir="+dir, "report.plots=false")...)
		said, err := Run(t.Context(), dir, Options{Program: runtest.Program(t)})
		if err != nil || !strings.Contains(said, want) {
			t.Errorf("every %s: %s (%v), want %q", every, said, err, want)
		}
	}
}

// changeWeight changes the last bit of a weight of the last checkpoint, and its digest with it.
func changeWeight(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "checkpoints", "grpo_epoch2.safetensors")
	f, err := tensorfile.ReadSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []tensorfile.Tensor
	for _, of := range f.Tensors {
		of.Data = append([]byte(nil), of.Data...)
		tensors = append(tensors, of)
	}
	tensors[0].Data[0] ^= 1
	metadata := f.Metadata
	f.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := tensorfile.WriteSafetensors(path, tensors, metadata); err != nil {
		t.Fatal(err)
	}
}
