//go:build !core

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fulcrum/experiments/sweep/ledger"
	"fulcrum/reports/board"
)

func putFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// linesOf are starts as KEY=VALUE.
func linesOf(starts []board.Start) string {
	var out []string
	for _, s := range starts {
		out = append(out, s.Key+"="+s.Value)
	}
	return strings.Join(out, "\n")
}

const savedHydra = "hydra:\n  job:\n    env_set: {LD_PRELOAD: /evil.so}\n  runtime: {cwd: /tmp}\n"

// The board names every program and address of a foreign run, also those behind an interpolation; of an address no secret; no
// character hides another.
func TestStartsOfARun(t *testing.T) {
	dir := t.TempDir()
	putFiles(t, dir, map[string]string{".hydra/hydra.yaml": savedHydra, ".hydra/config.yaml": `task: train
on_end: ${elsewhere}
elsewhere: {command: "touch /tmp/x; \u202Ecurl", webhook: "https://user:SECRET@host/SECRET"}
rewards: {external: {command: [python, evil.py], url: null}, judge: {url: "http://judge:8000/v1"}}
data: {name: commander}
lvlm: {url: null}
`})
	want := `hydra.job.env_set.LD_PRELOAD=/evil.so
elsewhere.command=touch /tmp/x; <U+202E>curl
elsewhere.webhook=https://host
on_end.command=touch /tmp/x; <U+202E>curl
on_end.webhook=https://host
rewards.external.command=[python, evil.py]
rewards.judge.url=http://judge:8000`
	if got := linesOf(startsOf(dir)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for name, text := range map[string]string{"an interpolation of nothing": "on_end: ${nothing}\n", "no YAML": "{"} {
		putFiles(t, dir, map[string]string{".hydra/config.yaml": text})
		if got := linesOf(startsOf(dir)); !strings.Contains(got, "unknown=what it starts cannot be read") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if err := os.Remove(filepath.Join(dir, ".hydra/hydra.yaml")); err != nil {
		t.Fatal(err)
	}
	if got := linesOf(startsOf(dir)); !strings.Contains(got, "unknown=") {
		t.Errorf("without hydra.yaml: %s", got)
	}
}

// Of a sweep the board names the program that it keeps, what its overrides set, and what the folders of jobs that go on say.
func TestStartsOfASweep(t *testing.T) {
	dir := t.TempDir()
	jobs := []ledger.Job{{Num: 0, Dir: "0", State: "done", Overrides: []string{"rewards.external.command=[done]"}},
		{Num: 1, Dir: "1", State: "interrupted", Overrides: []string{"seed=1"}},
		{Num: 2, Dir: "2", State: "queued", Overrides: []string{"+rewards.external.command=[waits]"}}}
	l, err := ledger.Create(dir, ledger.Sweep{Flags: []string{"--config-dir=/theirs"},
		Overrides: []string{"hydra.launcher.srun_args=[--task-prolog=x]", "on_end.webhook=https://host/SECRET"}}, jobs)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	putFiles(t, dir, map[string]string{".sweep/program/run": "#!/bin/sh\nevil\n", "1/.hydra/hydra.yaml": savedHydra,
		"1/.hydra/config.yaml": "rewards: {external: {command: [its, own]}}\n"})
	want := "program=" + dir + `/.sweep/program/run (of the sweep's folder, not this build)
hydra.job.env_set.LD_PRELOAD=/evil.so
rewards.external.command=[its, own]
config-dir=/theirs
hydra.launcher.srun_args=[--task-prolog=x]
on_end.webhook=https://host
rewards.external.command=[waits]`
	if got := linesOf(startsOf(dir)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Every option whose meaning is a program, shell or an address is named before a resume.
func TestEveryProgramIsNamed(t *testing.T) {
	docs, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range regexp.MustCompile("(?m)^`([a-z_.]+)` \\| .*? \\| (.*)$").FindAllStringSubmatch(string(docs), -1) {
		key, meaning := m[1], m[2]
		starts := regexp.MustCompile(`^(program and arguments|shell|lines of shell|address|https? or https address|http or https)`).MatchString(meaning)
		last := key[strings.LastIndex(key, ".")+1:]
		if known := slices.Contains(append(programKeys(), addressKeys()...), last); known != starts {
			t.Errorf("%s (%s): a program or address: %v; named before a resume: %v", key, meaning, starts, known)
		}
		if starts {
			found++
		}
	}
	if found < 7 { // keys that two sections share stand there once
		t.Errorf("%d options start programs or call addresses, want 7 and more", found)
	}
	for _, word := range append(programKeys(), addressKeys()...) {
		if !strings.Contains(string(docs), fmt.Sprintf(".%s`", word)) {
			t.Errorf("no option ends in .%s", word)
		}
	}
}
