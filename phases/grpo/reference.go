package grpo

import (
	"context"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// frozenPolicy is an old or reference policy. Where its weights stay for the whole phase and the groups
// are recorded, what it thinks of them is computed once (cached) and looked up in every step.
type frozenPolicy struct {
	selector.Policy
	owned    bool            // freed with the phase
	constant bool            // nothing refreshes it within the phase
	cached   *cachedLogProbs // nil: evaluated in every step
}

// distBudget bounds the host memory of cached distributions, in bytes.
const distBudget = 256 << 20

// impossibleLogP stands where a cached distribution has no entry: the padding of a larger pool.
const impossibleLogP = -1e9

// cachedLogProbs holds what a constant policy thinks of every recorded candidate, on the host.
type cachedLogProbs struct {
	logp    [][]float32 // [Q][G·W] log-probabilities of sequences (W = 1) or of their steps
	width   []int       // [Q] W
	dist    [][]float32 // [Q][G·T·A]; nil where nobody asked
	actions []int       // [Q] A of dist
}

// cacheLogProbs evaluates p on all recorded candidates of src without gradient, batch queries at a time in file
// order: the last bits of a matrix product depend on its shape, and a resumed run must find the same. With
// steps it keeps the log-probability of every step, else their sum. It returns nil where the distributions of so many
// candidates would not fit into distBudget.
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

// take copies a chunk's output to the host, without the padding of its pools.
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
		for j := range b.G {
			if b.Valid[i*b.G+j] {
				size = j + 1
			}
		}
		at := i * b.G
		k.logp[q], k.width[q] = append([]float32(nil), logp[at*w:(at+size)*w]...), w
		if k.dist == nil {
			continue
		}
		own := width // A of the query: before the first choice only padding is impossible
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
// its query's recorded group; 0 where not valid, and behind a candidate's steps.
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

// view is what a frozen policy thinks of the rollout, without gradient.
type view struct {
	logp torchx.Tensor // [B, G], or [B, G, T] with ratio=token
	dist torchx.Tensor // [B, G, T, A]; no tensor where nobody asked

	steps torchx.Tensor // [B, G, T] what logp is, or is the sum of; no tensor where that was looked up
}

// view stages what f thinks of a part of the rollout, which starts at query from: looked up, or evaluated.
func (g *Phase) view(f *frozenPolicy, b *selector.Batch, from int, forward selector.ForwardOptions, w *phases.Work) func() view {
	if f.cached == nil {
		evaluate, eager := selector.Stage(f.Policy, b, &w.Upload, forward)
		w.Refuse(eager)
		return func() view {
			defer torchx.NoGrad()()
			out := evaluate(forward)
			return view{g.perRatio(out.LogP), out.Dist, out.LogP}
		}
	}
	index, v := g.rollout.index[from*b.G:], &view{}
	torchx.Put(&w.Upload, &v.logp, f.cached.logProbs(b, index, g.width(b)), g.shape(b, b.T)...)
	if forward.Dist {
		a := 0
		for _, q := range b.Queries {
			a = max(a, f.cached.actions[q])
		}
		torchx.Put(&w.Upload, &v.dist, f.cached.distributions(b, index, a), b.B(), b.G, b.T, a)
	}
	return func() view { return *v }
}

// kept stages the log-probabilities of a part that the batch's first pass kept, like logp.
func (g *Phase) kept(values []float32, b *selector.Batch, from int, w *phases.Work) *torchx.Tensor {
	width, t := g.width(b), new(torchx.Tensor)
	torchx.Put(&w.Upload, t, values[from*b.G*width:][:len(b.Valid)*width], g.shape(b, b.T)...)
	return t
}

// referenceView stages what the reference policy thinks of a part of the rollout.
func (g *Phase) referenceView(b *selector.Batch, from int, temperature float64, w *phases.Work) func() view {
	if g.rollout.ref != nil {
		kept := g.kept(g.rollout.ref, b, from, w)
		return func() view { return view{logp: *kept} }
	}
	return g.view(g.reference, b, from, selector.ForwardOptions{Temperature: temperature, Dist: g.chosen.kl.Sampled == nil}, w)
}

func (f *frozenPolicy) free() {
	if f != nil && f.owned {
		f.Free()
	}
}

// takeReference makes the reference policy, after the old one, which serves as both where they are the same.
func (g *Phase) takeReference() {
	follows := g.opt.KL.SyncSteps != nil // it is then a copy of its own
	switch ref := g.opt.KL.Reference; {
	case ref == g.opt.OldPolicy && g.old.constant && !follows:
		g.reference = g.old
	case ref == "init" && !follows:
		g.reference = &frozenPolicy{Policy: g.env.Initial, constant: true}
	case ref == "init":
		g.reference = &frozenPolicy{Policy: g.env.Initial.Clone(), owned: true}
	default:
		g.reference = &frozenPolicy{Policy: g.env.Policy.Clone(), constant: ref == "phase_start" && !follows, owned: true}
	}
}

// syncReference moves the reference towards the policy after every kl.sync_steps optimizer steps; step
// counts from 0. (TR-DPO, arXiv:2404.09656, eq. 10 and 11: soft and hard updates.)
func (g *Phase) syncReference(step int) {
	n, mix := g.opt.KL.SyncSteps, g.opt.KL.SyncMix
	if n == nil || (step+1)%*n != 0 {
		return
	}
	if mix == 1 {
		g.reference.Params().CopyFrom(g.env.Policy.Params())
		return
	}
	defer torchx.Scope()()
	to := g.reference.Params().Flat()
	torchx.Copy(to, torchx.Add(torchx.Scale(g.env.Policy.Params().Flat(), mix), torchx.Scale(to, 1-mix)))
}

// cacheBatch is how many queries are evaluated at once when a phase begins.
const cacheBatch = 64

// Prepare computes once what the constant policies think of all recorded groups. A policy temperature
// that moves would make it wrong.
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
		batch = g.batchSize // whose memory a step needs anyway
	}
	for _, f := range []*frozenPolicy{g.reference, g.old} {
		if !f.constant || f.cached != nil {
			continue
		}
		dist := f == g.reference && g.chosen.kl.Sampled == nil
		if s, ok := f.Policy.(selector.Stopper); ok && s.MayStop() && dist {
			continue // its last action stands behind the padding that take cuts off
		}
		var err error
		if f.cached, err = cacheLogProbs(ctx, f.Policy, g.src, batch, dist, g.opt.Ratio == "token", g.recorded); err != nil {
			return err
		}
	}
	return nil
}
