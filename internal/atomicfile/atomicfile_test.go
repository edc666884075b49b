package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestWriteReplacesWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	for _, content := range []string{"first, longer content", "second"} {
		if err := Write(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Fatalf("read %q, %v; want %q", got, err, content)
		}
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("left-over files: %v", got)
	}
}

func TestAbortKeepsTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := Write(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("half"); err != nil {
		t.Fatal(err)
	}
	f.Abort()
	if got, _ := os.ReadFile(path); string(got) != "old" {
		t.Errorf("after Abort: %q, want old", got)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("left-over files: %v", got)
	}
}

func TestSymlinkReplaces(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "best")
	for _, target := range []string{"one", "two"} {
		if err := Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(link); err != nil || got != target {
			t.Fatalf("link points at %q, %v; want %q", got, err, target)
		}
	}
}

func TestMissingFolderIsNamed(t *testing.T) {
	if err := Write(filepath.Join(t.TempDir(), "no", "a"), nil, 0o644); err == nil {
		t.Error("writing into a missing folder succeeded")
	}
}

func TestIsTemp(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(filepath.Join(dir, "x.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	for name, want := range map[string]bool{
		filepath.Base(f.Name()): true, ".last.safetensors.tmplink": true, ".rce_epoch1.state.tmpgone": true,
		".draft.tmp": false, ".draft.tmp.txt": false, "x.tmp1": false, ".tmp1": false, ".x.tmp1~": false,
	} {
		if IsTemp(name) != want {
			t.Errorf("IsTemp(%q) = %v, want %v", name, !want, want)
		}
	}
}

func TestRemoveAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	for range 2 { // the second time there is nothing to remove
		if err := RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(path, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
