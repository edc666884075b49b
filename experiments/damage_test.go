package experiments_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"fulcrum/internal/tensorfile"
	"fulcrum/internal/testkit/runtest"
)

// copyOf returns a copy of a finished run. unfinished leaves out what a run writes at its end.
func copyOf(t *testing.T, unfinished bool) string {
	t.Helper()
	to := copied(t, allStates(t))
	if unfinished {
		for _, name := range []string{"summary.json", "manifest.json", "report.md", "report.html"} {
			if err := os.Remove(filepath.Join(to, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return to
}

// garble overwrites up to 4 KiB of a checkpoint's tensors with finite numbers.
func garble(t *testing.T, path string) {
	t.Helper()
	data := []byte(read(t, path))
	body := data[8+binary.LittleEndian.Uint64(data):]
	middle := body[len(body)/2&^3:]
	for i := 0; i < min(4096, len(middle)); i += 4 {
		binary.LittleEndian.PutUint32(middle[i:], math.Float32bits(0.25))
	}
	write(t, path, string(data))
}

func realPath(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Garbage in a checkpoint that leaves it a valid file of finite numbers is seen by all that reads it.
func TestGarbledCheckpoint(t *testing.T) {
	t.Parallel()
	dir := copyOf(t, false)
	best := realPath(t, filepath.Join(dir, "checkpoints/best.safetensors"))
	good := read(t, best)
	garble(t, best)
	predict := tiny("task=predict", "init.checkpoint="+dir)
	for _, args := range [][]string{
		append(predict, "hydra.run.dir="+folder(t)),
		tiny("init.checkpoint="+best, "hydra.run.dir="+folder(t)),
		{"checkpoint", "verify", dir},
		{"checkpoint", "inspect", dir},
		{"checkpoint", "export", dir, "--format", "pt", "--out", filepath.Join(filepath.Dir(dir), "x.pt")},
	} {
		refused(t, run(t, args...), 1, filepath.Join(dir, "checkpoints"), "damaged: its tensors have the SHA-256")
	}
	if r := run(t, "verify", dir); r.Code != 1 || !strings.Contains(r.Stdout, "checkpoints/"+filepath.Base(best)+": digest") {
		t.Errorf("verify: exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if err := os.Remove(filepath.Join(dir, "manifest.json")); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "verify", dir); r.Code != 1 || !strings.Contains(r.Stdout, filepath.Base(best)+": digest: stated a checkpoint") {
		t.Errorf("verify without a manifest: exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	// A file of another program has no digest: nothing can be said about it.
	write(t, best, strings.Replace(read(t, best), tensorfile.DigestKey, "another_sha256", 1))
	mustRun(t, append(predict, "hydra.run.dir="+folder(t))...)
	write(t, best, good)
	mustRun(t, append(predict, "hydra.run.dir="+folder(t))...)
}

// A resume checks every checkpoint that competes for best, and its advice helps.
func TestGarbledRival(t *testing.T) {
	t.Parallel()
	of := allStates(t)
	whole := outcomeOf(t, of)
	best := filepath.Base(realPath(t, filepath.Join(of, "checkpoints/best.safetensors")))
	other := "rce_epoch1.safetensors"
	if best == other {
		other = "rce_epoch2.safetensors"
	}
	for _, tc := range []struct {
		name, file string
		want       string
		same       bool // following the advice brings all of it back
	}{
		{"the best so far", best, `remove (\S+(?: and \S+)*) to resume from|remove (\S+), and a resume starts over`, true},
		{"another one", other, `it is not the best so far: remove it and (\S+) to resume without it`, false},
		{"the initial policy", "init_epoch0.safetensors", `every state needs it; remove (\S+), and a resume starts over`, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := copyOf(t, true)
			path := filepath.Join(dir, "checkpoints", tc.file)
			garble(t, path)
			r := run(t, "resume", dir)
			refused(t, r, 1, path, "damaged")
			advice := regexp.MustCompile(tc.want).FindStringSubmatch(r.Stderr)
			if advice == nil {
				t.Fatalf("no advice like %s: %s", tc.want, r.Stderr)
			}
			remove := []string{path}
			if len(advice) > 1 && tc.same {
				remove = nil
			}
			if len(advice) > 1 {
				remove = append(remove, strings.Split(strings.Join(advice[1:], ""), " and ")...)
			}
			for _, gone := range remove {
				if !strings.HasPrefix(gone, dir) || !exists(gone) {
					t.Fatalf("told to remove %q: %s", gone, r.Stderr)
				}
				if err := os.RemoveAll(gone); err != nil {
					t.Fatal(err)
				}
			}
			mustRun(t, "resume", dir)
			if tc.same {
				whole.Same(t, outcomeOf(t, dir), 1)
			}
		})
	}
}

// What a kill or a power cut tears off the ends of the logs does not make a resumed run differ from its records.
func TestTornTails(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{"[2026-01-02 03:04", strings.Repeat("\x00", 700)} {
		dir := copyOf(t, true)
		for _, pattern := range []string{"run.log", "events.out.tfevents.*", "metrics.jsonl", "evals.jsonl"} {
			found, _ := filepath.Glob(filepath.Join(dir, pattern))
			if len(found) != 1 {
				t.Fatalf("%s: %v", pattern, found)
			}
			write(t, found[0], read(t, found[0])+tail)
		}
		mustRun(t, "resume", dir)
		mustRun(t, "verify", dir)
	}
}

// A kill while RUN/model is written leaves a temporary file there, which the next start removes.
func TestLeftoverOfTheModelFolder(t *testing.T) {
	t.Parallel()
	dir := copyOf(t, true)
	if err := os.Mkdir(filepath.Join(dir, "model"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "model/.merges.txt.tmp12345"), "#version")
	mustRun(t, "resume", dir)
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("temporary files: %v", left)
	}
}

// report.plots=false holds for a resume that has only the report to write.
func TestNoPlotsFromAResume(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mustRun(t, small(beams(t, records()), "hydra.run.dir="+dir)...) // report.plots=false
	before := read(t, filepath.Join(dir, "report.md"))
	for _, name := range []string{"report.md", "report.html"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "resume", dir)
	if exists(filepath.Join(dir, "plots")) {
		t.Error("the resume has drawn plots")
	}
	if after := read(t, filepath.Join(dir, "report.md")); after != before {
		t.Errorf("the report differs:\n%s\nbefore:\n%s", after, before)
	}
	// Where a report of meanwhile has drawn plots, they are drawn again, and one that cannot be is no end of the run.
	drawn := filepath.Join(dir, "plots/losses.png")
	if err := errors.Join(os.Remove(filepath.Join(dir, "report.html")), os.MkdirAll(drawn, 0o755)); err != nil {
		t.Fatal(err)
	}
	if r := mustRun(t, "resume", dir); !strings.Contains(r.Stderr, "warning: plots: ") || !exists(filepath.Join(dir, "report.html")) {
		t.Errorf("a plot that cannot be drawn: %s", r.Stderr)
	}
}

// Rewards beyond ±1e30 are refused where they arrive; an evaluation that cannot be judged all the same ends the run as
// one named error, with a summary.
func TestHugeRewards(t *testing.T) {
	t.Parallel()
	rs := records()
	rs[3].Candidates[2]["vqa_gt_prob"] = 1e308
	r := run(t, small(beams(t, rs), "hydra.run.dir="+folder(t))...)
	refused(t, r, 1, "beams.json", "pointer_candidates[2]", "vqa_gt_prob = 1e+308", "±1e+30")

	dir := copyOf(t, true)
	path := filepath.Join(dir, "evals.jsonl")
	score := regexp.MustCompile(`"scores":\[[^]]*\]`)
	write(t, path, score.ReplaceAllStringFunc(read(t, path), func(s string) string {
		return `"scores":[` + strings.TrimSuffix(strings.Repeat("1e308,", strings.Count(s, ",")+1), ",") + "]"
	}))
	refused(t, run(t, "resume", dir), 1, "has a mean", "+Inf", "evals.jsonl")
	if s := read(t, filepath.Join(dir, "summary.json")); !strings.Contains(s, `"state": "failed"`) || !strings.Contains(s, "has a mean") {
		t.Errorf("summary.json: %s", s)
	}
	if s := read(t, filepath.Join(dir, "report.md")); !strings.Contains(s, "This run failed:") {
		t.Errorf("report.md: %s", s)
	}
}

// A full device behind stdout is seen in the exit code of everything that says something, and changes nothing that is
// written.
func TestFullDevice(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	dir, _ := trained(t)
	data := beams(t, records())
	beamFile := strings.TrimPrefix(data[1], "data.beams=")
	ran := folder(t)
	for _, args := range [][]string{
		{"--version"}, {"--help"}, {"--hydra-help"}, {"exp=okvqa_v3", "--cfg", "job"}, {"exp=okvqa_v3", "--info", "defaults"},
		{"-m", "exp=okvqa_v3", "seed=0,1", "--cfg", "sweep"}, {"explain", "grpo.lr", "exp=okvqa_v3"},
		{"report", "--help"}, {"lever-plus", "--help"},
		{"report", dir}, {"report", dir, dir}, {"status", dir}, {"diff", dir, dir}, {"verify", dir}, {"resume", dir},
		{"checkpoint", "inspect", dir}, {"checkpoint", "verify", dir},
		{"checkpoint", "export", dir, "--format", "safetensors", "--out", filepath.Join(filepath.Dir(ran), "x.safetensors")},
		{"data", "inspect", beamFile}, {"doctor"},
		small(data, "hydra.run.dir="+ran), small(data, "hydra.run.dir="+folder(t), "dry_run=true"),
		tiny("task=predict", "init.checkpoint="+dir, "hydra.run.dir="+folder(t)),
	} {
		cmd := exec.Command(program(t), args...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &said
		cmd.Run()
		if runtest.Core && strings.Contains(said.String(), "built without the annex") {
			continue
		}
		text := "run: cannot write to the standard output: write /dev/stdout: no space left on device"
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.HasSuffix(strings.TrimSpace(said.String()), text) {
			t.Errorf("run %s: exit code %d: %s", strings.Join(args, " "), code, said.String())
		}
	}
	mustRun(t, "verify", ran)
}

// Outputs replace regular files only.
func TestOutputsReplaceRegularFilesOnly(t *testing.T) {
	t.Parallel()
	dir, _ := trained(t)
	at := filepath.Dir(folder(t))
	pipe, link := filepath.Join(at, "pipe"), filepath.Join(at, "link")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	noWeights := filepath.Join(at, "w.safetensors")
	write(t, noWeights, "none")
	predict := tiny("task=predict", "init.checkpoint="+dir)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{append(slices.Clone(predict), "predict.out="+pipe), "this is a pipe"},
		{append(slices.Clone(predict), "predict.out="+link), "this is a pipe"},
		{append(slices.Clone(predict), "predict.out=/dev/null"), "this is a device"},
		{append(slices.Clone(predict), "predict.out=/dev/null", "init.checkpoint="+noWeights), "this is a device"}, // told before they are read
		{[]string{"report", dir, dir, "--html", pipe}, "is a pipe"},
		{[]string{"checkpoint", "export", dir, "--format", "pt", "--force", "--out", link}, "is a pipe"},
	} {
		args := tc.args
		if args[0] != "report" && args[0] != "checkpoint" {
			args = append(args, "hydra.run.dir="+folder(t))
		}
		refused(t, run(t, args...), 2, tc.want)
	}
	for _, path := range []string{pipe, link} {
		if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

// Whoever removes .lock lets no second writer in.
func TestLockIsRemoved(t *testing.T) {
	t.Parallel()
	want, _ := trained(t)
	dir := folder(t)
	p := start(t, tiny("hydra.run.dir="+dir, "report.plots=false")...)
	p.Until(func() bool { return exists(filepath.Join(dir, "checkpoints/init_epoch0.safetensors")) })
	p.Signal(syscall.SIGSTOP) // it stays at work, however slow the other is
	if err := os.Remove(filepath.Join(dir, ".lock")); err != nil {
		t.Fatal(err)
	}
	refused(t, run(t, "resume", dir), 2, "another process is writing this run folder")
	p.Signal(syscall.SIGCONT)
	if r := p.Wait(); r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	outcomeOf(t, want).Same(t, outcomeOf(t, dir), 0)
	if !exists(filepath.Join(dir, ".lock")) {
		t.Error("the lock was not made again")
	}
}
