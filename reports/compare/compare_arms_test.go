package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// Six runs of two settings, three seeds each: two arms, with seed spread and question spread apart.
func TestCompareGroupsSeeds(t *testing.T) {
	dir := t.TempDir()
	var dirs []string
	for i := range 6 {
		lr, gain := "1.0e-5", 0.01
		if i%2 == 1 {
			lr, gain = "1.0e-4", 0.05
		}
		dirs = append(dirs, filepath.Join(dir, fmt.Sprint(i)))
		reportstest.SweepRun(t, dirs[i], uint64(i), gain+0.005*float64(i/2),
			fmt.Sprintf("seed: %d\ngrpo: {lr: %s}\nhydra: {run: {dir: %d}}\n", i/2, lr, i))
	}
	got, err := compareText(dirs)
	reportstest.Must(t, err)
	golden.File(t, "testdata/compare_arms.md", []byte(strings.ReplaceAll(got, page.Plain(dir), "DIR")))

	got, err = compareText([]string{dirs[0], dirs[2], dirs[4]}) // one arm has its baselines only
	reportstest.Must(t, err)
	if !strings.Contains(got, "All runs are one arm") || !strings.Contains(got, "| arm A | 3 |") || strings.Contains(got, "minus arm A") {
		t.Errorf("one arm:\n%s", got)
	}
}

// Runs that differ in control alone are arms, one run each will do, and split the gain; without one of them the report says what is
// missing.
func TestCompareSplitsGains(t *testing.T) {
	dir := t.TempDir()
	var dirs []string
	for i, control := range []string{"none", "placebo", "majority"} {
		dirs = append(dirs, filepath.Join(dir, control))
		reportstest.SweepRun(t, dirs[i], 1, []float64{0.1, 0.01, 0.03}[i], "seed: 1\ncontrol: "+control+"\n")
	}
	got, err := compareText(dirs)
	reportstest.Must(t, err)
	if !strings.Contains(got, "The gain is not split in null, elicitation and reward") {
		t.Errorf("nothing says that no initial policy was scored:\n%s", got)
	}
	for _, run := range dirs {
		path := filepath.Join(run, record.EvalsFile)
		evals, err := os.ReadFile(path)
		reportstest.Must(t, err)
		reportstest.Must(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(evals), `"similarity"`, `"init"`)), 0o644))
	}
	got, err = compareText(dirs)
	reportstest.Must(t, err)
	for _, want := range []string{"| elicitation: agreeing with itself | arm C minus arm B | ",
		"Null + elicitation + reward is the gain of arm A"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	got, err = compareText(dirs[:2])
	reportstest.Must(t, err)
	if !strings.Contains(got, "and have none, a placebo and majority; here are none and placebo.") {
		t.Errorf("nothing says which control is missing:\n%s", got)
	}
}
