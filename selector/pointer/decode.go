package pointer

import (
	"math"
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// Sample draws g ordered selections of t examples for each query from the policy at the given
// temperature, without gradient: at every step the arg-max of logits plus Gumbel noise, which is a
// sample from the softmax (Kool et al. 2019).
func (p *Policy) Sample(source selector.Source, queries []int, g, t int, temperature float64, seed uint64) *selector.Batch {
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	gen := torchx.NewGenerator(seed, p.device)
	defer gen.Free()
	src := source.(*Source)
	in := p.loadQueries(src, queries)
	e := p.encode(in, dropout{})
	at := p.start(e)
	columns := in.k
	if p.opt.Stop.Enabled {
		columns++
	}
	var drawn, chosen []torchx.Tensor // t × [B, G, 1] columns, and their positions in the pool
	for step := range t {
		r := rows{first: step, last: step, n: g}
		if step > 0 {
			r.chosen = torchx.Cat(2, chosen...)
		}
		// [B, 1 or G, K], never twice, whatever a taken one's logit
		logits := r.exclude(p.score(e, r, []cursor{at}, temperature), impossible)
		action := torchx.ArgMax(torchx.Add(logits, gen.Gumbel(logits, in.b, g, columns)), -1) // [B, G]
		drawn = append(drawn, torchx.Unsqueeze(action, 2))
		if p.opt.Stop.Enabled {
			action = torchx.MaskedFill(action, torchx.Compare(action, "eq", float64(in.k)), 0) // what follows is not looked at
		}
		chosen = append(chosen, torchx.Unsqueeze(action, 2))
		if step+1 < t {
			at = p.advance(e, at, action)
		}
	}
	actions := torchx.Data[int64](torchx.Cat(2, drawn...)) // [B, G, T] sync
	b := selector.NewBatch(src, queries, g, t)
	for i := range queries {
		steps := min(t, len(src.set.Pool(queries[i]))) // a pool smaller than t ends the selection early
		for j := range g {
			at := (i*g + j) * t
			b.Set(i, j, p.uncolumn(actions[at:at+steps], in.k), 0)
		}
	}
	return b
}

// Decode returns the width best selections of t examples by beam search over the policy's own sequence
// log-probabilities (history-aware: the state follows the choices); width 1 is greedy. Of equal scores the smaller
// position wins, but a pool whose candidates all score the same is taken in the set's TieOrder, which is seeded. Scores
// are log-probabilities [B*width]; beams that do not exist (a small pool) are not valid.
func (p *Policy) Decode(source selector.Source, queries []int, t, width int) (*selector.Batch, []float64) {
	defer torchx.Scope()()
	defer torchx.NoGrad()()
	src := source.(*Source)
	in := p.loadQueries(src, queries)
	e := p.encode(in, dropout{})
	beams := slices.Repeat([][]beam{{{}}}, in.b) // per query, best first
	order := make([][]int, in.b)                 // per query: how ties are broken
	even := make([]bool, in.b)                   // per query: all candidates scored the same at first
	at := p.start(e)
	for step, n := 0, 1; step < t; step, n = step+1, width {
		r := rows{first: step, last: step, n: n}
		if step > 0 {
			r.chosen = p.move(torchx.From(taken(beams, n, step), in.b, n, step))
		}
		logits := r.exclude(p.score(e, r, []cursor{at}, 1), p.taken()) // [B, N, A]
		columns := logits.Shape()[2]
		logp := torchx.Data[float32](torchx.LogSoftmax(logits, -1).To(torchx.Float32)) // [B, N, A] sync
		for i, q := range queries {
			if step >= len(src.set.Pool(q)) {
				continue // every example of this pool is taken
			}
			own := logp[i*n*columns : (i+1)*n*columns]
			if (step == 0 || even[i]) && level(own, columns, in.k) && step == 0 {
				order[i], even[i] = src.set.TieOrder(q), true
			}
			beams[i] = extend(beams[i], own, columns, in.k, width, order[i])
		}
		if step+1 < t {
			parent, action := pad(beams, width)
			for i := range parent {
				parent[i] += int64(i / width * width)
			}
			at = p.advance(e, at.follow(p.move(torchx.From(parent, len(parent)))), p.move(torchx.From(action, in.b, width)))
		}
	}
	b := selector.NewBatch(src, queries, width, t)
	scores := make([]float64, in.b*width)
	for i := range beams {
		for j, x := range beams[i] {
			b.Set(i, j, x.actions, 0)
			scores[i*width+j] = x.logp
		}
	}
	return b, scores
}

// beam is a partial selection: where it came from and its log-probability.
type beam struct {
	actions []int64
	parent  int
	logp    float64
}

// rounding is the largest difference, in nats, between candidates of equal score: libtorch's products round the rows of a matrix
// differently by their place in it.
const rounding = 1e-5

// level reports whether two or more candidates are possible and, in all rows of logp [N, columns], have the same log-probability
// but for rounding. It makes them equal.
func level(logp []float32, columns, k int) bool {
	var possible []int
	for row := 0; row < len(logp); row += columns {
		for i := row; i < row+k; i++ {
			if logp[i] < impossible/2 { // padding, or taken
				continue
			}
			if possible = append(possible, i); math.Abs(float64(logp[i]-logp[possible[0]])) > rounding {
				return false
			}
		}
	}
	for _, i := range possible {
		logp[i] = logp[possible[0]]
	}
	return len(possible) > 1
}

// extend returns the width best continuations of beams, given log-probabilities [N, columns] of the k candidates and
// perhaps of Stop. A beam that has ended stays as it is. Of equals the earlier beam wins, then the candidate that is
// earlier in order (nil = the smaller position).
func extend(beams []beam, logp []float32, columns, k, width int, order []int) []beam {
	var best []beam // sorted, best first
	insert := func(x beam) {
		at := len(best)
		for at > 0 && best[at-1].logp < x.logp {
			at--
		}
		if best = slices.Insert(best, at, x); len(best) > width {
			best = best[:width]
		}
	}
	for n, from := range beams {
		if a := from.actions; len(a) > 0 && a[len(a)-1] == Stop {
			insert(beam{from.actions, n, from.logp})
			continue
		}
		for c := range columns {
			j := c
			if c < len(order) {
				j = order[c]
			}
			action, lp := int64(j), logp[n*columns+j]
			if j == k {
				action = Stop
			}
			score := from.logp + float64(lp)
			if lp < impossible/2 || slices.Contains(from.actions, action) || len(best) == width && score <= best[width-1].logp {
				continue
			}
			insert(beam{append(append(make([]int64, 0, len(from.actions)+1), from.actions...), action), n, score})
		}
	}
	return best
}

// taken lists the first step choices of each beam [B, N, step]; missing beams repeat the last. Entries after a beam's end
// are not used.
func taken(beams [][]beam, n, step int) []int64 {
	out := make([]int64, 0, len(beams)*n*step)
	for _, bs := range beams {
		for j := range n {
			a := bs[min(j, len(bs)-1)].actions
			for s := range step {
				out = append(out, max(a[min(s, len(a)-1)], 0))
			}
		}
	}
	return out
}

// pad returns the parent and last action of each beam [B, width]; missing beams repeat the last.
func pad(beams [][]beam, width int) (parent, action []int64) {
	for _, bs := range beams {
		for j := range width {
			x := bs[min(j, len(bs)-1)]
			parent = append(parent, int64(x.parent))
			action = append(action, max(x.actions[len(x.actions)-1], 0))
		}
	}
	return parent, action
}
