package experiments_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/testkit/runtest"
	"fulcrum/internal/testkit/slurmtest"
)

// TestOnSlurmProcesses: the tasks of srun are the processes of a run, with the bytes of one process. What cannot be shared is refused.
func TestOnSlurmProcesses(t *testing.T) {
	slurmtest.Start(t)
	tasks := 2
	srun := func(args ...string) (string, error) {
		args = append([]string{fmt.Sprint("--ntasks=", tasks), "--overcommit", "--kill-on-bad-exit", runtest.Program(t)}, args...)
		out, err := exec.Command("srun", args...).CombinedOutput()
		return string(out), err
	}
	one, eight := runtest.Folder(t), "parallel.shards=8"
	for name, args := range map[string][]string{"pointer": onSamples(), "t5": runtest.TinySummaries("t5"), "vl": runtest.TinyShapes()} {
		alone := runtest.Folder(t)
		if name == "pointer" {
			alone = one
		}
		runtest.MustRun(t, spread(1, args, alone, eight)...)
		for _, tasks = range []int{2, 3, 4, 8} {
			if testing.Short() && (tasks > 2 || name != "pointer") {
				continue
			}
			dir := runtest.Folder(t)
			out, err := srun(spread(1, args, dir, eight)...)
			if err != nil || !strings.Contains(out, fmt.Sprint(tasks, " processes, 8 shards a step")) {
				t.Fatalf("%s by %d: %v\n%s", name, tasks, err, out)
			}
			runtest.OutcomeOf(t, alone).Same(t, runtest.OutcomeOf(t, dir), 0)
		}
	}
	tasks = 2
	for _, tc := range []struct {
		args []string
		said string
	}{
		{runtest.Tiny(), "srun=2: want at most 1, the shards of a step"},
		{[]string{"task=predict", "init.checkpoint=" + one, "predict.out=" + t.TempDir() + "/p.jsonl"},
			"runs in one process, and srun has started 2"},
		{append([]string{"-m", "seed=1,2"}, runtest.Tiny()...), "a sweep is started alone"},
	} {
		if out, err := srun(tc.args...); err == nil || !strings.Contains(out, tc.said) {
			t.Errorf("%v: %v, want %q:\n%s", tc.args, err, tc.said, out)
		}
	}
}

// TestOnSlurmSweepProcesses: the jobs of a sweep have a process on each of two nodes, and the bytes of one process, also where they are
// stopped and queued again. A process that is killed is named, and what cannot be shared is refused before anything is queued.
func TestOnSlurmSweepProcesses(t *testing.T) {
	c := slurmtest.Start(t)
	args := runtest.Tiny("parallel.shards=2", "grpo.epochs=60", "report.plots=false")
	alone, dir := runtest.Folder(t), runtest.Folder(t)
	runtest.MustRun(t, append(args, "hydra.run.dir="+alone)...)

	sweep := func(dir string, more ...string) *runtest.Process {
		return runtest.Start(t, append(append([]string{"-m", "hydra/launcher=slurm", "hydra.launcher.partition=both", "hydra.launcher.nodes=2",
			"hydra.launcher.max_num_timeout=1", "hydra.sweep.dir=" + dir}, args...), more...)...)
	}
	running := func() (id string) {
		return strings.TrimSpace(c.Run("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i"))
	}
	trained := func(dir string) bool {
		text, _ := os.ReadFile(filepath.Join(dir, "0", "metrics.jsonl"))
		return strings.Count(string(text), "\n") > 20
	}
	p := sweep(dir)
	p.Until(func() bool { return trained(dir) })
	id := running()
	c.Run("scancel", "--batch", "--signal=USR1", id) // as --signal=B:USR1 does it near the time limit
	c.Release(id)
	if r := p.Wait(); r.Code != 0 {
		log, _ := os.ReadFile(filepath.Join(dir, "0", "job.log"))
		t.Fatalf("exit code %d\n%s\n%s\n%s", r.Code, r.Stdout, r.Stderr, log)
	}
	got := runtest.OutcomeOf(t, filepath.Join(dir, "0"))
	if got.Resumes != 1 {
		t.Errorf("%d resumes", got.Resumes)
	}
	runtest.OutcomeOf(t, alone).Same(t, got, got.Resumes)

	if all, err := launcher.Attempts(filepath.Join(dir, "0")); err != nil || len(all) != 2 || all[0].State != launcher.Interrupted {
		t.Errorf("attempts: %+v, %v", all, err)
	}

	killed := runtest.Folder(t)
	p = sweep(killed)
	p.Until(func() bool { return trained(killed) })
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range environments {
		text, _ := os.ReadFile(name)
		if strings.Contains(string(text), "SLURM_CONF="+c.Conf) && strings.Contains(string(text), "SLURM_PROCID=1") {
			pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if r := p.Wait(); r.Code != 1 || !strings.Contains(r.Stdout, "task 1: Killed") && !strings.Contains(r.Stdout, "rank 1 on ") {
		t.Errorf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}

	many := []string{"-m", "hydra/launcher=slurm", "hydra.launcher.tasks_per_node=3", "hydra.sweep.dir=" + runtest.Folder(t)}
	r := runtest.Run(t, append(many, args...)...)
	runtest.Refused(t, r, 2, "job 0: parallel.shards: 3 processes of hydra/launcher=slurm (nodes × tasks_per_node)", "parallel.shards=3")
}
