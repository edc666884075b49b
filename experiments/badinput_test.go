package experiments_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Bad input gives one clear line and exit code 1 or 2, and loses nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	run0, _ := trained(t)
	good := beams(t, records())
	beamFile, embFile := strings.TrimPrefix(good[1], "data.beams="), strings.TrimPrefix(good[2], "data.embeddings=")
	truncated := filepath.Join(filepath.Dir(beamFile), "truncated.safetensors")
	write(t, truncated, half(read(t, filepath.Join(run0, "checkpoints/last.safetensors"))))
	notBeams := filepath.Join(filepath.Dir(beamFile), "torn.json")
	write(t, notBeams, half(read(t, beamFile)))
	bad := func(change func(rs []beamRecord)) []string {
		rs := records()
		change(rs)
		return small(beams(t, rs))
	}
	with := func(args []string, more ...string) []string { return append(append([]string{}, args...), more...) }
	id := records()[3].ID
	for _, tc := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"a missing beam file", small([]string{"data=beams", "data.beams=/nowhere/b.json", good[2]}), 2,
			[]string{"/nowhere/b.json", "no such file", "data.beams"}},
		{"a missing embedding table", small([]string{"data=beams", good[1], "data.embeddings=/nowhere/e.npy"}), 2,
			[]string{"/nowhere/e.npy", "data.embeddings"}},
		{"a beam file cut short", small([]string{"data=beams", "data.beams=" + notBeams, good[2]}), 1, []string{notBeams}},
		{"one cut short, before one that is missing", small([]string{"data=beams", "data.beams=" + notBeams, good[2],
			"data.eval.beams=/nowhere/e.json"}), 1, []string{notBeams}},
		{"an embedding table that is none", small([]string{"data=beams", good[1], "data.embeddings=" + beamFile}), 1, []string{beamFile}},
		{"a beam file that is none", small([]string{"data=beams", "data.beams=" + embFile, good[2]}), 1, []string{embFile}},
		{"an unknown key names the nearest", tiny("grpo.kl.bta=1"), 2, []string{"bta", "grpo.kl.beta"}},
		{"an unknown group names the choices", tiny("grpo/kl=fxed"), 2, []string{"fxed", "fixed"}},
		{"a wrong type", tiny("rce.epochs=many"), 2, []string{"rce.epochs=many", "integer"}},
		{"a value out of range", tiny("rce.lr=-1"), 2, []string{"rce.lr=-1", "(0, inf)"}},
		{"two mistakes are both told", tiny("rce.lr=-1", "grpo.epochs=x"), 2, []string{"rce.lr=-1"}},
		{"an unknown phase", tiny("schedule=[rce,gpro]"), 2, []string{"gpro", "grpo"}},
		{"an unknown task", tiny("task=trian"), 2, []string{"trian", "train"}},
		{"no phase has epochs", tiny("schedule=[sft]"), 2, []string{"sft"}},
		{"no phase", tiny("schedule=[]"), 2, []string{"schedule=[]", "init.checkpoint"}},
		{"data=okvqa without a root", []string{"exp=okvqa_v3", "data=okvqa"}, 2, []string{"data.root"}},
		{"data=okvqa with a root that is missing", []string{"exp=okvqa_v3", "data=okvqa", "data.root=/nowhere"}, 2, []string{"/nowhere"}},
		{"cuda without CUDA", tiny("device=cuda"), 2, []string{"device=cuda", "cpu"}},
		{"a device that there is not", tiny("device=tpu"), 2, []string{"device=tpu"}},
		{"predict without a checkpoint", []string{"task=predict"}, 2, []string{"init.checkpoint"}},
		{"a missing checkpoint", tiny("init.checkpoint=/nowhere/c.pt"), 2, []string{"/nowhere/c.pt"}},
		{"a pattern that fits no file", []string{"policy=seq2seq", "grpo=tokens", "grpo/kl=k3", "schedule=[sft]", "data=texts",
			"data.texts.train=/nowhere/*.jsonl"}, 2, []string{"data.texts.train=/nowhere/*.jsonl: no file has such a name"}},
		{"a folder without checkpoints", tiny("init.checkpoint=" + filepath.Dir(beamFile)), 2, []string{filepath.Dir(beamFile), "best"}},
		{"a truncated checkpoint", tiny("init.checkpoint=" + truncated), 1, []string{truncated}},
		{"a checkpoint that is none", tiny("init.checkpoint=" + beamFile), 1, []string{beamFile}},
		{"a contradicting group", tiny("init.checkpoint="+run0, "selector=v3"), 2,
			[]string{"v3 contradicts", run0, "trained with v3_skip"}},
		{"a contradicting override", tiny("init.checkpoint="+run0, "selector.num_layers=2"), 2,
			[]string{"selector.num_layers=2", "contradicts", "1"}},
		{"a selector that no memory holds", tiny("selector.hidden_dim=1000000"), 1, []string{"selector.hidden_dim=1000000", "of memory"}},
		{"more layers than memory holds", tiny("selector.num_layers=1000000000"), 1,
			[]string{"selector.num_layers=1000000000", "of memory"}},
		{"a size that overflows", tiny("selector.hidden_dim=4294967296", "selector.num_heads=1"), 1,
			[]string{"selector.hidden_dim=4294967296", "of memory"}},
		{"a relation that no memory holds", tiny("selector=relation", "selector.relation.gate_dim=100000000000"), 1,
			[]string{"relation.gate_in.weight", "100000000000", "of memory"}},
		{"a feature that is none", tiny("selector=features", "selector.features=[similarty]"), 2,
			[]string{"selector.features", `unknown feature "similarty"`, "did you mean similarity?"}},
		{"a feature that is a label", tiny("selector=features", "selector.features=[similarity,demo_acc]"), 2,
			[]string{"selector.features", "demo_acc is no feature"}},
		{"a feature whose column the data lack", tiny("selector=features", "selector.features=[similarity,tag_overlap]"), 2,
			[]string{"selector.features: tag_overlap reads tags", "data=shapes has none for row"}},
		{"features that the checkpoint lacks", tiny("init.checkpoint="+run0, "selector.features=[similarity]"), 2,
			[]string{"selector.features=similarity contradicts", "trained with none"}},
		{"more built-in queries than memory holds", tiny("data.shapes.train_queries=1000000000000"), 2,
			[]string{"data.shapes.train_queries=1000000000000", "10000000"}},
		{"a metric that is none", tiny("checkpoint.best.metric=loss"), 2, []string{"checkpoint.best.metric=loss", "val_loss"}},
		{"a metric that beams do not give", small(good, "checkpoint.best.metric=val_accuracy"), 2,
			[]string{"checkpoint.best.metric", "val_accuracy", "data.reader", "val_recorded_reward"}},
		{"online rollouts without a reader", small(good, "schedule=[grpo]", "grpo.rollout=online", "grpo.old_policy=batch"), 2,
			[]string{"data.reader", "exp=beams_v3"}},
		{"the recipe without a reader", append([]string{"exp=okvqa_v3"}, good...), 2,
			[]string{"nothing scores the new selections", "data.reader=FILE", "exp=beams_v3"}},

		{"a beam that names an id outside the table", bad(func(rs []beamRecord) { rs[3].Pool[4] = fixtureRows }), 1,
			[]string{beamFileName, fmt.Sprintf("query %d", id), "60", "60 rows"}},
		{"a trajectory outside its pool", bad(func(rs []beamRecord) {
			rs[3].Candidates[1]["pointer"] = []int64{id,
				rs[3].Pool[0]}
		}), 1, []string{beamFileName, fmt.Sprintf("query %d", id), "pointer_candidates[1]"}},
		{"a NaN score", small(beamText(t, strings.Replace(read(t, beamFile), `"beam_score":0.`, `"beam_score":NaN,"x":0.`, 1))), 1,
			[]string{beamFileName, "query", "beam_score"}},
		{"an infinite score", small(beamText(t, strings.Replace(read(t, beamFile), `"beam_score":0.`, `"beam_score":1e999,"x":0.`,
			1))), 1, []string{beamFileName, "query", "beam_score"}},
		{"a verb without its folder", []string{"resume"}, 2, []string{"run resume"}},
		{"resume of no run", []string{"resume", filepath.Dir(beamFile)}, 2, []string{"neither a run folder"}},
		{"report of no run", []string{"report", filepath.Dir(beamFile)}, 2, []string{"neither a run folder nor a sweep folder"}},
		{"inspection of nothing", []string{"data", "inspect", "/nowhere"}, 2, []string{"/nowhere"}},
		{"inspection of what has no ending of data", []string{"data", "inspect", "badinput_test.go"}, 2, []string{"files of data end in .json"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			args := tc.args
			dir := folder(t)
			isRun := strings.Contains(args[0], "=")
			if isRun {
				args = with(args, "hydra.run.dir="+dir)
			}
			r := run(t, args...)
			if strings.HasPrefix(tc.name, "two mistakes") {
				if r.Code != 2 || !strings.Contains(r.Stderr, "rce.lr=-1") || !strings.Contains(r.Stderr, "grpo.epochs=x") {
					t.Errorf("exit code %d: %s", r.Code, r.Stderr)
				}
				return
			}
			refused(t, r, tc.code, tc.want...)
			if isRun && exists(dir) {
				t.Errorf("a run that was refused before it began leaves its folder: the corrected command would be refused")
			}
		})
	}
}

