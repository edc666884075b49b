package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What would hang, wait for ever or fill the memory is refused by name and at once.
func TestHostileInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pipe, filepath.Join(dir, "piped.yaml")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "key.yaml"), "defaults: [config, _self_]\nsft:\n  ? "+strings.Repeat("k", 2_000_000)+"\n  : 1\n")
	write(t, filepath.Join(dir, "long.yaml"), "defaults: [config, _self_]\nname: "+strings.Repeat("k", 5_000_000)+"\n")
	for _, tc := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"more threads than any machine has", tiny("threads=100000"), 2, []string{"threads=100000", "[0, 1024]"}},
		{"a key of 2 MB", []string{"-cd", dir, "-cn", "key", "dry_run=true"}, 2, []string{"key.yaml:4:5", "unknown key sft.kkk"}},
		{"a config of 5 MB", []string{"-cd", dir, "-cn", "long", "dry_run=true"}, 2, []string{"long.yaml", "5000034 bytes: want at most"}},
		{"a config that is a pipe", []string{"-cd", dir, "-cn", "piped", "dry_run=true"}, 2, []string{"piped.yaml", "want a regular file"}},
		{"beams that are a pipe", small([]string{"data=beams", "data.beams=" + pipe, beams(t, records())[2]}), 1,
			[]string{pipe, "want a regular file, it is a pipe"}},
		{"embeddings that are a device", small([]string{"data=beams", beams(t, records())[1], "data.embeddings=/dev/zero"}), 1,
			[]string{"/dev/zero"}},
		{"a checkpoint that is a pipe", tiny("init.checkpoint=" + pipe), 1, []string{pipe, "it is a pipe"}},
		{"prompts that are a device", []string{"task=score", "policy=qwen2_5_vl", "vl.path=" + dir, "score.in=/dev/zero",
			"score.out=" + dir + "/out"}, 2, []string{"score.in=/dev/zero", "it is a device"}},
		{"a completion longer than the model", []string{"exp=shapes_vl", "vl.generation.max_new_tokens=40000", "dry_run=true"}, 1,
			[]string{"40000", "want at most 32768 together (max_position_embeddings"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := start(t, append(tc.args, "hydra.run.dir="+folder(t))...)
			p.Limit = time.Minute
			r := p.Wait()
			refused(t, r, tc.code, tc.want...)
			if len(r.Stderr) > 20_000 {
				t.Errorf("%d bytes of message", len(r.Stderr))
			}
		})
	}
}
