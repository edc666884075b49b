package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func hold(t *testing.T, s *Store, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := s.Hold(keyOf(i), valueOf(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// What is held back is anybody's to read and nobody's to trust until somebody commits it: a killed process leaves it to the next,
// which commits what it was given and no more.
func TestHeldBack(t *testing.T) {
	dir := t.TempDir()
	killed := open(t, dir)
	hold(t, killed, 0, 20)
	live := open(t, dir) // at the same time
	holds(t, live, 0, 10, 20)
	if !live.Held(keyOf(3)) || !live.Held(keyOf(15)) {
		t.Error("values of another process that holds them back are no values yet")
	}
	killed.Close() // what it held is as a kill leaves it
	hold(t, live, 20, 25)
	put(t, live, 30, 35)
	if err := live.Commit(); err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]bool{0: false, 9: false, 10: true, 19: true, 22: false, 31: false} {
		if live.Held(keyOf(i)) != want {
			t.Errorf("%d is held back: %v", i, !want)
		}
	}
	live.Close()
	if n := strings.Count(strings.Join(files(t, dir), " "), unchecked); n != 1 {
		t.Errorf("%v: want one segment with what nobody vouches for", files(t, dir))
	}
	last := open(t, dir)
	defer last.Close()
	holds(t, last, 0, 20, 30)
	if last.Held(keyOf(5)) || !last.Held(keyOf(12)) {
		t.Error("commit took too much, or too little")
	}
	if err := last.Commit(); err != nil || strings.Contains(strings.Join(files(t, dir), " "), unchecked) {
		t.Errorf("%v, %v: want no segment that is held back", files(t, dir), err)
	}
	holds(t, last, 0, 25, 30)
}

// A process that throws away what it held back takes that of killed ones along which it was given, and leaves that of live ones.
func TestDiscard(t *testing.T) {
	dir := t.TempDir()
	killed, live, other := open(t, dir), open(t, dir), open(t, dir)
	hold(t, killed, 0, 5)
	hold(t, live, 5, 10)
	hold(t, other, 10, 15)
	put(t, other, 15, 20)
	killed.Close()
	s := open(t, dir)
	hold(t, s, 20, 25)
	holds(t, s, 0, 10, 25)
	if err := s.Discard(); err != nil {
		t.Fatal(err)
	}
	hold(t, s, 25, 30)
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := live.Commit(); err != nil {
		t.Fatal(err)
	}
	live.Close()
	other.Close()
	again := open(t, dir)
	defer again.Close()
	holds(t, again, 5, 20, 15)
}

// A job that was given what another one has thrown away meanwhile does not vouch for it.
func TestThrownAwayMeanwhile(t *testing.T) {
	dir := t.TempDir()
	killed := open(t, dir)
	hold(t, killed, 0, 5)
	killed.Close()
	a, b := open(t, dir), open(t, dir)
	defer a.Close()
	defer b.Close()
	holds(t, a, 0, 5, 5)
	holds(t, b, 0, 5, 5)
	if err := a.Discard(); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(); err == nil || !strings.Contains(err.Error(), "thrown away by another job") {
		t.Errorf("got %v", err)
	}
}

// A commit that is killed before it is whole has done nothing, and one that is killed before it has tidied up is done.
func TestKilledCommit(t *testing.T) {
	dir := t.TempDir()
	killed := open(t, dir)
	hold(t, killed, 0, 5)
	killed.Close()
	s := open(t, dir)
	holds(t, s, 0, 5, 5)
	hold(t, s, 5, 10)
	for i := range 5 { // Commit's copies
		if err := s.hold(keyOf(i), valueOf(i)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, s.held.name)
	s.Close()
	half := open(t, dir)
	holds(t, half, 0, 10, 10)
	if !half.Held(keyOf(1)) || !half.Held(keyOf(6)) {
		t.Error("half a commit is one")
	}
	half.Close()
	if err := os.Rename(path+unchecked, path); err != nil {
		t.Fatal(err)
	}
	whole := open(t, dir)
	defer whole.Close()
	holds(t, whole, 0, 10, 10)
	if whole.Held(keyOf(1)) || whole.Held(keyOf(6)) {
		t.Error("what was committed is held back")
	}
	if err := whole.Commit(); err != nil || strings.Contains(strings.Join(files(t, dir), " "), unchecked) {
		t.Errorf("%v, %v: want no segment that is held back", files(t, dir), err)
	}
}
