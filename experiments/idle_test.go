package experiments_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A key without effect is refused before anything is written: of a run, of a repetition, and of a sweep where it acts in none of its
// jobs. What presets set for sections that do not act is left out in silence.
func TestKeysWithoutEffectAreRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(folder(t), "run")
	const judge = "rewards.external.url belongs to policy=qwen2_5_vl or policy=seq2seq"
	refused(t, run(t, tiny("rewards.external.url=http://127.0.0.1:1", "hydra.run.dir="+dir)...), 2, judge+", and has no effect in this run")
	refused(t, run(t, tiny("rewards.external.url=http://127.0.0.1:1", "--cfg", "job")...), 2, judge)
	refused(t, run(t, "--rerun", undrawn(t), "vl.path=/model", "hydra.run.dir="+dir), 2, "vl.path belongs to policy=qwen2_5_vl")
	refused(t, run(t, tiny("-m", "seed=1,2", "vl.path=/model", "hydra.sweep.dir="+dir)...), 2, "vl.path belongs to policy=qwen2_5_vl")
	refused(t, run(t, tiny("-m", "sft.lr=1e-3,1e-4", "hydra.sweep.dir="+dir)...), 2, "sft.lr belongs to schedule=[rce,grpo,sft]")
	refused(t, run(t, tiny("-m", "seed=1,2", "vl.path=/model", "--cfg", "sweep")...), 2, "vl.path belongs to policy=qwen2_5_vl")
	if exists(dir) {
		t.Error("what was refused left a folder")
	}
	swept := mustRun(t, tiny("-m", "dry_run=true", "schedule=[rce],[grpo]", "grpo.kl.beta=0.1", "hydra.sweep.dir="+dir)...)
	if !strings.HasSuffix(swept.Stdout, "2 jobs tried, nothing was trained or written\n") {
		t.Errorf("a key that acts in one of two jobs:\n%s%s", swept.Stdout, swept.Stderr)
	}
	said := mustRun(t, tiny("dry_run=true", "schedule=[rce]", "grpo/kl=k3", "exp=okvqa_online", "exp=beams_v3", "hydra.run.dir="+dir)...)
	for _, want := range []string{"warning: grpo/kl=k3 has no effect: grpo.kl belongs to schedule=[rce,grpo]",
		"warning: exp=okvqa_online has no effect: exp=beams_v3 comes later"} {
		if strings.Count(said.Stderr, want) != 1 {
			t.Errorf("not once %q:\n%s", want, said.Stderr)
		}
	}
}

// A dry run looks at the folder that the run would have, and leaves it as it is.
func TestDryRunLooksAtTheFolder(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	file, sealed := filepath.Join(work, "file"), filepath.Join(work, "sealed")
	write(t, file, "mine")
	if err := os.Mkdir(sealed, 0o500); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(work, "held")
	bad := map[string]string{
		file: "it is a file", filepath.Join(file, "below"): "it is a file, or lies below one", "/proc/x": "/proc/x",
		undrawn(t): "already holds a run",
		filepath.Join(work, "new", strings.Repeat("a", 300)): "file name too long",
	}
	if os.Geteuid() != 0 { // whom no permission stops
		bad[filepath.Join(sealed, "run")] = "permission denied"
	}
	for dir, want := range bad {
		refused(t, run(t, tiny("dry_run=true", "hydra.run.dir="+dir)...), 2, want)
		refused(t, run(t, tiny("dry_run=true", "hydra.job.chdir=true", "hydra.run.dir="+dir)...), 2, want)
	}
	refused(t, run(t, tiny("-m", "dry_run=true", "seed=1,2", "hydra.sweep.dir="+file)...), 2, "it is a file")
	refused(t, run(t, tiny("-m", "dry_run=true", "seed=1,2", "hydra.sweep.dir=/proc/x")...), 2, "/proc/x")
	mustRun(t, tiny("dry_run=true", "hydra.job.chdir=true", "hydra.run.dir="+held)...)
	if left, err := os.ReadDir(work); err != nil || len(left) != 2 || read(t, file) != "mine" {
		t.Errorf("the dry runs left %v, %v", left, err)
	}
}
