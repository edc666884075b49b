// Package golden holds what tests share: comparisons with a stated tolerance, golden files that
// -update rewrites, and the folder of large reference data that users do not have.
package golden

import (
	"cmp"
	"encoding/json"
	"flag"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"fulcrum/internal/list"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Close fails t at the first element where got and want differ by more than tol (absolute). NaN equals NaN.
func Close(t testing.TB, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d values, want %d", len(got), len(want))
	}
	for i := range got {
		same := got[i] == want[i] || math.IsNaN(got[i]) && math.IsNaN(want[i])
		if !same && !(math.Abs(got[i]-want[i]) <= tol) {
			t.Fatalf("value %d: got %.9g, want %.9g (difference %.3g, tolerance %.3g)", i, got[i], want[i], got[i]-want[i], tol)
		}
	}
}

// ProcessorTime returns what this process has used until now: unlike the clock's time it hardly depends on what else the machine does.
func ProcessorTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Device returns the device under test: FULCRUM_DEVICE, else the CPU.
func Device() string { return cmp.Or(os.Getenv("FULCRUM_DEVICE"), "cpu") }

// Rounds holds what bfloat16 computed on the device under test against float64. exact is float64's result, rounded its result with
// the weights rounded to bfloat16. ‖got − rounded‖ / ‖rounded − exact‖ is the computation's error in units of the one that
// rounding each weight once makes: depth and size of a model cancel out. t fails above 3. A product's result changes as much when its
// row is rounded as when its weight is. A pass rounds a product's row, its result and the sum that the result is added to; a processor
// without products of bfloat16 rounds parts of a sum, a GPU the probabilities of attention: four roundings, and four more on the way
// back. They are independent, so they add up to √8 units of the gradient, 2 of the rest; results that lean on few rows vary by half.
// What lies beyond is a wrong number, no rounding. One operation that rounds too often does not lie beyond: TestWideOperations of
// internal/torchx sees that.
func Rounds(t testing.TB, what string, got, rounded, exact []float64) {
	t.Helper()
	if len(got) != len(exact) || len(rounded) != len(exact) {
		t.Fatalf("%s: %d, %d and %d values", what, len(got), len(rounded), len(exact))
	}
	far := func(a, b []float64) (squares float64) {
		for i := range a {
			squares += (a[i] - b[i]) * (a[i] - b[i])
		}
		return math.Sqrt(squares)
	}
	share := far(got, rounded) / far(rounded, exact)
	t.Logf("%s: %.2f times the error of rounded weights", what, share)
	if !(share <= 3) { // NaN fails
		t.Errorf("%s: bfloat16 is %.2f times as far from float64 as rounded weights are, want at most 3", what, share)
	}
}

// Shared returns a path inside the reference data folder (FULCRUM_SHARED, else ../shared beside the
// repository), that of its small copy in this package's testdata, or skips the test and prints why.
func Shared(t testing.TB, sub ...string) string {
	t.Helper()
	root := os.Getenv("FULCRUM_SHARED")
	if root == "" {
		root = filepath.Join(filepath.Dir(RepoRoot()), "shared")
	}
	path := filepath.Join(append([]string{root}, sub...)...)
	if _, err := os.Stat(path); err != nil {
		kept := filepath.Join(append([]string{RepoRoot(), "internal", "testkit", "golden", "testdata"}, sub...)...)
		if _, err := os.Stat(kept); err == nil {
			return kept
		}
		t.Skipf("reference data absent: %s (set FULCRUM_SHARED)", path)
	}
	return path
}

// DefaultSignals gives the programs that a test starts the default handling of signals. Under nohup, or in a shell's
// background, a process ignores SIGHUP or SIGINT, and its children inherit that. The test itself goes on ignoring them.
// Call it from TestMain.
func DefaultSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s) // a signal that is caught is reset in a child
		}
	}
}

// RepoRoot returns the folder that holds go.mod.
func RepoRoot() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// JSON reads path into v or fails t.
func JSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// File compares got with the golden file at path; with -update it rewrites the file instead.
func File(t testing.TB, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if string(got) != string(want) {
		i := 0
		for i < len(got) && i < len(want) && got[i] == want[i] {
			i++
		}
		t.Fatalf("%s differs at byte %d:\n got …%s\nwant …%s", path, i, clip(got, i), clip(want, i))
	}
}

func clip(b []byte, at int) []byte {
	return b[max(0, at-40):min(len(b), at+80)]
}

// Number reads a number of recorded data, where NaN and infinities are strings and an absent value is null.
type Number struct {
	V    float64
	Null bool
}

// UnmarshalJSON reads a number, null, "nan", "inf" or "-inf".
func (n *Number) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "null":
		n.Null = true
	case `"nan"`:
		n.V = math.NaN()
	case `"inf"`:
		n.V = math.Inf(1)
	case `"-inf"`:
		n.V = math.Inf(-1)
	default:
		return json.Unmarshal(b, &n.V)
	}
	return nil
}

// Floats returns the values of ns, 0 for null.
func Floats(ns []Number) []float64 {
	return list.Map(ns, func(n Number) float64 { return n.V })
}

// Narrow rounds x to float32, the type in which recorded data was computed.
func Narrow(x []float64) []float64 {
	return list.Map(x, func(v float64) float64 { return float64(float32(v)) })
}
