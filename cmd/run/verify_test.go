//go:build !core

package main_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Reports of runs of all kinds agree with their records, and edits of a finished one do not.
func TestVerify(t *testing.T) {
	t.Parallel()
	whole, _ := trained(t)
	if said := verifies(t, whole); !strings.Contains(said, "8 plots drawn again") || strings.Contains(said, "note:") {
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
			if r.Code != 1 || !strings.Contains(r.Stdout, tc.want) || strings.Contains(r.Stdout, "everything agrees") {
				t.Errorf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
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
		p := start(t, tiny("hydra.run.dir="+dir, "checkpoint.every_steps=2")...)
		p.Until(func() bool { return exists(filepath.Join(dir, "checkpoints/grpo_epoch1.state")) })
		p.SignalGroup(syscall.SIGKILL)
		p.Wait()
		mustRun(t, "resume", dir)
		verifies(t, dir)
	})
	t.Run("interrupted, then resumed and killed", func(t *testing.T) {
		dir := folder(t)
		p := start(t, tiny("hydra.run.dir="+dir, "grpo.epochs=200", "report.plots=false")...)
		p.Until(func() bool { return exists(filepath.Join(dir, "checkpoints/grpo_epoch1.state")) })
		p.Signal(syscall.SIGINT)
		p.Wait()
		verifies(t, dir)
		p = start(t, "resume", dir)
		p.Until(func() bool { return strings.Contains(read(t, filepath.Join(dir, "metrics.jsonl")), `"event":"resume"`) })
		if r := run(t, "verify", dir); r.Code != 1 || !strings.Contains(r.Stderr, "still being written") {
			t.Errorf("while it goes on: exit code %d: %s", r.Code, r.Stderr)
		}
		p.SignalGroup(syscall.SIGKILL)
		p.Wait()
		if r := run(t, "verify", dir); r.Code != 1 || !strings.Contains(r.Stderr, "go on with `run resume") {
			t.Errorf("killed: exit code %d: %s", r.Code, r.Stderr)
		}
		for _, verb := range []string{"status", "watch", "ls"} {
			if r := run(t, verb, dir); !strings.Contains(r.Stdout, "killed") || strings.Contains(r.Stdout, "interrupted") {
				t.Errorf("run %s of it: %s", verb, r.Stdout)
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
		if r := run(t, tiny("hydra.run.dir="+dir, "rce.lr=1e30", "report.plots=false")...); r.Code != 1 {
			t.Fatalf("exit code %d", r.Code)
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
		if r := run(t, "verify", dir); r.Code != 1 || !strings.Contains(r.Stdout, "report.md:7: ") {
			t.Errorf("an edited accuracy: exit code %d\n%s", r.Code, r.Stdout)
		}
	})
	t.Run("a sweep", func(t *testing.T) {
		data := beams(t, records())
		dir := folder(t)
		if r := run(t, append([]string{"-m", "hydra.sweep.dir=" + dir, "rce.lr=1e-3,1e-4,1e30", "logging.progress=false"},
			small(data)...)...); r.Code != 1 {
			t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
		}
		if said := verifies(t, filepath.Join(dir, "report.md")); !strings.Contains(said, "3 of 3 jobs") {
			t.Error(said)
		}
		dir = copied(t, dir)
		verifies(t, dir)
		change(t, filepath.Join(dir, "1/metrics.jsonl"), `"val_loss":\d`, `"val_loss":9`)
		if r := run(t, "verify", dir); r.Code != 1 || !strings.Contains(r.Stdout, "1/metrics.jsonl") {
			t.Errorf("an edited metric of a job: exit code %d\n%s", r.Code, r.Stdout)
		}
	})
}
