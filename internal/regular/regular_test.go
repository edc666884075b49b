package regular

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	pipe, file, link, socket, sparse := filepath.Join(dir, "pipe"), filepath.Join(dir, "file"), filepath.Join(dir, "link"),
		filepath.Join(dir, "socket"), filepath.Join(dir, "sparse")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o644), os.WriteFile(file, []byte("text"), 0o644), os.Symlink(pipe, link),
		os.WriteFile(sparse, nil, 0o644), os.Truncate(sparse, 1<<42)); err != nil {
		t.Fatal(err)
	}
	if l, err := net.Listen("unix", socket); err == nil {
		defer l.Close()
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		for path, want := range map[string]string{
			pipe: "it is a pipe", link: "it is a pipe", socket: "it is a socket", dir: "it is a folder", "/dev/zero": "it is a device",
			"/dev/null": "it is a device",
			sparse:      "of memory", filepath.Join(dir, "none"): "no such file",
		} {
			if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, want %q", path, err, want)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("waits for a file that is none")
	}
	for flag, path := range map[int]string{os.O_RDWR: pipe, os.O_WRONLY: link, os.O_APPEND | os.O_CREATE | os.O_WRONLY: "/dev/null"} {
		if f, err := OpenFile(path, flag, 0o644); err == nil || !strings.Contains(err.Error(), "want a regular file") {
			t.Errorf("%s opened with %d: %v, %v", path, flag, f, err)
		}
	}
	made := filepath.Join(dir, "made")
	if f, err := OpenFile(made, os.O_CREATE|os.O_WRONLY, 0o600); err != nil || f.Close() != nil {
		t.Errorf("a file that is made: %v", err)
	}
	if err := os.Symlink(file, made+"-link"); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadSmall(made+"-link", 4); err != nil || string(text) != "text" { // as best.safetensors is one
		t.Errorf("a link to a file: %q, %v", text, err)
	}
	if _, err := ReadSmall(file, 3); err == nil || !strings.Contains(err.Error(), "want at most 3 B") {
		t.Errorf("a file that is too large: %v", err)
	}
	if _, err := ReadDocument(sparse); err == nil || !strings.Contains(err.Error(), "want at most 64 MiB") {
		t.Errorf("a giant: %v", err)
	}
	if text, err := ReadFile(file); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := ReadFile("/proc/self/status"); err != nil || !strings.Contains(string(text), "VmRSS") { // of size 0
		t.Errorf("%q, %v", text, err)
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
