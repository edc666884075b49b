// Package experiments_test tells the stories of runs through the built program: what a user types,
// what lies on disk afterwards, what happens when it is killed in between.
package experiments_test

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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fulcrum/internal/testkit/golden"
)

// program is the path of the program under test, and shared a folder for what several tests use.
var program, shared string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	golden.DefaultSignals()
	dir, err := os.MkdirTemp("", "fulcrum-experiments-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program, shared = filepath.Join(dir, "run"), dir
	if built := os.Getenv("FULCRUM_PROGRAM"); built != "" { // where there is no Go (scripts/kit_check.sh)
		program = built
		return m.Run()
	}
	if out, err := exec.Command("go", "build", "-o", program, "../cmd/run").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot build the program: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// tiny is a run of two phases on 48 built-in queries: 12 optimizer steps, half a second. Its preflight, a fifth of that, is left to the
// tests of findings.
func tiny(more ...string) []string {
	return with([]string{"exp=okvqa_v3", "threads=1", "seed=3", "data.batch_size=16", "selector.hidden_dim=32",
		"data.shapes.train_queries=48", "data.shapes.reader_questions=30", "data.shapes.val_queries=16", "data.shapes.dev_queries=16",
		"rce.epochs=2", "grpo.epochs=2", "checks.preflight=false"}, more)
}

// with returns a command line with further overrides, without what they leave no effect: keys of phases that they take out of the schedule
// and of built-in data that they do not read, and groups that they choose again.
func with(args, more []string) []string {
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
		return phase && (task == "predict" || off) ||
			data != "" && data != "shapes" && strings.HasPrefix(key, "data.shapes.") || (key == "selector" || key == "exp") && chosen[key]
	})
	return append(args, more...)
}

// trained is a finished run of tiny with preflight and plots, made once, and how long it took.
func trained(t *testing.T) (dir string, took time.Duration) {
	t.Helper()
	return drawn.dir(t, "trained", "checks.preflight=true")
}

// undrawn is a finished run of tiny without plots, made once.
func undrawn(t *testing.T) string {
	t.Helper()
	dir, _ := plain.dir(t, "undrawn", "report.plots=false", "logging.progress=false")
	return dir
}

// made is a run of tiny that several tests look at.
type made struct {
	once   sync.Once
	result result
	took   time.Duration
}

var drawn, plain made

func (m *made) dir(t *testing.T, name string, more ...string) (string, time.Duration) {
	t.Helper()
	dir := filepath.Join(shared, name)
	m.once.Do(func() {
		begin := time.Now()
		m.result = run(t, tiny(append(more, "hydra.run.dir="+dir)...)...)
		m.took = time.Since(begin)
	})
	if m.result.code != 0 {
		t.Fatalf("the run that this test needs failed: %s", m.result.stderr)
	}
	return dir, m.took
}

// result is a process that has ended.
type result struct {
	stdout, stderr string
	code           int // 128 + signal for one that a signal ended
	pid            int
}

// patience is how long a machine that is busy with other tests may take for what takes seconds.
const patience = 5 * time.Minute

// process is the program at work. It and its children end with the test.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr safeBuffer
	ended          chan struct{}
	limit          time.Duration // of wait
}

func start(t *testing.T, args ...string) *process { return startWith(t, "", nil, args...) }

func startWith(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	return startProgram(t, program, dir, env, args...)
}

// startProgram starts a program built otherwise.
func startProgram(t *testing.T, binary, dir string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(binary, args...), ended: make(chan struct{}), limit: patience}
	p.cmd.Args[0] = "run" // as it is called where it is installed, and as messages then name it
	p.cmd.Dir, p.cmd.Env = dir, append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the parent-death signal follows this thread
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.signalGroup(syscall.SIGKILL)
		<-p.ended
	})
	return p
}

func (p *process) signal(s syscall.Signal)      { syscall.Kill(p.cmd.Process.Pid, s) }
func (p *process) signalGroup(s syscall.Signal) { syscall.Kill(-p.cmd.Process.Pid, s) }

