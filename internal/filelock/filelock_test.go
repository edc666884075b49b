package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestTakeFolder(t *testing.T) {
	dir := t.TempDir()
	first, err := TakeFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if first == nil {
		t.Skip("this file system cannot lock folders")
	}
	if second, err := TakeFolder(dir); !errors.Is(err, ErrHeld) {
		t.Errorf("two hold one folder: %v, %v", second, err)
	}
	first.Close()
	second, err := TakeFolder(dir)
	if err != nil || second == nil {
		t.Fatalf("after the release: %v, %v", second, err)
	}
	second.Close()
	if _, err := TakeFolder(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if Held(path) {
		t.Error("a file that is not there is held")
	}
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, second := open(), open()
	defer second.Close()
	if err := Take(first); err != nil || !Held(path) {
		t.Fatalf("take: %v, held %v", err, Held(path))
	}
	if err := Take(second); err == nil {
		t.Error("two hold one lock")
	}
	if pid, err := Holder(path); err != nil || pid != os.Getpid() {
		t.Errorf("holder %d (%v), want this process, %d", pid, err, os.Getpid())
	}
	if err := first.Close(); err != nil || Held(path) {
		t.Errorf("close: %v, held %v", err, Held(path))
	}
	if pid, err := Holder(path); err != nil || pid != 0 {
		t.Errorf("after the release: holder %d (%v), want none", pid, err)
	}
	if err := Take(second); err != nil {
		t.Errorf("take after the release: %v", err)
	}
}
