package recorded

import "math"

// Coherence returns the sequence-level coherence of a selection, in [-1, 1]: the mean cosine over the
// query with each of its examples and each example with the next one in order. Without examples it is 0;
// a zero vector has cosine 0 with everything.
func Coherence(query []float32, examples [][]float32) float64 {
	if len(examples) == 0 {
		return 0
	}
	sum := 0.0
	for i, e := range examples {
		sum += Cosine(query, e)
		if i > 0 {
			sum += Cosine(examples[i-1], e)
		}
	}
	return sum / float64(2*len(examples)-1)
}

// Diversity returns 1 minus the mean cosine over all pairs of examples, in [0, 2]; 0 for fewer than two.
func Diversity(examples [][]float32) float64 {
	sum, pairs := 0.0, 0
	for i := range examples {
		for j := range i {
			sum += Cosine(examples[i], examples[j])
			pairs++
		}
	}
	if pairs == 0 {
		return 0
	}
	return 1 - sum/float64(pairs)
}

// Cosine returns the cosine of two vectors, 0 where one of them is zero.
func Cosine(a, b []float32) float64 {
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
	Task      float64 // VQA accuracy of the resulting answer; NaN if unknown
}

// Combine returns the weighted sum of a candidate's levels. An unknown task level adds nothing: within a
// group it should be known for all candidates or for none, else knowing looks like a reward or a penalty.
func (o Options) Combine(l Levels) float64 {
	r := o.Weight(BeamLevel)*l.Beam + o.Weight(CoherenceLevel)*l.Coherence + o.Weight(DiversityLevel)*l.Diversity
	if !math.IsNaN(l.Task) {
		r += o.Weight(TaskLevel) * l.Task
	}
	return r
}

// UsesSequence says whether the sequence level has any weight, so that callers can skip the embeddings.
func (o Options) UsesSequence() bool {
	return o.Weight(CoherenceLevel) != 0 || o.Weight(DiversityLevel) != 0
}
