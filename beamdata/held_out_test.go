package beamdata

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// heldOutRows returns the rows of a bundle's held-out questions.
func heldOutRows(b *Bundle) map[int32]bool {
	out := map[int32]bool{}
	for _, s := range []*Set{b.Val, b.Eval} {
		for i := range s.Len() {
			out[s.Row(i)] = true
		}
	}
	return out
}

// byID returns the index of each query of a set.
func byID(s *Set) map[int64]int {
	out := map[int64]int{}
	for i := range s.Len() {
		out[s.IDs[i]] = i
	}
	return out
}

// named are the rows of a candidate of query i.
func rowsOf(s *Set, i int, positions []int32) []int32 {
	pool := s.Pool(i)
	out := make([]int32, len(positions))
	for k, p := range positions {
		out[k] = pool[p]
	}
	return out
}

// checkMasked compares a training set with the same set before held-out rows left, and returns how many places, candidates and
// queries it lost.
func checkMasked(t *testing.T, whole, s *Set, held map[int32]bool) (places, candidates, queries int) {
	t.Helper()
	at := byID(s)
	for i := range whole.Len() {
		k, ok := at[whole.IDs[i]]
		if !ok {
			queries++
		}
		var left []int32
		for _, row := range whole.Pool(i) {
			if held[row] {
				places++
			} else {
				left = append(left, row)
			}
		}
		if ok && (!slices.Equal(s.Pool(k), left) || s.PoolSize(k) != len(left)) {
			t.Fatalf("%s: query %d: pool %v, want %v", s.Name, s.IDs[k], s.Pool(k), left)
		}
		n := 0
		for g := range whole.NumCandidates(i) {
			was := whole.Candidate(i, g)
			rows := rowsOf(whole, i, was.Positions)
			if slices.ContainsFunc(rows, func(row int32) bool { return held[row] }) {
				candidates++
				continue
			}
			if n++; !ok {
				continue
			}
			is := s.Candidate(k, n-1)
			if !slices.Equal(rowsOf(s, k, is.Positions), rows) || is.Reward != was.Reward || is.Method != was.Method {
				t.Fatalf("%s: query %d: candidate %d is %+v, was %+v", s.Name, s.IDs[k], n-1, is, was)
			}
			if s.Scorer == nil {
				continue
			}
			r1, a1 := whole.Scorer.Score(i, was.Positions)
			if r2, a2 := s.Scorer.Score(k, is.Positions); r1 != r2 || a1 != a2 || Reward(s.Scorer, k, is.Positions) != r1 {
				t.Fatalf("%s: query %d: scores %v %v, were %v %v", s.Name, s.IDs[k], r2, a2, r1, a1)
			}
		}
		if ok && s.NumCandidates(k) != n {
			t.Fatalf("%s: query %d has %d candidates, want %d", s.Name, s.IDs[k], s.NumCandidates(k), n)
		}
	}
	return places, candidates, queries
}

// Held-out questions and others about their images leave the training pools; the rest keeps its order, rewards and scores.
func TestHeldOutRowsLeaveTrainingPools(t *testing.T) {
	kept, dropped := loadOKVQA(t, keepHeldOut), loadOKVQA(t, nil)
	held := heldOutRows(kept)
	image := map[int64]bool{}
	for row := range held {
		im, _ := kept.image(int(row))
		image[im] = true
	}
	for row := range kept.Items.rows {
		im, ok := kept.image(row)
		if ok && image[im] {
			held[int32(row)] = true
		}
	}
	lost := 0
	for _, of := range []struct{ whole, s *Set }{{kept.RCE, dropped.RCE}, {kept.Records, dropped.Records}, {kept.Online, dropped.Online}} {
		places, candidates, queries := checkMasked(t, of.whole, of.s, held)
		if places == 0 {
			t.Errorf("%s: nothing to leave out: this test sees nothing", of.s.Name)
		}
		if of.s.Name != "online" {
			lost += candidates
		}
		t.Logf("%s: %d places, %d candidates, %d of %d queries left", of.s.Name, places, candidates, queries, of.whole.Len())
	}
	if got := dropped.Counts["candidate_with_held_out_question"]; got != lost || lost == 0 {
		t.Errorf("%d candidates counted, %d dropped", got, lost)
	}
	if !strings.Contains(dropped.HeldOut, "no candidates of training queries") || kept.HeldOut != "" {
		t.Errorf("%q; with keep %q", dropped.HeldOut, kept.HeldOut)
	}
	for _, of := range []struct{ was, is *Set }{{kept.Val, dropped.Val}, {kept.Eval, dropped.Eval}} {
		if of.was.Fingerprint() != of.is.Fingerprint() {
			t.Errorf("%s is not as it was", of.is.Name)
		}
	}
	if got := worries(dropped); slices.Contains(got, "held_out_in_pools") {
		t.Errorf("drop: %v", got)
	}
	if got := worries(kept); !slices.Contains(got, "held_out_in_pools") {
		t.Errorf("keep: %v", got)
	}
}

