package record

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A run without progress says so, in run.log and on stderr, not in its metrics; one with progress does not.
func TestStall(t *testing.T) {
	before := runtime.NumGoroutine()
	dir := t.TempDir()
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	opt := LogOptions{LoggingOptions: LoggingOptions{LogEverySteps: 1, StallMinutes: 0.5 / 60}, Stderr: stderr}
	l, err := OpenLog(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		text, _ := os.ReadFile(name)
		return string(text)
	}
	for step := range 8 { // a step each 100 ms; the machine may be slow
		if err := l.Record(KindStep, "grpo", 1, step+1, step+1, map[string]any{"loss": 1.0}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	early := strings.Count(read("run.log"), "no progress")
	rows := read("metrics.jsonl")
	for end := time.Now().Add(20 * time.Second); strings.Count(read("run.log"), "no progress") < early+2 &&
		time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
	}
	l.Unwatch()
	text := read("run.log")
	if early > 1 || strings.Count(text, "no progress") < early+2 || !strings.Contains(text, "since step of grpo, epoch 1, step 8") {
		t.Errorf("%d lines while it worked; then\n%s", early, text)
	}
	if !strings.Contains(read(stderr.Name()), "no progress") || read("metrics.jsonl") != rows {
		t.Errorf("stderr %q; metrics changed: %v", read(stderr.Name()), read("metrics.jsonl") != rows)
	}
	time.Sleep(1500 * time.Millisecond)
	if again := read("run.log"); again != text {
		t.Errorf("written after the end:\n%s", again)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines before, %d after", before, after)
	}
}
