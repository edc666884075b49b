package main_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// records that a command or the board reads in a run folder, in a sweep's, and above runs.
var (
	ofRun = []string{"summary.json", ".lock", "notes.json", "metrics.jsonl", "evals.jsonl", ".hydra/config.yaml", ".hydra/hydra.yaml",
		".hydra/overrides.yaml", "system.jsonl", "completions.jsonl", "examples.json", "manifest.json", "report.md", "report.html", "run.log",
		"checkpoints/best.safetensors", "checkpoints/rce_epoch1.safetensors", "checkpoints/grpo_epoch1.state/optimizer.safetensors",
		"checkpoints/grpo_epoch1.state/state.json", "checkpoints/grpo_epoch1.state/SHA256SUMS", "plots", "plots/reward.svg",
		".board/curves.idx"}
	ofSweep = []string{"sweep.jsonl", "multirun.yaml", ".lock", "controller.log", "report.md", "0/attempts.jsonl",
		"0/.attempt", "0/job.log", "0/summary.json", "0/metrics.jsonl", "0/.hydra/config.yaml"}
	aboveRuns = []string{".board/runs.idx"}
)

// TestNoFilesInRunFolders: a pipe, a device behind a link, or a giant in place of a file of a run or sweep makes no
// command wait or take memory; what cannot be read is named, and the other runs are listed.
func TestNoFilesInRunFolders(t *testing.T) {
	t.Parallel()
	sweep := filepath.Dir(folder(t))
	mustRun(t, tiny("-m", "seed=1", "rce.epochs=1", "grpo.epochs=0", "report.plots=false", "hydra.sweep.dir="+filepath.Join(sweep, "s"))...)
	kinds := map[string]func(path string) error{
		"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o644) },
		"device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"giant": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<40))
		},
	}
	short := map[string][]string{"run": ofRun[:4], "sweep": ofSweep[:1], "above": aboveRuns}
	for where, names := range map[string][]string{"run": ofRun, "sweep": ofSweep, "above": aboveRuns} {
		for _, name := range names {
			for kind, make := range kinds {
				if kind == "giant" && strings.HasSuffix(name, ".safetensors") { // read to its end, as any weights are
					continue
				}
				if testing.Short() && (kind != "pipe" || !slices.Contains(short[where], name)) {
					continue
				}
				t.Run(where+" "+name+" "+kind, func(t *testing.T) {
					t.Parallel()
					all := filepath.Dir(folder(t))
					runs := filepath.Join(all, "runs")
					for _, one := range []string{"a", "b"} {
						copyTo(t, undrawn(t), filepath.Join(runs, one))
					}
					copyTo(t, filepath.Join(sweep, "s"), filepath.Join(all, "s"))
					at := map[string]string{"run": filepath.Join(runs, "a"), "sweep": filepath.Join(all, "s"), "above": runs}[where]
					path := filepath.Join(at, name)
					if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), make(path)); err != nil {
						t.Fatal(err)
					}
					of := filepath.Join(runs, "a")
					if where == "sweep" {
						of = at
					}
					verbs := [][]string{{"ls", all}, {"ls", all, "--json"}, {"export", all}, {"export", all, "--what", "metrics"},
						{"export", all, "--what", "evals"}, {"export", of, "--what", "table"}, {"status", of}, {"watch", of}, {"report", of},
						{"report", filepath.Join(runs, "a"), filepath.Join(runs, "b")}, {"verify", of},
						{"diff", filepath.Join(runs, "a"), filepath.Join(runs, "b")}, {"checkpoint", "verify", of}, {"attach", of},
						{"board", runs, "--export", filepath.Join(all, "page")}, {"--rerun", filepath.Join(runs, "a"), "dry_run=true"}, {"resume", of}}
					if kind != "pipe" { // what reads most: the long form takes minutes as it is
						verbs = slices.DeleteFunc(verbs, func(args []string) bool {
							return !slices.Contains([]string{"ls", "export", "verify", "report", "board"}, args[0])
						})
					}
					for _, args := range verbs {
						// 8 GB of addresses: a device has no end
						p := startProgram(t, "/bin/sh", all, nil, append([]string{"-c", `ulimit -v 8000000; exec "$0" "$@"`, program(t)}, args...)...)
						r := p.Wait()
						if r.Code > 2 {
							t.Errorf("%v: exit code %d: %s", args, r.Code, r.Stderr)
						}
						if args[0] == "status" && where == "run" && name == "summary.json" && r.Code != 1 {
							t.Errorf("%v of a summary that cannot be read: exit code %d, want 1: %s", args, r.Code, r.Stdout)
						}
						if args[0] == "ls" && !strings.Contains(r.Stdout, "runs/b") {
							t.Errorf("%v does not show the run that is whole:\n%s%s", args, r.Stdout, r.Stderr)
						}
						base := filepath.Base(name)
						if args[0] == "ls" && r.Code != 0 && !strings.Contains(r.Stderr, base) {
							t.Errorf("%v does not name %s: %s", args, base, r.Stderr)
						}
					}
				})
			}
		}
	}
}

// copyTo copies a folder, links as links.
func copyTo(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case entry.IsDir():
			return os.MkdirAll(target, 0o755)
		case entry.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			return errors.Join(err, os.Symlink(link, target))
		}
		data, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(target, data, 0o644))
	})
	if err != nil {
		t.Fatal(err)
	}
}
