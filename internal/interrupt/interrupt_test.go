package interrupt

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// What the first signal does depends on the last holder: one that heeds the context is left alone, one that does not is
// asked, and without any the process ends.
func TestEnd(t *testing.T) {
	signal, worded := errors.New("signal"), errors.New("signal, and what was lost")
	end := func() error {
		err := End(signal)
		if err != nil {
			asking.Unlock() // End keeps it: the process would end
		}
		return err
	}
	if err := end(); err != signal {
		t.Errorf("nobody holds: %v", err)
	}
	outer := Hold(nil)
	if err := end(); err != nil {
		t.Errorf("a holder heeds the context: %v", err)
	}
	inner := Hold(func(error) error { return worded })
	if err := end(); err != worded {
		t.Errorf("a holder that does not heed: %v", err)
	}
	if inner.Heed(); end() != nil {
		t.Error("a holder that heeds now is not asked")
	}
	inner.Release()
	outer.Release()
	if err := end(); err != signal {
		t.Errorf("all are released: %v", err)
	}
	(*Holder)(nil).Heed()
}

func TestClean(t *testing.T) {
	dir := t.TempDir()
	kept, removeKept, err := Folder(dir, "kept*")
	if err != nil {
		t.Fatal(err)
	}
	gone, removeGone, err := Folder(dir, "gone*")
	if err != nil {
		t.Fatal(err)
	}
	removeGone()
	moved := filepath.Join(dir, "moved")
	_, forget, err := Temporary(func() (string, error) { return moved, os.WriteFile(moved, nil, 0o644) })
	if err != nil {
		t.Fatal(err)
	}
	forget()
	if len(temporary) != 1 || !temporary[kept] {
		t.Errorf("temporary: %v, want %s alone; %s is gone", temporary, kept, gone)
	}
	called := 0
	AtEnd(func() { called++ })
	Clean()
	making.Unlock() // Clean keeps it: the process would end
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "moved" || called != 1 {
		t.Errorf("left: %v, %v, called %d times", left, err, called)
	}
	removeKept()
}
