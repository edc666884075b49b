package runfolder

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Usable says what Claim would, and leaves no trace.
func TestUsableIsClaim(t *testing.T) {
	root := t.TempDir()
	file, link, loop := filepath.Join(root, "file"), filepath.Join(root, "link"), filepath.Join(root, "loop")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{link: filepath.Join(root, "nowhere"), loop: loop} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	taken := filepath.Join(root, "taken")
	f, err := Claim(taken)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	seen := 0
	for _, dir := range []string{filepath.Join(root, "new"), filepath.Join(root, "a", "b", "c"), root, ".", file, filepath.Join(file, "x"),
		link, loop, filepath.Join(loop, "x"), taken, "/proc/x", "/proc/self/x", "/sys/x"} {
		before, _ := os.ReadDir(root)
		free := Usable(dir)
		if after, _ := os.ReadDir(root); len(after) != len(before) {
			t.Errorf("%s: asking left %v", dir, after)
		}
		made := FirstMissing(dir)
		was, _ := Entries(dir)
		f, err := Claim(dir)
		if (err == nil) != (free == nil) {
			t.Errorf("%s: usable %v, claimed %v", dir, free, err)
		}
		if seen++; err == nil {
			f.Release()
			f.Forget(was, made)
		}
	}
	if seen != 13 {
		t.Errorf("%d folders", seen)
	}
}

// A file system in user space may report no blocks: what is free is then unknown, and not nothing.
func TestFree(t *testing.T) {
	if free := Free(t.TempDir() + "/not/there"); !(free > 0) {
		t.Errorf("of a folder to be made: %g bytes", free)
	}
	for _, tc := range []struct {
		fs   unix.Statfs_t
		want float64
	}{{unix.Statfs_t{Bsize: 4096}, math.NaN()}, {unix.Statfs_t{Blocks: 9, Bsize: 4096}, 0},
		{unix.Statfs_t{Blocks: 9, Bavail: 3, Bsize: 4096}, 3 * 4096},
		{unix.Statfs_t{Blocks: 9, Bavail: 3, Bsize: 1 << 20, Frsize: 512}, 3 * 512}} {
		if got := freeOf(tc.fs); got != tc.want && !(math.IsNaN(got) && math.IsNaN(tc.want)) {
			t.Errorf("%+v: %g bytes, want %g", tc.fs, got, tc.want)
		}
	}
}
