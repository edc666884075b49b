package torchx

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// SampleOptions shape the distribution that tokens are drawn from. The zero value is the model's own at
// temperature 1.
type SampleOptions struct {
	Temperature       float64 // logits are divided by it; 0 is 1
	TopP              float64 // nucleus: the smallest set of most probable tokens with at least this mass; 0 and 1 keep all
	TopK              int     // the most probable tokens and those as probable as the last of them; 0 keeps all
	RepetitionPenalty float64 // of tokens seen before: positive logits divided, negative ones multiplied; 0 and 1 leave them
}

// SampleTokens draws a token of each row of logits [R, V] (float type): the repetition penalty on the row's
// ids in seen (nil: none), ids in suppress never, then temperature, top-k and top-p, in this order and as
// HuggingFace's logits processors define them. Row r takes the token at the cumulative probability uniforms[r] in
// [0, 1), ids ascending; without uniforms it takes the most probable one, the first on ties. sync
func SampleTokens(logits Tensor, opt SampleOptions, seen [][]int64, suppress []int64, uniforms []float64) []int64 {
	shape := MustShape(logits, -1, -1).Shape()
	rows, size := shape[0], shape[1]
	if seen != nil && len(seen) != rows || uniforms != nil && len(uniforms) != rows {
		panic(opError("sample", fmt.Sprintf("%d lists of seen tokens and %d uniforms for %d rows", len(seen), len(uniforms), rows), []Tensor{logits}))
	}
	end := Scope()
	data := Data[float32](Detach(logits).To(Float32))
	end()
	out := make([]int64, rows)
	var scratch sampler
	for r := range rows {
		z := data[r*size : (r+1)*size]
		if seen != nil && opt.RepetitionPenalty > 0 {
			penalize(z, seen[r], float32(opt.RepetitionPenalty))
		}
		for _, id := range suppress {
			z[id] = float32(math.Inf(-1))
		}
		if uniforms == nil {
			out[r] = int64(argMax(z))
		} else {
			out[r] = scratch.draw(z, opt, uniforms[r])
		}
	}
	return out
}

// penalize makes tokens seen before less likely, each once (Keskar et al. 2019, arXiv:1909.05858, as HF has it).
func penalize(z []float32, seen []int64, penalty float32) {
	if penalty == 1 {
		return
	}
	done := make(map[int64]bool, len(seen))
	for _, id := range seen {
		if done[id] {
			continue
		}
		done[id] = true
		if z[id] < 0 {
			z[id] *= penalty
		} else {
			z[id] /= penalty
		}
	}
}

func argMax(z []float32) int {
	best := 0
	for i, x := range z {
		if x > z[best] {
			best = i
		}
	}
	return best
}

// sampler keeps the scratch memory of draws.
type sampler struct {
	p     []float64
	order []int
}

// draw returns the token at cumulative probability u.
func (s *sampler) draw(z []float32, opt SampleOptions, u float64) int64 {
	inverse := 1.0
	if opt.Temperature > 0 {
		inverse = 1 / opt.Temperature
	}
	top := float64(z[argMax(z)])
	least := math.Inf(-1)
	if opt.TopK > 0 && opt.TopK < len(z) {
		least = float64(s.kth(z, opt.TopK))
	}
	s.p = append(s.p[:0], make([]float64, len(z))...)
	total := 0.0
	for i, x := range z {
		if d := (float64(x) - top) * inverse; float64(x) >= least && d > -745 {
			s.p[i] = math.Exp(d)
			total += s.p[i]
		}
	}
	if opt.TopP > 0 && opt.TopP < 1 {
		total = s.nucleus(opt.TopP, total)
	}
	left, last := u*total, 0
	for i, p := range s.p {
		if p == 0 {
			continue
		}
		if left < p {
			return int64(i)
		}
		left -= p
		last = i
	}
	return int64(last) // u·total was lost to rounding
}

// kth returns the k-th largest logit.
func (s *sampler) kth(z []float32, k int) float32 {
	heap := make([]float32, 0, k) // the smallest on top
	for _, x := range z {
		switch {
		case len(heap) < k:
			heap = append(heap, x)
			for i := len(heap) - 1; i > 0 && heap[i] < heap[(i-1)/2]; i = (i - 1) / 2 {
				heap[i], heap[(i-1)/2] = heap[(i-1)/2], heap[i]
			}
		case x > heap[0]:
			heap[0] = x
			for i := 0; ; {
				child := 2*i + 1
				if child+1 < k && heap[child+1] < heap[child] {
					child++
				}
				if child >= k || heap[i] <= heap[child] {
					break
				}
				heap[i], heap[child] = heap[child], heap[i]
				i = child
			}
		}
	}
	return heap[0]
}

// nucleus zeroes the tokens outside the smallest set of the most probable ones whose mass reaches topP, and
// returns the mass left. Equal probabilities leave by id, the lowest first: HF sorts ascending.
func (s *sampler) nucleus(topP, total float64) float64 {
	s.order = s.order[:0]
	for i, p := range s.p {
		if p > 0 {
			s.order = append(s.order, i)
		}
	}
	slices.SortStableFunc(s.order, func(a, b int) int { return cmp.Compare(s.p[a], s.p[b]) })
	below, kept := 0.0, total
	for _, i := range s.order[:len(s.order)-1] { // the most probable one always stays
		below += s.p[i]
		if below > (1-topP)*total {
			break
		}
		kept -= s.p[i]
		s.p[i] = 0
	}
	return kept
}
