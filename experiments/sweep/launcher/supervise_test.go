package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"fulcrum/internal/testkit/golden"
)

// stand writes a program that stands in for a run: a shell script that is given the job's arguments. It
// may use $DIR, the job's folder, and finish, which writes the summary of a run that is done.
func stand(t *testing.T, dir, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run")
	text := fmt.Sprintf("#!/bin/bash\nDIR='%s'\nfinish() { echo '{\"state\": \"'$1'\"}' > $DIR/summary.json; }\n%s\n", dir, script)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func testJob(t *testing.T) Job {
	t.Helper()
	t.Setenv("LC_ALL", "C") // of a locale that is not installed bash warns
	dir := t.TempDir()
	return Job{Num: 3, Sweep: dir, Dir: filepath.Join(dir, "3"), Args: []string{"a=1"}, Cwd: dir, Env: []string{"GREETING=hello"}, Threads: 1}
}

// What a job reports and what it leaves on disk decide together what it came to.
func TestSupervise(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		state, cause string
		code         int
	}{
		{"done", `echo working; finish done`, Done, "", 0},
		{"pruned", `finish pruned`, Pruned, "", 0},
		{"clean exit without a summary", `exit 0`, Failed, "summary.json does not say", 0},
		{"clean exit of a failed run", `finish failed`, Failed, "summary.json does not say", 0},
		{"message", `echo "run: no such beams" >&2; exit 1`, Failed, "no such beams", 1},
		{"message before other output", `echo "run: no such beams"; echo aborted; exit 134`, Failed, "no such beams", 134},
		{"silent failure", `exit 7`, Failed, "exit code 7", 7},
		{"abort", `kill -ABRT $$`, Failed, "SIGABRT", -1},
		{"killed", `kill -KILL $$`, Failed, "SIGKILL", -1},
		{"interrupted", `exit 143`, Interrupted, "state saved", 143},
		{"its terminal closed", `exit 129`, Interrupted, "state saved", 129},
		{"environment and arguments", `[ "$GREETING $*" = "hello a=1 hydra.job.id='3'" ] && finish done`, Done, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			job := testJob(t)
			var begun []Attempt
			a, err := Supervise(t.Context(), job, Supervision{Program: stand(t, job.Dir, tc.script),
				Started: func(a Attempt) { begun = append(begun, a) }})
			if err != nil {
				t.Fatal(err)
			}
			if a.State != tc.state || a.ExitCode != tc.code || !strings.Contains(a.Cause, tc.cause) ||
				(tc.cause == "") != (a.Cause == "") || a.Try != 1 || a.Ended.Before(a.Started) {
				t.Errorf("%+v", a)
			}
			if len(begun) != 1 || begun[0].State != Running || begun[0].PID == 0 {
				t.Errorf("started: %+v", begun)
			}
			stored, err := Attempts(job.Dir)
			if err != nil || len(stored) != 1 || stored[0].State != tc.state {
				t.Errorf("attempts.jsonl: %+v, %v", stored, err)
			}
		})
	}
}

// A second attempt resumes what the first has begun; one that has ended well is not run again.
func TestSuperviseAgain(t *testing.T) {
	job := testJob(t)
	program := stand(t, job.Dir, `echo "$@" >> $DIR/calls
if [ "$1" = resume ]; then finish done; else mkdir -p $DIR/.hydra; touch $DIR/.hydra/config.yaml; exit 1; fi`)
	for i, want := range []Attempt{{Try: 1, State: Failed}, {Try: 2, State: Done, Resumed: true}, {Try: 2, State: Done, Resumed: true}} {
		a, err := Supervise(t.Context(), job, Supervision{Program: program})
		if err != nil || a.Try != want.Try || a.State != want.State || a.Resumed != want.Resumed {
			t.Errorf("call %d: %+v, %v", i, a, err)
		}
	}
	calls, err := os.ReadFile(filepath.Join(job.Dir, "calls"))
	if want := "a=1 hydra.job.id='3'\nresume " + job.Dir + "\n"; err != nil || string(calls) != want {
		t.Errorf("calls: %q, want %q", calls, want)
	}
}

