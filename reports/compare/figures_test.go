package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
	"gopkg.in/yaml.v3"

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
	_, pairs, err := Compare(dirs)
	reportstest.Must(t, err)
	figures, err := PaperFigures(dirs, 85*vg.Millimeter)
	reportstest.Must(t, err)
	reportstest.Must(t, chart.Paper{Width: 85}.Write(dir, figures))
	for name, wants := range map[string][]string{"settings": {">lr=1e-05<", ">lr=2e-05<", "mean over 3 seeds"},
		"differences": {">lr=2e-05<", ">" + pairs[0].Text + "<", ">minus lr=1e-05<"}} {
		svg, err := os.ReadFile(filepath.Join(dir, name+".svg"))
		reportstest.Must(t, err)
		for _, want := range wants {
			if !strings.Contains(strings.ReplaceAll(string(svg), "\n", " "), want) {
				t.Errorf("%s lacks %s:\n%s", name, want, svg)
			}
		}
	}
}

// Settings are called by the keys that all of them have and that differ, by their overrides where these are too many, and never two alike.
func TestSettings(t *testing.T) {
	for _, tc := range []struct {
		name      string
		trees     [2]string
		overrides [2]string
		want      string
	}{
		{"a phase's section is not there", [2]string{"schedule: [rce]", "{schedule: [rce, grpo], grpo: {lr: 1, kl: 2, clip: 3, beta: 4}}"},
			[2]string{}, "schedule=[rce]; schedule=[rce, grpo]"},
		{"too many keys", [2]string{"{a: 1, b: 1, c: 1, d: 1}", "{a: 2, b: 2, c: 2, d: 2}"}, [2]string{"selector=v2", "selector=v3"},
			"selector=v2; selector=v3"},
		{"one setting twice", [2]string{"{lr: 1, seed: 1}", "{lr: 1, seed: 1}"}, [2]string{"lr=1", "lr=1"}, "arm 1 (0); arm 2 (1)"},
	} {
		var runs []*record.Run
		for i, tree := range tc.trees {
			run := &record.Run{Dir: "outputs/" + fmt.Sprint(i), Overrides: []string{tc.overrides[i], "hydra.run.dir=" + fmt.Sprint(i)}}
			reportstest.Must(t, yaml.Unmarshal([]byte(tree), &run.Tree))
			runs = append(runs, run)
		}
		if named := Settings(runs); named[0].Name+"; "+named[1].Name != tc.want {
			t.Errorf("%s: %s and %s, want %s", tc.name, named[0].Name, named[1].Name, tc.want)
		}
	}
}
