package board

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/record"
)

// Keys of one's choice come from the configurations, also where no override has set them; behind a version only those of runs that changed.
func TestValuesOfKeys(t *testing.T) {
	root := t.TempDir()
	for i := range 3 {
		golden.Write(t, filepath.Join(root, fmt.Sprint(i)), map[string]string{
			configFile: strings.Replace(config, "seed: 3", fmt.Sprintf("seed: %d", i), 1)})
	}
	b := boardOf(root)
	b.Scan(true)
	a := b.values(url.Values{"keys": {"seed,grpo.lr,none"}})
	for i := range 3 {
		if got, want := fmt.Sprintf("%q", a.Values[idOf(filepath.Join(root, fmt.Sprint(i)))]), fmt.Sprintf(`["%d" "0.0005" ""]`, i); got != want || a.More {
			t.Errorf("run %d: %s, want %s", i, got, want)
		}
	}
	if len(a.Names) < 5 || a.Version == 0 {
		t.Errorf("the names %v of version %d", a.Names, a.Version)
	}
	if a := b.values(url.Values{"keys": {"seed"}, "since": {fmt.Sprint(a.Version)}}); len(a.Values) != 0 || a.Names != nil {
		t.Errorf("nothing has changed: %+v", a)
	}
}

// The list draws the score of validation at the start and at the ends of epochs, the first metric of those that a run has; of
// many rows only what their index has.
func TestSparks(t *testing.T) {
	root := t.TempDir()
	finishedRun(t, filepath.Join(root, "run"), 0.1)
	golden.Write(t, filepath.Join(root, "none"), map[string]string{configFile: config})
	begun := filepath.Join(root, "begun")
	const start = `{"kind":"eval","phase":"init","epoch":0,"step":0,"global_step":0,"time":1,"split":"val","policy":%q,"reward":%g,` +
		`"other":1}` + "\n"
	golden.Write(t, begun, map[string]string{configFile: config, record.MetricsFile: fmt.Sprintf(start, "random", 0.1) +
		fmt.Sprintf(start, record.PolicyInit, 0.2) + epochRow("rce", 1, 10, 0.3)})
	b := boardOf(root)
	b.Scan(true)
	if a, err := b.curves(idOf(begun), nil); err != nil ||
		fmt.Sprint(a.Epochs.Steps, a.Epochs.Series["val_reward"].Mean, len(a.Epochs.Series)) !=
			"[0 10] [0.2 0.3] 1" {
		t.Errorf("a curve from the start on: %+v, %v", a, err)
	}
	long := filepath.Join(root, "long")
	finishedRun(t, long, 0.1)
	rows, err := os.ReadFile(filepath.Join(long, record.MetricsFile))
	reportstest.Must(t, err)
	golden.Write(t, long, map[string]string{record.MetricsFile: string(rows) + strings.Repeat(stepRows("grpo", 1, 1, 0), longFile/100)})
	b.Scan(true)
	if info, err := os.Stat(filepath.Join(long, record.MetricsFile)); err != nil || info.Size() < longFile {
		t.Fatalf("%v, %v: the test asks nothing", info, err)
	}
	ids := []string{idOf(filepath.Join(root, "run")), idOf(begun), idOf(filepath.Join(root, "none")), idOf(long), "unknown"}
	got := b.sparks(strings.Join(ids, ","))
	for i, want := range []string{"[0.3 0.4 0.5]", "[0.2 0.3]", "[]", "[]", "[]"} {
		if got := fmt.Sprint(got[ids[i]]["val_reward"]); got != want {
			t.Errorf("run %d: %s, want %s", i, got, want)
		}
	}
}
