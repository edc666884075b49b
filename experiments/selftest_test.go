package experiments_test

import (
	"strings"
	"testing"
)

// TestSelftest compares short trainings with PyTorch's losses in float64, as `run selftest` does on a
// machine that has neither Go nor this repository.
func TestSelftest(t *testing.T) {
	r := run(t, "selftest", "--device", "cpu")
	if r.code != 0 || strings.Count(r.stdout, "  ok\n") != 6 {
		t.Errorf("exit code %d, want 0 and six comparisons:\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r := run(t, "selftest", "--device", "tpu"); r.code == 0 || !strings.Contains(r.stderr, "want auto, cpu, cuda or cuda:N") {
		t.Errorf("exit code %d, %q: want the devices", r.code, r.stderr)
	}
}
