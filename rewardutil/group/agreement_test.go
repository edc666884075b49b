package group

import (
	"slices"
	"testing"
)

func TestAgreement(t *testing.T) {
	answers := []string{"a", "b", "b", "c" /**/, "x", "y", "y", "x" /**/, "", "p", "q", "q" /**/, "z", "z", "z", "z" /**/, "a", "", "a", ""}
	valid := slices.Repeat([]bool{true}, len(answers))
	valid[11] = false // one q less: a tie of three, which the empty answer leads
	valid[12], valid[13], valid[14], valid[15] = false, false, false, false
	want := []float64{0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0}
	if got := Agreement(answers, valid, 4); !slices.Equal(got, want) {
		t.Errorf("agreement %v, want %v", got, want)
	}
}