const beamFileName = "beams.json"

// A run that was refused before it began leaves nothing, not even the folders on the way to its own: the corrected
// command may have them.
func TestRefusedRunLeavesNothing(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	path := strings.TrimPrefix(data[2], "data.embeddings=")
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	top := folder(t)
	dir := filepath.Join(top, "a/b")
	for _, more := range []string{"dry_run=false", "hydra.job.chdir=true"} {
		refused(t, run(t, small(data, "hydra.run.dir="+dir, more)...), 2, path)
		if exists(top) {
			t.Errorf("%s: folders are left behind", more)
		}
	}
	kept := filepath.Join(dir, "notes.txt")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, kept, "mine")
	refused(t, run(t, small(data, "hydra.run.dir="+dir)...), 2, path)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || read(t, kept) != "mine" {
		t.Errorf("beside the user's file %v is left: %v", left, err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	r := mustRun(t, small(data, "checks.off=[]", "hydra.run.dir="+dir)...)
	if !exists(filepath.Join(dir, "checkpoints/grpo_epoch1.safetensors")) {
		t.Error("the corrected command did not train")
	}
	for _, said := range []string{"reading " + strings.TrimPrefix(data[1], "data.beams=") + " (", "preflight: looking at the data"} {
		if !strings.Contains(r.Stderr, said) {
			t.Errorf("the start is silent: want %q in %s", said, r.Stderr)
		}
	}
	for _, key := range []string{"hydra.run.dir=", "hydra.sweep.dir="} {
		args := append(small(data), key)
		if key == "hydra.sweep.dir=" {
			args = append(args, "-m", "seed=1,2")
		}
		refused(t, run(t, args...), 2, strings.TrimSuffix(key, "=")+" is empty: want a folder")
	}
}

// A folder that holds a run is refused with the three ways out; two processes can't share one.
func TestFolderRefusals(t *testing.T) {
	t.Parallel()
	dir, _ := trained(t)
	before := outcomeOf(t, dir)
	refused(t, run(t, tiny("hydra.run.dir="+dir)...), 2, dir, "run resume "+dir, "run --rerun "+dir, "another hydra.run.dir")
	refused(t, run(t, "task=predict", "init.checkpoint="+dir, "hydra.run.dir="+dir), 2, "run resume "+dir)
	before.Same(t, outcomeOf(t, dir), 0)

	empty := folder(t)
	if err := os.MkdirAll(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	data := beams(t, records())
	p := start(t, small(data, "rce.epochs=1000", "hydra.run.dir="+empty)...) // an empty folder is used
	p.Until(func() bool { return exists(filepath.Join(empty, ".hydra/config.yaml")) })
	refused(t, run(t, small(data, "hydra.run.dir="+empty)...), 2, empty)
	refused(t, run(t, "resume", empty), 2, "another process is writing this run folder")
	p.Signal(syscall.SIGKILL) // and its lock dies with it
	p.Wait()
	p = start(t, "resume", empty)
	p.Until(func() bool {
		return strings.Contains(p.Stdout.String(), empty) || strings.Contains(p.Stderr.String(), "run: ")
	})
	if text := p.Stderr.String(); strings.Contains(text, "run: ") {
		t.Errorf("the lock outlives its holder: %s", text)
	}
}

// On a full disk the run fails with one line and goes on when there is space.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	want, _ := trained(t)
	dir := filepath.Dir(folder(t))
	if err := syscall.Mount("fulcrum-test", dir, "tmpfs", 0, "size=12m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_FORCE|2) }) // 2 = MNT_DETACH
	filler := filepath.Join(dir, "filler")
	sawLate := false
	for _, free := range []int64{20 << 10, 900 << 10, 2500 << 10, 5 << 20} {
		write(t, filler, strings.Repeat("x", int(12<<20-free)))
		run0 := filepath.Join(dir, fmt.Sprint("run", free))
		begin := time.Now()
		r := run(t, tiny("hydra.run.dir="+run0, "report.plots=false")...)
		refused(t, r, 1, "no space left on device")
		t.Logf("%d bytes free: %v, %s", free, time.Since(begin), lastLine(r.Stderr))
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if exists(filepath.Join(run0, ".hydra/config.yaml")) {
			sawLate = true
			mustRun(t, "resume", run0)
			outcomeOf(t, want).Same(t, outcomeOf(t, run0), 1)
		}
		if err := os.RemoveAll(run0); err != nil {
			t.Fatal(err)
		}
	}
	if !sawLate {
		t.Error("no run got far enough to be resumed")
	}
}

// A limit on file sizes is a full disk, not a crash.
func TestFileSizeLimit(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	args := append([]string{"-c", `ulimit -f 200; exec "$0" "$@"`, program(t)}, tiny("hydra.run.dir="+dir, "report.plots=false")...)
	cmd := exec.Command("bash", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(lastLine(string(out)), "file too large") ||
		strings.Contains(string(out), "goroutine ") {
		t.Errorf("%v, exit code %d:\n%s", err, cmd.ProcessState.ExitCode(), out)
	}
	mustRun(t, "resume", dir)
}
