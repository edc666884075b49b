package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/chart"
	"fulcrum/reports/record"
)

// Runs are drawn for a paper by their settings, named as short as these are told apart, with the numbers of the comparison.
func TestPaperFigures(t *testing.T) {
	dir := t.TempDir()
	var dirs []string
	for i := range 6 {
		dirs = append(dirs, filepath.Join(dir, fmt.Sprint(i)))
		reportstest.SweepRun(t, dirs[i], uint64(i), []float64{0.01, 0.05}[i%2], fmt.Sprintf("seed: %d\ngrpo: {lr: %d.0e-5}\n", i/2, i%2+1))
		reportstest.Must(t, os.WriteFile(filepath.Join(dirs[i], record.MetricsFile), fmt.Appendf(nil, `{"kind":"epoch","phase":"grpo",`+
			`"epoch":1,"step":9,"global_step":9,"time":1,"val_reward":0.%d}`+"\n", 3+i), 0o644))
	}
	_, pairs, err := ComparePairs(dirs)
	reportstest.Must(t, err)
	figures, err := PaperFigures(dirs)
	reportstest.Must(t, err)
	names, err := chart.Paper{Width: 85}.Write(dir, figures)
	reportstest.Must(t, err)
	if got := strings.Join(names, " "); got != "settings differences" {
		t.Fatal("drawn: ", got)
	}
	for name, wants := range map[string][]string{"settings": {">lr=1e-05<", ">lr=2e-05<", "mean over 3 seeds"},
		"differences": {">lr=2e-05<", ">" + pairs[0].Text + "<", ">minus grpo.lr=1e-05<"}} {
		svg, err := os.ReadFile(filepath.Join(dir, name+".svg"))
		reportstest.Must(t, err)
		for _, want := range wants {
			if !strings.Contains(strings.ReplaceAll(string(svg), "\n", " "), want) {
				t.Errorf("%s lacks %s:\n%s", name, want, svg)
			}
		}
	}
}
