package experiments_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulcrum/internal/testkit/runtest"
)

// spread is a run whose steps are cut into four shards.
func spread(processes int, args []string, dir string, more ...string) []string {
	return append(append(slices.Clone(args), "parallel.shards=4", fmt.Sprint("parallel.processes=", processes), "hydra.run.dir="+dir), more...)
}

// onSamples is a short run on recorded and on sampled groups.
func onSamples(more ...string) []string {
	return runtest.Tiny(append(more, "schedule=[rce,grpo,grpo_online]", "grpo_online.epochs=1", "grpo_online.group_size=4")...)
}

// TestProcesses: a run has the same bytes for every number of processes, of each policy, on recorded and on sampled groups. The
// pointer is so large that the processes share its optimizer, and is not exchanged in one piece. They share its preflight too: a phase
// is tried by one of them.
func TestProcesses(t *testing.T) {
	for name, args := range map[string][]string{"pointer": onSamples("selector.hidden_dim=256", "checks.off=[]"),
		"t5": runtest.TinySummaries("t5"), "vl": runtest.TinyShapes()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var looked []string
			outcome := func(processes, shards int) runtest.Outcome {
				dir := runtest.Folder(t)
				runtest.MustRun(t, spread(processes, args, dir, fmt.Sprint("parallel.shards=", shards))...)
				log, _, found := strings.Cut(runtest.Read(t, filepath.Join(dir, "run.log")), " checks, ")
				looked = append(looked, log[strings.LastIndex(log, " ")+1:])
				if name == "pointer" && (!found || looked[0] != looked[len(looked)-1]) {
					t.Errorf("checks of the preflights: %v", looked)
				}
				return runtest.OutcomeOf(t, dir)
			}
			want := outcome(1, 4)
			want.Same(t, outcome(3, 4), 0)
			if testing.Short() {
				return
			}
			want.Same(t, outcome(2, 4), 0)
			want.Same(t, outcome(4, 4), 0)
			outcome(1, 8).Same(t, outcome(8, 8), 0)
		})
	}
}

// standIn is the environment of runs that exchange tensors by a stand-in of NCCL, and the folder that it works in.
func standIn(t *testing.T) (env []string, dir string) {
	t.Helper()
	dir = t.TempDir()
	cc := exec.Command("cc", "-shared", "-fPIC", "-o", filepath.Join(dir, "libnccl.so.2"), "testdata/nccl_stand_in.c")
	if text, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	env = []string{"NCCL_STAND_IN=" + dir, "LD_LIBRARY_PATH=" + dir + ":" + os.Getenv("LD_LIBRARY_PATH")}
	if said := runtest.StartWith(t, "", env, "doctor").Wait().Stdout; !strings.Contains(said, "NCCL 0.0.0") {
		t.Skip("libtorch brings its own NCCL, which is loaded first: the peers' group device has a stand-in for that")
	}
	return env, dir
}

// kill sends a signal to a process of a run; pid 0, which would be this process and all beside it, is one that is not there.
func kill(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if pid == 0 {
		t.Log("the process has ended, or has not begun")
		return
	}
	syscall.Kill(pid, signal)
}

