package audit

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// one expects a single fault, or none where check is "".
func one(t *testing.T, got []Fault, check string, mild bool, words ...string) {
	t.Helper()
	if check == "" {
		if len(got) > 0 {
			t.Fatalf("got %+v, want nothing", got)
		}
		return
	}
	if len(got) != 1 || got[0].Check != check || got[0].Mild != mild {
		t.Fatalf("got %+v, want one %s (mild %v)", got, check, mild)
	}
	for _, w := range words {
		if !strings.Contains(got[0].Message, w) {
			t.Errorf("%q lacks %q", got[0].Message, w)
		}
	}
}

func queries(from, to int) []Query {
	var out []Query
	for i := from; i < to; i++ {
		out = append(out, Query{ID: int64(i), Content: uint64(1000 + i), Group: uint64(5000 + i)})
	}
	return out
}

func TestOverlap(t *testing.T) {
	type edit func(train, val, held []Query)
	for _, tc := range []struct {
		name  string
		edit  edit
		check string
		mild  bool
		words []string
	}{
		{"apart", func(train, val, held []Query) {}, "", false, nil},
		{"a validation query is trained on", func(train, val, held []Query) { train[7].ID = val[3].ID }, "split_leak", false,
			[]string{"1 of 50 validation queries (2 %)", "training queries too (query 203"}},
		{"a held-out query chose the checkpoint", func(train, val, held []Query) { val[0].ID = held[9].ID }, "split_leak", false,
			[]string{"1 of 50 held-out", "best checkpoint"}},
		{"the same content under another id", func(train, val,
			held []Query) {
			train[1].Content, train[2].Content = val[4].Content, val[5].Content
		}, "split_leak", false, []string{"query 204 is query 1,", "4 %"}},
		{"a known picture of unknown content", func(train, val, held []Query) { train[1].Content, val[4].Content = 0, 0 }, "", false, nil},
		{"a picture on both sides", func(train, val, held []Query) { train[1].Group = val[4].Group }, "split_leak", true,
			[]string{"picture"}},
		{"a query twice", func(train, val, held []Query) { train[3].ID = 4 }, "duplicate_queries", false,
			[]string{"1 of 200 training queries", "query 4"}},
		{"few copies", func(train, val, held []Query) { train[3].Content = train[4].Content }, "duplicate_queries", true,
			[]string{"queries 3 and 4"}},
		{"a constant table", func(train, val, held []Query) {
			for i := range train {
				train[i].Content = 7
			}
		}, "duplicate_queries", false, []string{"199 of 200", "constant"}},
		{"unknown content is no copy", func(train, val, held []Query) {
			for _, s := range [][]Query{train, val, held} {
				for i := range s {
					s[i].Content, s[i].Group = 0, 0
				}
			}
		}, "", false, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			train, val, held := queries(0, 200), queries(200, 250), queries(250, 300)
			tc.edit(train, val, held)
			one(t, Overlap([]Split{{Name: "training", Trains: true, Rows: true, Of: train}, {Name: "validation", Of: val},
				{Name: "held-out", Of: held}}), tc.check, tc.mild, tc.words...)
		})
	}
}

// What is said of texts speaks of no picture and of no table of embeddings.
func TestOverlapOfTexts(t *testing.T) {
	train, val := queries(0, 200), queries(200, 250)
	for _, qs := range [][]Query{train, val} {
		for i := range qs {
			qs[i].Group = 0
		}
	}
	train[3].Content, val[4].Content = train[4].Content, train[9].Content
	var said string
	for _, f := range Overlap([]Split{{Name: "training", Trains: true, Of: train}, {Name: "validation", Of: val}}) {
		said += f.Message + "\n"
	}
	for _, word := range []string{"picture", "table", "question"} {
		if strings.Contains(said, word) || !strings.Contains(said, "copies") || !strings.Contains(said, "one set") {
			t.Errorf("of texts (%s): %s", word, said)
		}
	}
}

