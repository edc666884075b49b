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
// go on. With fewer than 200 queries it is a warning.
func TestTableInAnotherOrder(t *testing.T) {
	if err := torchx.Load(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		queries  int
		shuffled bool
		want     doctor.Severity
	}{{600, false, ""}, {600, true, doctor.Stop}, {120, false, ""}, {120, true, doctor.Warning}} {
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
		if err := alone(report, policy, b.RCE, 1); err != nil {
			t.Fatal(err)
		}
		found := report.Findings()
		if len(found) > 0 != (tc.want != "") || tc.want != "" && (found[0].Check != "embeddings_unrelated" || found[0].Severity != tc.want ||
			!strings.Contains(found[0].Message, "checks: {severity: {embeddings_unrelated: note}}")) {
			t.Errorf("%d queries, shuffled %v: %+v", tc.queries, tc.shuffled, found)
		}
		policy.Free()
	}
}

// leaky is a policy one of whose features is what a candidate alone earns, plus noise of a deviation.
type leaky struct{ deviation float64 }

func (l leaky) Described(set *beamdata.Set, q int) (names []string, values [][]float64, err error) {
	noise, column := rand.New(rand.NewPCG(1, uint64(q))), []float64{}
	for p := range set.PoolSize(q) {
		reward, _ := set.Scorer.Score(q, []int32{int32(p)})
		column = append(column, reward+l.deviation*noise.NormFloat64())
	}
	return []string{"leak"}, [][]float64{column}, nil
}

// TestRewardAmongFeatures: the features of the built-in selector are not the reward; a feature that is, with some noise, is named.
func TestRewardAmongFeatures(t *testing.T) {
	if err := torchx.Load(); err != nil {
		t.Fatal(err)
	}
	opt := beamdata.DefaultOptions()
	opt.Shapes.TrainQueries, opt.Shapes.ReaderQuestions, opt.Shapes.ValQueries, opt.Shapes.DevQueries = 64, 100, 20, 0
	b, err := beamdata.Load(opt)
	if err != nil {
		t.Fatal(err)
	}
	features := pointer.DefaultOptions()
	features.Features.Names = []string{"similarity", "rank", "crowding_mean", "agreement_10", "annotators", "question_overlap"}
	if err := features.Features.Measure(b.RCE); err != nil {
		t.Fatal(err)
	}
	policy, err := pointer.New(features, b.Val.Table.Dim, 1, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Free()
	for _, tc := range []struct {
		name   string
		policy describer
		want   string // the feature that is named
	}{
		{"honest features", policy, ""}, {"the reward", leaky{0}, "leak"}, {"a noisy reward", leaky{0.01}, "leak"},
		{"noise", leaky{10}, ""},
	} {
		report := preflight.New(preflight.Checks(), 1)
		if err := alone(report, tc.policy, b.RCE, 1); err != nil {
			t.Fatal(err)
		}
		found := report.Findings()
		if len(found) > 0 != (tc.want != "") || len(found) > 0 && !strings.HasPrefix(found[0].Message, tc.want+" alone orders") {
			t.Errorf("%s: %+v, want %q", tc.name, found, tc.want)
		}
	}
}
