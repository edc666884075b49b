package sweep_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/experiments/sweep/ledger"
	"fulcrum/internal/testkit/runtest"
	"fulcrum/reports/record"
)

// jobs reads a sweep's ledger.
func jobs(t *testing.T, dir string) []ledger.Job {
	t.Helper()
	_, all, err := ledger.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// doneOnce fails the test unless every job of a sweep has ended well, in exactly one attempt that did.
func doneOnce(t *testing.T, dir string, want int) {
	t.Helper()
	all := jobs(t, dir)
	if len(all) != want {
		t.Fatalf("the ledger has %d jobs, want %d", len(all), want)
	}
	for _, job := range all {
		attempts, err := launcher.Attempts(filepath.Join(dir, job.Dir))
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		for _, a := range attempts {
			if a.State == launcher.Done {
				done++
			}
		}
		if job.State != launcher.Done || done != 1 || job.Cause != "" || len(job.Objectives) != 1 || len(attempts) != job.Attempts {
			t.Errorf("job %d: %+v with the attempts %+v", job.Num, job, attempts)
		}
	}
}

// A job that fails is reported with its cause and stops no other; a resume retries what is missing.
func TestSweep(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	good := strings.TrimPrefix(data[1], "data.beams=")
	missing := filepath.Join(filepath.Dir(good), "later.json")
	dir := folder(t)
	told := filepath.Join(filepath.Dir(good), "told")
	args := append([]string{"-m", "hydra.sweep.dir=" + dir, "data.beams=" + missing + "," + good, "logging.progress=false",
		"on_end.command='echo $FULCRUM_STATE >> " + told + "'",
		"+hydra.callbacks.mine={on_job_end: 'echo job $FULCRUM_STATE >> " + told + "', on_multirun_end: 'echo sweep >> " + told + "'}"},
		small([]string{data[0], data[2]})...)
	r := run(t, args...)
	if last := lastLine(r.Stderr); r.Code != 1 || !strings.Contains(last, "1 of 2 jobs failed") ||
		!strings.Contains(last, "run resume "+dir) {
		t.Errorf("exit code %d: %s", r.Code, r.Stderr)
	}
	got := jobs(t, dir)
	if len(got) != 2 || got[0].State != "failed" || !strings.Contains(got[0].Cause, missing) || *got[0].ExitCode != 2 ||
		got[1].State != "done" {
		t.Errorf("the ledger: %+v", got)
	}
	needsAnnexes(t)
	report := read(t, filepath.Join(dir, "report.md"))
	for _, want := range []string{"later.json", "no such file", "What leads"} {
		if !strings.Contains(report, want) {
			t.Errorf("report.md does not mention %q", want)
		}
	}
	if !exists(filepath.Join(dir, "1/report.md")) || !exists(filepath.Join(dir, "multirun.yaml")) {
		t.Error("1/report.md or multirun.yaml is missing")
	}
	if overrides := read(t, filepath.Join(dir, "1/.hydra/overrides.yaml")); !strings.Contains(overrides, "- data.beams="+good) ||
		strings.Contains(overrides, "hydra.") {
		t.Errorf("overrides of job 1:\n%s", overrides)
	}
	refused(t, run(t, args...), 2, dir, "run resume "+dir)
	if s := mustRun(t, "status", dir).Stdout; !strings.Contains(s, "failed") || !strings.Contains(s, "done") ||
		!strings.Contains(s, "no such file") {
		t.Errorf("status:\n%s", s)
	}

	write(t, missing, read(t, good))
	second := filepath.Join(dir, "1/summary.json")
	before, err := os.Stat(second)
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, "resume", dir)
	doneOnce(t, dir, 2)
	mustRun(t, "resume", dir) // of what has ended: nobody is told again
	if got := read(t, told); got != "job failed\njob done\nended\nsweep\njob done\nended\nsweep\n" {
		t.Errorf("on_end and hydra.callbacks were told\n%s", got)
	}
	if after, err := os.Stat(second); err != nil || !after.ModTime().Equal(before.ModTime()) {
		t.Error("the resume ran the finished job again")
	}
	mustRun(t, "report", dir)
}

