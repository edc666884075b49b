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
	MinP              float64 // tokens of at least this share of the most probable one's probability; 0 keeps all. SampleTokens only
	RepetitionPenalty float64 // of tokens seen before: positive logits divided, negative ones multiplied; 0 and 1 leave them
}

// SampleTokens draws a token of each row of logits [R, V] (float type): the repetition penalty on the row's
// ids in seen (nil: none), ids in suppress (nil: none) never, then temperature, top-k, top-p and min-p, in this order and as
// HuggingFace's logits processors define them. Row r takes the token at the cumulative probability uniforms[r] in
// [0, 1), ids ascending; without uniforms it takes the most probable one, the first on ties. sync
//
// kept [R] says how much of each row's own distribution p = softmax(logits / temperature) the one that was drawn from,
// q, covers: Σ min(p, q), which is 1 less their total variation distance. It is 1 where nothing was changed, and the mass
// that top-k and top-p keep where nothing else was. logp [R] is log p of each row's token. Both are nil without uniforms.
func SampleTokens(logits Tensor, opt SampleOptions, seen [][]int64, suppress [][]int64, uniforms []float64) (ids []int64, kept,
	logp []float64) {
	shape := MustShape(logits, -1, -1).Shape()
	rows, size := shape[0], shape[1]
	if seen != nil && len(seen) != rows || suppress != nil && len(suppress) != rows || uniforms != nil && len(uniforms) != rows {
		panic(opError("sample", fmt.Sprintf("%d lists of seen tokens and %d uniforms for %d rows", len(seen), len(uniforms), rows),
			[]Tensor{logits}))
	}
	end := Scope()
	data := Data[float32](Detach(logits).To(Float32))
	end()
	ids = make([]int64, rows)
	if uniforms != nil {
		kept, logp = make([]float64, rows), make([]float64, rows)
	}
	var scratch sampler
	for r := range rows {
		z := data[r*size : (r+1)*size]
		scratch.changed = scratch.changed[:0]
		if seen != nil && opt.RepetitionPenalty > 0 {
			scratch.penalize(z, seen[r], float32(opt.RepetitionPenalty))
		}
		if suppress != nil {
			for _, id := range suppress[r] {
				scratch.change(z, id, float32(math.Inf(-1)))
			}
			if math.IsInf(float64(z[argMax(z)]), -1) {
				panic(opError("sample", "no token is left to come next: all are suppressed", []Tensor{logits}))
			}
		}
		if uniforms == nil {
			ids[r] = int64(argMax(z))
		} else {
			ids[r], kept[r], logp[r] = scratch.draw(z, opt, uniforms[r])
		}
	}
	return ids, kept, logp
}

// penalize makes tokens seen before less likely, each once (Keskar et al. 2019, arXiv:1909.05858, as HF has it).
func (s *sampler) penalize(z []float32, seen []int64, penalty float32) {
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
			s.change(z, id, z[id]*penalty)
		} else {
			s.change(z, id, z[id]/penalty)
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
	p       []float64
	order   []int
	changed []changedLogit // of the row in hand
}

// changedLogit is a token's logit before it was changed; a token that was changed twice has two, the first one its own.
type changedLogit struct {
	id  int64
	was float32
}

// change gives a token another logit and remembers its own.
func (s *sampler) change(z []float32, id int64, to float32) {
	s.changed = append(s.changed, changedLogit{id, z[id]})
	z[id] = to
}

// draw returns the token at cumulative probability u, the share of the row's own distribution that it was drawn from, and its
// log-probability there.
func (s *sampler) draw(z []float32, opt SampleOptions, u float64) (id int64, kept, logp float64) {
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
	total, left := 0.0, 0.0 // of what top-k keeps, and of what it leaves out
	for i, x := range z {
		switch d := (float64(x) - top) * inverse; {
		case d <= -745:
		case float64(x) >= least:
			s.p[i] = math.Exp(d)
			total += s.p[i]
		default:
			left += math.Exp(d)
		}
	}
	all := total + left
	if opt.TopP > 0 && opt.TopP < 1 {
		total = s.nucleus(opt.TopP, total)
	}
	if opt.MinP > 0 {
		total = s.likely(opt.MinP)
	}
	kept, most, own := s.covered(z, total, all, top, inverse)
	id = s.at(u * total)
	logit := z[id]
	for _, c := range s.changed {
		if c.id == id {
			logit = c.was
			break
		}
	}
	return id, kept, (float64(logit)-most)*inverse - math.Log(own)
}

// likely leaves the tokens whose probability is at least this share of the highest one, and returns their sum.
func (s *sampler) likely(share float64) (total float64) {
	least := share * slices.Max(s.p)
	for i, p := range s.p {
		if p < least {
			s.p[i] = 0
		}
		total += s.p[i]
	}
	return total
}

// covered returns Σ min(p, q) of the row's own distribution p and the sampling distribution q = s.p / total. all is the
// sum of exp((z - top)·inverse) over the row with its changed logits, own that of exp((z - most)·inverse) over the row as it was.
func (s *sampler) covered(z []float32, total, all, top, inverse float64) (kept, most, own float64) {
	if len(s.changed) == 0 {
		return math.Min(1, total/all), top, all
	}
	most = top // of the row's own logits and the others: nothing overflows
	for _, c := range s.changed {
		most = math.Max(most, float64(c.was))
	}
	weight := func(logit float32) float64 { return math.Exp((float64(logit) - most) * inverse) }
	scale := math.Exp((top - most) * inverse)
	own = all * scale // Σ weight over the row as it was
	done := make(map[int64]bool, len(s.changed))
	first := s.changed[:0]
	for _, c := range s.changed {
		if !done[c.id] {
			done[c.id], first = true, append(first, c)
			own += weight(c.was) - weight(z[c.id])
		}
	}
	same, other := total, 0.0 // what is drawn from: of logits that are the row's own, and of changed ones
	for _, c := range first {
		same -= s.p[c.id]
		other += math.Min(weight(c.was)/own, s.p[c.id]/total)
	}
	return math.Min(1, math.Max(0, same)/math.Max(own/scale, total)+other), most, own
}

// at returns the token at the cumulative weight left, ids ascending.
func (s *sampler) at(left float64) int64 {
	last := 0
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
	largest := slices.Sorted(slices.Values(z[:k]))
	for _, x := range z[k:] {
		if x > largest[0] {
			at, _ := slices.BinarySearch(largest, x)
			copy(largest, largest[1:at])
			largest[at-1] = x
		}
	}
	return largest[0]
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
