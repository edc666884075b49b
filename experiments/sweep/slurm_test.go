package sweep_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulcrum/experiments/sweep/launcher"
	"fulcrum/internal/testkit/slurmtest"
)

// A sweep on Slurm whose controller is killed again and again, with a job requeued and the node's daemon
// killed, comes to what the same sweep comes to undisturbed, every job done once. The long version is the
// sweep of docs/slurm.md.
func TestOnSlurmSweep(t *testing.T) {
	c := slurmtest.Start(t)
	n, kills, args := 2, 1, []string{"grpo.kl.beta=0.1", "seed=0,1", "rce.epochs=40",
		"grpo.epochs=40"} // some seconds, so that it still runs when it is disturbed
	if !testing.Short() {
		n, kills, args = 9, 6, []string{"grpo.kl.beta=0.05,0.1,0.2", "seed=range(0,3)", "rce.epochs=20", "grpo.epochs=20"}
	}
	var grid []string
	for _, arg := range tiny("report.plots=false") {
		if name, _, _ := strings.Cut(arg, "="); name != "seed" && !strings.HasSuffix(name, ".epochs") {
			grid = append(grid, arg)
		}
	}
	grid = append([]string{"-m"}, append(grid, args...)...)
	calm, dir := folder(t), folder(t)
	mustRun(t, append(grid, "hydra/launcher=local", "hydra.sweep.dir="+calm)...)

	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	sweep := append(grid, "hydra/launcher=slurm", "hydra.launcher.array_parallelism=3", "hydra.sweep.dir="+dir)
	again := func() *process {
		if exists(filepath.Join(dir, "sweep.jsonl")) {
			return start(t, "resume", dir)
		}
		return start(t, sweep...)
	}
	for range 2 * kills { // killed as it composes, submits, notes the array's number
		p := again()
		time.Sleep(time.Duration(100+random.IntN(700)) * time.Millisecond)
		p.Signal(syscall.SIGKILL)
		p.Wait()
	}
	p := again()
	running := func() []string {
		return strings.Fields(c.Run("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i"))
	}
	p.Until(func() bool { return len(running()) > 0 })
	requeued, restarted := 0, false
	for kill := range kills {
		select {
		case <-p.Ended:
		case <-time.After(time.Duration(300+random.IntN(1000*min(kills, 3))) * time.Millisecond):
		}
		if list := running(); len(list) > 0 && requeued < 2 {
			job := list[random.IntN(len(list))]
			if out, err := exec.Command("scontrol", "requeue", job).CombinedOutput(); err == nil { // it may just have ended
				requeued++
				defer func() { t.Logf("requeued %s", job) }()
				c.Release(job)
			} else {
				t.Logf("requeue %s: %s", job, out)
			}
		}
		if kill == kills/2 {
			c.KillNode()
			restarted = true
		}
		p.Signal(syscall.SIGKILL)
		p.Wait()
		p = again()
		if kill == kills/2 {
			time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
			c.StartNode()
		}
	}
	if r := p.Wait(); r.Code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	if requeued == 0 || !restarted {
		t.Errorf("%d jobs requeued, node restarted: %v", requeued, restarted)
	}
	doneOnce(t, dir, n)
	tasks := map[string]int{}
	for _, id := range strings.Fields(c.Run("squeue", "--noheader", "--array", "--states=all", "--format=%K")) {
		tasks[id]++
	}
	for i := range n {
		if tasks[itoa(i)] != 1 || len(tasks) != n {
			t.Errorf("tasks of the jobs: %v, want each of %d once", tasks, n)
			break
		}
	}
	tries := 0
	for _, job := range jobs(t, dir) {
		folder := filepath.Join(dir, job.Dir)
		attempts, err := launcher.Attempts(folder)
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		for _, a := range attempts {
			if a.State == launcher.Done {
				done++
			}
		}
		if done != 1 || !strings.HasSuffix(attempts[0].ID, "_"+itoa(job.Num)) {
			t.Errorf("job %d: %+v", job.Num, attempts)
		}
		tries += len(attempts)
		got := outcomeOf(t, folder)
		outcomeOf(t, filepath.Join(calm, job.Dir)).Same(t, got, got.Resumes)
	}
	if tries <= n {
		t.Errorf("%d attempts: nothing was disturbed", tries)
	}
}

// A controller that is killed while sbatch is at work submits nothing twice, wherever in between it was.
func TestOnSlurmSubmitKilled(t *testing.T) {
	c := slurmtest.Start(t)
	sbatch, err := exec.LookPath("sbatch")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, script string }{
		{"before Slurm has heard", `touch $MARK; sleep 1; exec %s "$@"`},
		{"before Slurm's answer is noted", `answer=$(%s "$@"); touch $MARK; sleep 1; echo $answer`},
		{"sbatch dies too", `%s "$@" >&2; touch $MARK; kill -9 $PPID $$`},
		{"sbatch alone dies", `[ -e $MARK ] && exit 9; %s "$@" >&2; touch $MARK; kill -9 $$`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if testing.Short() && tc.name != "sbatch dies too" {
				t.Skip("one of four in the short tests")
			}
			dir, bin := folder(t), t.TempDir()
			mark := filepath.Join(bin, "mark")
			if err := os.WriteFile(filepath.Join(bin, "sbatch"), fmt.Appendf(nil, "#!/bin/bash\n"+tc.script+"\n", sbatch),
				0o755); err != nil {
				t.Fatal(err)
			}
			env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "MARK=" + mark}
			p := startWith(t, "", env, tiny("-m", "rce.epochs=1", "schedule=[rce]", "report.plots=false", "seed=0,1",
				"hydra/launcher=slurm", "hydra.sweep.dir="+dir)...)
			p.Until(func() bool { return exists(mark) })
			p.Signal(syscall.SIGKILL)
			p.Wait()
			mustRun(t, "resume", dir)
			doneOnce(t, dir, 2)
			n := 0
			for _, command := range strings.Split(c.Run("squeue", "--noheader", "--array", "--states=all", "--format=%o"), "\n") {
				if strings.HasPrefix(command, dir+"/") {
					n++
				}
			}
			if n != 2 {
				t.Errorf("%d tasks for 2 jobs", n)
			}
		})
	}
}
