package pointer

import (
	"fmt"
	"slices"
	"testing"

	"fulcrum/beamdata"
	"fulcrum/selector"
)

// byQuery rewards a selection with the number of its query.
type byQuery struct{}

func (byQuery) Score(i int, _ []int32) (reward, accuracy float64) { return float64(i), float64(i) }

// TestControl: with placebo no query keeps its own groups and rewards, and all of them are somebody's; with placebo_within no
// candidate keeps its reward; none is the source as it was.
func TestControl(t *testing.T) {
	const queries = 7
	var list []beamdata.Query
	for i := range int32(queries) {
		size := 4 + i%2 // pools of 4 and of 5
		q := beamdata.Query{ID: int64(i), Pool: []int32{20, 21, 22, 23, 24}[:size]}
		for g := range int32(3) {
			q.Candidates, q.Rewards = append(q.Candidates, []int32{(i + g) % size}), append(q.Rewards, float64(10*i+g))
		}
		list = append(list, q)
	}
	set, err := beamdata.NewSet("train", beamdata.NewTable(25, 2, make([]float32, 50)), 1, list, byQuery{})
	if err != nil {
		t.Fatal(err)
	}
	all := []int{0, 1, 2, 3, 4, 5, 6}
	rewards := func(control string) (out, scored []float64, picks []int64) {
		src := NewSource(set)
		if err := src.Control(control, 3); err != nil {
			t.Fatal(err)
		}
		b := src.Recorded(all)
		for i := range all {
			picks = append(picks, b.Chosen(i, 0)...)
		}
		out = slices.Clone(b.Rewards)
		if err := src.Score(b); err != nil {
			t.Fatal(err)
		}
		return out, b.Rewards, picks
	}
	plain, own, picks := rewards("none")
	placebo, others, moved := rewards("placebo")
	within, same, kept := rewards("placebo_within")
	for i := range all {
		if from := int(placebo[3*i]) / 10; from == i || set.PoolSize(from) != set.PoolSize(i) || others[3*i] != float64(from) {
			t.Errorf("placebo: query %d has the group of query %d and the table of %v", i, from, others[3*i])
		} else if moved[i] != picks[from] {
			t.Errorf("placebo: query %d has the rewards of query %d, not its positions", i, from)
		}
		for g := range 3 {
			if at := 3*i + g; within[at] == plain[at] || int(within[at])/10 != i || same[at] != own[at] || kept[i] != picks[i] {
				t.Errorf("placebo_within: query %d, candidate %d has reward %v, was %v", i, g, within[at], plain[at])
			}
		}
	}
	slices.Sort(placebo)
	slices.Sort(plain)
	if !slices.Equal(placebo, plain) {
		t.Errorf("placebo: rewards %v, want a permutation of %v", placebo, plain)
	}
	alone := NewSource(set.Subset([]int{0, 1}))
	if err := alone.Control("placebo", 3); err == nil {
		t.Error("placebo: pools of 4 and 5, one query each, and no error")
	}
}

// TestControlOfSamples: majority rewards the most frequent selection of a sampled group, the first of several, and placebo_within gives
// candidates the rewards of others of their group. Recorded rewards, and what evaluations ask for, stay the true ones.
func TestControlOfSamples(t *testing.T) {
	list := []beamdata.Query{{ID: 1, Pool: []int32{5, 2, 3, 4}, Candidates: [][]int32{{0}, {1}}, Rewards: []float64{5, 6}},
		{ID: 5, Pool: []int32{1, 2, 3, 4}}}
	set, err := beamdata.NewSet("train", beamdata.NewTable(6, 2, make([]float32, 12)), 1, list, byFirst{})
	if err != nil {
		t.Fatal(err)
	}
	drawn := []int64{0, 2, 2, 1, 3, 1, 1, 3}
	scored := func(control string) (rewards, accuracy []float64) {
		src := NewSource(set)
		if err := src.Control(control, 3); err != nil {
			t.Fatal(err)
		}
		b := selector.NewBatch(src, []int{0, 1}, 4, 1)
		for at, first := range drawn {
			if at < 7 { // of the last group, three are valid
				b.Set(at/4, at%4, []int64{first}, 0)
			}
		}
		accuracy, err := src.Accuracy(b)
		if err == nil {
			err = src.Score(b)
		}
		if err != nil || src.Recorded([]int{0}).Rewards[0] == 1 {
			t.Fatalf("%s: recorded rewards %v, %v", control, src.Recorded([]int{0}).Rewards, err)
		}
		return b.Rewards, accuracy
	}
	if got, _ := scored("majority"); !slices.Equal(got, []float64{0, 1, 1, 0, 0, 1, 1, 0}) {
		t.Errorf("majority: rewards %v", got)
	}
	want, _ := scored("none")
	got, accuracy := scored("placebo_within")
	if slices.Equal(got, want) || !slices.Equal(accuracy, want) {
		t.Errorf("placebo_within: rewards %v and accuracies %v, the true ones are %v", got, accuracy, want)
	}
	for _, group := range [][2]int{{0, 4}, {4, 7}} {
		a, b := slices.Sorted(slices.Values(got[group[0]:group[1]])), slices.Sorted(slices.Values(want[group[0]:group[1]]))
		if !slices.Equal(a, b) {
			t.Errorf("placebo_within: rewards %v, want a permutation of %v", a, b)
		}
	}
	// Another draw of a query has another order of its rewards.
	orders := map[string]bool{}
	for turn := range int64(4) {
		for k := range int64(4) {
			drawn[k] = (k + turn) % 4
		}
		got, _ := scored("placebo_within")
		for k := range got[:4] {
			got[k] = float64((int64(got[k]) - turn + 4) % 4) // where the reward was
		}
		orders[fmt.Sprint(got[:4])] = true
	}
	if len(orders) < 2 {
		t.Errorf("placebo_within: four draws have one order, %v", orders)
	}
}

// byFirst rewards a selection with its first position.
type byFirst struct{}

func (byFirst) Score(_ int, picks []int32) (reward, accuracy float64) {
	return float64(picks[0]), float64(picks[0])
}
