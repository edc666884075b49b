package rewardutil

import (
	"strings"
)

// Relevance scores how near a prediction is to the nearest ground truth, by words and by letters. Both
// strings are lower-cased and trimmed.
type Relevance struct {
	TokenF1 float64 // best F1 of the multisets of [a-z0-9]+ tokens
	EditSim float64 // best ratio of matching letters, as Python's difflib
	Score   float64 // the larger of the two
}

// RelevanceOf returns the relevance of a prediction; 0 without a prediction or ground truths. Source:
// parity specification §8.
func RelevanceOf(prediction string, answers []string) Relevance {
	var best Relevance
	p := strings.ToLower(strings.TrimSpace(prediction))
	if p == "" {
		return best
	}
	for _, a := range answers {
		a = strings.ToLower(strings.TrimSpace(a))
		best.TokenF1 = max(best.TokenF1, TokenF1(p, a))
		best.EditSim = max(best.EditSim, SequenceRatio(p, a))
	}
	best.Score = max(best.TokenF1, best.EditSim)
	return best
}

// TokenF1 returns the F1 of the multisets of tokens [a-z0-9]+ in two lower-case strings.
func TokenF1(prediction, answer string) float64 {
	p, a := tokens(prediction), tokens(answer)
	count := map[string]int{}
	for _, w := range a {
		count[w]++
	}
	common := 0
	for _, w := range p {
		if count[w] > 0 {
			count[w]--
			common++
		}
	}
	if common == 0 {
		return 0
	}
	precision, recall := float64(common)/float64(len(p)), float64(common)/float64(len(a))
	return 2 * precision * recall / (precision + recall)
}

func tokens(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9') })
}

// SequenceRatio returns 2·M/(len a + len b) with M the letters in matching blocks, as Python's
// difflib.SequenceMatcher(None, a, b).ratio(): the longest common block (the earliest in a, then in b),
// and again to its left and right. Letters that make up more than 1 % of a b of at least 200 letters
// start no block, as there. Two empty strings have ratio 1.
func SequenceRatio(a, b string) float64 {
	x, y := []rune(a), []rune(b)
	if len(x)+len(y) == 0 {
		return 1
	}
	at := map[rune][]int{}
	for j, c := range y {
		at[c] = append(at[c], j)
	}
	if len(y) >= 200 {
		for c, js := range at {
			if len(js) > len(y)/100+1 {
				delete(at, c)
			}
		}
	}
	m := matcher{x: x, y: y, at: at}
	return 2 * float64(m.matches(0, len(x), 0, len(y))) / float64(len(x)+len(y))
}

type matcher struct {
	x, y []rune
	at   map[rune][]int // positions in y of the letters that may start a block
}

// matches returns the letters in matching blocks of x[i0:i1] and y[j0:j1].
func (m matcher) matches(i0, i1, j0, j1 int) int {
	i, j, n := m.longest(i0, i1, j0, j1)
	if n == 0 {
		return 0
	}
	return m.matches(i0, i, j0, j) + n + m.matches(i+n, i1, j+n, j1)
}

// longest returns the longest common block, extended by frequent letters on both sides.
func (m matcher) longest(i0, i1, j0, j1 int) (bestI, bestJ, best int) {
	bestI, bestJ = i0, j0
	length := map[int]int{} // of the block that ends at x[i-1], y[j]
	for i := i0; i < i1; i++ {
		next := map[int]int{}
		for _, j := range m.at[m.x[i]] {
			if j < j0 || j >= j1 {
				continue
			}
			n := length[j-1] + 1
			next[j] = n
			if n > best {
				bestI, bestJ, best = i-n+1, j-n+1, n
			}
		}
		length = next
	}
	for bestI > i0 && bestJ > j0 && m.x[bestI-1] == m.y[bestJ-1] {
		bestI, bestJ, best = bestI-1, bestJ-1, best+1
	}
	for bestI+best < i1 && bestJ+best < j1 && m.x[bestI+best] == m.y[bestJ+best] {
		best++
	}
	return bestI, bestJ, best
}
