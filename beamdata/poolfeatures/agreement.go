package poolfeatures

import (
	"math"
	"slices"

	"fulcrum/rewardutil/recorded"
)

// agreement is the chance that an annotator of another candidate, drawn by similarity to the query, gives the answer of a random
// annotator of this one: Σ over i ≠ j of w_i Σ_a share_i(a)·share_j(a), w = softmax(SHARPNESS · similarity).
func agreement() Feature {
	return Feature{Name: "agreement_SHARPNESS", Reads: []Column{Answers}, Of: func(p *Pool, args []int, out []float64) {
		weight := slices.Clone(p.similarities())
		highest, total := slices.Max(weight), 0.0
		for i, s := range weight {
			weight[i] = math.Exp(float64(args[0]) * (s - highest))
			total += weight[i]
		}
		mass := map[int32]float64{} // by answer
		for i, answers := range p.Answers {
			weight[i] /= total
			for _, a := range answers {
				mass[a.Text] += weight[i] * a.Share
			}
		}
		for j, answers := range p.Answers {
			for _, a := range answers {
				out[j] += a.Share * (mass[a.Text] - weight[j]*a.Share)
			}
		}
	}}
}

// annotators is the share of a candidate's annotators who gave its most frequent answer.
func annotators() Feature {
	return Feature{Name: "annotators", Reads: []Column{Answers}, Of: func(p *Pool, _ []int, out []float64) {
		for j, answers := range p.Answers {
			for _, a := range answers {
				out[j] = max(out[j], a.Share)
			}
		}
	}}
}

// chosenAnswers is the chance that annotators of a candidate and of a chosen one give the same answer.
func chosenAnswers() Feature {
	return Feature{Name: "chosen_answers", Reads: []Column{Answers}, Beside: func(p *Pool, chosen int, out []float64) {
		share := map[int32]float64{}
		for _, a := range p.Answers[chosen] {
			share[a.Text] += a.Share
		}
		for j, answers := range p.Answers {
			for _, a := range answers {
				out[j] += a.Share * share[a.Text]
			}
		}
	}}
}

// chosenSimilarity is the cosine of a candidate and a chosen one.
func chosenSimilarity() Feature {
	return Feature{Name: "chosen_similarity", Beside: func(p *Pool, chosen int, out []float64) {
		for j, row := range p.Rows {
			out[j] = recorded.Cosine(p.Rows[chosen], row)
		}
	}}
}
