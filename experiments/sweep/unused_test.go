package sweep

import (
	"os"
	"path/filepath"
	"testing"

	"fulcrum/experiments/sweep/ledger"
)

// TestRepeated: a job that would train what another trains is named, with what changes nothing of it.
func TestRepeated(t *testing.T) {
	job := func(num int, hash string, overrides ...string) planned {
		return planned{row: ledger.Job{Num: num, Fingerprint: hash, Overrides: overrides}}
	}
	for want, jobs := range map[string][]planned{
		"": {job(0, "a", "seed=0"), job(1, "b", "seed=1")},
		"1 of 2 jobs repeats another: job 1 is job 0 (seed=0)": {job(0, "a", "seed=0"), job(1, "a", "seed=0")},
		"2 of 4 jobs repeat another: job 2 is job 0 (vars.lr=2 changes nothing of it)": {job(0, "a", "rce.lr=1", "vars.lr=1"),
			job(1, "b", "vars.lr=1"), job(2, "a", "rce.lr=1", "vars.lr=2"), job(3, "b", "vars.lr=2")},
	} {
		if got := repeated(jobs); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestUnused: a folder in which a controller was killed before there was a sweep may be taken, one with anything else may not.
func TestUnused(t *testing.T) {
	p := &plan{dir: t.TempDir()}
	for _, tc := range []struct {
		name string
		free bool
	}{{".sweep/.program.tmp1/run", true}, {".sweep/program/run", true}, {multirunFile, true}, {"0/run.log", false}} {
		path := filepath.Join(p.dir, tc.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := p.unused(); (err == nil) != tc.free {
			t.Errorf("with %s: %v", tc.name, err)
		}
	}
}
