// Package loadtest checks how a program meets libtorch: not at start, once on demand, and with a
// plain message when it can't. Each case needs a process of its own, so the test program runs itself.
package loadtest

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math"
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

	"github.com/wangkuiyi/gotorch"
	"github.com/wangkuiyi/gotorch/nn/functional"
	"golang.org/x/sys/unix"

	"fulcrum/internal/torchx"
)

const scenarioVariable = "FULCRUM_LOADTEST"

// scenarios are what a child process can be told to do; each prints its findings, one a line.
func scenarios() map[string]func() {
	return map[string]func(){
		"load":    load,
		"compute": compute,
		"race":    race,
		"version": version,
		"waiting": waiting,
		"product": product,
		"steps":   steps,
		"busy": func() {
			fmt.Println("busy")
			for n := uint64(0); ; n++ { // it only takes time
			}
		},
		"early": func() { gotorch.RandN([]int64{1}, false) },
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv(scenarioVariable); name != "" {
		scenarios()[name]()
		return
	}
	m.Run()
}

// mapped says whether a library is in this process's memory map.
func mapped(name string) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	return regexp.MustCompile(name).Match(maps)
}

func load() {
	fmt.Println("start: mapped", mapped("libtorch|libc10"))
	err := torchx.Load()
	fmt.Println("first load:", err)
	fmt.Println("second load:", torchx.Load())
	fmt.Println("end: mapped", mapped("libtorch|libc10"))
	if err == nil {
		fmt.Println("threads", torchx.Threads())
	}
}

// compute calls gotorch with every kind of argument: pointers, floats in registers, more arguments
// than there are registers.
func compute() {
	if err := torchx.Load(); err != nil {
		panic(err)
	}
	random := gotorch.MM(gotorch.RandN([]int64{3, 4}, false), gotorch.RandN([]int64{4, 5}, false))
	fmt.Println("mm shape", random.Shape())
	sum := gotorch.Add(gotorch.Full([]int64{1}, 1.5, false), gotorch.Full([]int64{1}, 2, false), 0.25)
	fmt.Println("1.5 + 0.25*2 =", sum.Item())
	image, kernel := gotorch.Full([]int64{1, 1, 4, 4}, 1, false), gotorch.Full([]int64{1, 1, 3, 3}, 2, false)
	bias := gotorch.Full([]int64{1}, 0.5, false)
	out := functional.Conv2d(image, kernel, bias, []int64{1, 1}, []int64{1, 1}, []int64{1, 1}, 1)
	fmt.Println("conv2d", out.Shape(), gotorch.Sum(out).Item())    // Σ over windows of 4, 6 and 9 cells, ×2, + 16×0.5
	fmt.Println("codecs: mapped", mapped(`libavcodec\.so\.\d+\.`)) // the file of Debian's; the empty one is libavcodec.so.59
}

func race() {
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() { errs[i] = torchx.Load() })
	}
	group.Wait()
	fmt.Println(errs)
}

func version() {
	if err := torchx.Load(); err != nil {
		panic(err)
	}
	fmt.Println(torchx.Version())
	fmt.Print(torchx.BuildConfig())
}

// run starts program in the given scenario with nothing of this environment but env, and returns
// stdout, stderr and the process's state.
func run(t *testing.T, program, scenario string, env ...string) (string, string, *os.ProcessState) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{scenarioVariable + "=" + scenario}, env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState
}