// A job's configuration is checked before the first job starts.
func TestSweepChecksFirst(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	refused(t, run(t, tiny("-m", "rce.lr=1e-3,-1", "hydra.sweep.dir="+dir)...), 2, "rce.lr=-1")
	refused(t, run(t, tiny("-m", "schedule=[rce],[sft,sft]", "hydra.sweep.dir="+dir)...), 2, "sft is named twice")
	refused(t, run(t, tiny("-m", "rce.lr=1e-3,1e-4", "hydra.sweep.subdir=same", "hydra.sweep.dir="+dir)...), 2, "jobs 0", "same")
	refused(t, run(t, tiny("-m", "rce.lr=1e-3,1e-4", "hydra.sweep.subdir=../x", "hydra.sweep.dir="+dir)...), 2, "hydra.sweep.subdir=../x")
	refused(t, run(t, tiny("-m", "rce.lr=1e-3,1e-4", "hydra/launcher=local", "hydra.launcher.n_jobs=0", "hydra.sweep.dir="+dir)...),
		2, "hydra.launcher.n_jobs")
	refused(t, run(t, tiny("-m", "rce.lr=1e-3,1e-4", "hydra/launcher=joblib", "hydra.launcher.temp_folder=x",
		"hydra.sweep.dir="+dir)...), 2, "hydra.launcher.temp_folder=x")
	refused(t, run(t, tiny("-m", "rce.lr=1e-3,1e-4", "hydra.sweeper.n_trials=40", "hydra.sweep.dir="+dir)...), 2,
		"hydra.sweeper.n_trials=40 has no effect", "hydra/sweeper=basic", "hydra/sweeper=tpe")
	refused(t, run(t, tiny("-m", "rce.lr=1e-3,1e-4", "hydra.sweeper.n_jobs=2", "hydra.sweep.dir="+dir)...), 2, "hydra.launcher.n_jobs")
	refused(t, run(t, tiny("-m", "rce.lr=1e-3,1e-4", "hydra.sweeper.on_failure=sotp", "hydra.sweep.dir="+dir)...), 2, "on_failure", "sotp")
	refused(t, run(t, tiny("-m", "rce.lr=1e-3,1e-4", "hydra.sweeper.objective=val_rewrd", "hydra.sweep.dir="+dir)...), 2,
		"hydra.sweeper.objective", "did you mean val_reward?")
	refused(t, run(t, tiny("-m", "rce.lr=1e-3,1e-4", "hydra.sweeper.constraints=['val_kll <= 1']", "hydra.sweep.dir="+dir)...), 2,
		"hydra.sweeper.constraints.0", "did you mean val_kl?")
	refused(t, run(t, tiny("-m", "seed=range(3,3)", "--cfg", "sweep")...), 2, "seed=range(3,3): a range has no values to choose from")
	refused(t, run(t, tiny("-m", "rce.lr=interval(1e-4,1e-3)", "hydra.sweep.dir="+dir)...), 2, "interval")
	if exists(dir) {
		t.Error("a refused sweep leaves a folder")
	}
}

// A controller that is killed takes its job with it; both go on where they were. One that is
// interrupted has its job save its state.
func TestSweepKilled(t *testing.T) {
	t.Parallel()
	args, alone := small(beams(t, records()), "seed=5", "rce.epochs=3", "grpo.epochs=1"), folder(t)
	mustRun(t, append(slices.Clone(args), "optim.eps=1e-8", "hydra.run.dir="+alone)...)
	for _, tc := range []struct {
		name string
		end  func(p *process)
		code int
	}{
		{"front process killed", func(p *process) { p.Signal(syscall.SIGKILL) }, 137},
		{"Ctrl-C in a terminal", func(p *process) { p.SignalGroup(syscall.SIGINT) }, 130},
		{"terminated", func(p *process) { p.Signal(syscall.SIGTERM) }, 143},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			p := start(t, append(slices.Clone(args), "-m", "optim.eps=1e-8,1e-6", "hydra.sweep.dir="+dir)...)
			p.Until(func() bool { return exists(filepath.Join(dir, "0/checkpoints/rce_epoch1.state")) })
			tc.end(p)
			if r := p.Wait(); r.Code != tc.code { // returns once the job has let go of its output
				t.Fatalf("exit code %d, want %d: %s", r.Code, tc.code, r.Stderr)
			}
			if s, err := record.ReadSummary(filepath.Join(dir, "0")); err == nil && s != nil && s.State == record.StateDone {
				t.Skip("the job was faster") // the controller may not have heard of it
			}
			if s := run(t, "status", dir).Stdout; strings.Contains(s, "running") || !strings.Contains(s, "run resume") ||
				tc.code != 137 && !strings.Contains(s, "job 0: interrupted after rce epoch ") {
				t.Errorf("status:\n%s", s)
			}
			mustRun(t, "resume", dir)
			got := outcomeOf(t, filepath.Join(dir, "0"))
			outcomeOf(t, alone).Same(t, got, 1)
			if !exists(filepath.Join(dir, "1/report.md")) {
				t.Error("the second job did not run")
			}
		})
	}
}

