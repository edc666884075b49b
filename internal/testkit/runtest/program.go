// Package runtest tells tests the stories of runs through the built program: what a user types, what lies on disk afterwards, what
// happens when it is killed in between. A package of such tests has
//
//	func TestMain(m *testing.M) { os.Exit(runtest.Main(m)) }
package runtest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
)

// shared is a folder for what several tests of a package use.
var shared string

// Shared returns a folder for what several tests of a package use.
func Shared() string { return shared }

// Main runs a package's tests and returns their exit code.
func Main(m *testing.M) int {
	golden.DefaultSignals()
	dir, err := os.MkdirTemp("", "fulcrum-experiments-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	shared = dir
	return m.Run()
}

// Program returns the path of the program under test, which is built when it is first asked for.
func Program(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatalf("cannot build the program: %v", err)
	}
	return path
}

// built makes the program for a package of tests. The packages share one that is linked when its sources have changed, for linking takes
// seconds; each has a copy, because the next one may be built from other sources.
var built = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("FULCRUM_PROGRAM"); path != "" { // where there is no Go (scripts/kit_check.sh)
		return path, nil
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("fulcrum-program-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	of, to := filepath.Join(dir, "run"), filepath.Join(shared, "run")
	if out, err := exec.Command("go", "build", "-o", of, "fulcrum/cmd/run").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	data, err := os.ReadFile(of)
	if err != nil {
		return "", err
	}
	return to, golden.WriteProgram(to, data)
})

// Tiny is a run of two phases on 48 built-in queries: 12 optimizer steps, half a second. Its preflight, a fifth of that, is left to the
// tests of findings.
func Tiny(more ...string) []string {
	return With([]string{"exp=beams_v3", "threads=1", "seed=3", "data.batch_size=16", "selector.hidden_dim=32",
		"data.shapes.train_queries=48", "data.shapes.reader_questions=30", "data.shapes.val_queries=16", "data.shapes.dev_queries=16",
		"rce.epochs=2", "grpo.epochs=2", "checks.off=[preflight]"}, more)
}

// With returns a command line with further overrides, without what they leave no effect: keys of phases that they take out of the schedule
// and of built-in data that they do not read, and groups that they choose again.
func With(args, more []string) []string {
	schedule, data, task := "", "", ""
	chosen := map[string]bool{}
	for _, o := range more {
		key, value, _ := strings.Cut(o, "=")
		switch chosen[key] = true; key {
		case "schedule":
			schedule = "," + strings.Trim(value, "[]") + ","
		case "data":
			data = value
		case "task":
			task = value
		}
	}
	args = slices.DeleteFunc(slices.Clone(args), func(o string) bool {
		key, _, _ := strings.Cut(o, "=")
		section, _, _ := strings.Cut(key, ".")
		phase := slices.Contains([]string{"sft", "rce", "grpo", "grpo_online"}, section) && section != key
		off := schedule != "" && schedule != ",," && !strings.Contains(schedule, ","+section+",")
		return (phase || section == "checks") && task != "" && task != "train" || phase && off ||
			data != "" && data != "shapes" && strings.HasPrefix(key, "data.shapes.") || (key == "selector" || key == "exp") && chosen[key]
	})
	return append(args, more...)
}

// Trained is a finished run of tiny with preflight and plots, made once, and how long it took.
func Trained(t *testing.T) (dir string, took time.Duration) {
	t.Helper()
	return drawn.Dir(t, "trained", "checks.off=[]")
}

// Undrawn is a finished run of tiny without plots, made once.
func Undrawn(t *testing.T) string {
	t.Helper()
	dir, _ := plain.Dir(t, "undrawn", "report.plots=false", "logging.progress=false")
	return dir
}

// made is a run of tiny that several tests look at.
type made struct {
	Once   sync.Once
	Result Result
	Took   time.Duration
}

var drawn, plain made