func self(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// libraries returns the folder that make build put the libraries into.
func libraries(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../bin/lib")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestLibtorchIsLoadedOnDemand(t *testing.T) {
	stdout, stderr, state := run(t, self(t), "load")
	want := fmt.Sprintf(`start: mapped false
first load: <nil>
second load: <nil>
end: mapped true
threads %d
`, max(1, runtime.NumCPU()/2)) // what gotorch's init asked for while nothing was loaded
	if stdout != want || !state.Success() {
		t.Errorf("got:\n%s%s%v\nwant:\n%s", stdout, stderr, state, want)
	}
}

func TestArgumentsReachTheLibrary(t *testing.T) {
	stdout, stderr, state := run(t, self(t), "compute")
	// 3×3 ones-times-2 over 4×4 ones with padding 1: 4 corners of 4 cells, 8 edges of 6, 4 inner of 9.
	want := `mm shape [3 5]
1.5 + 0.25*2 = 2
conv2d [1 1 4 4] 208
codecs: mapped false
`
	if stdout != want || !state.Success() {
		t.Errorf("got:\n%s%s%v\nwant:\n%s", stdout, stderr, state, want)
	}
}

func TestLoadFromManyGoroutines(t *testing.T) {
	stdout, stderr, state := run(t, self(t), "race")
	if want := "[<nil> <nil> <nil> <nil> <nil> <nil> <nil> <nil>]\n"; stdout != want || !state.Success() {
		t.Errorf("got %q %s%v, want %q", stdout, stderr, state, want)
	}
}

func TestVersions(t *testing.T) {
	stdout, stderr, state := run(t, self(t), "version")
	if !regexp.MustCompile(`(?s)^\d+\.\d+\.\d+\nPyTorch built with:.*OpenMP`).MatchString(stdout) || !state.Success() {
		t.Errorf("got:\n%s%s%v\nwant the version and libtorch's settings", stdout, stderr, state)
	}
}

func TestCallBeforeLoadNamesTheFunction(t *testing.T) {
	_, stderr, state := run(t, self(t), "early")
	want := "fulcrum: bug: RandN was called before torchx.Load opened libfulcrum_torch.so\n"
	if state.Success() || !strings.HasPrefix(stderr, want) {
		t.Errorf("got %v and stderr %.300q, want an abort and %q", state, stderr, want)
	}
}

// TestMovedProgram moves the program and its lib folder, and starts it through a link elsewhere.
func TestMovedProgram(t *testing.T) {
	dir := t.TempDir()
	copyFile(t, self(t), filepath.Join(dir, "prog"))
	for _, name := range []string{"libcgotorch.so", "libfulcrum_torch.so"} {
		copyFile(t, filepath.Join(libraries(t), name), filepath.Join(dir, "lib", name))
	}
	link := filepath.Join(t.TempDir(), "linked")
	if err := os.Symlink(filepath.Join(dir, "prog"), link); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, state := run(t, link, "load")
	if !strings.Contains(stdout, "first load: <nil>\n") || !state.Success() {
		t.Errorf("got:\n%s%s%v\nwant a load", stdout, stderr, state)
	}
}

func TestLoadFailures(t *testing.T) {
	for _, tc := range []struct {
		name    string
		library func(t *testing.T, path string) // makes libfulcrum_torch.so
		want    string                          // DIR stands for the folder
	}{
		{"a missing library is named", func(*testing.T, string) {},
			"torchx: cannot load DIR/libfulcrum_torch.so: DIR/libfulcrum_torch.so: cannot open shared object file: No such file or directory; " +
				"run make setup, then make build"},
		{"a damaged library is named", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("not a library"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, "torchx: cannot load DIR/libfulcrum_torch.so: DIR/libfulcrum_torch.so: file too short; run make setup, then make build"},
		{"a library of another version: the missing function is named", func(t *testing.T, path string) {
			build := exec.Command("cc", "-shared", "-x", "c", "-o", path, "-")
			build.Stdin = strings.NewReader("void Adam(void) {}\n") // the first of all in alphabetical order
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}, "torchx: DIR/libfulcrum_torch.so lacks the function AdaptiveAvgPool2d: it is of another version; run make build"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			lib := filepath.Join(dir, "lib")
			copyFile(t, self(t), filepath.Join(dir, "prog"))
			copyFile(t, filepath.Join(libraries(t), "libcgotorch.so"), filepath.Join(lib, "libcgotorch.so"))
			tc.library(t, filepath.Join(lib, "libfulcrum_torch.so"))
			stdout, stderr, state := run(t, filepath.Join(dir, "prog"), "load")
			message := strings.ReplaceAll(tc.want, "DIR", lib)
			want := "start: mapped false\nfirst load: " + message + "\nsecond load: " + message + "\nend: mapped false\n"
			if stdout != want || !state.Success() {
				t.Errorf("got:\n%s%s%v\nwant:\n%s", stdout, stderr, state, want)
			}
		})
	}
}

// TestProgramNeedsNoLibtorch reads what the dynamic linker would load at start.
func TestProgramNeedsNoLibtorch(t *testing.T) {
	programs := []string{self(t)}
	if run := filepath.Join(filepath.Dir(libraries(t)), "run"); fileExists(run) {
		programs = append(programs, run)
	}
	for _, program := range programs {
		file, err := elf.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		needed, err := file.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(needed, "libcgotorch.so") {
			t.Errorf("%s needs %v, want libcgotorch.so among them", program, needed)
		}
		for _, name := range needed {
			switch base, _, _ := strings.Cut(name, ".so"); base {
			case "libcgotorch", "libc", "libpthread", "libdl", "libresolv", "ld-linux-x86-64", "ld-linux-aarch64":
			default:
				t.Errorf("%s needs %s, want the C library and libcgotorch.so only", program, name)
			}
		}
		file.Close()
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestThreadsWaitAsleep reads what libgomp says of itself when it is loaded: its threads sleep where they wait, unless the user has chosen
// otherwise, and neither Go nor a program that it starts sees the variables that make them.
func TestThreadsWaitAsleep(t *testing.T) {
	for _, tc := range []struct {
		set, policy, spins string
	}{
		{"NOTHING=1", "PASSIVE", "1000"},
		{"OMP_WAIT_POLICY=active", "ACTIVE", ""},
		{"GOMP_SPINCOUNT=77", "", "77"},
	} {
		stdout, stderr, state := run(t, self(t), "waiting", "OMP_DISPLAY_ENV=verbose", tc.set)
		if !state.Success() || !strings.Contains(stderr, "OPENMP DISPLAY ENVIRONMENT BEGIN") {
			t.Fatalf("%v, got %s%s", state, stdout, stderr)
		}
		want := []string{}
		if tc.policy != "" {
			want = append(want, "OMP_WAIT_POLICY = '"+tc.policy+"'")
		}
		if tc.spins != "" {
			want = append(want, "GOMP_SPINCOUNT = '"+tc.spins+"'")
		}
		if tc.set == "NOTHING=1" {
			want = append(want, "Go sees []", "children see []")
		}
		for _, line := range want {
			if !strings.Contains(stderr+stdout, line) {
				t.Errorf("%q: got\n%s%s\nwant %s", tc.set, stderr, stdout, line)
			}
		}
	}
}

// waiting shows which variables of waiting threads Go and its children see.
func waiting() {
	if err := torchx.Load(); err != nil {
		panic(err)
	}
	ours := func(all []string) (out []string) {
		for _, v := range all {
			if regexp.MustCompile("^(OMP_WAIT_POLICY|GOMP_SPINCOUNT|OPENBLAS_THREAD_TIMEOUT)=").MatchString(v) {
				out = append(out, v)
			}
		}
		return out
	}
	fmt.Println("Go sees", ours(os.Environ()))
	child, err := exec.Command("/usr/bin/env").Output()
	if err != nil {
		panic(err)
	}
	fmt.Println("children see", ours(strings.Split(string(child), "\n")))
}

// TestLimitedAddressSpace: under ulimit -v a program computes or ends with one line that says how much it wants, whatever the limit.
func TestLimitedAddressSpace(t *testing.T) {
	var refused, unloaded, computed int
	for mb := 100; mb <= 7000; mb += 300 {
		script := filepath.Join(t.TempDir(), "limited")
		if err := os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nulimit -v %d && exec %s\n", mb*1024, self(t)), 0o755); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, state := run(t, script, "product")
		line := fmt.Sprintf(`ulimit -v allows %d MB of address space: want at least \d+ MB`, mb)
		switch {
		case !state.Success() && regexp.MustCompile(`^\S+: `+line+`, and \d+ MB to train: ulimit -v unlimited\n$`).MatchString(stderr) && stdout == "":
			refused++
		case state.Success() && regexp.MustCompile(`^torchx: `+line+`: ulimit -v unlimited\n$`).MatchString(stdout):
			unloaded++
		case state.Success() && stdout == "512\n":
			computed++
		default:
			t.Errorf("%d MB: %v, got %.300q and %.300q", mb, state, stdout, stderr)
		}
	}
	t.Logf("%d limits refused at the start, %d at libtorch, %d computed", refused, unloaded, computed)
	if refused < 4 || runtime.NumCPU() <= 8 && (unloaded == 0 || computed == 0) { // what is wanted grows with the cores
		t.Errorf("%d limits refused, %d at libtorch, %d computed", refused, unloaded, computed)
	}
}

// product computes one that OpenBLAS shares between its threads.
func product() {
	if err := torchx.Load(); err != nil {
		fmt.Println(err)
		return
	}
	ones := torchx.From(slices.Repeat([]float32{1}, 512*512), 512, 512)
	fmt.Println(torchx.MatMul(ones, ones).Floats()[0])
}

// TestThreadsCostLittle: beside a busy process on the same two cores, short operations on two threads take the processor time of threads
// that sleep at once where they wait, and not that of threads that turn in circles, several times as much. One thread is no measure: on two
// hyperthreads of a core all work takes up to twice as long. What else runs on the machine comes and goes, so the three are measured in
// turns and their medians compared.
func TestThreadsCostLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("a measurement: TestThreadsWaitAsleep has what decides")
	}
	if runtime.NumCPU() < 2 {
		t.Skip("one core")
	}
	runtime.LockOSThread() // children have its cores
	defer runtime.UnlockOSThread()
	var all, two unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Skip(err)
	}
	for cpu := 0; two.Count() < 2 && cpu < 64*len(all); cpu++ {
		if all.IsSet(cpu) {
			two.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &two); err != nil {
		t.Skip(err)
	}
	defer unix.SchedSetaffinity(0, &all)
	busy := exec.Command(self(t))
	busy.Env = []string{scenarioVariable + "=busy"}
	busy.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { busy.Process.Kill(); busy.Wait() }()
	took := func(env ...string) time.Duration {
		stdout, stderr, state := run(t, self(t), "steps", env...)
		took, err := time.ParseDuration(strings.TrimSpace(stdout))
		if err != nil || !state.Success() {
			t.Fatalf("%v: %v, %s%s", env, state, stdout, stderr)
		}
		return took
	}
	sleep := []string{"OMP_WAIT_POLICY=passive", "GOMP_SPINCOUNT=0"}
	var ours, asleep, circling []time.Duration
	for range 7 {
		ours, asleep, circling = append(ours, took()), append(asleep, took(sleep...)), append(circling, took("OMP_WAIT_POLICY=active"))
	}
	t.Logf("processor time: %v; threads that sleep at once %v, that turn in circles %v", ours, asleep, circling)
	median := func(all []time.Duration) float64 {
		slices.Sort(all)
		return all[len(all)/2].Seconds()
	}
	o, a, c := median(ours), median(asleep), median(circling)
	if c < 2*a {
		t.Skipf("nothing is seen here: threads that turn in circles take %.2f s, those that sleep %.2f", c, a)
	}
	if o > math.Sqrt(a*c) {
		t.Errorf("two threads take %.2f s of processor time, nearer to the %.2f of those that turn in circles than to the %.2f of those that "+
			"sleep at once", o, c, a)
	}
}

// steps computes what a small model does for some tokens, and prints the processor time that it took.
func steps() {
	if err := torchx.Load(); err != nil {
		panic(err)
	}
	torchx.Attach(2)
	const width, vocabulary = 576, 49152
	ones := func(rows, columns int) torchx.Tensor {
		return torchx.From(slices.Repeat([]float32{0.01}, rows*columns), rows, columns)
	}
	x, up, down, head := ones(4, width), ones(width, 3*width), ones(3*width, width), ones(width, vocabulary)
	before := processorTime()
	for range 6 {
		end := torchx.Scope()
		h := x
		for range 10 {
			h = torchx.MatMul(torchx.MatMul(h, up), down)
		}
		logits := torchx.MatMul(h, head)
		for range 20 {
			logits = torchx.Softmax(torchx.Add(logits, logits), -1)
		}
		end()
	}
	fmt.Println(processorTime() - before)
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
