package runfolder

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/usage"
)

// One process writes a folder; asking who does is no obstacle to it.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	if Locked(dir) {
		t.Error("a folder without a lock is locked")
	}
	f, err := Claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !Locked(dir) {
		t.Error("a claimed folder is not locked")
	}
	var asked *usage.Error
	if _, err := Claim(dir); !errors.As(err, &asked) {
		t.Errorf("a second claim: %v, want a refusal", err)
	}
	// A lock that was removed or replaced is noticed, and made again where the folder itself is held.
	path := filepath.Join(dir, lockFile)
	for _, replaced := range []bool{false, true} {
		os.Remove(path)
		if replaced {
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Claim(dir); !errors.As(err, &asked) && f.whole != nil {
			t.Errorf("a claim after .lock was removed: %v, want a refusal", err)
		}
		if err := f.Held(); err != nil || !Locked(dir) {
			t.Errorf("after .lock was removed (another in its place: %v): %v, locked %v", replaced, err, Locked(dir))
		}
	}
	f.whole.Close() // a file system that cannot lock folders
	f.whole = nil
	os.Remove(path)
	second, err := Claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Held(); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("with a second writer: %v", err)
	}
	second.Release()
	f.Release()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			Locked(dir)
		}
	}()
	for range 2000 {
		f, err := Claim(dir)
		if err != nil {
			t.Fatalf("a claim beside a question: %v", err)
		}
		f.Release()
	}
	<-done
}

// hydra.output_subdir leads to the one configuration there is, and a run that was refused takes the link away with what it had made.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	f, err := Claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	for _, name := range []string{"", ".hydra", "conf/mine", "conf/mine"} { // the last one: an earlier run's link
		if err := f.Link(name); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, ".hydra"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, Marker), []byte("task: train\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "conf/mine/config.yaml")); err != nil || string(text) != "task: train\n" {
		t.Errorf("through the link: %q, %v", text, err)
	}
	var asked *usage.Error
	for _, taken := range []string{"plots", "checkpoints/x", "conf"} {
		if err := f.Link(taken); !errors.As(err, &asked) {
			t.Errorf("%s: %v, want a refusal", taken, err)
		}
	}
	f.Forget(nil, "")
	if names, err := Entries(dir); err != nil || len(names) > 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}

// The machines of a run in several processes are those of the processes that write it now.
func TestHostsAreOfThisClaim(t *testing.T) {
	dir := t.TempDir()
	for _, hosts := range [][]string{{"a", "b", "a"}, nil, {"c", "d"}} {
		f, err := Claim(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(hosts) > 0 { // a claim of no training says nothing
			if err := f.Share(hosts); err != nil {
				t.Fatal(err)
			}
		}
		if got := Hosts(dir); !slices.Equal(got, hosts) {
			t.Errorf("hosts %q, want %q", got, hosts)
		}
		f.Release()
	}
}