func (m *made) Dir(t *testing.T, name string, more ...string) (string, time.Duration) {
	t.Helper()
	dir := filepath.Join(shared, name)
	m.Once.Do(func() {
		begin := time.Now()
		m.Result = Run(t, Tiny(append(more, "hydra.run.dir="+dir)...)...)
		m.Took = time.Since(begin)
	})
	if m.Result.Code != 0 {
		t.Fatalf("the run that this test needs failed: %s", m.Result.Stderr)
	}
	return dir, m.Took
}

// Result is a process that has ended.
type Result struct {
	Stdout, Stderr string
	Code           int // 128 + signal for one that a signal ended
	Pid            int
}

// Patience is how long a machine that is busy with other tests may take for what takes seconds.
const Patience = 5 * time.Minute

// Process is the program at work. It and its children end with the test.
type Process struct {
	T              *testing.T
	Cmd            *exec.Cmd
	Stdout, Stderr safeBuffer
	Ended          chan struct{}
	Limit          time.Duration // of wait
}

// Start starts the program in the test's own folder.
func Start(t *testing.T, args ...string) *Process { return StartWith(t, "", nil, args...) }

// StartWith starts the program in dir, with further variables of the environment.
func StartWith(t *testing.T, dir string, env []string, args ...string) *Process {
	t.Helper()
	return StartProgram(t, Program(t), dir, env, args...)
}

// StartProgram starts a program built otherwise.
func StartProgram(t *testing.T, binary, dir string, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{T: t, Cmd: exec.Command(binary, args...), Ended: make(chan struct{}), Limit: Patience}
	p.Cmd.Args[0] = "run" // as it is called where it is installed, and as messages then name it
	p.Cmd.Dir, p.Cmd.Env = dir, append(os.Environ(), env...)
	p.Cmd.Stdout, p.Cmd.Stderr = &p.Stdout, &p.Stderr
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the parent-death signal follows this thread
		defer runtime.UnlockOSThread()
		err := p.Cmd.Start()
		started <- err
		if err == nil {
			p.Cmd.Wait()
			close(p.Ended)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.SignalGroup(syscall.SIGKILL)
		<-p.Ended
	})
	return p
}

// Signal sends a signal to the process, SignalGroup also to its children.
func (p *Process) Signal(s syscall.Signal)      { syscall.Kill(p.Cmd.Process.Pid, s) }
func (p *Process) SignalGroup(s syscall.Signal) { syscall.Kill(-p.Cmd.Process.Pid, s) }

// KillRun kills a run and returns how many resume events the resume of its folder will leave: none where the run had ended before the test,
// on a busy machine, came to kill it.
func (p *Process) KillRun(dir string) (resumes int) {
	p.T.Helper()
	p.SignalGroup(syscall.SIGKILL)
	if p.Wait(); Exists(filepath.Join(dir, "summary.json")) {
		p.T.Log("the run was faster than the kill")
		return 0
	}
	return 1
}

// wait returns when the process and all children that hold its output have ended.
func (p *Process) Wait() Result {
	p.T.Helper()
	select {
	case <-p.Ended:
	case <-time.After(p.Limit):
		p.T.Fatalf("%v does not end:\n%s", p.Cmd.Args, p.Stderr.String())
	}
	r := Result{p.Stdout.String(), p.Stderr.String(), p.Cmd.ProcessState.ExitCode(), p.Cmd.Process.Pid}
	if ws := p.Cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		r.Code = 128 + int(ws.Signal())
	}
	for _, trace := range []string{"goroutine ", "panic:", "terminate called"} {
		if strings.Contains(r.Stderr, trace) {
			p.T.Errorf("%v shows a stack trace:\n%s", p.Cmd.Args, r.Stderr)
		}
	}
	if Core && strings.Contains(r.Stderr, "built without the annex") {
		p.T.Skip(r.Stderr)
	}
	return r
}

// NeedsAnnexes ends a story here where the program is the core: what follows looks at files that an annex writes.
func NeedsAnnexes(t testing.TB) {
	t.Helper()
	if Core {
		t.Skip("the rest looks at what an annex writes")
	}
}

