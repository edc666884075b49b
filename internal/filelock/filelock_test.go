package filelock

import (
	"os"
	"path/filepath"
	"testing"
)

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
	if err := first.Close(); err != nil || Held(path) {
		t.Errorf("close: %v, held %v", err, Held(path))
	}
	if err := Take(second); err != nil {
		t.Errorf("take after the release: %v", err)
	}
}
