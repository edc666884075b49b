package advantage

import (
	"math"
	"slices"
	"testing"

	"fulcrum/internal/testkit/golden"
)

func TestCurriculumTopK(t *testing.T) {
	five := 5
	plan := CurriculumOptions{EarlyEpochs: 1, EarlyTopK: 3, Baseline: "group"}
	reference := CurriculumOptions{EarlyEpochs: 1, EarlyTopK: 3, LateTopK: &five, Baseline: "subset"}
	for _, tc := range []struct {
		name     string
		o        CurriculumOptions
		epoch, G int
		want     int
	}{
		{"the first epoch takes the early top k", plan, 1, 8, 3},
		{"afterwards null means all", plan, 2, 8, 8},
		{"the reference's late top k", reference, 2, 8, 5},
		{"never more than the group", reference, 1, 2, 2},
		{"no curriculum by default", DefaultCurriculumOptions(), 1, 8, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.o.TopK(tc.epoch, tc.G); got != tc.want {
				t.Fatalf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestTopK(t *testing.T) {
	rewards := []float64{1, 3, 3, 2 /**/, 5, 0, 9, 9}
	valid := []bool{true, true, true, true /**/, true, false, false, false}
	s := TopK(rewards, valid, 2, 4, 2)
	if want := []int{1, 2, 0, 0}; !slices.Equal(s.Index, want) {
		t.Errorf("index: got %v, want %v (ties by position, best first)", s.Index, want)
	}
	if want := []bool{true, true, true, false}; !slices.Equal(s.Valid, want) {
		t.Errorf("valid: got %v, want %v", s.Valid, want)
	}
	golden.Close(t, s.Take(rewards), []float64{3, 3, 5, 0}, 0)

	all := TopK(rewards, valid, 2, 4, 0)
	if all.K != 4 || !slices.Equal(all.Index, []int{0, 1, 2, 3, 0, 1, 2, 3}) || !slices.Equal(all.Valid, valid) {
		t.Errorf("k = 0: got %+v, want every entry in its place", all)
	}
}

func TestCurriculumBaseline(t *testing.T) {
	rewards := []float64{1, 1, 1, 0, 0 /**/, 0.9, 0.2, 0.2, 0.1, 0}
	o := CurriculumOptions{EarlyEpochs: 1, EarlyTopK: 3, Baseline: "group"}
	opt := advOptions("mean_only")

	sel, adv, before, after := o.Apply(rewards, nil, 2, 5, 1, opt)
	golden.Close(t, adv, []float64{0.4, 0.4, 0.4, 0.62, -0.08, -0.08}, 1e-15) // above the group's mean where good
	if !slices.Equal(sel.Index, []int{0, 1, 2, 0, 1, 2}) || before.Signal != 2 || after.Signal != 2 || after.Entries != 6 {
		t.Errorf("group: got %v, before %+v, after %+v", sel.Index, before, after)
	}

	o.Baseline = "subset" // near-binary rewards: the top 3 are equal and their signal is gone
	_, adv, before, after = o.Apply(rewards, nil, 2, 5, 1, opt)
	golden.Close(t, adv[:3], []float64{0, 0, 0}, 0)
	if before.Signal != 2 || after.Signal != 1 || after.ConstantGood != 1 {
		t.Errorf("subset: before %+v, after %+v", before, after)
	}

	whole, _ := Compute(rewards, nil, 2, 5, opt)
	_, adv, before, after = o.Apply(rewards, nil, 2, 5, 2, opt)
	golden.Close(t, adv, whole, 0)
	if before != after {
		t.Errorf("all candidates: before %+v, after %+v", before, after)
	}
}

func TestCurriculumCountsWhatIsLeft(t *testing.T) {
	opt := advOptions("mean_only")
	opt.Clip = 0.3
	o := CurriculumOptions{EarlyEpochs: 1, EarlyTopK: 1, Baseline: "group"}
	_, adv, _, after := o.Apply([]float64{0, 1, 2, 2}, nil, 2, 2, 1, opt)
	golden.Close(t, adv, []float64{0.3, 0}, 0)
	if after.Signal != 1 || after.Clipped != 1 || after.MaxAbs != 0.3 || after.Mean != 0.3 || after.Std != 0 {
		t.Errorf("got %+v", after)
	}
	if math.IsNaN(after.Std) {
		t.Error("one entry has deviation 0 in the statistics, not NaN")
	}
}
