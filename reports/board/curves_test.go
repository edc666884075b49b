package board

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/webchart"
)

// Distances of two phases have references of their own: no line joins them, over steps or over time. Losses of steps differ too, but
// validation is the same in all.
func TestCurvesEndWithTheirPhase(t *testing.T) {
	w := openBrowser(t)
	file := filepath.Join(t.TempDir(), "page.html")
	script := webchart.Script([]byte("window.curvesOf = curvesOf;"))
	reportstest.Must(t, os.WriteFile(file, fmt.Appendf(nil, "<!doctype html><script>%s</script>", script), 0o644))
	w.open("file://" + file)
	w.until("window.curvesOf")
	const answer = `{ started: 0, phases: [{ name: "rce", from: 1 }, { name: "grpo", from: 13 }],
		steps: { steps: [6, 12, 18], times: [6, 12, 20], series: { kl: { mean: [1, 2, 0] } } },
		epochs: { steps: [6, 12, 18], times: [6, 12, 20], series: { val_kl: { mean: [1, 2, 0] }, val_loss: { mean: [1, 2, 3] } } } }`
	for _, tc := range []struct{ name, time, want string }{
		{"kl", "false", "6:1 12:2 12.5:null 18:0"}, {"val_kl", "false", "6:1 12:2 12.5:null 18:0"},
		{"val_kl", "true", "6:1 12:2 16:null 20:0"}, {"val_loss", "false", "6:1 12:2 18:3"},
	} {
		if got := w.js(`curvesOf(` + answer + `, ["` + tc.name + `"], { time: ` + tc.time + ` }).map((c) =>
			c.x.map((x, k) => x + ":" + c.y[k]).join(" ")).join()`); got != tc.want {
			t.Errorf("%s, over time %s: %v, want %s", tc.name, tc.time, got, tc.want)
		}
	}
}
