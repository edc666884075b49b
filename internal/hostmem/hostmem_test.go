package hostmem

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNeed(t *testing.T) {
	if err := Need("small", 1<<20); err != nil {
		t.Error(err)
	}
	err := Need("selector.hidden_dim=1000000", 1<<55)
	if err == nil || !strings.Contains(err.Error(), "selector.hidden_dim=1000000: needs 32 PiB of memory") {
		t.Errorf("got %v, want one that names the key and 32 PiB", err)
	}
}

func TestSources(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"meminfo":          "MemTotal: 100 kB\nMemAvailable: 40 kB\nSwapFree: 2 kB\nHugePages_Total: 0\n",
		"cgroup":           "12:cpu:/x\n0::/user/job\n",
		"fs/memory.max":    "9000\n",
		"fs/user/job/none": "",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(root, name) }
	if got := machine(in("meminfo")); got != 42*1024 {
		t.Errorf("machine: %v, want %v", got, 42*1024)
	}
	if got := group(in("cgroup"), in("fs")); got != 9000 {
		t.Errorf("group: %v, want the limit of the outer group, 9000", got)
	}
	os.WriteFile(in("fs/user/memory.max"), []byte("max\n"), 0o644)
	os.WriteFile(in("fs/user/job/memory.max"), []byte("5000\n"), 0o644)
	if got := group(in("cgroup"), in("fs")); got != 5000 {
		t.Errorf("group: %v, want the limit of the inner group, 5000", got)
	}
	if got := math.Min(machine(in("absent")), group(in("absent"), root)); !math.IsInf(got, 1) {
		t.Errorf("an unknown system: %v, want no limit", got)
	}
}

func TestThisProcess(t *testing.T) {
	if now, peak := Resident(), Peak(); !(now > 1<<20 && now <= peak) {
		t.Errorf("%g bytes in use, at most %g", now, peak)
	}
}
