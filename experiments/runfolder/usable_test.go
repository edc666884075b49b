package runfolder

import (
	"os"
	"path/filepath"
	"testing"
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
