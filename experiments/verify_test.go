package experiments_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// verifies fails the test unless a report agrees with its records, and returns what was said.
func verifies(t *testing.T, path string) string {
	t.Helper()
	r := run(t, "verify", path)
	if r.code != 0 || !strings.Contains(r.stdout, "everything agrees") {
		t.Fatalf("run verify %s: exit code %d\n%s%s", path, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// change replaces what a pattern finds in a file of a run.
func change(t *testing.T, path, pattern, text string) {
	t.Helper()
	data := read(t, path)
	found := regexp.MustCompile(pattern).FindStringIndex(data)
	if found == nil {
		t.Fatalf("%s does not hold %s", path, pattern)
	}
	write(t, path, data[:found[0]]+text+data[found[1]:])
}

// copied is a copy of a run folder, which a report does not notice.
func copied(t *testing.T, dir string) string {
	t.Helper()
	out := folder(t)
	if err := os.CopyFS(out, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return out
}

// Reports of runs of all kinds agree with their records, and edits of a finished one do not.
func TestVerify(t *testing.T) {
	t.Parallel()
	whole, _ := trained(t)
	if said := verifies(t, whole); !strings.Contains(said, "9 plots drawn again") || strings.Contains(said, "note:") {
		t.Errorf("of a fresh run: %s", said)
	}
	dir := copied(t, whole)
	verifies(t, filepath.Join(dir, "report.md"))
	for _, tc := range []struct{ name, file, pattern, text, want string }{
		{"a metric", "metrics.jsonl", `"grad_norm":\d`, `"grad_norm":9`, "grad_norm of rce epoch 1: stated"},
		{"a number of a plot", "plots/grad_norm.svg", `>clipped above 1<`, `>clipped above 2<`,
			`plots/grad_norm.svg:`},
		{"a line of the log", "run.log", `val_reward 0\.\d`, `val_reward 0.9`, "run.log: digest"},
		{"a line of the report", "report.md", `better|worse|not separable`, `splendid`, "report.md:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := copied(t, dir)
			change(t, filepath.Join(dir, tc.file), tc.pattern, tc.text)
			r := run(t, "verify", dir)
			if r.code != 1 || !strings.Contains(r.stdout, tc.want) || strings.Contains(r.stdout, "everything agrees") {
				t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
	change(t, filepath.Join(dir, "manifest.json"), `"version": "[^"]*"`, `"version": "0.0.9 other"`)
	mustRun(t, "report", dir)
	if said := verifies(t, dir); !strings.Contains(said, "(0.0.9 other; this is 0.1.0 ") {
		t.Errorf("of another version: %s", said)
	}
	refused(t, run(t, "verify", filepath.Join(whole, "run.log")), 2, "want report.md, report.html or the folder")
	refused(t, run(t, "verify", filepath.Dir(dir)), 2, "neither a run folder nor a sweep folder")
}

func TestVerifyRunsOfAllKinds(t *testing.T) {
	t.Parallel()
	t.Run("killed in mid-epoch and resumed, with plots", func(t *testing.T) {
		dir := folder(t)
		p := start(t, tiny("hydra.run.dir="+dir, "checkpoint.every_steps=2", "report.plot_seconds=0")...)
		p.until(func() bool { return exists(filepath.Join(dir, "checkpoints/grpo_epoch1.state")) })
		p.signalGroup(syscall.SIGKILL)
		p.wait()
		mustRun(t, "resume", dir)
		verifies(t, dir)
	})
	t.Run("interrupted, then resumed and killed", func(t *testing.T) {
		dir := folder(t)
		p := start(t, tiny("hydra.run.dir="+dir, "grpo.epochs=200", "report.plots=false")...)
		p.until(func() bool { return exists(filepath.Join(dir, "checkpoints/grpo_epoch1.state")) })
		p.signal(syscall.SIGINT)
		p.wait()
		verifies(t, dir)
		p = start(t, "resume", dir)
		p.until(func() bool { return strings.Contains(read(t, filepath.Join(dir, "metrics.jsonl")), `"event":"resume"`) })
		if r := run(t, "verify", dir); r.code != 1 || !strings.Contains(r.stderr, "still being written") {
			t.Errorf("while it goes on: exit code %d: %s", r.code, r.stderr)
		}
		p.signalGroup(syscall.SIGKILL)
		p.wait()
		if r := run(t, "verify", dir); r.code != 1 || !strings.Contains(r.stderr, "go on with `run resume") {
			t.Errorf("killed: exit code %d: %s", r.code, r.stderr)
		}
		for _, verb := range []string{"status", "watch", "ls"} {
			if r := run(t, verb, dir); !strings.Contains(r.stdout, "killed") || strings.Contains(r.stdout, "interrupted") {
				t.Errorf("run %s of it: %s", verb, r.stdout)
			}
		}
		site := folder(t)
		mustRun(t, "board", dir, "--export", site)
		if data := read(t, filepath.Join(site, "data/runs.js")); !strings.Contains(data, `"state":"killed"`) {
			t.Errorf("the board: %s", data)
		}
	})
	t.Run("failed", func(t *testing.T) {
		dir := folder(t)
		if r := run(t, tiny("hydra.run.dir="+dir, "rce.lr=1e30", "report.plots=false")...); r.code != 1 {
			t.Fatalf("exit code %d", r.code)
		}
		verifies(t, dir)
	})
	t.Run("some steps, no TensorBoard", func(t *testing.T) {
		dir := folder(t)
		mustRun(t, tiny("hydra.run.dir="+dir, "logging.log_every_steps=2", "logging.tensorboard=false", "report.plots=false")...)
		if said := verifies(t, dir); !strings.Contains(said, "4 epoch means cannot be computed again") {
			t.Error(said)
		}
	})
	t.Run("of task=evaluate", func(t *testing.T) {
		dir := folder(t)
		mustRun(t, vqaFiles("hydra.run.dir="+dir)...)
		verifies(t, dir)
		change(t, filepath.Join(dir, "report.md"), `overall \| 36 \| \d`, "overall | 36 | 9")
		if r := run(t, "verify", dir); r.code != 1 || !strings.Contains(r.stdout, "report.md:7: ") {
			t.Errorf("an edited accuracy: exit code %d\n%s", r.code, r.stdout)
		}
	})
	t.Run("a sweep", func(t *testing.T) {
		data := beams(t, records())
		dir := folder(t)
		if r := run(t, append([]string{"-m", "hydra.sweep.dir=" + dir, "rce.lr=1e-3,1e-4,1e30", "logging.progress=false"},
			small(data)...)...); r.code != 1 {
			t.Fatalf("exit code %d: %s", r.code, r.stderr)
		}
		if said := verifies(t, filepath.Join(dir, "report.md")); !strings.Contains(said, "3 of 3 jobs") {
			t.Error(said)
		}
		dir = copied(t, dir)
		verifies(t, dir)
		change(t, filepath.Join(dir, "1/metrics.jsonl"), `"val_loss":\d`, `"val_loss":9`)
		if r := run(t, "verify", dir); r.code != 1 || !strings.Contains(r.stdout, "1/metrics.jsonl") {
			t.Errorf("an edited metric of a job: exit code %d\n%s", r.code, r.stdout)
		}
	})
}
