//go:build !core

package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// run diff ends like diff(1): 0 for no difference, 1 for some, 2 for a command that cannot be.
func TestDiffVerb(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	a, b, c := folder(t), folder(t), folder(t)
	mustRun(t, small(data, "hydra.run.dir="+a)...)
	mustRun(t, small(data, "hydra.run.dir="+b, "logging.progress=false")...)
	mustRun(t, small(data, "hydra.run.dir="+c, "seed=5", "data.train_ratio=0.5")...)
	for _, tc := range []struct {
		name         string
		args         []string
		code         int
		want, absent []string // in stdout
		stderr       string
	}{
		{"only paths and logging differ", []string{a, b}, 0,
			[]string{"settings: the same", "data: the same", "code and machine: the same", "logging.progress", "hydra.run.dir",
				"no setting that affects results differs"}, nil, ""},
		{"settings and data differ", []string{a, c}, 1, []string{"seed ", "data.train_ratio", "fingerprint", "counts.val_queries"},
			[]string{"nothing that"}, "run: what differs: 2 settings, "},
		{"two config files", []string{a + "/.hydra/config.yaml", c + "/.hydra/config.yaml"}, 1, []string{"seed "},
			[]string{"fingerprint"}, "run: what differs: 2 settings\n"},
		{"one thing is not two", []string{a}, 2, nil, nil, "want: `run diff A B"},
		{"an absent folder", []string{a, a + "/none"}, 2, nil, nil, "none"},
		{"a folder of something else", []string{a, filepath.Dir(a)}, 2, nil, nil, "neither a run folder nor a sweep folder"},
		{"a file that is no config", []string{a, a + "/metrics.jsonl"}, 2, nil, nil, "metrics.jsonl"},
		{"an unknown flag", []string{a, b, "--jsn"}, 2, nil, nil, "--jsn"},
		{"help", []string{"--help"}, 0, []string{"run diff A B [--json]", "Exit code 0"}, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := run(t, append([]string{"diff"}, tc.args...)...)
			if r.Code != tc.code {
				t.Errorf("exit code %d, want %d\n%s%s", r.Code, tc.code, r.Stdout, r.Stderr)
			}
			for _, want := range tc.want {
				if !strings.Contains(r.Stdout, want) {
					t.Errorf("stdout lacks %q:\n%s", want, r.Stdout)
				}
			}
			for _, absent := range tc.absent {
				if strings.Contains(r.Stdout, absent) {
					t.Errorf("stdout has %q:\n%s", absent, r.Stdout)
				}
			}
			if !strings.Contains(r.Stderr, tc.stderr) || tc.code == 0 && r.Stderr != "" {
				t.Errorf("stderr %q, want %q", r.Stderr, tc.stderr)
			}
		})
	}

	r := run(t, "diff", "--json", a, c)
	var got struct {
		Same     bool
		Settings []struct{ Key, A, B string }
		Code     []any
	}
	if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || got.Same || r.Code != 1 || got.Code == nil {
		t.Fatalf("--json: %v, exit code %d\n%s", err, r.Code, r.Stdout)
	}
	if len(got.Settings) != 2 || got.Settings[1].Key != "seed" || got.Settings[1].A != "0" || got.Settings[1].B != "5" {
		t.Errorf("--json: settings %+v", got.Settings)
	}

	// The same file with other content is other data, although no key says so.
	path := strings.TrimPrefix(data[1], "data.beams=")
	text := read(t, path)
	if err := os.WriteFile(path, []byte(strings.Replace(text, `"vqa_correct":1`, `"vqa_correct":0`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	d := folder(t)
	mustRun(t, small(data, "hydra.run.dir="+d)...)
	if r := run(t, "diff", a, d); r.Code != 1 || !strings.Contains(r.Stdout, "settings: the same") ||
		!strings.Contains(r.Stdout, "fingerprint") {
		t.Errorf("changed data: exit code %d\n%s", r.Code, r.Stdout)
	}
}

// Two sweeps are compared by what they sweep and in pairs of jobs with equal parameters.
func TestDiffSweeps(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	sweep := func(more ...string) string {
		dir := folder(t)
		mustRun(t, append(small(data, "-m", "rce.epochs=0", "hydra.sweep.dir="+dir), more...)...)
		return dir
	}
	a, b := sweep("seed=0,1"), sweep("seed=1,2", "grpo.lr=0.01")
	r := run(t, "diff", a, b)
	if r.Code != 1 {
		t.Fatalf("exit code %d, want 1\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	for _, want := range []string{"(sweep, 2 of 2 jobs ended)", "grpo.lr", "sweep.seed  ", "data: the same",
		"code and machine: the same", "jobs of A alone: 1\n  seed=0\n", "jobs of B alone: 1\n  seed=2\n"} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("stdout lacks %q:\n%s", want, r.Stdout)
		}
	}
	if r := run(t, "diff", filepath.Join(a, "0"), a); r.Code != 1 || !strings.Contains(r.Stdout, "(one a job)") ||
		!strings.Contains(r.Stdout, "is a sweep and has no one configuration") {
		t.Errorf("a job against its sweep ends with %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := run(t, "diff", a, a); r.Code != 0 {
		t.Errorf("a sweep and itself: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := run(t, "diff", filepath.Join(a, "1"), filepath.Join(b, "0")); r.Code != 1 ||
		!strings.Contains(r.Stderr, "what differs: 1 setting\n") {
		t.Errorf("a pair of jobs: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}
