package grpo

import (
	"context"
	"errors"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// cacheBatch is how many queries are evaluated at once before an epoch.
const cacheBatch = 64

// Prepare computes the constant policies' log-probabilities of the recorded groups that it has not met, once. They would be wrong
// for a policy temperature that moves.
func (g *Phase) Prepare(ctx context.Context, queries []int) error {
	if g.chosen.rollout.Samples || g.opt.Temperature.Enabled {
		return nil
	}
	batch := max(g.batchSize, cacheBatch)
	switch {
	case g.opt.Hooks.CacheLikeSteps:
		batch = g.batchSize
	case g.opt.MicroBatch != nil:
		batch = *g.opt.MicroBatch
	case g.text:
		batch = g.batchSize // a step needs this memory anyway
	}
	queries = slices.Sorted(slices.Values(queries))
	for _, f := range []*frozenPolicy{g.reference, g.old} {
		if f == nil || !f.constant {
			continue
		}
		dist := f == g.reference && g.chosen.kl.Sampled == nil
		if s, ok := f.Policy.(selector.Stopper); ok && s.MayStop() && dist {
			continue // its last action lies behind the padding, which take cuts off
		}
		if f.cached == nil {
			f.cached = newCache(g.src.Len(), dist)
		}
		fits, err := f.cached.add(ctx, f.Policy, g.src, queries, batch, g.opt.Ratio == "token", g.recorded)
		if err != nil {
			return err
		}
		if !fits {
			f.cached, f.constant = nil, false // evaluated in every step
		}
	}
	return nil
}

// Foreseen implements phases.Foreseer. On recorded groups all steps can be collected if each batch has one pass and nothing moves from
// step to step; else the next samples can, and their loss waits for β and the temperature.
func (g *Phase) Foreseen(at phases.At) (next []phases.At, inputs bool) {
	o, stale, online := g.opt, g.chosen.old.AtBatch, g.chosen.rollout.Samples
	switch {
	case o.Temperature.Enabled, o.Advantage.Anchored() && o.KL.SyncSteps != nil:
	case online:
		if at.Next[0].Pass == 0 && (stale == nil || !stale(o, g.sinceOld+1)) {
			return at.Next[:1], false
		}
	case o.NumIterations == 1 && stale == nil && o.KL.SyncSteps == nil && (o.KL.Controller == "fixed" || o.KL.Update == "epoch"):
		return at.Next, true
	}
	return nil, false
}

// distBudget bounds the host memory of cached distributions, in bytes.
const distBudget = 256 << 20

// impossibleLogP stands where a cached distribution has no entry: the padding of a larger pool.
const impossibleLogP = -1e9

// cachedLogProbs holds a constant policy's log-probabilities of recorded candidates, on the host.
type cachedLogProbs struct {
	logp    [][]float32 // [Q][G·W] log-probabilities of sequences (W = 1) or of their steps
	width   []int       // [Q] W; 0: the query was not met
	dist    [][]float32 // [Q][G·T·A]; nil if not needed
	actions []int       // [Q] A of dist
}

func newCache(n int, dist bool) *cachedLogProbs {
	k := &cachedLogProbs{logp: make([][]float32, n), width: make([]int, n)}
	if dist {
		k.dist, k.actions = make([][]float32, n), make([]int, n)
	}
	return k
}

// add evaluates p without gradient on the recorded candidates of those queries, in order, that it has not met, batch of them at a time:
// the last bits of a matrix product depend on its shape, and a resumed run must find the same. With steps it keeps the
// log-probability of every step, else their sum. It reports whether the distributions of all candidates fit into distBudget.
func (k *cachedLogProbs) add(ctx context.Context, p selector.Policy, src selector.Source, queries []int, batch int, steps bool,
	candidates int) (fits bool, err error) {
	defer torchx.NoGrad()()
	fits = true
	first := !slices.ContainsFunc(k.width, func(w int) bool { return w > 0 })
	unmet := list.Filter(queries, func(q int) bool { return k.width[q] == 0 })
	for chunk := range slices.Chunk(unmet, batch) {
		if err := ctx.Err(); err != nil {
			return fits, err
		}
		err := torchx.Try(func() error {
			defer torchx.Scope()()
			b := src.Recorded(chunk)
			out := p.Forward(b, selector.ForwardOptions{Dist: k.dist != nil})
			k.take(b, out, steps)
			fits = k.dist == nil || !first || 4*candidates*b.T*out.Dist.Shape()[3] <= distBudget
			return nil
		})
		if first = false; err != nil || !fits {
			return fits, err
		}
	}
	return fits, nil
}

// kept returns the cache as two vectors of a saved state: the log-probabilities, and three numbers a query that was met: its own, W and how
// many it has. Distributions are many times as large, and a resume computes them again.
func (k *cachedLogProbs) kept() (logp, at []float32) {
	for q, values := range k.logp {
		if k.width[q] > 0 {
			logp, at = append(logp, values...), append(at, float32(q), float32(k.width[q]), float32(len(values)))
		}
	}
	return logp, at
}

func (k *cachedLogProbs) restore(logp, at []float32) error {
	for of := range slices.Chunk(at, 3) {
		if len(of) < 3 || int(of[0]) >= len(k.logp) || int(of[2]) > len(logp) {
			return errors.New("the log-probabilities are not those of the recorded groups")
		}
		k.width[int(of[0])], k.logp[int(of[0])], logp = int(of[1]), logp[:int(of[2])], logp[int(of[2]):]
	}
	return nil
}

// take copies a chunk's output to the host without the padding of its pools.
func (k *cachedLogProbs) take(b *selector.Batch, out selector.Output, steps bool) {
	w := 1
	if steps {
		w = b.T
	} else {
		out.LogP = objective.Sequence(out.LogP)
	}
	logp := torchx.Data[float32](out.LogP) // [B, G] or [B, G, T] sync
	var dist []float32
	width := 0 // A of the chunk
	if k.dist != nil {
		dist = torchx.Data[float32](out.Dist) // [B, G, T, A]
		width = len(dist) / (len(b.Valid) * b.T)
	}
	for i, q := range b.Queries {
		size := 0
		for j := range b.Candidates(i) {
			size = j + 1
		}
		at := i * b.G
		k.logp[q], k.width[q] = slices.Clone(logp[at*w:(at+size)*w]), w
		if k.dist == nil {
			continue
		}
		own := width // A of the query: at the first choice only padding is impossible
		for own > 0 && dist[at*b.T*width+own-1] < impossibleLogP/10 {
			own--
		}
		k.actions[q] = own
		k.dist[q] = make([]float32, 0, size*b.T*own)
		for row := at * b.T; row < (at+size)*b.T; row++ {
			k.dist[q] = append(k.dist[q], dist[row*width:row*width+own]...)
		}
	}
}

// logProbs returns log-probabilities [B*G*width] of a batch whose candidate i*G+j is number index[i*G+j] of
// its query's recorded group; 0 where not valid and after a candidate's last step.
func (k *cachedLogProbs) logProbs(b *selector.Batch, index []int, width int) []float32 {
	out := make([]float32, len(b.Valid)*width)
	for at, ok := range b.Valid {
		if ok {
			q := b.Queries[at/b.G]
			own := k.width[q]
			copy(out[at*width:(at+1)*width], k.logp[q][index[at]*own:(index[at]+1)*own])
		}
	}
	return out
}

// distributions returns the same candidates' distributions [B*G*T*A] over pools padded to actions.
func (k *cachedLogProbs) distributions(b *selector.Batch, index []int, actions int) []float32 {
	out := make([]float32, len(b.Valid)*b.T*actions)
	for at, ok := range b.Valid {
		if !ok {
			continue
		}
		q := b.Queries[at/b.G]
		from := k.dist[q][index[at]*b.T*k.actions[q]:]
		for t := range b.T {
			to := out[(at*b.T+t)*actions:][:actions]
			for i := copy(to, from[t*k.actions[q]:][:k.actions[q]]); i < actions; i++ {
				to[i] = impossibleLogP
			}
		}
	}
	return out
}
