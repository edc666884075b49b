package ledger

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulcrum/configs"
	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/jsonwords"
	"fulcrum/reports/record"
)

func example() (Sweep, []Job) {
	code := 1
	s := Sweep{
		Command: []string{"run", "-m", "a=1,2"}, Flags: []string{"--config-name=x"}, Overrides: []string{"a=1,2"}, Cwd: "/somewhere",
		Sweeper: "tpe", Launcher: "local", Created: time.Unix(1700000000,
			5).UTC(), Program: "0.1.0", Pruner: "asha", Constraints: []string{"val_kl <= 0.1"},
		Dimensions: []configs.Dimension{{Key: "a", Choices: []string{"1", "2"}}, {Key: "b", Low: 1e-5, High: 1, Tags: []string{"log"}}},
	}
	parent := 0
	jobs := []Job{
		{Num: 0, Overrides: []string{"a=1", "t='x y'"}, Params: []string{"1", "0.1"}, Dir: "0", Fingerprint: "f", Generation: 1,
			State: launcher.Queued, Tail: []string{}, Metrics: map[string]record.Number{}},
		{Num: 1, Overrides: []string{"a=2"}, Params: []string{"2", "0.2"}, Dir: "sub/1", Fingerprint: "g", Generation: 2,
			State: launcher.Failed, Attempts: 2, Failures: 1, ExitCode: &code,
			Cause: "out of memory", Tail: []string{"line", "ünïcode"},
			Objectives: []Objective{{"val_reward", record.Number(math.Inf(-1)), false}, {"val_kl", 0.25, true}},
			Violation:  0.15, Metrics: map[string]record.Number{"val_kl": 0.25, "x": record.Number(math.Inf(1))}, Epochs: 7, Seconds: 1.5,
			Arm: "grpo", Parent: &parent},
	}
	return s, jobs
}

// created returns a folder with the ledger of the example, and its jobs.
func created(t *testing.T) (dir string, jobs []Job) {
	t.Helper()
	dir = t.TempDir()
	s, jobs := example()
	l, err := Create(dir, s, jobs)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return dir, jobs
}

