package beamdata

import (
	"fmt"

	"fulcrum/beamdata/shapes"
	"fulcrum/internal/jsonwords"
	"fulcrum/internal/list"
	"fulcrum/internal/regular"
)

// answers holds human answers by embedding row and the reader's closed-book prior. Every answer text is stored once.
type answers struct {
	names []string
	index map[string]int32
	byRow [][]answerCount // nil where a row's answers are unknown

	heads   map[string]int32 // first two words of questions
	headRow []int32          // head of each row's question, -1 = never seen by the prior
	counts  []map[int32]float64
	totals  []float64 // sum of counts
	all     map[int32]float64
	n       float64 // questions that the prior was counted on
}

type answerCount struct {
	answer int32
	count  int32
}

func (a *answers) intern(name string) int32 {
	if i, ok := a.index[name]; ok {
		return i
	}
	i := int32(len(a.names))
	a.names = append(a.names, name)
	a.index[name] = i
	return i
}

func newAnswers(items *Items, prior *shapes.Prior) *answers {
	a := &answers{index: map[string]int32{}, heads: map[string]int32{}, all: map[int32]float64{}, n: prior.N}
	for name, c := range prior.All {
		a.all[a.intern(name)] = c
	}
	for head, counts := range prior.ByHead {
		a.heads[head] = int32(len(a.counts))
		m, total := make(map[int32]float64, len(counts)), 0.0
		for name, c := range counts {
			m[a.intern(name)] = c
			total += c
		}
		a.counts = append(a.counts, m)
		a.totals = append(a.totals, total)
	}
	a.byRow = make([][]answerCount, len(items.rows))
	a.headRow = make([]int32, len(items.rows))
	for row, item := range items.rows {
		if item.counts == nil {
			continue
		}
		a.byRow[row] = list.Map(item.counts, func(c shapes.AnswerCount) answerCount {
			return answerCount{a.intern(c.Answer), int32(c.Count)}
		})
		a.headRow[row] = -1
		if h, ok := a.heads[shapes.Head(item.question)]; ok {
			a.headRow[row] = h
		}
	}
	return a
}

// prior(a) = (by_first_two_words[h][a] + 2 all[a]/n) / (sum of by_first_two_words[h] + 2), absent = 0.
func (a *answers) prior(head, answer int32) float64 {
	count, total := 0.0, 0.0
	if head >= 0 {
		count, total = a.counts[head][answer], a.totals[head]
	}
	return (count + 2*a.all[answer]/a.n) / (total + 2)
}

// accuracies returns the official VQA accuracy of every answer that humans gave for the row.
func (a *answers) accuracies(row int) map[int32]float64 {
	total := list.Sum(a.byRow[row], func(c answerCount) int32 { return c.count })
	out := make(map[int32]float64, len(a.byRow[row]))
	for _, c := range a.byRow[row] {
		out[c.answer] = vqaAccuracy(int(c.count), int(total))
	}
	return out
}

// vqaAccuracy is the official accuracy of an answer that count of total people gave: leave out each person
// in turn and average min(1, matches among the others / 3). For ten people it is min(1, 0.3 count).
func vqaAccuracy(count, total int) float64 {
	if total == 10 {
		return min(1, float64(3*count)/10)
	}
	inside := min(1, float64(count-1)/3)
	outside := min(1, float64(count)/3)
	return (float64(count)*inside + float64(total-count)*outside) / float64(total)
}

func readPrior(path string) (*shapes.Prior, error) {
	data, err := regular.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var p shapes.Prior
	if err := jsonwords.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if !(p.N > 0) {
		return nil, fmt.Errorf("%s: n = %v, want the number of questions", path, p.N)
	}
	return &p, nil
}
