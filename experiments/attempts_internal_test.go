package experiments

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The wall time of a run that was killed twice is that of its attempts, not of the nights between them.
func TestEarlierAttempts(t *testing.T) {
	dir := t.TempDir()
	if s := earlierAttempts(dir); s.seconds != 0 {
		t.Errorf("an empty folder: %+v", s)
	}
	row := func(kind, at, more string) string {
		return `{"kind":"` + kind + `","phase":"rce","epoch":1,"step":0,"global_step":0,"time":` + at + more + "}\n"
	}
	rows := row("eval", "1000", "") + row("epoch", "1030.5", "") +
		row("event", "9000", `,"event":"resume"`) + row("epoch", "9010", "") +
		row("event", "50000", `,"event":"resume"`) + row("event", "50002", `,"event":"early_stop"`)
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
	if s := earlierAttempts(dir); s.seconds != 30.5+10+2 || !s.start.Equal(time.Unix(1000, 0)) {
		t.Errorf("from rows: %v s from %v, want 42.5 s from %v", s.seconds, s.start, time.Unix(1000, 0))
	}
	// The clock is set back by years before the next attempt, and leaves no trace in what was counted.
	back := rows + row("event", "500", `,"event":"resume"`) + row("epoch", "504", "")
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(back), 0o644); err != nil {
		t.Fatal(err)
	}
	if s := earlierAttempts(dir); s.seconds != 30.5+10+2+4 || !s.start.Equal(time.Unix(1000, 0)) {
		t.Errorf("with a clock that was set back: %v s from %v, want 46.5 s from %v", s.seconds, s.start, time.Unix(1000, 0))
	}
	if err := os.WriteFile(filepath.Join(dir, "summary.json"), []byte(`{"start":"1970-01-01T00:16:35Z","wall_seconds":55}`),
		0o644); err != nil {
		t.Fatal(err)
	}
	if s := earlierAttempts(dir); s.seconds != 55 || !s.start.Equal(time.Unix(995, 0)) {
		t.Errorf("from the summary: %v s from %v, want 55 s from %v", s.seconds, s.start, time.Unix(995, 0))
	}
}
