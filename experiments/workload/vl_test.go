package workload

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"fulcrum/experiments/job"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/torchx"
)

// TestEndOfTheTokenizer: where no file but tokenizer_config.json says what ends a completion, the model ends there too.
func TestEndOfTheTokenizer(t *testing.T) {
	if err := torchx.Load(); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(filepath.Dir(golden.Shared(t, "qwen2_5_vl", "tiny_tied", "config.json")))); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(folder, "generation_config.json")); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(folder, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	without := regexp.MustCompile(`"eos_token_id": \d+,`).ReplaceAll(config, nil)
	golden.Write(t, folder, map[string]string{"config.json": string(without)})
	j := &job.Job{Config: job.DefaultConfig(job.Entries{Policies: Traits()}), Device: "cpu"}
	vlOf(j.Config).Path, vlOf(j.Config).LoRA.Enabled = &folder, false
	model, proc, err := openVL(j, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer model.Free()
	if len(model.EOS()) == 0 || !slices.Equal(model.EOS(), proc.EOS()) {
		t.Errorf("the model ends at %v, the processor at %v", model.EOS(), proc.EOS())
	}
}
