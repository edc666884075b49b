package stdout

import (
	"os"
	"path/filepath"
	"testing"
)

// A stream shows what data hold, also where a character comes in two writes, and leaves the program's own sequences alone.
func TestStreamShowsControls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := &Stream{file: &file}
	for _, part := range []string{"a\x1b[2Jb ", "\xe2\x80", "\xaeé ", "\xe7\x8c", "\xab\n"} {
		if n, err := s.Write([]byte(part)); err != nil || n != len(part) {
			t.Fatal(n, err)
		}
	}
	s.Control("\x1b[1A\x1b[J")
	if _, err := s.Data().Write([]byte("PAR1\x00\x9b")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if want := `a\x1b[2Jb \u202eé 猫` + "\n\x1b[1A\x1b[JPAR1\x00\x9b"; err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
