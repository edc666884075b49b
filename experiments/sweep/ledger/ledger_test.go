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
			State: launcher.Queued, Tail: []string{}, Metrics: map[string]float64{}},
		{Num: 1, Overrides: []string{"a=2"}, Params: []string{"2", "0.2"}, Dir: "sub/1", Fingerprint: "g", Generation: 2,
			State: launcher.Failed, Attempts: 2, Failures: 1, ExitCode: &code,
			Cause: "out of memory", Tail: []string{"line", "ünïcode"},
			Objectives: []Objective{{"val_reward", record.Number(math.Inf(-1)), false}, {"val_kl", 0.25, true}},
			Violation:  0.15, Metrics: map[string]float64{"val_kl": 0.25, "x": math.Inf(1)}, Epochs: 7, Seconds: 1.5, Arm: "grpo", Parent: &parent},
	}
	return s, jobs
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
	gotSweep, err := l.Sweep()
	if err != nil || !reflect.DeepEqual(gotSweep, s) {
		t.Errorf("sweep: got %+v, %v\nwant %+v", gotSweep, err, s)
	}
	got, err := l.Jobs()
	if err != nil || !reflect.DeepEqual(got, jobs) {
		t.Errorf("jobs: got %+v, %v\nwant %+v", got, err, jobs)
	}

	begun := time.Unix(1700000100, 0).UTC()
	a := launcher.Attempt{Num: 0, Try: 1, State: launcher.Running, ID: "17_0", Host: "node7", Started: begun}
	jobs[0].State, jobs[0].Attempts = launcher.Running, 1
	if err := l.Record(jobs[0], a); err != nil {
		t.Fatal(err)
	}
	a.State, a.Ended, a.Resumed = launcher.Done, begun.Add(time.Minute), true
	jobs[0].State, jobs[0].Objectives = launcher.Done, []Objective{{"val_reward", 0.5, false}}
	if err := l.Record(jobs[0], a); err != nil {
		t.Fatal(err)
	}
	r, err := Read(dir) // beside the controller
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	attempts, err := r.Attempts(0)
	if err != nil || len(attempts) != 1 || !reflect.DeepEqual(attempts[0], a) {
		t.Errorf("attempts: %+v, %v", attempts, err)
	}
	if got, err := r.Jobs(); err != nil || !reflect.DeepEqual(got, jobs) {
		t.Errorf("jobs: got %+v, %v\nwant %+v", got, err, jobs)
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
	l.db.Exec(`UPDATE sweep SET value = '99' WHERE key = 'version'`)
	l.Close()
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
	dir := t.TempDir()
	s, jobs := example()
	l, err := Create(dir, s, jobs)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
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
		r, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Jobs()
		if err != nil || len(got) != 2 || got[0].Attempts != got[1].Attempts || got[0].Attempts < told {
			t.Fatalf("told of %d, the ledger has %+v, %v", told, got, err)
		}
		r.Close()
	}
}

// A row that was damaged or deleted is named as damage.
func TestDamagedRow(t *testing.T) {
	for _, tc := range []struct{ name, damage, want string }{
		{"a value", `UPDATE jobs SET state = 'done' WHERE num = 1`, "damaged: job 1 "},
		{"a number", `UPDATE jobs SET seconds = seconds + 1e-9 WHERE num = 0`, "damaged: job 0 "},
		{"a torn text", `UPDATE jobs SET overrides = '["a=1"' WHERE num = 0`, "damaged: job 0 "},
		{"another type", `UPDATE jobs SET epochs = 'x' WHERE num = 1`, "damaged: a row behind that of job 0"},
		{"a deleted row", `DELETE FROM jobs WHERE num = 1`, "damaged: job 1, whose row is gone"},
		{"the sweep", `UPDATE sweep SET value = replace(value, '"trials":', '"trails":') WHERE key = 'sweep'`,
			"damaged: what holds for all jobs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			s, jobs := example()
			l, err := Create(dir, s, jobs)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := Load(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := l.db.Exec(tc.damage); err != nil {
				t.Fatal(err)
			}
			l.Close()
			var damage *DamageError
			if _, _, err := Load(dir); !errors.As(err, &damage) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}
