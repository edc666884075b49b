package sweep

import (
	"strings"
	"testing"
	"time"

	"fulcrum/configs"
)

// Planning of some seconds is silent; what takes longer is told: plain lines now and then to a pipe, one line that goes away to a
// terminal, nothing without progress.
func TestPlanningTellsProgress(t *testing.T) {
	for _, tc := range []struct {
		name     string
		each     time.Duration
		terminal bool
		want     string
	}{
		{"soon done", time.Millisecond, false, ""},
		{"a pipe", 500 * time.Millisecond, false, "planning: 4 of 30 jobs composed\nplanning: 24 of 30 jobs composed\n"},
		{"a terminal", 700 * time.Millisecond, true, "\r\x1b[Kplanning: 3 of 30 jobs composed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var said strings.Builder
			at := time.Now()
			g := (&planning{w: &said, terminal: tc.terminal, now: func() time.Time { return at }, jobs: 30}).begin()
			for range 30 {
				at = at.Add(tc.each)
				g.job()
			}
			g.end()
			got := said.String()
			if tc.terminal && strings.HasPrefix(got, tc.want) && strings.HasSuffix(got, "composed\r\x1b[K") && !strings.Contains(got, "\n") {
				return
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	for typed, want := range map[string]bool{"": true, "logging.progress=false": false, "logging.progress=False": false,
		"+logging.progress=false": false, "logging.progress=true": true, "logging.progress_x=false": true} {
		p := &plan{req: configs.Request{Overrides: []string{"seed=1,2", typed}}}
		if got := p.tells(); got != want {
			t.Errorf("%q: progress %v, want %v", typed, got, want)
		}
	}
	silent := (&planning{now: time.Now}).begin()
	silent.next = time.Time{}
	silent.job()
	silent.end()
}