// A job that is told to stop saves its state; two supervisors cannot have one job.
func TestSuperviseStop(t *testing.T) {
	job := testJob(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	program := stand(t, job.Dir, `trap 'echo saving; exit 143' TERM; touch $DIR/ready; while :; do sleep 0.01; done`)
	second := make(chan error, 1)
	a, err := Supervise(ctx, job, Supervision{Program: program, Started: func(Attempt) {
		if !Supervised(job.Dir) {
			t.Error("a job at work counts as unsupervised")
		}
		go func() {
			for ready := false; !ready; time.Sleep(5 * time.Millisecond) {
				_, err := os.Stat(filepath.Join(job.Dir, "ready"))
				ready = err == nil
			}
			_, err := Supervise(t.Context(), job, Supervision{Program: program})
			second <- err
			cancel()
		}()
	}})
	if err != nil || a.State != Interrupted || a.ExitCode != 143 || len(a.Tail) != 1 || a.Tail[0] != "saving" {
		t.Errorf("%+v, %v", a, err)
	}
	if err := <-second; !errors.Is(err, ErrBusy) {
		t.Errorf("a second supervisor: %v", err)
	}
	if Supervised(job.Dir) {
		t.Error("the job still counts as supervised")
	}
}

// A job that is told to end before its process starts has not begun: it is no failure, and no attempt.
func TestSuperviseNotBegun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	job := testJob(t)
	a, err := Supervise(ctx, job, Supervision{Program: stand(t, job.Dir, "finish done"),
		Started: func(a Attempt) { t.Errorf("started: %+v", a) }})
	if err != nil || a.State != Interrupted || a.Try != 0 || a.Num != job.Num {
		t.Errorf("%+v, %v", a, err)
	}
	if all, err := Attempts(job.Dir); err != nil || len(all) != 0 {
		t.Errorf("recorded %+v, %v", all, err)
	}
}

// A torn last line, as a crash leaves it, costs that line and no other.
func TestAttemptsTornLine(t *testing.T) {
	dir := t.TempDir()
	if err := Keep(dir, Attempt{Num: 1, Try: 1, State: Running}); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, attemptsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `{"num":1,"try":1,"sta`)
	f.Close()
	if err := Keep(dir, Attempt{Num: 1, Try: 2, State: Running}); err != nil {
		t.Fatal(err)
	}
	got, err := Attempts(dir)
	if err != nil || len(got) != 2 || got[0].Try != 1 || got[1].Try != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

// The local launcher runs as many jobs at a time as there is room for, in order, and shares out GPUs.
func TestLocal(t *testing.T) {
	sweep := t.TempDir()
	var jobs []Job
	for i := range 6 {
		dir := filepath.Join(sweep, fmt.Sprint(i))
		jobs = append(jobs, Job{Num: i, Sweep: sweep, Dir: dir, Args: []string{fmt.Sprintf("num=%d", i)}, Cwd: sweep, Threads: 1, GPUs: 1})
	}
	program := filepath.Join(t.TempDir(), "run")
	script := `#!/bin/bash
num=${1#*=}
echo "$num $CUDA_VISIBLE_DEVICES" > ` + sweep + `/$num/gpu
mkdir ` + sweep + `/on.$num
touch ` + sweep + `/begun.$num
until [ $num = 5 ] || [ -e ` + sweep + `/begun.$((num + 1)) ]; do sleep 0.01; done # two have room, however slow the machine is
ls -d ` + sweep + `/on.* | wc -l > ` + sweep + `/$num/together
sleep 0.15 # and a third would be seen
rmdir ` + sweep + `/on.$num
echo '{"state": "done"}' > ` + sweep + `/$num/summary.json
`
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	l := newLocal("", LocalOptions{NJobs: 2, GPUs: &[]string{"4", "7"}, JobsPerGPU: 1})
	l.program = program
	if err := l.Submit(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	done := map[int]bool{}
	for len(done) < len(jobs) {
		if a := <-l.Events(); a.State == Done {
			done[a.Num] = true
		} else if a.State != Running {
			t.Fatalf("%+v", a)
		}
	}
	l.Stop(true)
	if _, open := <-l.Events(); open {
		t.Error("an event after the end")
	}
	gpus := map[string]int{}
	most := ""
	for _, job := range jobs {
		text, err := os.ReadFile(filepath.Join(job.Dir, "gpu"))
		if err != nil {
			t.Fatal(err)
		}
		gpus[strings.Fields(string(text))[1]]++
		together, err := os.ReadFile(filepath.Join(job.Dir, "together"))
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, strings.TrimSpace(string(together)))
	}
	if gpus["4"]+gpus["7"] != 6 || gpus["4"] == 0 || gpus["7"] == 0 || most != "2" {
		t.Errorf("GPUs %v, at most %s at a time", gpus, most)
	}
}

