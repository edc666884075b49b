package compare

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
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
