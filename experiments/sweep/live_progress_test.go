package sweep

import (
	"testing"

	"fulcrum/configs"
)

func TestTells(t *testing.T) {
	for typed, want := range map[string]bool{"": true, "logging.progress=false": false, "logging.progress=False": false,
		"+logging.progress=false": false, "logging.progress=true": true, "logging.progress_x=false": true} {
		p := &plan{req: configs.Request{Overrides: []string{"seed=1,2", typed}}}
		if got := p.tells(); got != want {
			t.Errorf("%q: progress %v, want %v", typed, got, want)
		}
	}
}
