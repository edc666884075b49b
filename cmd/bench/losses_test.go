package main

import (
	"strings"
	"testing"
)

// TestLosses compares short trainings with PyTorch's losses in float64, as `bench losses` does on a
// machine that has neither Go nor this repository.
func TestLosses(t *testing.T) {
	r := run(t, "losses", "--device", "cpu")
	if r.code != 0 || strings.Count(r.stdout, "  ok\n") != 6 {
		t.Errorf("exit code %d, want 0 and six comparisons:\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r := run(t, "losses", "--device", "tpu"); r.code == 0 || !strings.Contains(r.stderr, "want auto, cpu, cuda or cuda:N") {
		t.Errorf("exit code %d, %q: want the devices", r.code, r.stderr)
	}
}