// TestProcessesOnDevices: tensors that go by NCCL, here a stand-in on a CPU, make the bytes of those that go as messages; a process that
// dies while others wait in NCCL, and NCCL's own errors, end all.
func TestProcessesOnDevices(t *testing.T) {
	args := onSamples("selector.hidden_dim=256", "parallel.backend=nccl")
	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		whole := runtest.Folder(t)
		runtest.MustRun(t, spread(1, args, whole, "parallel.shards=7")...)
		for n := 2; n <= 3; n++ { // of seven shards each has nodes of the tree that are whole and such that are not
			dir := runtest.Folder(t)
			env, asked := standIn(t)
			if r := runtest.StartWith(t, "", env, spread(n, args, dir, "parallel.shards=7")...).Wait(); r.Code != 0 {
				t.Fatalf("%+v", r)
			}
			runtest.OutcomeOf(t, whole).Same(t, runtest.OutcomeOf(t, dir), 0)
			text := runtest.Read(t, filepath.Join(asked, "asked"))
			if strings.Count(text, "send") < 20 {
				t.Errorf("NCCL was asked for too little: %q", text)
			}
		}
	})
	for _, tc := range []struct {
		planted, said string
		epochs        int
	}{{"hangs", "rank 1 on", 1}, {"fails", "NCCL reports error 6", 200}, {"refuses", "NCCL: ncclCommInitRank: internal error", 1}} {
		t.Run(tc.planted, func(t *testing.T) {
			t.Parallel()
			env, asked := standIn(t)
			dir := runtest.Folder(t)
			plant := func() {
				if err := os.WriteFile(filepath.Join(asked, tc.planted), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tc.planted == "refuses" {
				plant()
			}
			p := runtest.StartWith(t, "", env, spread(3, args, dir, fmt.Sprint("grpo_online.epochs=", tc.epochs))...)
			if tc.planted != "refuses" {
				p.Until(func() bool { return runtest.Exists(filepath.Join(dir, "checkpoints/rce_epoch1.safetensors")) })
				plant()
			}
			if tc.planted == "hangs" {
				p.Until(func() bool { return runtest.Exists(filepath.Join(asked, "hung")) })
				kill(t, others(t, p.Cmd.Process.Pid)[1], syscall.SIGKILL)
			}
			if r := p.Wait(); r.Code != 1 || !strings.Contains(r.Stderr, tc.said) || strings.Contains(r.Stderr, "aborted") {
				t.Errorf("exit code %d, want 1 and %q:\n%s", r.Code, tc.said, r.Stderr)
			}
			if tc.planted == "hangs" { // it goes on where there is no NCCL
				if r := runtest.Run(t, "resume", dir, "parallel.backend=tcp"); r.Code != 2 || !strings.Contains(r.Stderr, "did you mean gloo?") {
					t.Errorf("%+v", r)
				}
				runtest.MustRun(t, "resume", dir, "parallel.backend=gloo")
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		r := runtest.Run(t, spread(2, args, runtest.Folder(t))...)
		if r.Code == 0 || !strings.Contains(r.Stderr, "parallel.backend=nccl: NCCL") {
			t.Errorf("%+v", r)
		}
	})
}

// others returns the processes that a run has started, by rank.
func others(t *testing.T, parent int) map[int]int {
	t.Helper()
	found := map[int]int{}
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if !strings.Contains(string(status), fmt.Sprintf("PPid:\t%d\n", parent)) {
			continue
		}
		for _, v := range strings.Split(string(text), "\x00") {
			if rank, ok := strings.CutPrefix(v, "FULCRUM_RANK="); ok {
				n, _ := strconv.Atoi(rank)
				found[n] = pid
			}
		}
	}
	return found
}

// TestProcessesEnd: where one process dies, hangs or is asked to stop, all end in time, the error names it, and a resume with another
// number of processes ends with the bytes of a run that nothing disturbed.
func TestProcessesEnd(t *testing.T) {
	undisturbed := runtest.Folder(t)
	runtest.MustRun(t, spread(1, onSamples(), undisturbed, "checkpoint.every_steps=1")...)
	want := runtest.OutcomeOf(t, undisturbed)
	for _, tc := range []struct {
		name   string
		signal syscall.Signal
		rank   int
		code   int
		said   string
	}{
		{"killed", syscall.SIGKILL, 2, 1, "rank 2 on"},
		{"stopped", syscall.SIGSTOP, 1, 1, "nothing was heard of it for 2s"},
		{"asked", syscall.SIGTERM, 1, 143, "rank 1 on"},
		{"first asked", syscall.SIGINT, 0, 130, "the state is saved"},
		{"first killed", syscall.SIGKILL, 0, 137, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := runtest.Folder(t)
			temporary := t.TempDir()
			p := runtest.StartWith(t, "", []string{"TMPDIR=" + temporary}, spread(3, onSamples(), dir, "parallel.timeout_seconds=2",
				"grpo_online.epochs=200")...)
			p.Until(func() bool { // it samples
				text, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
				return err == nil && strings.Contains(string(text), `"phase":"grpo_online"`)
			})
			if left, _ := filepath.Glob(filepath.Join(temporary, "fulcrum-rank-*")); len(left) > 0 {
				t.Errorf("a kill now would leave %v", left)
			}
			pids := others(t, p.Cmd.Process.Pid)
			if len(pids) != 2 {
				t.Fatalf("ranks and processes: %v, want two", pids)
			}
			if tc.name == "killed" {
				if s := runtest.MustRun(t, "status", dir).Stdout; !strings.Contains(s, "; 3 processes on ") {
					t.Errorf("status: %s", s)
				}
			}
			pid := p.Cmd.Process.Pid
			if tc.rank > 0 {
				pid = pids[tc.rank]
			}
			kill(t, pid, tc.signal)
			begin := time.Now()
			r := p.Wait()
			if r.Code != tc.code || !strings.Contains(r.Stderr, tc.said) {
				t.Errorf("exit code %d, want %d and %q:\n%s", r.Code, tc.code, tc.said, r.Stderr)
			}
			for ; len(others(t, p.Cmd.Process.Pid)) > 0 || alive(pids); time.Sleep(10 * time.Millisecond) {
				if time.Since(begin) > 30*time.Second {
					t.Fatalf("ranks %v live on", pids)
				}
			}
			if tc.rank == 0 && tc.signal == syscall.SIGKILL { // shortened, for its end to be compared
				return
			}
			if r := runtest.Run(t, "resume", dir, "parallel.processes=5"); r.Code != 2 || !strings.Contains(r.Stderr, "parallel.shards=5") {
				t.Errorf("five processes, four shards: %+v", r)
			}
		})
	}
	t.Run("asked as torchrun's", func(t *testing.T) {
		t.Parallel()
		dir, all := runtest.Folder(t), make([]*runtest.Process, 3)
		for rank := range all {
			env := []string{"RANK=" + strconv.Itoa(rank), "WORLD_SIZE=3", "LOCAL_RANK=" + strconv.Itoa(rank), "MASTER_ADDR=127.0.0.1",
				"MASTER_PORT=" + strconv.Itoa(20000+os.Getpid()%10000)}
			all[rank] = runtest.StartWith(t, "", env, spread(1, onSamples("grpo_online.epochs=200"), dir)...)
		}
		all[0].Until(func() bool { return runtest.Exists(filepath.Join(dir, "checkpoints/rce_epoch1.safetensors")) })
		all[1].Signal(syscall.SIGTERM)
		for rank, p := range all {
			if r := p.Wait(); r.Code != 143 || rank == 0 && !strings.Contains(r.Stderr, "the state is saved") {
				t.Errorf("rank %d ends with %d, want 143:\n%s", rank, r.Code, r.Stderr)
			}
		}
	})
	t.Run("resumed", func(t *testing.T) {
		t.Parallel()
		dir := runtest.Folder(t)
		p := runtest.Start(t, spread(2, onSamples(), dir, "checkpoint.every_steps=1")...)
		p.Until(func() bool {
			text, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
			return err == nil && strings.Contains(string(text), `"phase":"grpo"`)
		})
		kill(t, others(t, p.Cmd.Process.Pid)[1], syscall.SIGKILL)
		r := p.Wait()
		resumes := 1
		if r.Code == 0 {
			t.Log("the run was faster than the kill")
			resumes = 0
		}
		runtest.MustRun(t, "resume", dir, "parallel.processes=3")
		want.Same(t, runtest.OutcomeOf(t, dir), resumes)
		for rank, said := range []string{"this run is finished", ""} {
			env := []string{"RANK=" + strconv.Itoa(rank), "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=9"}
			r := runtest.StartWith(t, "", env, "resume", dir).Wait()
			if r.Code != 0 || !strings.Contains(r.Stdout, said) || said == "" && r.Stdout != "" {
				t.Errorf("rank %d resumes a finished run: %+v", rank, r)
			}
		}
	})
}

// TestProcessesKilledAnywhere: whatever is killed at any moment, one process or all, and whatever number of processes goes on, again and
// again, the run ends with the bytes of one that nothing disturbed, and a process that was killed alone is named.
func TestProcessesKilledAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes")
	}
	whole := runtest.Folder(t)
	begin := time.Now()
	runtest.MustRun(t, spread(1, onSamples(), whole, "checkpoint.every_steps=1")...)
	want, took := runtest.OutcomeOf(t, whole), time.Since(begin)
	seed := uint64(begin.UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 6 {
		dir, done := runtest.Folder(t), false
		for kills := 0; !done; kills++ {
			n := 1 + random.IntN(4)
			args := spread(n, onSamples(), dir, "checkpoint.every_steps=1")
			if runtest.Exists(filepath.Join(dir, ".hydra/config.yaml")) {
				args = []string{"resume", dir, fmt.Sprintf("parallel.processes=%d", n)}
			}
			p := runtest.Start(t, args...)
			if kills < 4 {
				time.Sleep(time.Duration(random.Float64() * float64(took)))
				if pid := others(t, p.Cmd.Process.Pid)[random.IntN(n)]; pid > 0 {
					syscall.Kill(pid, syscall.SIGKILL)
				} else { // rank 0, or it has not started
					p.SignalGroup(syscall.SIGKILL)
				}
			}
			r := p.Wait()
			if done = r.Code == 0; r.Code == 1 && !strings.Contains(r.Stderr, "rank ") || kills == 4 && !done {
				t.Fatalf("try %d, %v: %+v", kills, args, r)
			}
		}
		got := runtest.OutcomeOf(t, dir)
		want.Same(t, got, got.Resumes)
	}
}

// alive reports whether one of the processes has not ended.
func alive(pids map[int]int) bool {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && !strings.Contains(string(text), "State:\tZ") {
			return true
		}
	}
	return false
}