// until waits for ready, and reports false when the process ended before.
func (p *Process) Until(ready func() bool) bool {
	p.T.Helper()
	for end := time.Now().Add(Patience); time.Now().Before(end); {
		if ready() {
			return true
		}
		select {
		case <-p.Ended:
			return ready()
		case <-time.After(time.Millisecond):
		}
	}
	p.T.Fatalf("%v: what the test waits for does not come:\n%s", p.Cmd.Args, p.Stderr.String())
	return false
}

// Run runs the program to its end.
func Run(t *testing.T, args ...string) Result {
	t.Helper()
	return Start(t, args...).Wait()
}

// MustRun fails the test unless the program ends with exit code 0.
func MustRun(t *testing.T, args ...string) Result {
	t.Helper()
	r := Run(t, args...)
	if r.Code != 0 {
		t.Fatalf("run %s: exit code %d\n%s", strings.Join(args, " "), r.Code, r.Stderr)
	}
	return r
}

// safeBuffer may be read while a process writes to it.
type safeBuffer struct {
	Mu sync.Mutex
	B  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.B.Write(p)
}

func (b *safeBuffer) String() string {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.B.String()
}

// Outcome is what must not depend on interruptions: every byte below checkpoints, the metrics without
// clock times and resume events, the evaluations.
type Outcome struct {
	Files   map[string]string // links and digests by path below checkpoints
	Metrics []string
	Evals   string
	Resumes int
}

var clock = regexp.MustCompile(`"(time|step_seconds)":[^,}]+`)

// OutcomeOf reads what a run has left.
func OutcomeOf(t *testing.T, dir string) Outcome {
	t.Helper()
	o := Outcome{Files: map[string]string{}}
	root := filepath.Join(dir, "checkpoints")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if target, err := os.Readlink(path); err == nil {
			o.Files[name] = "→ " + target
			return nil
		}
		o.Files[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(Read(t, path))))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSuffix(Read(t, filepath.Join(dir, "metrics.jsonl")), "\n"), "\n") {
		if strings.HasPrefix(line, `{"kind":"event"`) && strings.Contains(line, `"event":"resume"`) {
			o.Resumes++
			continue
		}
		o.Metrics = append(o.Metrics, clock.ReplaceAllString(line, ""))
	}
	if path := filepath.Join(dir, "evals.jsonl"); Exists(path) {
		o.Evals = Read(t, path)
	}
	return o
}

// same fails the test where got differs from want, and says where first.
func (want Outcome) Same(t *testing.T, got Outcome, resumes int) {
	t.Helper()
	for name, digest := range want.Files {
		if got.Files[name] != digest {
			t.Errorf("checkpoints/%s: got %q, want %q", name, got.Files[name], digest)
		}
	}
	for name := range got.Files {
		if _, ok := want.Files[name]; !ok {
			t.Errorf("checkpoints/%s: a run that was not interrupted has no such file", name)
		}
	}
	for i := range max(len(want.Metrics), len(got.Metrics)) {
		if i >= len(want.Metrics) || i >= len(got.Metrics) || want.Metrics[i] != got.Metrics[i] {
			t.Errorf("metrics.jsonl differs in line %d of %d (%d)\n got %s\nwant %s", i+1, len(got.Metrics), len(want.Metrics),
				at(got.Metrics, i), at(want.Metrics, i))
			break
		}
	}
	if got.Evals != want.Evals {
		t.Errorf("evals.jsonl differs: %d bytes, want %d", len(got.Evals), len(want.Evals))
	}
	if got.Resumes != resumes {
		t.Errorf("%d resume events, want %d", got.Resumes, resumes)
	}
}

// at returns lines[i], "(none)" behind the last.
func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(none)"
}

// Leftovers returns the temporary files below dir.
func Leftovers(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), ".tmp") {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Folder returns the name of a run folder that does not exist yet, without characters that need quotes.
func Folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(shared, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "run")
}

// Read returns a file's text.
func Read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Write writes a file.
func Write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Exists reports whether there is something at path.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
