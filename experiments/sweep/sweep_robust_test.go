package sweep_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/testkit/golden"
	"fulcrum/reports/record"
)

// withoutReader runs the program, reads its first line and closes the pipe that it writes to.
func withoutReader(t *testing.T, want string, args ...string) {
	t.Helper()
	cmd := exec.Command(program(t), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	first, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || !strings.Contains(first, want) {
		t.Errorf("the first line: %q, %v", first, err)
	}
	r.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %v", args, err)
	}
}

// Nor does a run: `run … | head` trains to its end.
func TestRunWithoutReader(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	withoutReader(t, "→ "+dir, tiny("schedule=[rce]", "rce.epochs=1", "report.plots=false", "hydra.run.dir="+dir)...)
	if s, err := record.ReadSummary(dir); err != nil || s == nil || s.State != record.StateDone {
		t.Errorf("the run's summary: %+v, %v", s, err)
	}
}

// A sweep's jobs do not depend on who reads what they print.
func TestSweepWithoutReader(t *testing.T) {
	t.Parallel()
	args := func(dir string) []string {
		return tiny("-m", "rce.lr=1e-4,2e-4", "schedule=[rce]", "rce.epochs=1", "report.plots=false", "hydra.sweep.dir="+dir)
	}
	t.Run("a pipe's reader leaves", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		withoutReader(t, "sweep of 2 jobs", args(dir)...)
		doneOnce(t, dir, 2)
	})
	t.Run("nothing can be written there", func(t *testing.T) {
		t.Parallel()
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err)
		}
		defer full.Close()
		dir := folder(t)
		cmd := exec.Command(program(t), args(dir)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.Stdout, cmd.Stderr = full, full
		if cmd.Run(); cmd.ProcessState.ExitCode() != 1 { // all jobs are done, what they said is lost
			t.Errorf("the sweep: %v, want exit code 1", cmd.ProcessState)
		}
		doneOnce(t, dir, 2)
	})
	t.Run("a job is told by what it differs in, and a table comes last", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		lines := strings.Split(mustRun(t, args(dir)...).Stdout, "\n")
		for job, want := range []string{"#0    started  rce.lr=0.0001", "#1    started  rce.lr=0.0002"} {
			if !slices.Contains(lines, want) || !strings.Contains(read(t, filepath.Join(dir, fmt.Sprint(job), "job.log")), "epoch 1/1  done") {
				t.Errorf("no line %q, or what the job prints is not in its job.log:\n%s", want, strings.Join(lines, "\n"))
			}
		}
		end := lines[max(0, len(lines)-10):]
		if !slices.ContainsFunc(end, func(s string) bool { return strings.HasPrefix(s, " job  state  val_reward") }) || len(lines) > 20 {
			t.Errorf("no table at the end, or %d lines:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
}

// Jobs run the program that their sweep was started with, whatever a build makes of its file meanwhile.
func TestSweepKeepsItsProgram(t *testing.T) {
	t.Parallel()
	built, err := os.ReadFile(program(t))
	if err != nil {
		t.Fatal(err)
	}
	// replace puts another file in the place of a program, as go build does.
	replace := func(path string, content []byte) {
		t.Helper()
		if err := errors.Join(golden.WriteProgram(path+".new", content), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	dir, own := folder(t), filepath.Join(t.TempDir(), "run")
	replace(own, built)
	p := startProgram(t, own, "", nil, tiny("-m", "seed=1,2", "schedule=[rce]", "rce.epochs=8", "report.plots=false",
		"hydra.sweep.dir="+dir)...)
	p.Until(func() bool { return exists(filepath.Join(dir, "0/metrics.jsonl")) })
	replace(own, []byte("#!/bin/sh\necho another build >&2\nexit 9\n"))
	p.Until(func() bool { return exists(filepath.Join(dir, "1/metrics.jsonl")) })
	p.SignalGroup(syscall.SIGKILL)
	p.Wait()
	kept := filepath.Join(dir, ".sweep/program/run")

	replace(own, append(slices.Clone(built), "another build"...)) // works, and is not the same
	p = startProgram(t, own, "", nil, "resume", dir)
	r := p.Wait()
	if r.Code != 0 || !strings.Contains(r.Stderr, "note: the jobs run the program that the sweep was started with ("+kept+")") {
		t.Errorf("exit code %d: %s", r.Code, r.Stderr)
	}
	doneOnce(t, dir, 2)
	if exists(kept) {
		t.Errorf("%s is left behind a sweep that is done", kept)
	}

	// A user who accepts changes gets the build that is called; job 2 begins with it.
	dir = folder(t)
	p = start(t, tiny("-m", "seed=1,2", "schedule=[rce]", "rce.epochs=8", "report.plots=false", "hydra.sweep.dir="+dir)...)
	p.Until(func() bool { return exists(filepath.Join(dir, "0/metrics.jsonl")) })
	p.SignalGroup(syscall.SIGKILL)
	p.Wait()
	p = startProgram(t, own, "", nil, "resume", dir, "--accept-changes")
	p.Until(func() bool { return exists(filepath.Join(dir, "1/metrics.jsonl")) })
	if got := read(t, filepath.Join(dir, ".sweep/program/run")); !strings.HasSuffix(got, "another build") {
		t.Errorf("the sweep does not keep the build that was accepted")
	}
	if r := p.Wait(); r.Code != 0 || strings.Contains(r.Stderr, "note: the jobs run") {
		t.Errorf("exit code %d: %s", r.Code, r.Stderr)
	}
}

// A closed terminal interrupts, like Ctrl-C: the state is saved. Under nohup nothing happens.
func TestHangup(t *testing.T) {
	t.Parallel()
	step := func(dir string) func() bool {
		return func() bool {
			data, _ := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
			return strings.Contains(string(data), `"kind":"step"`)
		}
	}
	t.Run("a run", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		p := start(t, tiny("hydra.run.dir="+dir, "report.plots=false", "rce.epochs=20")...)
		p.Until(step(dir))
		p.Signal(syscall.SIGHUP)
		if r := p.Wait(); r.Code != 129 || !strings.Contains(r.Stderr, "interrupted by SIGHUP; the state is saved") {
			t.Errorf("exit code %d: %s", r.Code, r.Stderr)
		}
	})
	t.Run("a sweep", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		p := start(t, tiny("-m", "seed=1,2", "hydra.sweep.dir="+dir, "report.plots=false", "schedule=[rce]", "rce.epochs=20")...)
		p.Until(step(filepath.Join(dir, "0")))
		p.SignalGroup(syscall.SIGHUP) // as the kernel does: the controller and its job
		if r := p.Wait(); r.Code != 129 || !strings.Contains(r.Stderr, "run resume "+dir) {
			t.Errorf("exit code %d: %s", r.Code, r.Stderr)
		}
		attempts, err := launcher.Attempts(filepath.Join(dir, "0"))
		if err != nil || len(attempts) != 1 || attempts[0].State != launcher.Interrupted || jobs(t, dir)[0].State != launcher.Queued {
			t.Errorf("%+v, %v", attempts, err)
		}
		mustRun(t, "resume", dir)
		doneOnce(t, dir, 2)
	})
	t.Run("under nohup", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		cmd := exec.Command("sh", append([]string{"-c", `trap '' HUP; exec "$0" "$@"`, program(t)},
			tiny("hydra.run.dir="+dir, "report.plots=false")...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for at := step(dir); !at(); {
			select {
			case err := <-ended:
				t.Fatalf("the run has ended: %v", err)
			default:
			}
		}
		cmd.Process.Signal(syscall.SIGHUP)
		if err := <-ended; err != nil {
			t.Errorf("the run: %v", err)
		}
		if s, err := record.ReadSummary(dir); err != nil || s.State != record.StateDone {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// A run that a user has put into a job's folder is not the job: neither gone on with nor taken for its result.
func TestSweepForeignRun(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	common := []string{"report.plots=false", "schedule=[rce]", "rce.epochs=1"}
	p := start(t, tiny(append(common, "-m", "seed=1,2,3", "hydra.sweep.dir="+dir)...)...)
	p.Until(func() bool { return exists(filepath.Join(dir, "0/.hydra/config.yaml")) })
	p.SignalGroup(syscall.SIGKILL)
	p.Wait()
	one, two := filepath.Join(dir, "1"), filepath.Join(dir, "2")
	if exists(one) {
		t.Skip("the sweep was faster")
	}
	mustRun(t, tiny(append(common, "seed=77", "hydra.run.dir="+one)...)...)
	foreign := read(t, filepath.Join(one, "summary.json"))
	q := start(t, tiny(append(common, "rce.epochs=50", "seed=78", "hydra.run.dir="+two)...)...)
	q.Until(func() bool { return exists(filepath.Join(two, "checkpoints/rce_epoch1.state")) })
	q.SignalGroup(syscall.SIGKILL)
	q.Wait()

	if r := run(t, "resume", dir); r.Code != 1 {
		t.Errorf("exit code %d: %s", r.Code, r.Stderr)
	}
	got := jobs(t, dir)
	if got[0].State != launcher.Done {
		t.Errorf("job 0: %+v", got[0])
	}
	for i, at := range []string{one, two} {
		if job := got[i+1]; job.State != launcher.Failed || !strings.Contains(job.Cause,
			at+": this folder holds another run than the sweep's job") || len(job.Objectives) != 0 {
			t.Errorf("job %d: %+v", i+1, job)
		}
	}
	if read(t, filepath.Join(one, "summary.json")) != foreign {
		t.Error("the foreign run was changed")
	}
	mustRun(t, "resume", one) // by hand it is the user's own
	for _, at := range []string{one, two} {
		if err := os.Rename(at, at+".mine"); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, "resume", dir)
	doneOnce(t, dir, 3)
}

// A sweep's fingerprint is that of the folder's own configuration, finished or not; one that takes values from
// the hydra node has none to compare.
func TestResumeAsJob(t *testing.T) {
	t.Parallel()
	other := []string{"FULCRUM_CONFIG_HASH=another"}
	dir := folder(t)
	mustRun(t, tiny("schedule=[rce]", "rce.epochs=1", "report.plots=false", "hydra.run.dir="+dir)...)
	refused(t, startWith(t, "", other, "resume", dir).Wait(), 2, dir+": this folder holds another run than the sweep's job")
	mustRun(t, "resume", dir)
	dir = folder(t)
	mustRun(t, tiny("schedule=[rce]", "rce.epochs=1", "report.plots=false",
		"data.conversations.system=${hydra:job.name}", "hydra.run.dir="+dir)...)
	refused(t, startWith(t, "", other, "resume", dir).Wait(), 2, dir+": this folder holds another run than the sweep's job")
	if r := mustRun(t, "resume", dir); !strings.Contains(r.Stdout, "this run is finished") {
		t.Errorf("a configuration that reads the hydra node: %s", r.Stdout)
	}
}

// A folder that cannot be made is the fault of the path that was given, whatever key it came from.
func TestFolderInTheWay(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "theirs")
	for _, at := range []string{file, filepath.Join(file, "sub"), "/proc/none/here"} {
		for _, args := range [][]string{{"hydra.run.dir=" + at}, {"-m", "seed=1,2", "hydra.sweep.dir=" + at},
			{"hydra.job.chdir=true", "hydra.run.dir=" + at}} {
			r := run(t, tiny(args...)...)
			refused(t, r, 2, "cannot use the folder "+at+": ")
			if key := strings.SplitN(args[0], "=", 2)[0]; key == "-m" && strings.Contains(r.Stderr, "hydra.run.dir") {
				t.Errorf("%v is blamed on hydra.run.dir: %s", args, r.Stderr)
			}
		}
	}
	if read(t, file) != "theirs" {
		t.Error("the file in the way was changed")
	}
}

// A metric that counts as a number is one in every row of a run that has it, and no other is.
func TestNumericMetrics(t *testing.T) {
	t.Parallel()
	dir, _ := trained(t)
	rows, err := record.ReadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, row := range slices.Concat(rows.Epochs, rows.EvalRows, rows.Events) {
		for _, m := range record.Metrics() {
			if _, ok := row.Fields[m.Name]; !ok {
				continue
			}
			seen[m.Name] = true
			if _, number := row.Number(m.Name); number != m.Numeric() {
				t.Errorf("%s is %v in a row, and Numeric says %v", m.Name, row.Fields[m.Name], m.Numeric())
			}
		}
	}
	for _, name := range []string{"split", "policy", "kl_reference", "checkpoint", "adv_hist", "kl_beta_at_bound", "val_reward",
		"loss", "step_seconds"} {
		if !seen[name] {
			t.Errorf("no row has %s", name)
		}
	}
}