// grid is a sweep of three short jobs, two at a time.
func grid(dir string, more ...string) []string {
	return tiny(append([]string{"-m", "seed=range(0,3)", "hydra/launcher=local", "hydra.launcher.n_jobs=2",
		"report.plots=false", "hydra.sweep.dir=" + dir}, more...)...)
}

// A sweep that is killed again and again, controller, workers or both, ends as one that nobody
// disturbed: every job is done exactly once, with the same bytes.
func TestSweepKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	kills, count := 2, 3
	args := grid
	if !testing.Short() { // the acceptance size
		kills, count = 5, 9
		args = func(dir string, more ...string) []string {
			return append([]string{"-m", "exp=okvqa_v3", "grpo.kl.beta=0.05,0.1,0.2", "seed=range(0,3)", "hydra/launcher=local",
				"hydra.sweep.dir=" + dir}, more...)
		}
	}
	undisturbed := func(args ...string) {
		p := start(t, args...)
		p.Limit = time.Hour
		if r := p.Wait(); r.Code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, r.Code, r.Stderr)
		}
	}
	still, dir := folder(t), folder(t)
	begin := time.Now()
	undisturbed(args(still)...)
	took := time.Since(begin)
	doneOnce(t, still, count)

	seed := uint64(time.Now().UnixNano())
	t.Logf("undisturbed in %v; seed %d", took, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	command := args(dir)
	for i := range kills {
		p := start(t, command...)
		select {
		case <-p.Ended:
		case <-time.After(time.Duration((0.1 + random.Float64()) / float64(kills+1) * float64(took))):
		}
		switch i % 3 {
		case 0:
			p.SignalGroup(syscall.SIGKILL) // all at once
		case 1:
			p.Signal(syscall.SIGKILL) // the controller: its jobs die with it
		case 2: // a worker first, then all
			if pid := runningJob(t, dir); pid > 0 {
				syscall.Kill(pid, syscall.SIGKILL)
				time.Sleep(time.Duration(random.Float64() * float64(100*time.Millisecond)))
			}
			p.SignalGroup(syscall.SIGKILL)
		}
		p.Wait()
		if exists(filepath.Join(dir, ledger.FileName)) {
			command = []string{"resume", dir}
			mustRun(t, "status", dir)
		}
	}
	undisturbed(command...)
	doneOnce(t, dir, count)
	for i := range count {
		want, got := outcomeOf(t, filepath.Join(still, itoa(i))), outcomeOf(t, filepath.Join(dir, itoa(i)))
		want.Same(t, got, got.Resumes)
		for _, part := range leftovers(t, filepath.Join(dir, itoa(i))) {
			t.Errorf("job %d leaves %s", i, part)
		}
	}
}

// runningJob is the process number of some job that runs, 0 when none does.
func runningJob(t *testing.T, dir string) int {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", "attempts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range found {
		attempts, err := launcher.Attempts(filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(attempts); n > 0 && attempts[n-1].State == launcher.Running {
			return attempts[n-1].PID
		}
	}
	return 0
}

// What becomes of a sweep when a job fails is the user's choice.
func TestSweepOnFailure(t *testing.T) {
	t.Parallel()
	data := beams(t, records())
	good := strings.TrimPrefix(data[1], "data.beams=")
	args := func(dir, missing string, more ...string) []string {
		more = append(more, "-m", "hydra.sweep.dir="+dir, "data.beams="+missing+","+good, "logging.progress=false")
		return append(more, small([]string{data[0], data[2]})...)
	}
	t.Run("retry", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		r := run(t, args(dir, filepath.Join(t.TempDir(), "never.json"), "hydra.sweeper.on_failure=retry:2")...)
		got := jobs(t, dir)
		if r.Code != 1 || got[0].State != "failed" || got[0].Attempts != 3 || got[1].State != "done" || got[1].Attempts != 1 {
			t.Errorf("exit code %d: %+v", r.Code, got)
		}
	})
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		missing := filepath.Join(t.TempDir(), "later.json")
		r := run(t, args(dir, missing, "hydra.sweeper.on_failure=stop")...)
		got := jobs(t, dir)
		if r.Code != 1 || got[0].State != "failed" || got[1].State != "queued" || !strings.Contains(r.Stderr, "on_failure=stop") ||
			strings.Contains(r.Stdout, "interrupted") && !strings.Contains(r.Stdout, "#1    started") { // on a busy machine it may have
			t.Errorf("exit code %d: %+v\n%s%s", r.Code, got, r.Stdout, r.Stderr)
		}
		write(t, missing, read(t, good))
		mustRun(t, "resume", filepath.Join(dir, "0")) // alone
		if s := mustRun(t, "status", dir).Stdout; !regexp.MustCompile(`1 done, 1 queued[^$]*\n +0 +done +\d`).MatchString(s) {
			t.Errorf("status:\n%s", s)
		}
		mustRun(t, "resume", dir)
		doneOnce(t, dir, 2)
	})
}

