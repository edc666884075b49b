package grpo

import (
	"context"
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// cacheBatch is how many queries are evaluated at once when a phase begins.
const cacheBatch = 64

// Prepare computes the constant policies' log-probabilities of all recorded groups, once. They would be wrong for a
// policy temperature that moves.
func (g *Phase) Prepare(ctx context.Context) error {
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
	for _, f := range []*frozenPolicy{g.reference, g.old} {
		if f == nil || !f.constant || f.cached != nil {
			continue
		}
		dist := f == g.reference && g.chosen.kl.Sampled == nil
		if s, ok := f.Policy.(selector.Stopper); ok && s.MayStop() && dist {
			continue // its last action lies behind the padding, which take cuts off
		}
		var err error
		if f.cached, err = cacheLogProbs(ctx, f.Policy, g.src, batch, dist, g.opt.Ratio == "token", g.recorded); err != nil {
			return err
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

// cachedLogProbs holds a constant policy's log-probabilities of every recorded candidate, on the host.
type cachedLogProbs struct {
	logp    [][]float32 // [Q][G·W] log-probabilities of sequences (W = 1) or of their steps
	width   []int       // [Q] W
	dist    [][]float32 // [Q][G·T·A]; nil if not needed
	actions []int       // [Q] A of dist
}

// cacheLogProbs evaluates p on all recorded candidates of src without gradient, batch queries at a time in file
// order: the last bits of a matrix product depend on its shape, and a resumed run must find the same. With
// steps it keeps the log-probability of every step, else their sum. It returns nil where the candidates'
// distributions do not fit into distBudget.
func cacheLogProbs(ctx context.Context, p selector.Policy, src selector.Source, batch int, dist, steps bool,
	candidates int) (*cachedLogProbs, error) {
	defer torchx.NoGrad()()
	n := src.Len()
	k := &cachedLogProbs{logp: make([][]float32, n), width: make([]int, n)}
	if dist {
		k.dist, k.actions = make([][]float32, n), make([]int, n)
	}
	for queries := range selector.Chunks(n, batch) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		fits := true
		err := torchx.Try(func() error {
			defer torchx.Scope()()
			b := src.Recorded(queries)
			out := p.Forward(b, selector.ForwardOptions{Dist: dist})
			k.take(b, out, steps)
			fits = !dist || queries[0] > 0 || 4*candidates*b.T*out.Dist.Shape()[3] <= distBudget
			return nil
		})
		if err != nil {
			return nil, err
		}
		if !fits {
			return nil, nil
		}
	}
	return k, nil
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
