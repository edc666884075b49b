package shapes

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

const annotators = 10

// AnswerCount is one distinct answer of a question's ten.
type AnswerCount struct {
	Answer string
	Count  int
}

// synonyms are other words people use; annotators who know the answer sometimes do.
var synonyms = map[string][]string{
	"red": {"crimson"}, "orange": {"amber"}, "yellow": {"gold"}, "green": {"lime"}, "blue": {"navy"}, "purple": {"violet"},
	"pink":   {"magenta"},
	"circle": {"disc", "ball"}, "square": {"box", "block"}, "triangle": {"pyramid"}, "cross": {"plus"}, "ring": {"donut", "hoop"},
	"star": {"stars"},
	"0":    {"none"}, "1": {"one"}, "2": {"two"}, "3": {"three"}, "4": {"four"}, "5": {"five"}, "yes": {"yeah"}, "no": {"nope"},
}

// answers simulates ten annotators: most give the true answer, some in another word, some slip, some
// don't know. How many slip depends on the question's own difficulty.
func (q ask) answers(r *rand.Rand) []AnswerCount {
	slip := []int{4, 8, 15, 30}[weighted(r, 35, 35, 20, 10)] // percent
	tally := map[string]int{}
	for range annotators {
		a := q.truth
		switch roll := r.IntN(100); {
		case roll < slip:
			a = q.slips[r.IntN(len(q.slips))]
		case roll < slip+2:
			a = "unknown"
		case roll < slip+16 && len(synonyms[a]) > 0:
			a = synonyms[a][r.IntN(len(synonyms[a]))]
		}
		tally[a]++
	}
	var out []AnswerCount
	for a, n := range tally {
		out = append(out, AnswerCount{a, n})
	}
	slices.SortFunc(out, func(a, b AnswerCount) int { // most frequent first, ties by word
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Answer, b.Answer))
	})
	return out
}

// vqaAccuracy is the official VQA accuracy of an answer that count of the ten annotators gave: the mean
// over annotators of min(1, matches among the nine others / 3), which is min(1, 0.3·count).
func vqaAccuracy(count int) float64 { return math.Min(1, float64(3*count)/10) }
