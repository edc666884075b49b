package recorded

import (
	"math"

	"fulcrum/rewardutil/group"
)

// Coherence returns the sequence-level coherence of a selection, in [-1, 1]: the mean cosine over the
// query with each of its examples and each example with the next one in order. Without examples it is 0;
// a zero vector has cosine 0 with everything.
func Coherence(query []float32, examples [][]float32) float64 {
	if len(examples) == 0 {
		return 0
	}
	sum := 0.0
	for i, e := range examples {
		sum += cosine(query, e)
		if i > 0 {
			sum += cosine(examples[i-1], e)
		}
	}
	return sum / float64(2*len(examples)-1)
}

// Diversity returns 1 minus the mean cosine over all pairs of examples, in [0, 2]; 0 for fewer than two.
func Diversity(examples [][]float32) float64 {
	sum, pairs := 0.0, 0
	for i := range examples {
		for j := range i {
			sum += cosine(examples[i], examples[j])
			pairs++
		}
	}
	if pairs == 0 {
		return 0
	}
	return 1 - sum/float64(pairs)
}

func cosine(a, b []float32) float64 {
	var dot, aa, bb float64
	for i, x := range a {
		y := float64(b[i])
		dot += float64(x) * y
		aa += float64(x) * float64(x)
		bb += y * y
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return dot / math.Sqrt(aa*bb)
}

// Levels are the terms of a multi-level reward for one candidate.
type Levels struct {
	Beam      float64 // the reward by mode (RewardOptions.Reward), or a reader's score
	Coherence float64 // of its sequence
	Diversity float64 // of its sequence
	Task      float64 // VQA accuracy of the answer it led to; NaN where nobody knows it
}

// Combine returns the weighted sum of a candidate's levels. An unknown task level adds nothing: within a
// group it should be known for all candidates or for none, else knowing looks like a reward or a penalty
// (LevelStats.Mixed counts such groups).
func (o Options) Combine(l Levels) float64 {
	r := o.BeamWeight*l.Beam + o.CoherenceWeight*l.Coherence + o.DiversityWeight*l.Diversity
	if !math.IsNaN(l.Task) {
		r += o.TaskWeight * l.Task
	}
	return r
}

// UsesSequence says whether the sequence level has any weight, so that callers can skip the embeddings.
func (o Options) UsesSequence() bool { return o.CoherenceWeight != 0 || o.DiversityWeight != 0 }

// TermStats describes one weighted term over the counted candidates.
type TermStats struct {
	Mean, Std float64 // of weight · level
	Within    float64 // pooled deviation within groups: what the term can teach
	Known     int     // candidates that have it
}

// LevelStats describes the terms of a batch, by name: beam, coherence, diversity, task. Terms without
// weight are left out.
type LevelStats struct {
	Terms map[string]TermStats
	Mixed int // groups whose task level is known for some candidates only
}

// CombineAll returns the rewards [B*G] of levels [B*G], 0 where masked, and the statistics of each term.
func (o Options) CombineAll(levels []Levels, valid []bool, B, G int) ([]float64, LevelStats) {
	rewards := make([]float64, B*G)
	stats := LevelStats{Terms: map[string]TermStats{}}
	for i, l := range levels[:B*G] {
		if group.Counts(valid, i) {
			rewards[i] = o.Combine(l)
		}
	}
	for _, term := range []struct {
		name   string
		weight float64
		level  func(Levels) float64
	}{
		{"beam", o.BeamWeight, func(l Levels) float64 { return l.Beam }},
		{"coherence", o.CoherenceWeight, func(l Levels) float64 { return l.Coherence }},
		{"diversity", o.DiversityWeight, func(l Levels) float64 { return l.Diversity }},
		{"task", o.TaskWeight, func(l Levels) float64 { return l.Task }},
	} {
		if term.weight == 0 {
			continue
		}
		x, known := make([]float64, B*G), make([]bool, B*G)
		for i, l := range levels[:B*G] {
			x[i] = term.weight * term.level(l)
			known[i] = group.Counts(valid, i) && !math.IsNaN(x[i])
		}
		stats.Terms[term.name] = describeTerm(x, known, B, G)
		if term.name == "task" {
			stats.Mixed = mixedGroups(valid, known, B, G)
		}
	}
	return rewards, stats
}

func describeTerm(x []float64, known []bool, B, G int) TermStats {
	all, _ := group.Gather(x, known)
	s := TermStats{Known: len(all)}
	if len(all) > 0 {
		s.Mean, s.Std, _ = group.Moments(all)
	}
	if len(all) < 2 {
		s.Std = 0
	}
	var squares, freedom float64
	for b := range B {
		r, _ := group.Gather(group.Row(x, known, b, G))
		if len(r) < 2 {
			continue
		}
		_, std, _ := group.Moments(r)
		squares += std * std * float64(len(r)-1)
		freedom += float64(len(r) - 1)
	}
	if freedom > 0 {
		s.Within = math.Sqrt(squares / freedom)
	}
	return s
}

func mixedGroups(valid, known []bool, B, G int) int {
	mixed := 0
	for b := range B {
		some, all := false, true
		for i := b * G; i < (b+1)*G; i++ {
			if group.Counts(valid, i) {
				some, all = some || known[i], all && known[i]
			}
		}
		if some && !all {
			mixed++
		}
	}
	return mixed
}