// A configuration that reads the hydra node is the same after a resume.
func TestSweepReadsHydra(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	p := start(t, tiny("-m", "optim.eps=1e-8,1e-6", "seed=${hydra:job.num}", "report.plots=false", "hydra.sweep.dir="+dir)...)
	p.Until(func() bool { return exists(filepath.Join(dir, "1/checkpoints/rce_epoch1.state")) })
	p.SignalGroup(syscall.SIGKILL)
	p.Wait()
	mustRun(t, "resume", dir)
	doneOnce(t, dir, 2)
	if s := read(t, filepath.Join(dir, "1/summary.json")); !strings.Contains(s, `"seed": 1,`) || !strings.Contains(s, `"resumes": 1,`) {
		t.Errorf("summary.json of job 1:\n%s", s)
	}
}

// Two controllers cannot own a sweep; a job cannot be run beside it either.
func TestSweepHasOneController(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	p := start(t, grid(dir)...)
	p.Until(func() bool { return exists(filepath.Join(dir, "0/checkpoints/rce_epoch1.state")) })
	job := attemptsOf(t, dir, 0)[0].PID
	syscall.Kill(job, syscall.SIGSTOP) // neither it nor the sweep ends before the others are refused
	refused(t, run(t, "resume", dir), 2, dir, "another controller owns this sweep")
	refused(t, run(t, grid(dir)...), 2, dir)
	refused(t, run(t, "resume", filepath.Join(dir, "0")), 2, "another process is writing this run folder")
	syscall.Kill(job, syscall.SIGCONT)
	follower := start(t, "attach", dir) // the controller runs in a terminal: there is no log to follow
	if r := p.Wait(); r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	if r := follower.Wait(); r.Code != 0 || !strings.Contains(r.Stdout, "#2    done") ||
		!strings.Contains(r.Stdout, "all 3 jobs are done") {
		t.Errorf("attach: exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	doneOnce(t, dir, 3)
}

// A sweep whose configuration files have changed is not gone on with unawares.
func TestSweepConfigurationChanged(t *testing.T) {
	t.Parallel()
	conf, dir := t.TempDir(), folder(t)
	mine := filepath.Join(conf, "exp", "mine.yaml")
	if err := os.Mkdir(filepath.Dir(mine), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "# @package _global_\nrce: {epochs: 2, lr: %s}\n"
	write(t, mine, fmt.Sprintf(text, "1e-3"))
	args := append(tiny("-m", "-cd", conf, "seed=1,2", "report.plots=false", "hydra.sweep.dir="+dir)[1:], "exp=mine",
		"rce.epochs=1", "grpo.epochs=1")
	p := start(t, args...)
	p.Until(func() bool { return exists(filepath.Join(dir, "0/.hydra/config.yaml")) }) // long before the job is done
	p.SignalGroup(syscall.SIGKILL)
	p.Wait()
	write(t, mine, fmt.Sprintf(text, "2e-3"))
	refused(t, run(t, "resume", dir), 2, "rce.lr was 0.001 and is 0.002", "--accept-changes")
	for _, job := range jobs(t, dir) {
		if job.State == "done" {
			t.Errorf("job %d ran", job.Num)
		}
	}
	mustRun(t, "resume", dir, "--accept-changes")
	doneOnce(t, dir, 2)
	if got := read(t, filepath.Join(dir, "1/.hydra/config.yaml")); !strings.Contains(got, "0.002") && !strings.Contains(got, "2e-3") {
		t.Errorf("job 1 ran with the old configuration:\n%s", got)
	}

	// A change while the sweep runs: the next job refuses.
	dir = folder(t)
	args[len(args)-1] = "grpo.epochs=3"
	p = start(t, append(args, "hydra.sweep.dir="+dir)...)
	p.Until(func() bool { return exists(filepath.Join(dir, "0/checkpoints/rce_epoch1.state")) })
	write(t, mine, fmt.Sprintf(text, "3e-3"))
	if r := p.Wait(); r.Code != 1 {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	if got := jobs(t, dir); got[0].State != "done" || got[1].State != "failed" ||
		!strings.Contains(got[1].Cause, "the configuration has changed") {
		t.Errorf("%+v", got)
	}
}

// A detached sweep outlives the command that started it; attach follows it, or takes over when its
// controller was killed.
func TestSweepDetached(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := mustRun(t, grid(dir, "--detach")...)
	if !strings.Contains(r.Stdout, "run attach "+dir) {
		t.Error(r.Stdout)
	}
	if s := mustRun(t, "status", dir).Stdout; !strings.Contains(s, "its controller is running") {
		t.Errorf("status:\n%s", s)
	}
	var pid int
	if _, err := fmt.Sscanf(r.Stdout[strings.Index(r.Stdout, "process "):], "process %d", &pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	follower := start(t, "attach", dir)
	follower.Until(func() bool { return strings.Contains(follower.Stdout.String(), "started") })
	follower.Signal(syscall.SIGINT)
	if r := follower.Wait(); !strings.Contains(r.Stderr, "the sweep goes on") || strings.Contains(r.Stdout, "takes over") {
		t.Errorf("exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	for locked := true; locked; time.Sleep(10 * time.Millisecond) {
		locked = strings.Contains(mustRun(t, "status", dir).Stdout, "its controller is running")
	}
	over := start(t, "resume", dir)
	over.Until(func() bool { return strings.Contains(over.Stdout.String(), "#") })
	if exists(filepath.Join(dir, "controller.log")) {
		t.Error("who attaches follows the log of the killed controller")
	}
	if r := over.Wait(); r.Code != 0 {
		t.Error(r.Stderr)
	}
	doneOnce(t, dir, 3)
	if r := mustRun(t, "attach", dir); !strings.Contains(r.Stdout, "have ended") {
		t.Errorf("attach of a finished sweep: %s", r.Stdout)
	}
}

// probe is a search over cheap runs.
func probe(dir string, more ...string) []string {
	return append([]string{"-m", "hydra/sweeper=random", "hydra.sweep.dir=" + dir, "hydra/launcher=local",
		"hydra.launcher.n_jobs=2", "hydra.sweeper.n_jobs=2"},
		tiny(append([]string{"rce.epochs=1", "grpo.epochs=0", "report.plots=false"}, more...)...)...)
}

// A search goes on with more trials, under another objective, and never with another space, sweeper or
// configuration unawares.
func TestSearchGoesOn(t *testing.T) {
	t.Parallel()
	conf, dir := t.TempDir(), folder(t)
	mine := filepath.Join(conf, "exp", "mine.yaml")
	if err := os.Mkdir(filepath.Dir(mine), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "# @package _global_\ndefaults:\n  - beams_v3\nselector: {num_heads: %d}\nhydra: {sweeper: {params: {rce.lr: 'tag(log, " +
		"interval(1e-4,1e-2))'%s}}}\n"
	write(t, mine, fmt.Sprintf(text, 4, ""))
	args := append(probe(dir, "hydra.sweeper.n_trials=2", "-cd", conf), "exp=mine")
	mustRun(t, args...)
	doneOnce(t, dir, 2)
	first := jobs(t, dir)

	refused(t, run(t, "resume", dir, "hydra.sweeper.seed=3"), 2, "hydra.sweeper.seed=3", "hydra.sweeper.n_trials")
	mustRun(t, "resume", dir, "hydra.sweeper.n_trials=3", "hydra.sweeper.objective=val_loss")
	doneOnce(t, dir, 3)
	all := jobs(t, dir)
	if all[0].Objectives[0].Name != "val_loss" || all[2].Objectives[0].Name != "val_loss" ||
		first[0].Objectives[0].Name == "val_loss" || all[0].Attempts != 1 {
		t.Errorf("before %+v\nafter %+v", first, all)
	}

	write(t, mine, fmt.Sprintf(text, 4, ", grpo.lr: 'interval(0,1)'"))
	refused(t, run(t, "resume", dir, "hydra.sweeper.n_trials=4"), 2, "the swept keys have changed", "rce.lr", "grpo.lr")
	write(t, mine, fmt.Sprintf(text, 2, ""))
	refused(t, run(t, "resume", dir, "hydra.sweeper.n_trials=4"), 2, "selector.num_heads was 4 and is 2", "--accept-changes")
	doneOnce(t, dir, 3)
	mustRun(t, "resume", dir, "hydra.sweeper.n_trials=4", "--accept-changes")
	doneOnce(t, dir, 4)
	if all := jobs(t, dir); all[2].Generation != 1 || all[3].Generation != 2 {
		t.Errorf("generations of the configuration: %d, %d", all[2].Generation, all[3].Generation)
	}
	if text := read(t, filepath.Join(dir, "multirun.2.yaml")); !strings.Contains(text, "num_heads: 2") {
		t.Errorf("multirun.2.yaml:\n%s", text)
	}
	needsAnnexes(t)
	if report := read(t, filepath.Join(dir, "report.md")); !strings.Contains(report, "with 2 configurations") {
		t.Errorf("report.md does not tell of two configurations:\n%s", report)
	}
}

// A point that several keys together make invalid is a failed trial; a space without further points
// ends the search.
func TestSearchOfHardSpaces(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := run(t, probe(dir, "hydra.sweeper.n_trials=20", "selector.num_heads=4", "selector.hidden_dim=choice(16,18)", "seed=1,2",
		"hydra.sweep.subdir=${selector.hidden_dim}")...)
	all := jobs(t, dir)
	states, folders := map[string]int{}, map[string]bool{}
	for _, job := range all {
		states[job.State]++
		folders[job.Dir] = true
		if job.State == "failed" && !strings.Contains(job.Cause, "hidden_dim") {
			t.Errorf("%+v", job)
		}
	}
	if r.Code != 1 || len(all) != 4 || states["done"] != 2 || states["failed"] != 2 || len(folders) != 4 {
		t.Errorf("exit code %d, states %v, folders %v:\n%s\n%s", r.Code, states, folders, r.Stdout, r.Stderr)
	}
	if s := mustRun(t, "status", dir).Stdout; !strings.Contains(s, "ended") && !strings.Contains(s, "4 of 20") {
		t.Errorf("status:\n%s", s)
	}
	if again := run(t, "resume", dir); again.Code != 1 || len(jobs(t, dir)) != 4 {
		t.Errorf("exit code %d after the resume: %s", again.Code, again.Stderr)
	}

	for _, onFailure := range []string{"stop", "retry:3"} { // neither runs an invalid point
		dir := folder(t)
		r := run(t, probe(dir, "hydra.sweeper.n_trials=2", "selector.num_heads=4", "selector.hidden_dim=choice(16,18)",
			"hydra.sweeper.on_failure="+onFailure)...)
		stopped := strings.Contains(r.Stderr, "on_failure=stop")
		if r.Code != 1 || stopped != (onFailure == "stop") || exists(filepath.Join(dir, "2")) {
			t.Errorf("%s: exit code %d: %s", onFailure, r.Code, r.Stderr)
		}
	}
}

// A job whose results were deleted is not done.
func TestSweepResultsGone(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mustRun(t, tiny("-m", "seed=1,2", "rce.epochs=1", "grpo.epochs=0", "report.plots=false", "hydra.sweep.dir="+dir)...)
	want := outcomeOf(t, filepath.Join(dir, "1"))
	if err := os.RemoveAll(filepath.Join(dir, "1")); err != nil {
		t.Fatal(err)
	}
	if s := mustRun(t, "status", dir).Stdout; !strings.Contains(s, "job 1 lost") {
		t.Errorf("status:\n%s", s)
	}
	if !runtest.Core {
		mustRun(t, "report", dir)
		if text := read(t, filepath.Join(dir, "report.md")); !strings.Contains(text, "1 done, 1 lost.") {
			t.Errorf("report.md:\n%s", text)
		}
		if r := run(t, "verify", dir); r.Code != 1 || !strings.Contains(r.Stdout, "job 1: state") || strings.Contains(r.Stdout, "report.md") {
			t.Errorf("verify: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
		}
	}
	mustRun(t, "resume", dir)
	doneOnce(t, dir, 2)
	want.Same(t, outcomeOf(t, filepath.Join(dir, "1")), 0)

	if err := os.Remove(filepath.Join(dir, ledger.FileName)); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"status", "resume", "attach"} {
		refused(t, run(t, verb, dir), 2, "its ledger sweep.jsonl is gone", "run report "+dir)
	}
}
