package sweepreport

import (
	"testing"
	"time"

	"fulcrum/internal/stat"
	"fulcrum/internal/testkit/golden"
	"fulcrum/internal/testkit/reportstest"
	"fulcrum/reports/page"
	"fulcrum/reports/record"
)

// The report of a sweep of ten thousand jobs is no matter of minutes: nothing in it is quadratic but
// the front, whose inner loop ends at the first better job.
func TestSweepOfTenThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir := t.TempDir()
	jobs, opt := tpeSweep(dir, 10_000)
	begin := time.Now()
	reportstest.Must(t, WriteReport(dir, jobs, opt))
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("took %v", took)
	} else {
		t.Logf("took %v", took)
	}
}

func TestTwoKeysTogether(t *testing.T) {
	jobs, opt := gridSweep("")
	v := newView("", jobs, opt)
	x, y := v.gridPair()
	c := &cells{x: x, y: y, o: opt.Objectives[0]}
	if !c.fill(v) || x.dim.Key != "grpo.lr" || y.dim.Key != "grpo/kl" || c.best != [2]int{1, 1} {
		t.Fatalf("%s by %s, best cell %v: want grpo/kl by grpo.lr, adaptive at 1e-4", y.dim.Key, x.dim.Key, c.best)
	}
	for row, s := range map[int][]int{0: {0, 1, 2}, 2: {6, 7, 8}} { // jobs of lr = 1e-5 with fixed and with proportional
		var want []float64
		for _, n := range s {
			want = append(want, jobs[n].Objectives[0])
		}
		// added up in another order
		golden.Close(t, []float64{stat.Mean(c.values[row][0]), stat.SD(c.values[row][0])}, []float64{stat.Mean(want), stat.SD(want)}, 1e-15)
	}
	for i := range jobs {
		jobs[i].Objectives = []float64{0.5}
	}
	v = newView("", jobs, opt)
	c = &cells{x: x, y: y, o: opt.Objectives[0]}
	if !c.fill(v) || c.hasBest {
		t.Errorf("all cells are equal, and %v is marked as the best", c.best)
	}
	for i := range jobs[:18] {
		jobs[i].State = record.StateFailed
	}
	var d page.Document
	if newView("", jobs, opt).writePairs(&d); d.Tables != nil {
		t.Error("a third of the cells is filled, and they are shown")
	}
}