// A job of several processes has as many GPUs, the emptiest, or all there are; it waits until they are free.
func TestLocalShares(t *testing.T) {
	for _, tc := range []struct {
		want int
		free string // jobs that each GPU has room for
		gpus string
	}{{0, "0", ""}, {1, "012", "2"}, {2, "1211", "1 0"}, {2, "10", "no"}, {3, "11", "0 1"}, {1, "", ""}, {2, "000", "no"}} {
		l := newLocal("", LocalOptions{NJobs: -1, GPUs: &[]string{}})
		for i, free := range tc.free {
			l.gpus[fmt.Sprint(i)] = int(free - '0')
		}
		gpus, ok := l.room(Job{Threads: 1, GPUs: tc.want})
		if got := strings.Join(gpus, " "); ok != (tc.gpus != "no") || ok && got != tc.gpus {
			t.Errorf("%d of %s: %q, %v, want %q", tc.want, tc.free, got, ok, tc.gpus)
		}
	}
}

// A job that takes longer than it may is stopped with its state saved, and says so.
func TestLocalTimeout(t *testing.T) {
	job := testJob(t)
	limit := 0.002 // minutes
	l := newLocal("", LocalOptions{NJobs: 1, TimeoutMin: &limit, JobsPerGPU: 1})
	l.program = stand(t, job.Dir, `trap 'exit 143' TERM; while :; do sleep 0.01; done`)
	if err := l.Submit(t.Context(), []Job{job}); err != nil {
		t.Fatal(err)
	}
	a := <-l.Events()
	if a.State == Running { // on a very slow machine its time is over before it starts
		a = <-l.Events()
	}
	if a.State != Failed || !strings.Contains(a.Cause, "timeout_min") {
		t.Errorf("%+v", a)
	}
	l.Stop(true)
}

