package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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

// Only regular files are replaced: not a device, not a pipe, not what a link to one leads to.
func TestCreateReplacesRegularFilesOnly(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		syscall.Mkfifo(in("pipe"), 0o644), os.Mkdir(in("folder"), 0o755), os.WriteFile(in("file"), []byte("old"), 0o600),
		os.Symlink("pipe", in("to a pipe")), os.Symlink("/dev/null", in("to a device")),
		os.Symlink("gone", in("to nothing")), os.Symlink("file", in("to a file")),
	); err != nil {
		t.Fatal(err)
	}
	before := names(t, dir)
	for path, want := range map[string]string{
		in("pipe"): "is a pipe", in("folder"): "is a folder", "/dev/null": "is a device", in("to a pipe"): "is a pipe",
		in("to a device"): "is a device", in("to nothing"): "is a link to nothing",
	} {
		var refused *NotRegularError
		if err := Write(path, []byte("new"), 0o644); !errors.As(err, &refused) || !strings.Contains(err.Error(), path+" "+want) {
			t.Errorf("%s: error %v, want %q", path, err, want)
		}
	}
	if err := Write(in("to a file"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(in("file")); string(got) != "new" {
		t.Errorf("the file that a link leads to holds %q, %v", got, err)
	}
	if link, err := os.Readlink(in("to a file")); link != "file" {
		t.Errorf("the link to a file was replaced: %q, %v", link, err)
	}
	if after := names(t, dir); !slices.Equal(before, after) {
		t.Errorf("the folder held %v, now %v", before, after)
	}
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode()&os.ModeDevice == 0 {
		t.Errorf("/dev/null: %v, %v", info, err)
	}
}

func TestMkdirAll(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b", "c")
	for range 2 { // the second time it is there
		if err := MkdirAll(deep); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(deep); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := MkdirAll(filepath.Join(dir, "file", "b")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("below a file: %v", err)
	}
}

// TestForget: what a killed process has left of a file goes, what somebody is writing stays, and so does what belongs to another file.
func TestForget(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.jsonl")
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	at := filepath.Base(f.Name())
	for _, name := range []string{".out.jsonl.tmp123", ".other.jsonl.tmp123", ".out.jsonl.tmp", "out.jsonl.tmp123"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Forget(path); err != nil {
		t.Fatal(err)
	}
	want := []string{".other.jsonl.tmp123", ".out.jsonl.tmp", at, "out.jsonl.tmp123"}
	slices.Sort(want)
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("left: %v, want %v", got, want)
	}
	if err := f.Commit(); err != nil {
		t.Error(err)
	}
}

// A folder that the program keeps beside a user's files leads nowhere else.
func TestWriteInFollowsNoLink(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	precious := filepath.Join(elsewhere, "x.idx")
	if err := os.WriteFile(precious, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, lay := range map[string]func(folder string) error{
		"the folder is a link": func(folder string) error { return os.Symlink(elsewhere, folder) },
		"the file is a link": func(folder string) error {
			return errors.Join(os.Mkdir(folder, 0o755), os.Symlink(precious, filepath.Join(folder, "x.idx")))
		},
	} {
		folder := filepath.Join(root, name)
		if err := lay(folder); err != nil {
			t.Fatal(err)
		}
		err := WriteIn(folder, "x.idx", []byte("new"))
		text, _ := os.ReadFile(precious)
		if err == nil || !strings.Contains(err.Error(), "is a link, want the name of a regular file") || string(text) != "precious" {
			t.Errorf("%s: %v, and elsewhere lies %q", name, err, text)
		}
	}
	plain := filepath.Join(root, "plain")
	if err := errors.Join(WriteIn(plain, "x.idx", []byte("old")), WriteIn(plain, "x.idx", []byte("new"))); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(plain, "x.idx")); string(text) != "new" {
		t.Errorf("%q, %v", text, err)
	}
}