func TestRewards(t *testing.T) {
	good := []float64{0.5, 0.1, 0.9}
	for _, tc := range []struct {
		name     string
		baseline bool
		of       func(i int) []float64
		check    string
		mild     bool
		words    []string
	}{
		{"a signal everywhere", true, func(int) []float64 { return good }, "", false, nil},
		{"equal rewards", true, func(i int) []float64 {
			if i < 95 {
				return []float64{0.3, 0.3, 0.3}
			}
			return good
		}, "constant_rewards", false, []string{"95 of 100", "data.reward.mode"}},
		{"half of them equal", true, func(i int) []float64 { return []float64{0.3, 0.3, 0.3 + float64(i%2)*(0.1+float64(i)/100)} },
			"constant_rewards", true, []string{"50 of 100"}},
		{"too close to tell apart", true, func(int) []float64 { return []float64{3e-7, 1e-7, 9e-7} }, "subprecision_rewards", false,
			[]string{"advantage.precision=1e-06"}},
		{"nobody compares", false, func(int) []float64 { return []float64{3e-7, 1e-7, 9e-7} }, "", false, nil},
		{"ties at the top", true, func(int) []float64 { return []float64{0.9, 0.1, 0.9} }, "score_ties", false, []string{"100 of 100"}},
		{"groups of one", true, func(i int) []float64 { return good[:1+2*(i%2)*(i%4/2)] }, "small_groups", false, []string{"75 of 100"}},
		{"one alone to imitate", false, func(int) []float64 { return good[:1] }, "", false, nil},
		{"NaN", true, func(i int) []float64 {
			if i == 42 {
				return []float64{0, math.NaN(), 1}
			}
			return good
		}, "nonfinite_rewards", false, []string{"query 1042, candidate 2: NaN"}},
		{"the worst first", true, func(i int) []float64 { return []float64{0.1, 0.2 + float64(i)/1000, 0.9} }, "worst_first", false,
			[]string{"100 of 100", "turn their sign"}},
		{"infinite", false, func(int) []float64 { return []float64{0, math.Inf(-1)} }, "nonfinite_rewards", false,
			[]string{"100 of 100", "-Inf"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := Groups{Name: "grpo", Baseline: tc.baseline, Len: 100,
				Of: func(i int) (int64, []float64) { return int64(1000 + i), tc.of(i) }}
			one(t, Rewards(g, 1e-6), tc.check, tc.mild, tc.words...)
		})
	}
}

func TestAgreement(t *testing.T) {
	var same, scaled, other []Scored
	for q := range 50 {
		for g := range 5 {
			r := float64((q*7+g*13)%29) / 29
			// the file rounds, and its first score is another
			same = append(same, Scored{Query: int64(q), Candidate: g, Recorded: []float64{r + 1, r}, Reader: r + 5e-4})
			scaled = append(scaled, Scored{Query: int64(q), Candidate: g, Recorded: []float64{r}, Reader: 10*r + 3})
			other = append(other, Scored{Query: int64(q), Candidate: g, Recorded: []float64{r}, Reader: float64((q*11+g*5)%31) / 31})
		}
	}
	one(t, Agreement("records", same), "", false)
	one(t, Agreement("records", scaled), "record_reader_mismatch", true, "another scale")
	one(t, Agreement("records", other), "record_reader_mismatch", false, "of 250 recorded candidates",
		"pools mean something else")
	same[17].Reader = math.NaN()
	one(t, Agreement("records", same), "nonfinite_rewards", false, "the reader gives NaN for candidate 3 of query 3")
}

func TestPools(t *testing.T) {
	near, far := make([]float64, 100), make([]float64, 100)
	for i := range near {
		far[i] = math.Sin(float64(i)) // no side is nearer
		near[i] = 0.5 + far[i]
	}
	one(t, Nearness("rce", near), "", false)
	one(t, Nearness("rce", far), "pool_unlike_query", false, "rce queries are no nearer", "embedding table")
	one(t, Nearness("rce", far[:20]), "", false)
	drawn, chosen := make([][]int32, 128), make([][]int32, 128)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range drawn {
		for k, row := range r.Perm(400)[:32] {
			drawn[i], chosen[i] = append(drawn[i], int32(row)), append(chosen[i], int32((3*i+k)%400))
		}
	}
	if !Drawn(drawn, 400) || Drawn(chosen, 400) || Drawn(drawn[:2], 400) {
		t.Errorf("drawn %v, chosen %v, two of them %v, want true, false, false", Drawn(drawn, 400), Drawn(chosen, 400), Drawn(drawn[:2], 400))
	}
	f := Nearness("rce", far)[0]
	if got := Once([]Fault{f, {Check: "other"}, f, {Check: "other"}}, f.Check); len(got) != 3 {
		t.Errorf("%d faults, want 3", len(got))
	}
	one(t, OwnPools("val", 0, 0, 100, 0), "", false)
	one(t, OwnPools("val", 100, 0, 100, 7), "query_in_own_pool", false, "query 7")
	one(t, OwnPools("val", 0, 1, 100, 7), "query_in_own_pool", true, "the very embedding")
}

