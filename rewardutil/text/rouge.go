// Package text finds answers, words and sentences in texts and compares texts by ROUGE.
package text

import (
	"slices"
	"strings"

	"fulcrum/internal/list"
)

// RougeScore is one ROUGE measure, each part in [0, 1].
type RougeScore struct {
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	F1        float64 `json:"fmeasure"`
}

// RougeScores holds the measures of one pair of texts.
type RougeScores struct {
	Rouge1    RougeScore `json:"rouge1"`    // common words
	Rouge2    RougeScore `json:"rouge2"`    // common pairs of words
	RougeL    RougeScore `json:"rougeL"`    // longest common subsequence of the whole texts
	RougeLsum RougeScore `json:"rougeLsum"` // union of those of the lines
}

// RougeNames returns the names of the measures, in the order of reports.
func RougeNames() []string { return []string{"rouge1", "rouge2", "rougeL", "rougeLsum"} }

func (s RougeScores) Named(name string) RougeScore {
	return map[string]RougeScore{"rouge1": s.Rouge1, "rouge2": s.Rouge2, "rougeL": s.RougeL, "rougeLsum": s.RougeLsum}[name]
}

// Rouge scores a prediction against a target as Google's rouge_score package does, bit for bit; stem compares
// Porter stems of words longer than three letters. Words are runs of ASCII letters and digits, lower case.
// Source: Lin 2004, "ROUGE: a package for automatic evaluation of summaries".
func Rouge(target, prediction string, stem bool) RougeScores {
	t, p := RougeTokens(target, stem), RougeTokens(prediction, stem)
	return RougeScores{
		Rouge1: rougeN(t, p, 1), Rouge2: rougeN(t, p, 2),
		RougeL: rougeL(t, p), RougeLsum: rougeLsum(target, prediction, stem),
	}
}

func rougeScore(hits, prediction, target int) RougeScore {
	s := RougeScore{Precision: float64(hits) / float64(max(1, prediction)), Recall: float64(hits) / float64(max(1, target))}
	if s.Precision+s.Recall > 0 {
		s.F1 = 2 * s.Precision * s.Recall / (s.Precision + s.Recall)
	}
	return s
}

// RougeTokens returns the words of a text as ROUGE counts them.
func RougeTokens(text string, stem bool) []string {
	// in lower case İ is an i and a combining dot, which is no letter of a word
	words := strings.FieldsFunc(strings.ToLower(strings.ReplaceAll(text, "İ", "i ")), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	for i, w := range words {
		if stem && len(w) > 3 {
			words[i] = Stem(w)
		}
	}
	return words
}

// RougeHas reports whether a text has a word that ROUGE counts; scripts without ASCII letters have none.
func RougeHas(text string) bool { return len(RougeTokens(text, false)) > 0 }

// rougeN counts common n-grams, each as often as both texts have it.
func rougeN(target, prediction []string, n int) RougeScore {
	grams := func(words []string) map[string]int {
		count := map[string]int{}
		for i := 0; i+n <= len(words); i++ {
			count[strings.Join(words[i:i+n], " ")]++
		}
		return count
	}
	inTarget, hits := grams(target), 0
	for gram, count := range grams(prediction) {
		hits += min(count, inTarget[gram])
	}
	return rougeScore(hits, max(0, len(prediction)-n+1), max(0, len(target)-n+1))
}

func rougeL(target, prediction []string) RougeScore {
	if len(target) == 0 || len(prediction) == 0 {
		return RougeScore{}
	}
	table := lcsTable(target, prediction)
	return rougeScore(int(table[len(table)-1]), len(prediction), len(target))
}

// lcsTable returns the lengths [len(a)+1, len(b)+1] of the longest common subsequences of all prefixes.
func lcsTable(a, b []string) []int32 {
	w := len(b) + 1
	t := make([]int32, (len(a)+1)*w)
	for i, x := range a {
		for j, y := range b {
			at := (i+1)*w + j + 1
			if x == y {
				t[at] = t[at-w-1] + 1
			} else {
				t[at] = max(t[at-w], t[at-1])
			}
		}
	}
	return t
}

// rougeLsum takes, for every line of the target, the union over the prediction's lines of the positions of one
// longest common subsequence; a position is a hit while both whole texts still have its word left.
func rougeLsum(target, prediction string, stem bool) RougeScore {
	t, p := rougeLines(target, stem), rougeLines(prediction, stem)
	inTarget, targetWords := countWords(t)
	inPrediction, predictionWords := countWords(p)
	if targetWords == 0 || predictionWords == 0 {
		return RougeScore{}
	}
	hits := 0
	for _, line := range t {
		union := make([]bool, len(line))
		for _, other := range p {
			markLCS(union, line, other)
		}
		for i, common := range union {
			if w := line[i]; common && inTarget[w] > 0 && inPrediction[w] > 0 {
				hits++
				inTarget[w]--
				inPrediction[w]--
			}
		}
	}
	return rougeScore(hits, predictionWords, targetWords)
}

func rougeLines(text string, stem bool) [][]string {
	return list.Map(strings.Split(text, "\n"), func(line string) []string { // an empty line has no words and adds nothing
		return RougeTokens(line, stem)
	})
}

func countWords(lines [][]string) (count map[string]int, total int) {
	words := slices.Concat(lines...)
	return list.Tally(words), len(words)
}

// markLCS marks the positions in a of one longest common subsequence of a and b: which one decides the union,
// so ties go the reference's way.
func markLCS(marked []bool, a, b []string) {
	t, w := lcsTable(a, b), len(b)+1
	for i, j := len(a), len(b); i > 0 && j > 0; {
		switch {
		case a[i-1] == b[j-1]:
			marked[i-1] = true
			i, j = i-1, j-1
		case t[i*w+j-1] > t[(i-1)*w+j]:
			j--
		default:
			i--
		}
	}
}