// wait returns when the process and all children that hold its output have ended.
func (p *process) wait() result {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(p.limit):
		p.t.Fatalf("%v does not end:\n%s", p.cmd.Args, p.stderr.String())
	}
	r := result{p.stdout.String(), p.stderr.String(), p.cmd.ProcessState.ExitCode(), p.cmd.Process.Pid}
	if ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		r.code = 128 + int(ws.Signal())
	}
	for _, trace := range []string{"goroutine ", "panic:", "terminate called"} {
		if strings.Contains(r.stderr, trace) {
			p.t.Errorf("%v shows a stack trace:\n%s", p.cmd.Args, r.stderr)
		}
	}
	return r
}

// until waits for ready, and reports false when the process ended before.
func (p *process) until(ready func() bool) bool {
	p.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if ready() {
			return true
		}
		select {
		case <-p.ended:
			return ready()
		case <-time.After(time.Millisecond):
		}
	}
	p.t.Fatalf("%v: what the test waits for does not come:\n%s", p.cmd.Args, p.stderr.String())
	return false
}

func run(t *testing.T, args ...string) result {
	t.Helper()
	return start(t, args...).wait()
}

// mustRun fails the test unless the program ends with exit code 0.
func mustRun(t *testing.T, args ...string) result {
	t.Helper()
	r := run(t, args...)
	if r.code != 0 {
		t.Fatalf("run %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r
}

// safeBuffer may be read while a process writes to it.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// outcome is what must not depend on interruptions: every byte below checkpoints, the metrics without
// clock times and resume events, the evaluations.
type outcome struct {
	files   map[string]string // links and digests by path below checkpoints
	metrics []string
	evals   string
	resumes int
}

var clock = regexp.MustCompile(`"(time|step_seconds)":[^,}]+`)

func outcomeOf(t *testing.T, dir string) outcome {
	t.Helper()
	o := outcome{files: map[string]string{}}
	root := filepath.Join(dir, "checkpoints")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if target, err := os.Readlink(path); err == nil {
			o.files[name] = "→ " + target
			return nil
		}
		o.files[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, path))))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSuffix(read(t, filepath.Join(dir, "metrics.jsonl")), "\n"), "\n") {
		if strings.HasPrefix(line, `{"kind":"event"`) && strings.Contains(line, `"event":"resume"`) {
			o.resumes++
			continue
		}
		o.metrics = append(o.metrics, clock.ReplaceAllString(line, ""))
	}
	if path := filepath.Join(dir, "evals.jsonl"); exists(path) {
		o.evals = read(t, path)
	}
	return o
}

// same fails the test where got differs from want, and says where first.
func (want outcome) same(t *testing.T, got outcome, resumes int) {
	t.Helper()
	for name, digest := range want.files {
		if got.files[name] != digest {
			t.Errorf("checkpoints/%s: got %q, want %q", name, got.files[name], digest)
		}
	}
	for name := range got.files {
		if _, ok := want.files[name]; !ok {
			t.Errorf("checkpoints/%s: a run that was not interrupted has no such file", name)
		}
	}
	for i := range max(len(want.metrics), len(got.metrics)) {
		if i >= len(want.metrics) || i >= len(got.metrics) || want.metrics[i] != got.metrics[i] {
			t.Errorf("metrics.jsonl differs in line %d of %d (%d)\n got %s\nwant %s", i+1, len(got.metrics), len(want.metrics),
				at(got.metrics, i), at(want.metrics, i))
			break
		}
	}
	if got.evals != want.evals {
		t.Errorf("evals.jsonl differs: %d bytes, want %d", len(got.evals), len(want.evals))
	}
	if got.resumes != resumes {
		t.Errorf("%d resume events, want %d", got.resumes, resumes)
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(none)"
}

// leftovers returns the temporary files below dir.
func leftovers(t *testing.T, dir string) []string {
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

// folder returns the name of a run folder that does not exist yet, without characters that need quotes.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(shared, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "run")
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func itoa(n int) string { return strconv.Itoa(n) }
