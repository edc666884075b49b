package shapes

import (
	"math"
	"slices"
	"strings"

	"fulcrum/internal/list"
)

// Prior is the reader's closed-book knowledge: how often an answer was seen after a question's first
// two words, over questions that are no query.
type Prior struct {
	N      float64                       `json:"n"`                  // questions
	All    map[string]float64            `json:"all"`                // answers
	ByHead map[string]map[string]float64 `json:"by_first_two_words"` // answers by first two words
}

func newPrior(items []Item) *Prior {
	p := &Prior{N: float64(len(items)), All: map[string]float64{}, ByHead: map[string]map[string]float64{}}
	for _, it := range items {
		h := Head(it.Question)
		if p.ByHead[h] == nil {
			p.ByHead[h] = map[string]float64{}
		}
		p.All[it.Answer]++
		p.ByHead[h][it.Answer]++
	}
	return p
}

// At returns prior(a) = (byHead[h][a] + 2·all[a]/n) / (Σ byHead[h] + 2).
func (p *Prior) At(h, answer string) float64 {
	return (p.ByHead[h][answer] + 2*p.All[answer]/p.N) / (p.seen(h) + 2)
}

func (p *Prior) seen(h string) float64 {
	n := 0.0
	for _, c := range p.ByHead[h] {
		n += c
	}
	return n
}

// top returns the likeliest answer; ties go to the later string.
func (p *Prior) top(h string) string {
	best, answer := -1.0, ""
	for a := range p.All {
		if v := p.At(h, a); v > best || v == best && a > answer {
			best, answer = v, a
		}
	}
	return answer
}

// expected is the accuracy of an answer drawn from the prior.
func (p *Prior) expected(h string, counts []AnswerCount) float64 {
	return roundTo(list.Sum(counts, func(c AnswerCount) float64 { return p.At(h, c.Answer) * vqaAccuracy(c.Count) }), 6)
}

// The reader's trust in a demonstration, before exponentiation: a fixed function of the cosines of the
// question and image blocks and of the questions' first two words.
const (
	trustBase     = -1.0
	trustQuestion = 1.2
	trustImage    = 0.6
	trustProduct  = 1.0
	trustHead     = 0.3
	priorBase     = -0.6
	priorSeen     = 0.4 // times ln(1 + questions seen with these first two words) / 5
)

func trust(cosQuestion, cosImage float64, sameHead bool) float64 {
	s := trustBase + trustQuestion*cosQuestion + trustImage*cosImage + trustProduct*cosQuestion*cosImage
	if sameHead {
		s += trustHead
	}
	return roundTo(s, 4)
}

// demoAccuracy is the expected VQA accuracy, on a question, of an answer drawn from a demonstration's ten.
func demoAccuracy(demo, query []AnswerCount) float64 {
	right := func(d AnswerCount) float64 {
		return float64(d.Count) / annotators * vqaAccuracy(countOf(query, d.Answer))
	}
	return roundTo(list.Sum(demo, right), 4)
}

func countOf(counts []AnswerCount, answer string) int {
	for _, c := range counts {
		if c.Answer == answer {
			return c.Count
		}
	}
	return 0
}

// Soft returns the reward of showing the demonstrations at these pool positions, in any order: the
// expected VQA accuracy under the reader's answer distribution,
//
//	soft(D) = (Σ_D e^s g + e^s0 P0) / (Σ_D e^s + e^s0)
func (q *Query) Soft(positions []int32) float64 {
	num, den := math.Exp(q.PriorScore)*q.PriorAcc, math.Exp(q.PriorScore)
	for _, p := range positions {
		w := math.Exp(q.Score[p])
		num += w * q.DemoAcc[p]
		den += w
	}
	return num / den
}

// Predict returns the reader's answer: that of the largest mass(a) = Σ_D e^s count(a)/10 + e^s0 prior(a)
// among the demonstrations' answers and the prior's top answer, rounded to 9 digits, ties to the later
// string; and its VQA accuracy.
func (d *Data) Predict(q *Query, positions []int32) (answer string, accuracy float64) {
	type vote struct {
		answer string
		mass   float64
	}
	votes := []vote{{q.PriorTop, 0}}
	for _, p := range positions {
		w := math.Exp(q.Score[p])
		for _, c := range d.Items[q.Pool[p]].Answers {
			at := slices.IndexFunc(votes, func(v vote) bool { return v.answer == c.Answer })
			if at < 0 {
				at = len(votes)
				votes = append(votes, vote{c.Answer, 0})
			}
			votes[at].mass += w * float64(c.Count) / annotators
		}
	}
	item := d.Items[q.Row]
	h, w0 := Head(item.Question), math.Exp(q.PriorScore)
	best := math.Inf(-1)
	for _, v := range votes {
		m := roundTo(v.mass+w0*d.Prior.At(h, v.answer), 9)
		if m > best || m == best && strings.Compare(v.answer, answer) > 0 {
			best, answer = m, v.answer
		}
	}
	return answer, vqaAccuracy(countOf(item.Answers, answer))
}

func roundTo(v float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(v*unit) / unit
}
