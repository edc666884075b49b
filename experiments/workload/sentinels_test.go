package workload

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/experiments/job"
	"fulcrum/internal/torchx"
	"fulcrum/phases/doctor"
	"fulcrum/phases/preflight"
	"fulcrum/selector/pointer"
)

// TestTableInAnotherOrder: a healthy embedding table is not named; the same rows in another order stop the run, and the line says how to
// go on. With fewer than 200 queries nothing is said.
func TestTableInAnotherOrder(t *testing.T) {
	if err := torchx.Load(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		queries  int
		shuffled bool
		want     int
	}{{600, false, 0}, {600, true, 1}, {190, true, 0}} {
		opt := beamdata.DefaultOptions()
		opt.Shapes.TrainQueries, opt.Shapes.ReaderQuestions, opt.Shapes.ValQueries, opt.Shapes.DevQueries = tc.queries, 100, 20, 0
		b, err := beamdata.Load(opt)
		if err != nil {
			t.Fatal(err)
		}
		table := b.Val.Table
		if tc.shuffled {
			rows := make([][]float32, table.Rows)
			for i, from := range rand.New(rand.NewPCG(1, 2)).Perm(table.Rows) {
				rows[i] = slices.Clone(table.Row(from))
			}
			for i, row := range rows {
				copy(table.Row(i), row)
			}
		}
		policy, err := pointer.New(pointer.DefaultOptions(), table.Dim, 1, "cpu")
		if err != nil {
			t.Fatal(err)
		}
		policy.SetShots(2)
		w := &Pointer{NewPointerData(b), &job.Job{Config: job.DefaultConfig(job.Entries{Policies: Traits()})}, policy}
		report := preflight.New(preflight.Checks(), 1)
		report.Embeddings(w.similarity(b.RCE))
		w.alone(report, b.RCE)
		found := report.Findings()
		if len(found) != tc.want || tc.want > 0 && (found[0].Check != "embeddings_unrelated" || found[0].Severity != doctor.Stop ||
			!strings.Contains(found[0].Message, "checks: {severity: {embeddings_unrelated: note}}")) {
			t.Errorf("%d queries, shuffled %v: %+v", tc.queries, tc.shuffled, found)
		}
		policy.Free()
	}
}