// Queries that share a pool still share one, and the query itself is still left out.
func TestHeldOutRowsLeaveASharedPool(t *testing.T) {
	kept, err := loadContent(t, manyLegacy(), keepHeldOut)
	if err != nil {
		t.Fatal(err)
	}
	dropped, err := loadContent(t, manyLegacy(), nil)
	if err != nil {
		t.Fatal(err)
	}
	places, candidates, queries := checkMasked(t, kept.RCE, dropped.RCE, heldOutRows(kept))
	if places == 0 || candidates == 0 || queries == 0 {
		t.Fatalf("%d places, %d candidates, %d queries left: this test sees nothing", places, candidates, queries)
	}
	if got := dropped.Counts; got["query_without_candidates"] != queries || got["candidate_with_held_out_question"] != candidates {
		t.Errorf("counts %v, want %d queries and %d candidates", got, queries, candidates)
	}
	if dropped.Records == dropped.RCE {
		t.Error("no group has lost all but one candidate: this test sees nothing")
	}
	for i := range dropped.Records.Len() {
		if dropped.Records.NumCandidates(i) < 2 {
			t.Errorf("query %d is a group of %d", dropped.Records.IDs[i], dropped.Records.NumCandidates(i))
		}
	}
	if got := dropped.Counts["group_without_two_candidates"]; got != dropped.RCE.Len()-dropped.Records.Len() {
		t.Errorf("%d groups counted, %d dropped", got, dropped.RCE.Len()-dropped.Records.Len())
	}
	pools := dropped.RCE.store.pools
	for i := range pools {
		if !sameSlice(pools[i], pools[0]) {
			t.Fatal("pools are copied")
		}
	}
	if !strings.Contains(dropped.HeldOut, "the images of 4 held-out questions are not known") {
		t.Error(dropped.HeldOut)
	}
}

// manyLegacy is a legacy file of twenty queries with two beams each.
func manyLegacy() string {
	var out []string
	for q := range 20 {
		row := func(k int) int { return (q + k) % 20 }
		out = append(out, fmt.Sprintf(`"%d":{"id_list":[[%d,%d,%d],[%d,%d,%d]],"score_list":[1,%d]}`, q, row(1), row(2), q, row(3), row(4), q, q))
	}
	return "{" + strings.Join(out, ",") + "}"
}

// Evaluation questions leave as validation questions do.
func TestEvaluationQuestionsLeaveTrainingPools(t *testing.T) {
	eval := filepath.Join(t.TempDir(), "eval.json")
	write(t, eval, `{"3":{"id_list":[[1,2,3]],"score_list":[1]}}`)
	b, err := loadContent(t, manyLegacy(), func(o *Options) { o.Eval.Beams, o.TrainRatio = &eval, 1 })
	if err != nil {
		t.Fatal(err)
	}
	if pool := b.RCE.store.pools[0]; slices.Contains(pool, 3) || len(pool) != 19 || !slices.Equal(b.Eval.Pool(0), []int32{1, 2}) {
		t.Errorf("training pool %v, evaluation pool %v", pool, b.Eval.Pool(0))
	}
}

// Queries whose pool nobody shares the size of, since held-out rows left, have nobody to swap rewards with.
func TestPairedQueriesShareTheSizeOfTheirPool(t *testing.T) {
	b := loadOKVQA(t, nil)
	before := b.Counts["query_without_placebo"]
	set := b.Online.Subset(Spread(60, b.Online.Len())) // few: some sizes stand once
	paired, sizes := b.Paired(set), map[int]int{}
	for i := range set.Len() {
		sizes[set.PoolSize(i)]++
	}
	alone := 0
	for i := range set.Len() {
		if sizes[set.PoolSize(i)] == 1 && set.PoolSize(i) < set.whole.PoolSize(i) {
			alone++
		}
	}
	if alone == 0 || paired.Len() != set.Len()-alone || b.Counts["query_without_placebo"]-before != alone {
		t.Errorf("%d of %d queries are alone, %d left, counts %v", alone, set.Len(), paired.Len(), b.Counts)
	}
	delete(b.Counts, "query_without_placebo") // the bundle is shared by tests
}

// The reference's files are read whole, and so are queries that are only answered.
func TestHeldOutRowsStayWhereNothingTrains(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"compat":       func(o *Options) { o.Compat = true },
		"queries only": func(o *Options) { o.QueriesOnly = true },
	} {
		b, err := loadContent(t, manyLegacy(), change)
		if err != nil {
			t.Fatal(err)
		}
		if b.HeldOut != "" || b.RCE.whole != nil || b.Counts["candidate_with_held_out_question"] > 0 {
			t.Errorf("%s: %q, counts %v", name, b.HeldOut, b.Counts)
		}
	}
}

// Rows about a held-out question's image leave too, where items.jsonl says which these are.
func TestImagesOfHeldOutQuestionsLeave(t *testing.T) {
	dir := t.TempDir()
	beams := filepath.Join(dir, "beams.json")
	write(t, beams, manyLegacy())
	var items strings.Builder
	for row := range 20 {
		fmt.Fprintf(&items, "{\"idx\": %d, \"image_id\": %d}\n", row, row/2)
	}
	write(t, filepath.Join(dir, "items.jsonl"), items.String())
	val := filepath.Join(dir, "val.json") // a split of beams.json keeps pictures whole
	write(t, val, `{"3":{"id_list":[[1,2,3]],"score_list":[1]},"8":{"id_list":[[1,2,8]],"score_list":[1]}}`)
	opt := testOptions()
	opt.Beams, opt.ValBeams, opt.Embeddings = &beams, &val, ptr(writeTable(t, dir, 20))
	b, err := Load(opt)
	if err != nil {
		t.Fatal(err)
	}
	held := heldOutRows(b)
	mates := 0
	for row := range int32(20) {
		if held[row^1] && !held[row] {
			mates++
			if slices.Contains(b.RCE.store.pools[0], row) {
				t.Errorf("row %d shows the image of held-out row %d", row, row^1)
			}
		}
	}
	if !strings.Contains(b.HeldOut, fmt.Sprintf("others about their images (%d)", mates)) || mates == 0 ||
		strings.Contains(b.HeldOut, "not known") {
		t.Errorf("%d other questions about their images: %s", mates, b.HeldOut)
	}
}
