package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A run without progress says so, in run.log and on stderr, not in its metrics; one with progress does not.
func TestStall(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "stderr")
	read := func(path string) string {
		text, _ := os.ReadFile(path)
		return string(text)
	}
	synctest.Test(t, func(t *testing.T) { // its clock stands still while anything is done; what goes on behind the end fails it
		stderr, err := os.Create(out)
		if err != nil {
			t.Fatal(err)
		}
		defer stderr.Close()
		opt := LogOptions{LoggingOptions: LoggingOptions{LogEverySteps: 1, StallMinutes: 0.5 / 60}, Stderr: stderr, Now: time.Now}
		l, err := OpenLog(dir, opt)
		if err != nil {
			t.Fatal(err)
		}
		log, metrics := filepath.Join(dir, "run.log"), filepath.Join(dir, "metrics.jsonl")
		for step := range 8 {
			if err := l.Record(KindStep, "grpo", 1, step+1, step+1, map[string]any{"loss": 1.0}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(400 * time.Millisecond)
		}
		if text := read(log); strings.Contains(text, "no progress") {
			t.Errorf("while it worked:\n%s", text)
		}
		rows := read(metrics)
		time.Sleep(1400 * time.Millisecond) // a second warning waits twice as long as the first
		l.Unwatch()
		text := read(log)
		if strings.Count(text, "no progress") != 2 || !strings.Contains(text, "since step of grpo, epoch 1, step 8") {
			t.Errorf("1.8 s behind its last step:\n%s", text)
		}
		if !strings.Contains(read(out), "no progress") || read(metrics) != rows {
			t.Errorf("stderr %q; metrics changed: %v", read(out), read(metrics) != rows)
		}
		time.Sleep(1500 * time.Millisecond)
		if again := read(log); again != text {
			t.Errorf("written after the end:\n%s", again)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
