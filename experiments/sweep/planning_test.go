package sweep

import (
	"strings"
	"testing"
	"time"

	"fulcrum/configs"
)

// Planning of some seconds is silent; what takes longer is told now and then, and nothing without progress.
func TestPlanningTellsProgress(t *testing.T) {
	for _, tc := range []struct {
		name string
		told bool
		each time.Duration
		want string
	}{
		{"soon done", true, time.Millisecond, ""},
		{"it takes long", true, 500 * time.Millisecond,
			"planning: 10 of 30 jobs composed, planning: 20 of 30 jobs composed, planning: 30 of 30 jobs composed"},
		{"without progress", false, time.Minute, ""},
	} {
		at := time.Now()
		g := &planning{told: tc.told, jobs: 30, next: at.Add(planningEvery)}
		var said []string
		for range 30 {
			at = at.Add(tc.each)
			if line := g.count(at); line != "" {
				said = append(said, line)
			}
		}
		if got := strings.Join(said, ", "); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	for typed, want := range map[string]bool{"": true, "logging.progress=false": false, "logging.progress=False": false,
		"+logging.progress=false": false, "logging.progress=true": true, "logging.progress_x=false": true} {
		p := &plan{req: configs.Request{Overrides: []string{"seed=1,2", typed}}}
		if got := p.tells(); got != want {
			t.Errorf("%q: progress %v, want %v", typed, got, want)
		}
	}
}
