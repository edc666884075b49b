package board

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
	"fulcrum/reports/record"
	"fulcrum/reports/sweeps"
)

// A mean over seeds is of the jobs that the sweep's report counts: a pruned one would cut its curve short.
func TestMeansAreOfJobsThatCount(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "sweep")
	var jobs []sweeps.Job
	for i, state := range []string{record.StateDone, record.StateDone, record.StatePruned, record.StateDone, sweeps.StateRunning} {
		j := sweeps.Job{Number: i, Dir: filepath.Join(dir, fmt.Sprint(i)), State: state, Overrides: []string{fmt.Sprintf("seed=%d", i)}}
		if state == record.StateDone {
			j.Objectives = []float64{0.5, 0.5}
		}
		if i == 3 {
			j.Violation = 1
		}
		finishedRun(t, j.Dir, 0.1)
		jobs = append(jobs, j)
	}
	golden.Write(t, dir, map[string]string{sweepFile: "a ledger"})
	b := Open(Options{Roots: []string{root}, Locked: func(string) bool { return false },
		Sweep: func(string) (sweeps.Options, []sweeps.Job, error) { return sweeps.Options{}, jobs, nil }})
	b.Scan(true)
	a, err := b.seeds(b.settings, idOf(dir), url.Values{})
	if err != nil || len(a.Settings) != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	want := []string{idOf(jobs[0].Dir), idOf(jobs[1].Dir), idOf(jobs[4].Dir)}
	if got := slices.Sorted(slices.Values(a.Settings[0].Runs)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("a mean of %q, want of %q", got, want)
	}
}
