package experiments

import (
	"errors"
	"testing"
)

// One process writes a folder; asking who does is no obstacle to it.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	if locked(dir) {
		t.Error("a folder without a lock is locked")
	}
	f, err := claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !locked(dir) {
		t.Error("a claimed folder is not locked")
	}
	var usage *UsageError
	if _, err := claim(dir); !errors.As(err, &usage) {
		t.Errorf("a second claim: %v, want a refusal", err)
	}
	f.release()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			locked(dir)
		}
	}()
	for range 2000 {
		f, err := claim(dir)
		if err != nil {
			t.Fatalf("a claim beside a question: %v", err)
		}
		f.release()
	}
	<-done
}