func TestPictures(t *testing.T) {
	many := queries(0, 20)
	one(t, Pictures(Split{Name: "training", Of: many}), "", false)
	for i := range many {
		many[i].Group = 7
	}
	one(t, Pictures(Split{Name: "training", Of: many}), "shared_pictures", false, "20 of 20 training queries")
	one(t, Pictures(Split{Name: "training", Of: many[:4]}), "", false) // too few to tell
}

func TestIdenticalAndContradictory(t *testing.T) {
	one(t, Identical("rce", 0, 640, 0), "", false)
	one(t, Identical("rce", 1, 640, 3), "", false)
	one(t, Identical("rce", 8, 640, 3), "identical_candidates", true, "row 3")
	one(t, Identical("rce", 320, 640, 3), "identical_candidates", false, "cannot tell them apart")
	one(t, Contradictions("grpo", 0, 100, 0), "", false)
	one(t, Contradictions("grpo", 4, 100, 9), "", false)
	one(t, Contradictions("grpo", 6, 100, 9), "contradictory_rewards", true, "query 9")
	one(t, Contradictions("grpo", 50, 100, 9), "contradictory_rewards", false, "50 of 100 groups")
}

// A tenth of wrong rewards is no other scale, and a reading that is off by one is named.
func TestAgreementOfSome(t *testing.T) {
	var some, shifted []Scored
	for q := range 50 {
		for g := range 5 {
			r := float64((q*7+g*13)%29) / 29
			s := Scored{Query: int64(q), Candidate: g, Recorded: []float64{r}, Reader: r, Shifted: []float64{2, 2, 2, 2}}
			if q%10 == 0 {
				s.Reader = float64((q*7+g*13+8)%29) / 29
			}
			some = append(some, s)
			s.Reader, s.Shifted[1] = float64((q*11+g*5)%31)/31, r
			shifted = append(shifted, s)
		}
	}
	one(t, Agreement("records", some), "record_reader_mismatch", false, "25 of 250")
	one(t, Agreement("records", shifted), "record_reader_mismatch", false, "the next pool positions: the two are off by one")
}

func TestScalesAndBlank(t *testing.T) {
	of := func(name string, factor, shift float64) Groups {
		return Groups{Name: name, Len: 50, Of: func(i int) (int64, []float64) {
			return int64(i), []float64{factor*float64(i%7)/7 + shift, factor + shift, shift}
		}}
	}
	one(t, Scales(of("training", 1, 0), of("validation", 2, 0)), "", false)
	one(t, Scales(of("training", 100, 0), of("validation", 1, 0)), "reward_scales", false, "[0, 100]", "in percent")
	one(t, Scales(of("training", 1, -1.5), of("validation", 1, 0)), "reward_scales", false, "other sign")
	one(t, Scales(of("training", 0, 0), of("validation", 1, 0)), "", false) // constant_rewards says it
	one(t, Outside("records", 0, 100, 0, 0), "", false)
	one(t, Outside("records", 1, 1000, 7, 60), "scores_outside", true, "1 of 1,000 candidates", "query 7: 60")
	one(t, Outside("records", 90, 100, 7, 56), "scores_outside", false, "90 of 100 candidates", "query 7: 56", "in percent")
	one(t, Blank(3, 100, false, 1, 2), "", false)
	one(t, Blank(8, 1000, false, 1, 2), "", false)
	one(t, Blank(20, 100, true, 1, 2), "blank_rows", false, "20 of 100 queries", "rows of zeros")
	one(t, Blank(20, 100, false, 1, 2), "blank_rows", false, "the very same row")
}