// What is stored comes back, non-finite numbers and unknown results included.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	s, jobs := example()
	if Exists(dir) {
		t.Error("an empty folder counts as a sweep")
	}
	l, err := Create(dir, s, jobs)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	gotSweep, _, err := Load(dir)
	if err != nil || !reflect.DeepEqual(gotSweep, s) || !reflect.DeepEqual(l.Sweep(), s) {
		t.Errorf("sweep: got %+v, %v\nwant %+v", gotSweep, err, s)
	}
	got, err := l.Jobs()
	if err != nil || !reflect.DeepEqual(got, jobs) {
		t.Errorf("jobs: got %+v, %v\nwant %+v", got, err, jobs)
	}

	jobs[0].State, jobs[0].Attempts, jobs[0].Objectives = launcher.Done, 1, []Objective{{"val_reward", 0.5, false}}
	if err := l.Update(jobs[0]); err != nil {
		t.Fatal(err)
	}
	s.Trials = 3
	if err := l.SetSweep(s); err != nil {
		t.Fatal(err)
	}
	if s2, got, err := Load(dir); err != nil || !reflect.DeepEqual(got, jobs) || !reflect.DeepEqual(s2, s) { // beside the controller
		t.Errorf("got %+v, %+v, %v\nwant %+v, %+v", s2, got, err, s, jobs)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	s, jobs := example()
	jobs[1].Dir = jobs[0].Dir
	if _, err := Create(dir, s, jobs); err == nil || !strings.Contains(err.Error(), "job 1") {
		t.Errorf("two jobs in one folder: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("a ledger that could not be made leaves %v", left)
	}
	jobs[1].Dir = "1"
	l, err := Create(dir, s, jobs)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Update(Job{Num: 9}); err == nil || !strings.Contains(err.Error(), "job 9") {
		t.Errorf("update of a job that is not there: %v", err)
	}
	l.Close()
	rewrite(t, dir, `{"version":4}`, `{"version":99}`)
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("a ledger of another version: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte("no database at all, but long enough to be looked at"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), FileName) {
		t.Errorf("a damaged ledger: %v", err)
	}
}

// A writer that is killed at any instant loses nothing that it has been told is written, and leaves a
// ledger that opens.
func TestKilledWriter(t *testing.T) {
	if dir := os.Getenv("LEDGER_TEST_DIR"); dir != "" {
		l, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		_, jobs := example()
		for i := 1; ; i++ {
			jobs[0].Attempts, jobs[1].Attempts = i, i
			if err := l.Update(jobs...); err != nil {
				t.Fatal(err)
			}
			os.WriteFile(filepath.Join(dir, "told"), []byte(strconv.Itoa(i)), 0o644)
		}
	}
	dir, _ := created(t)
	rounds := 4
	if !testing.Short() {
		rounds = 40
	}
	for range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=TestKilledWriter")
		cmd.Env = append(os.Environ(), "LEDGER_TEST_DIR="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		os.Remove(filepath.Join(dir, "told"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for told := ""; told == ""; time.Sleep(7 * time.Millisecond) {
			text, _ := os.ReadFile(filepath.Join(dir, "told"))
			told = string(text)
		}
		time.Sleep(time.Duration(time.Now().UnixNano() % int64(20*time.Millisecond)))
		cmd.Process.Kill()
		cmd.Wait()
		text, err := os.ReadFile(filepath.Join(dir, "told"))
		if err != nil {
			t.Fatal(err)
		}
		told, _ := strconv.Atoi(string(text)) // an empty file: killed while it was written
		_, got, err := Load(dir)
		if err != nil || len(got) != 2 || got[0].Attempts != got[1].Attempts || got[0].Attempts < told {
			t.Fatalf("told of %d, the ledger has %+v, %v", told, got, err)
		}
	}
}

// rewrite replaces a text of the ledger, which must be there.
func rewrite(t *testing.T, dir, old, with string) {
	t.Helper()
	path := filepath.Join(dir, FileName)
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("%v, want %q in %s", err, old, text)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, with, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A line that was damaged or deleted is named as damage.
func TestDamagedLine(t *testing.T) {
	s, jobs := example()
	changed := jobs[0]
	changed.Cause = "the last"
	last, err := jsonwords.Marshal(lineOf(changed))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, old, with, want string }{
		{"a value", `"state":"failed"`, `"state":"done"`, "damaged: job 1 (line 5) "},
		{"a number", `"seconds":1.5`, `"seconds":1.5000001`, "damaged: job 1 (line 5) "},
		{"a torn text", `"overrides":["a=2"]`, `"overrides":["a=2"`, "damaged: one of the lines 5 to 6 "},
		{"another type", `"epochs":7`, `"epochs":"x"`, "damaged: job 1 (line 5) "},
		{"of one job", `"the last"`, `"the least"`, "damaged: job 0 (line 7) "},
		{"a deleted line", string(last) + "\n", "", "damaged: one of the lines 7 to 7 "},
		{"the sweep", `"trials":`, `"trails":`, "damaged: one of the lines 1 to 4 "},
		{"a digest", `{"sha256":"`, `{"sha256":"0`, "damaged: one of the lines 1 to 4 "},
		{"no ledger", `{"version":4}`, `{}`, "its first line names no version"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := Create(dir, s, jobs[:1])
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := errors.Join(l.Add(jobs[1]), l.Update(changed)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Load(dir); err != nil {
				t.Fatal(err)
			}
			rewrite(t, dir, tc.old, tc.with)
			if _, _, err := Load(dir); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// What a kill, a power cut or a full disk leaves behind the last digest is no part of the ledger, and goes with the next change.
func TestTornEnd(t *testing.T) {
	for _, torn := range []string{`{"job":{"num":0,`, `{"job":{"num":0,"state":"failed"}}` + "\n", strings.Repeat("\x00", 1<<17),
		`{"job":{"num":0,"state":"failed"}}` + "\n" + `{"sha256":"01`} {
		dir, jobs := created(t)
		path := filepath.Join(dir, FileName)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(whole, torn...), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, got, err := Load(dir); err != nil || !reflect.DeepEqual(got, jobs) {
			t.Fatalf("behind %.20q: %+v, %v", torn, got, err)
		}
		l, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		jobs[0].Attempts = 3
		if err := errors.Join(l.Update(jobs[0]), l.Close()); err != nil {
			t.Fatal(err)
		}
		if _, got, err := Load(dir); err != nil || !reflect.DeepEqual(got, jobs) {
			t.Fatalf("written behind %.20q: %+v, %v", torn, got, err)
		}
	}
}
