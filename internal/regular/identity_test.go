package regular

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Whatever changes a file changes its identity, also where its size and time are put back.
func TestIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	at := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	was := Identify(path)
	if was == (Identity{}) || was != Identify(path) || was.Size != 3 || was.Written != at.UnixNano() {
		t.Fatalf("%+v", was)
	}
	for name, change := range map[string]func() error{
		"written into, its time put back": func() error { write("two"); return os.Chtimes(path, at, at) },
		"replaced, its time put back": func() error {
			if err := os.Rename(path, path+"0"); err != nil {
				return err
			}
			write("one")
			return os.Chtimes(path, at, at)
		},
	} {
		time.Sleep(20 * time.Millisecond) // clocks of file systems are coarse
		before := Identify(path)
		if err := change(); err != nil || Identify(path) == before {
			t.Errorf("%s: the same identity (%v)", name, err)
		}
	}
	if Identify(filepath.Dir(path)) != (Identity{}) || Identify(path+"1") != (Identity{}) {
		t.Error("a folder, or nothing, has an identity")
	}
}
