package stats

import (
	"fmt"
	"slices"
)

// Stage is one of the times at which a question is judged while its seeds grow in number. A verdict there may spend a share of the level.
// The shares add up to 1, so that all stages together name a false winner with at most the chance of one test, however they depend on one
// another (Bonferroni). The zero value is that of a question which is judged once.
type Stage struct {
	N     int     `json:"stage"` // 1, 2, …
	Of    int     `json:"of"`
	Share float64 `json:"share"`
}

// tests is what a p-value is multiplied by.
func (s Stage) tests() float64 {
	if s.Share == 0 {
		return 1
	}
	return 1 / s.Share
}

func (s Stage) String() string { return fmt.Sprintf("stage %d of %d", s.N, s.Of) }

// Stages returns the numbers of seeds at which a question with at most so many is judged: this number, half of it, a quarter, …, and two.
func Stages(most int) []int {
	var stages []int
	for n := most; n > 2; n = (n + 1) / 2 {
		stages = append(stages, n)
	}
	stages = append(stages, 2)
	slices.Reverse(stages)
	return stages
}

// StageAt returns the last stage that so many seeds reach, and its number of seeds; 0: they reach none. After S of most seeds (S/most)³ of
// the level is spent (the power family of spending functions: Kim and DeMets 1987): little is given away early, when few seeds could use
// it, and the last stage keeps about 7/8.
func StageAt(seeds, most int) (int, Stage) {
	stages, at, before := Stages(most), 0, 0
	s := Stage{Of: len(stages)}
	for _, n := range stages {
		if n <= seeds {
			s.N, before, at = s.N+1, at, n
		}
	}
	cube := func(n int) float64 { return float64(n) * float64(n) * float64(n) }
	s.Share = (cube(at) - cube(before)) / cube(most)
	return at, s
}
