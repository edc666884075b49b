package grpo

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"fulcrum/internal/torchx"
	"fulcrum/phases/objective"
	"fulcrum/selector"
)

// frozenPolicy is an old or reference policy. Where its weights stay for the whole phase and the groups
// are recorded, what it thinks of them is computed once (known) and looked up in every step.
type frozenPolicy struct {
	selector.Policy
	owned    bool       // freed with the phase
	constant bool       // nothing refreshes it within the phase
	known    *knowledge // nil: evaluated in every step
}

// HeadCloner is a policy whose attention can be read with another number of heads: the same weights, in the same shapes,
// make another function of them.
type HeadCloner interface {
	CloneWithHeads(heads int) (selector.Policy, error)
}

// distBudget bounds the host memory of known distributions, in bytes.
const distBudget = 256 << 20

// impossibleLogP stands where a known distribution has no entry: the padding of a larger pool.
const impossibleLogP = -1e9

// knowledge is what a constant policy thinks of every recorded candidate, on the host.
type knowledge struct {
	logp    [][]float32 // [Q][G·W] log-probabilities of sequences (W = 1) or of their steps
	width   []int       // [Q] W
	dist    [][]float32 // [Q][G·T·A]; nil where nobody asked
	actions []int       // [Q] A of dist
}

// know evaluates p on all recorded candidates of src without gradient, batch queries at a time in file
// order: the last bits of a matrix product depend on its shape, and a resumed run must find the same. With
// steps it keeps the log-probability of every step, else their sum. It returns nil where the distributions of so many candidates would not fit into distBudget.
func know(ctx context.Context, p selector.Policy, src selector.Source, batch int, dist, steps bool, candidates int) (*knowledge, error) {
	defer torchx.NoGrad()()
	n := src.Len()
	k := &knowledge{logp: make([][]float32, n), width: make([]int, n)}
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
func (k *knowledge) take(b *selector.Batch, out selector.Output, steps bool) {
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
func (k *knowledge) logProbs(b *selector.Batch, index []int, width int) []float32 {
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
func (k *knowledge) distributions(b *selector.Batch, index []int, actions int) []float32 {
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

// view is what a frozen policy thinks of the batch in hand, without gradient.
type view struct {
	logp torchx.Tensor // [B, G], or [B, G, T] with ratio=token
	dist torchx.Tensor // [B, G, T, A]; no tensor where nobody asked
}

// view looks a part of the batch in hand up, or evaluates it; it starts at query from.
func (g *Phase) view(f *frozenPolicy, b *selector.Batch, from int, forward selector.ForwardOptions) view {
	if f.known == nil {
		defer torchx.NoGrad()()
		out := f.Forward(b, forward)
		return view{g.perRatio(out.LogP), out.Dist}
	}
	like, index := f.Params().Flat(), g.hand.index[from*b.G:]
	v := view{logp: torchx.ToLike(torchx.From(f.known.logProbs(b, index, g.width(b)), g.shape(b)...), like)}
	if forward.Dist {
		a := 0
		for _, q := range b.Queries {
			a = max(a, f.known.actions[q])
		}
		v.dist = torchx.ToLike(torchx.From(f.known.distributions(b, index, a), b.B(), b.G, b.T, a), like)
	}
	return v
}

// kept returns the log-probabilities of a part that the batch's first pass kept, like logp.
func (g *Phase) kept(values []float32, b *selector.Batch, from int, like torchx.Tensor) torchx.Tensor {
	w := g.width(b)
	return torchx.ToLike(torchx.From(values[from*b.G*w:][:len(b.Valid)*w], g.shape(b)...), like)
}

// referenceView is what the reference policy thinks of a part of the batch in hand.
func (g *Phase) referenceView(b *selector.Batch, from int, temperature float64) view {
	if g.hand.ref != nil {
		return view{logp: g.kept(g.hand.ref, b, from, g.reference.Params().Flat())}
	}
	return g.view(g.reference, b, from, selector.ForwardOptions{Temperature: temperature, Dist: g.opt.KL.Estimator == "exact"})
}

// oldLogProbs returns the old policy's log-probabilities, like logp, and whether that policy has the very
// weights that the numerator has now.
func (g *Phase) oldLogProbs(b *selector.Batch, from int, temperature float64, logp torchx.Tensor, ref view) (torchx.Tensor, bool) {
	switch {
	case g.hand.old != nil:
		return g.kept(g.hand.old, b, from, logp), false
	case g.opt.OldPolicy == "batch":
		return torchx.Detach(logp), true
	case g.old == g.reference:
		return ref.logp, g.sinceOld == 0 && g.startsOld
	}
	return g.view(g.old, b, from, selector.ForwardOptions{Temperature: temperature}).logp, g.sinceOld == 0 && g.startsOld
}

func (f *frozenPolicy) free() {
	if f != nil && f.owned {
		f.Free()
	}
}

// freezePolicies makes the old and the reference policy, one for both where they are the same.
func (g *Phase) freezePolicies() error {
	switch g.opt.OldPolicy {
	case "batch":
		g.old = &frozenPolicy{Policy: g.env.Policy}
	case "init":
		g.old = &frozenPolicy{Policy: g.env.Initial, constant: true}
		if n := g.opt.OldPolicyHeads; n != nil {
			rebuilt, err := g.withHeads(g.env.Initial, *n)
			if err != nil {
				return err
			}
			g.old = &frozenPolicy{Policy: rebuilt, constant: true, owned: true}
		}
		g.startsOld = maps.Equal(g.old.Metadata(), g.env.Policy.Metadata()) && slices.Equal(g.old.Params().Values(), g.env.Policy.Params().Values())
	default:
		g.startsOld = true
		g.old = &frozenPolicy{Policy: g.env.Policy.Clone(), constant: g.opt.OldPolicy == "phase_start", owned: true}
	}
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
	return nil
}

// withHeads rebuilds the initial policy with n attention heads (old_policy_heads). The caller frees it.
func (g *Phase) withHeads(initial selector.Policy, n int) (selector.Policy, error) {
	p, ok := initial.(HeadCloner)
	if !ok {
		return nil, fmt.Errorf("%s.old_policy_heads=%d: this policy has no attention heads to choose", g.name, n)
	}
	rebuilt, err := p.CloneWithHeads(n)
	if err != nil {
		return nil, fmt.Errorf("%s.old_policy_heads: %w", g.name, err)
	}
	return rebuilt, nil
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

// lookAheadBatch is how many queries are evaluated at once when a phase begins.
const lookAheadBatch = 64

// Prepare computes once what the constant policies think of all recorded groups. A policy temperature
// that moves would make it wrong.
func (g *Phase) Prepare(ctx context.Context) error {
	if g.opt.Rollout == "online" || g.opt.Temperature.Enabled {
		return nil
	}
	batch := max(g.batch, lookAheadBatch)
	switch {
	case g.opt.Compat:
		batch = g.batch // the noise of D20 wants the shapes of the steps
	case g.opt.MicroBatch != nil:
		batch = *g.opt.MicroBatch
	case g.text:
		batch = g.batch // whose memory a step needs anyway
	}
	for _, f := range []*frozenPolicy{g.reference, g.old} {
		if !f.constant || f.known != nil {
			continue
		}
		dist := f == g.reference && g.opt.KL.Estimator == "exact"
		if s, ok := f.Policy.(selector.Stopper); ok && s.MayStop() && dist {
			continue // its last action stands behind the padding that take cuts off
		}
		var err error
		if f.known, err = know(ctx, f.Policy, g.src, batch, dist, g.opt.Ratio == "token", g.recorded); err != nil {
			return err
		}
	}
	return nil
}
