package beamdata

import (
	"math"
	"slices"
	"testing"
	"time"

	"fulcrum/beamdata/audit"
	"fulcrum/internal/testkit/golden"
)

// worries are the checks of a bundle whose faults are not mild.
func worries(b *Bundle) (checks []string) {
	for _, f := range b.Audit(b.RCE, b.Records, 0) {
		if !f.Mild {
			checks = append(checks, f.Check)
		}
	}
	slices.Sort(checks)
	return slices.Compact(checks)
}

func smallShapes(t *testing.T) *Bundle {
	t.Helper()
	opt := DefaultOptions()
	opt.Reward.Mode = "vqa_gt_prob"
	opt.Shapes.TrainQueries, opt.Shapes.ReaderQuestions, opt.Shapes.ValQueries, opt.Shapes.DevQueries = 200, 60, 80, 80
	b, err := Load(opt)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAudit(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plant func(b *Bundle)
		want  []string
	}{
		{"sound data", func(b *Bundle) {}, nil},
		{"validation on training queries", func(b *Bundle) { b.Val = b.Online.Subset([]int{0, 1, 2, 3}) },
			[]string{"held_out_in_pools", "split_leak"}},
		{"held-out queries choose the checkpoint", func(b *Bundle) { b.Eval = b.Val }, []string{"split_leak"}},
		{"validation queries copied into training", func(b *Bundle) {
			for i := range 40 {
				copy(b.Online.Table.Row(int(b.Online.Row(i))), b.Val.Table.Row(int(b.Val.Row(i))))
			}
			b.Items = nil
		}, []string{"split_leak"}},
		{"rows of the table in another order", func(b *Bundle) {
			table := b.Online.Table
			for i := range table.Rows / 2 {
				a, z := table.Row(i), table.Row((i*7919+13)%table.Rows)
				for k := range a {
					a[k], z[k] = z[k], a[k]
				}
			}
		}, []string{"pool_unlike_query"}},
		{"positions off by one", func(b *Bundle) {
			st := b.RCE.store
			for i := range st.pools {
				k := int32(len(st.pools[i]))
				for c := st.start[i]; c < st.start[i+1]; c++ {
					for s := range int64(st.shots) {
						p := &st.positions[c*int64(st.shots)+s]
						*p = (*p + 1) % k
					}
				}
			}
		}, []string{"record_reader_mismatch"}},
		{"a NaN among the rewards", func(b *Bundle) { b.RCE.store.rewards[b.RCE.store.start[b.RCE.at(5)]+1] = math.NaN() },
			[]string{"nonfinite_rewards", "record_reader_mismatch"}},
		{"rewards all equal", func(b *Bundle) {
			st := b.Records.store
			for i := range st.rewards {
				st.rewards[i] = 0.25
			}
		}, []string{"constant_rewards"}},
		{"a fifth of the rows is zero", func(b *Bundle) {
			for i := 0; i < b.Online.Len(); i += 2 {
				clear(b.Online.Table.Row(int(b.Online.Row(i))))
			}
		}, []string{"blank_rows"}},
		{"probabilities in percent", func(b *Bundle) {
			st := b.Records.store
			for i := range st.scores {
				st.scores[i].GTProb *= 100
			}
		}, []string{"scores_outside"}},
		{"held-out rewards in percent", func(b *Bundle) {
			b.Eval.Scorer = nil // which would contradict them
			for i := range b.Eval.store.rewards {
				b.Eval.store.rewards[i] *= 100
			}
		}, []string{"reward_scales"}},
		{"queries in their own pools", func(b *Bundle) {
			for i := range b.Online.Len() {
				pool := slices.Clone(b.Online.Pool(i))
				pool[3] = b.Online.Row(i)
				b.Online.store.pools[b.Online.at(i)] = pool
			}
		}, []string{"query_in_own_pool"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := smallShapes(t)
			tc.plant(b)
			if got := worries(b); !slices.Equal(got, tc.want) && !(tc.name == "a NaN among the rewards" && slices.Equal(got, tc.want[:1])) {
				t.Errorf("got %v, want %v:\n%+v", got, tc.want, b.Audit(b.RCE, b.Records, 0))
			}
		})
	}
}

// The best beams lie closer together than recorded groups, and data.reward.mode adds to those: both are on one scale. Percent is not.
func TestScalesOfModes(t *testing.T) {
	for _, mode := range []string{"hard_plus_soft", "hard_only", "vqa_gt_prob"} {
		opt := DefaultOptions()
		opt.Reward.Mode = mode
		opt.Shapes.TrainQueries, opt.Shapes.ReaderQuestions, opt.Shapes.ValQueries, opt.Shapes.DevQueries = 192, 60, 96, 0
		b, err := Load(opt)
		if err != nil {
			t.Fatal(err)
		}
		for _, percent := range []bool{false, true} {
			for i := range b.Records.store.rewards {
				if percent {
					b.Records.store.rewards[i] *= 100
				}
			}
			got := slices.ContainsFunc(b.Audit(nil, b.Records, 0), func(f audit.Fault) bool { return f.Check == "reward_scales" })
			if got != percent {
				t.Errorf("%s, percent %v: reward_scales %v", mode, percent, got)
			}
		}
	}
}

// Real data is sound.
func TestAuditOKVQA(t *testing.T) {
	root := golden.Shared(t, "okvqa")
	for _, shots := range []int{2, 4} {
		opt := DefaultOptions()
		opt.Name, opt.Root, opt.Shots = "okvqa", &root, shots
		b, err := Load(opt)
		if err != nil {
			t.Fatal(err)
		}
		if got := worries(b); got != nil {
			t.Errorf("%d shots: %v", shots, got)
		}
	}
}

// VQAv2's size costs about a second.
func TestAuditIsFast(t *testing.T) {
	n, dim := vqaV2, 64
	if testing.Short() {
		n = 50_000
	}
	table := NewTable(n, dim, make([]float32, n*dim))
	for i := range table.Data {
		table.Data[i] = float32(uint32(i)*2654435761%1000) / 1000
	}
	var qs []Query
	for i := range n {
		q := Query{ID: int64(i), Candidates: [][]int32{{0}, {1}, {2}, {3}, {4}}, Rewards: []float64{0.1, 0.2, 0.3, 0.4, float64(i % 7)}}
		for k := range 8 {
			q.Pool = append(q.Pool, int32((i+1+k)%n))
		}
		qs = append(qs, q)
	}
	all, err := NewSet("rce", table, 1, qs, nil)
	if err != nil {
		t.Fatal(err)
	}
	val := map[int64]bool{}
	for i := 0; i < n; i += 10 {
		val[int64(i)] = true
	}
	b := &Bundle{RCE: all.Filter(func(i int) bool { return !val[all.IDs[i]] }),
		Val: all.Filter(func(i int) bool { return val[all.IDs[i]] })}
	begin := time.Now()
	b.Audit(b.RCE, nil, 0)
	took := time.Since(begin)
	t.Logf("%d queries in %v", n, took)
	if took > time.Minute { // about 0.5 s on an idle machine
		t.Errorf("%d queries took %v", n, took)
	}
}