// A job dies with its supervisor: nobody is left to write its folder.
func TestSuperviseDeath(t *testing.T) {
	if os.Getenv("LAUNCHER_TEST_JOB") != "" { // the supervisor, in a process of its own
		var job Job
		if err := json.Unmarshal([]byte(os.Getenv("LAUNCHER_TEST_JOB")), &job); err != nil {
			t.Fatal(err)
		}
		Supervise(t.Context(), job, Supervision{Program: os.Getenv("LAUNCHER_TEST_PROGRAM")})
		return
	}
	job := testJob(t)
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	program := stand(t, job.Dir, `trap '' TERM INT HUP; while :; do sleep 0.01; done`)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "LAUNCHER_TEST_JOB="+string(text), "LAUNCHER_TEST_PROGRAM="+program)
	p, err := os.StartProcess(self, []string{self, "-test.run=TestSuperviseDeath"}, &os.ProcAttr{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	for end := time.Now().Add(2 * time.Minute); pid == 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if all, _ := Attempts(job.Dir); len(all) == 1 {
			pid = all[0].PID
		}
	}
	if pid == 0 {
		t.Fatal("the job does not start")
	}
	p.Kill()
	p.Wait()
	defer func() {
		if t.Failed() { // it would go on for good
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	golden.Ended(t, pid)
	if Supervised(job.Dir) {
		t.Error("the lock outlives its holder")
	}
	if all, _ := Attempts(job.Dir); len(all) != 1 || all[0].State != Running {
		t.Errorf("attempts: %+v", all)
	}
}

// Whatever a job prints, its record can be read: long lines are cut, and those that are no text made text.
func TestSuperviseLongLines(t *testing.T) {
	job := testJob(t)
	a, err := Supervise(t.Context(), job, Supervision{Program: stand(t, job.Dir,
		`for i in $(seq 30); do printf '\303\251%.0s' $(seq 3000); echo; done; printf '\377\000\376'; head -c 300000 /dev/zero; echo; exit 3`)})
	if err != nil || a.State != Failed || a.ExitCode != 3 {
		t.Fatalf("%.200v, %v", a, err)
	}
	stored, err := Attempts(job.Dir)
	if err != nil || len(stored) != 1 || stored[0].State != Failed || len(stored[0].Tail) != tailLines {
		t.Fatalf("attempts.jsonl: %d attempts, %v", len(stored), err)
	}
	for _, line := range append(stored[0].Tail, stored[0].Cause) {
		if len(line) > lineBytes+len("…") || !utf8.ValidString(line) {
			t.Errorf("%d bytes: %.40q…", len(line), line)
		}
	}
	if want := strings.Repeat("é", lineBytes/2) + "…"; stored[0].Tail[0] != want {
		t.Errorf("%q, want %q", stored[0].Tail[0], want)
	}
}

// Lines of any length and kind in the record cost themselves and no other; a record that cannot be read is
// an error.
func TestAttemptsDamaged(t *testing.T) {
	dir := t.TempDir()
	long := Attempt{Num: 1, Try: 1, State: Failed, Cause: strings.Repeat("x", 1<<20)}
	if err := Keep(dir, long); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, attemptsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Write(append(make([]byte, 100000), "\xff\xfe\n\n{}\nnull\n[1]\n"...))
	f.Close()
	if err := Keep(dir, Attempt{Num: 1, Try: 2, State: Running}); err != nil {
		t.Fatal(err)
	}
	got, err := Attempts(dir)
	if err != nil || len(got) != 2 || len(got[0].Cause) != 1<<20 || got[1].Try != 2 || got[1].State != Running {
		t.Errorf("%.300v, %v", got, err)
	}

	job := testJob(t)
	if err := os.MkdirAll(filepath.Join(job.Dir, attemptsFile), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Supervise(t.Context(), job, Supervision{Program: "/no/where"}); err == nil ||
		!strings.Contains(err.Error(), filepath.Join(job.Dir, attemptsFile)) {
		t.Errorf("an unreadable record: %v", err)
	}
}

// A run that a user has started by hand in a job's folder is at work on the job.
func TestSupervisedByHand(t *testing.T) {
	dir := t.TempDir()
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if Supervised(dir) {
		t.Error("a lock that nobody holds counts")
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	if !Supervised(dir) {
		t.Error("a run at work does not count")
	}
	if err := Keep(dir, Attempt{Try: 1, State: Running, Host: hostname(), PID: os.Getpid()}); err != nil {
		t.Fatal(err)
	}
	if Supervised(dir) {
		t.Error("a job whose supervisor was killed counts until it has died")
	}
	gone := exec.Command("true")
	if err := gone.Start(); err != nil {
		t.Fatal(err)
	}
	if err := Keep(dir, Attempt{Try: 1, State: Running, Host: hostname(), PID: gone.Process.Pid}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); !Supervised(dir); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a run at work behind an attempt whose process nobody has waited for does not count")
		}
	}
	gone.Wait()
	if !Supervised(dir) {
		t.Error("a run at work behind an attempt whose process is gone does not count")
	}
	if err := Keep(dir, Attempt{Try: 1, State: Failed, Host: hostname(), PID: os.Getpid()}); err != nil {
		t.Fatal(err)
	}
	if !Supervised(dir) {
		t.Error("a run at work behind an attempt that has ended does not count")
	}
	f.Close()
	if Supervised(dir) {
		t.Error("a run that has ended counts")
	}
}
