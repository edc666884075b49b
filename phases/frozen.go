package phases

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"fulcrum/internal/torchx"
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

// distBudget bounds the host memory of known distributions, in bytes.
const distBudget = 256 << 20

// impossibleLogP stands where a known distribution has no entry: the padding of a larger pool.
const impossibleLogP = -1e9

// knowledge is what a constant policy thinks of every recorded candidate, on the host.
type knowledge struct {
	logp    [][]float32 // [Q][G] sequence log-probabilities
	dist    [][]float32 // [Q][G·T·A]; nil where nobody asked
	actions []int       // [Q] A of dist
}

// know evaluates p on all recorded candidates of src without gradient, batch queries at a time in file
// order: the last bits of a matrix product depend on its shape, and a resumed run must find the same. It
// returns nil where the distributions of so many candidates would not fit into distBudget.
func know(ctx context.Context, p selector.Policy, src selector.Source, batch int, dist bool, candidates int) (*knowledge, error) {
	defer torchx.NoGrad()()
	n := src.Len()
	k := &knowledge{logp: make([][]float32, n)}
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
			k.take(b, out)
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
func (k *knowledge) take(b *selector.Batch, out selector.Output) {
	logp := torchx.Data[float32](sequence(out.LogP)) // [B, G] sync
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
		k.logp[q] = append([]float32(nil), logp[at:at+size]...)
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

// sequences returns log-probabilities [B*G] of a batch whose candidate i*G+j is number index[i*G+j] of
// its query's recorded group; 0 where not valid.
func (k *knowledge) sequences(b *selector.Batch, index []int) []float32 {
	out := make([]float32, len(b.Valid))
	for at, ok := range b.Valid {
		if ok {
			out[at] = k.logp[b.Queries[at/b.G]][index[at]]
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
	logp torchx.Tensor // [B, G]
	dist torchx.Tensor // [B, G, T, A]; no tensor where nobody asked
}

// view looks the batch up, or evaluates it.
func (f *frozenPolicy) view(b *selector.Batch, index []int, forward selector.ForwardOptions) view {
	if f.known == nil {
		defer torchx.NoGrad()()
		out := f.Forward(b, forward)
		return view{sequence(out.LogP), out.Dist}
	}
	like := f.Params().Flat()
	v := view{logp: torchx.ToLike(torchx.From(f.known.sequences(b, index), b.B(), b.G), like)}
	if forward.Dist {
		a := 0
		for _, q := range b.Queries {
			a = max(a, f.known.actions[q])
		}
		v.dist = torchx.ToLike(torchx.From(f.known.distributions(b, index, a), b.B(), b.G, b.T, a), like)
	}
	return v
}

func (f *frozenPolicy) free() {
	if f != nil && f.owned {
		f.Free()
	}
}

// freezePolicies makes the old and the reference policy, one for both where they are the same.
func (g *GRPO) freezePolicies() error {
	switch g.opt.OldPolicy {
	case "batch":
	case "init":
		g.old = &frozenPolicy{Policy: g.env.Initial, constant: true}
		if n := g.opt.OldPolicyHeads; n != nil {
			p, ok := g.env.Initial.(selector.HeadCloner)
			if !ok {
				return fmt.Errorf("%s.old_policy_heads=%d: this policy has no attention heads to choose", g.name, *n)
			}
			rebuilt, err := p.CloneWithHeads(*n)
			if err != nil {
				return fmt.Errorf("%s.old_policy_heads: %w", g.name, err)
			}
			g.old = &frozenPolicy{Policy: rebuilt, constant: true, owned: true}
		}
		g.startsOld = maps.Equal(g.old.Metadata(), g.env.Policy.Metadata()) && slices.Equal(g.old.Params().Values(), g.env.Policy.Params().Values())
	default:
		g.startsOld = true
		g.old = &frozenPolicy{Policy: g.env.Policy.Clone(), constant: g.opt.OldPolicy == "phase_start", owned: true}
	}
	switch ref := g.opt.KL.Reference; {
	case ref == g.opt.OldPolicy && g.old.constant:
		g.reference = g.old
	case ref == "init":
		g.reference = &frozenPolicy{Policy: g.env.Initial, constant: true}
	default:
		g.reference = &frozenPolicy{Policy: g.env.Policy.Clone(), constant: ref == "phase_start", owned: true}
	}
	return nil
}

// stopper is a policy that may have an action behind the pool's, which ends a candidate.
type stopper interface{ MayStop() bool }

// lookAheadBatch is how many queries are evaluated at once when a phase begins.
const lookAheadBatch = 64

// Prepare computes once what the constant policies think of all recorded groups. A policy temperature
// that moves would make it wrong.
func (g *GRPO) Prepare(ctx context.Context) error {
	if g.opt.Rollout == "online" || g.opt.Temperature.Enabled {
		return nil
	}
	batch := max(g.batch, lookAheadBatch)
	if g.opt.Compat {
		batch = g.batch // the noise of D20 wants the shapes of the steps
	}
	for _, f := range []*frozenPolicy{g.reference, g.old} {
		if f == nil || !f.constant || f.known != nil {
			continue
		}
		dist := f == g.reference && g.opt.KL.Estimator == "exact"
		if s, ok := f.Policy.(stopper); ok && s.MayStop() && dist {
			continue // its last action stands behind the padding that take cuts off
		}
		var err error
		if f.known, err = know(ctx, f.Policy, g.src, batch, dist, g.recorded); err != nil {
			return err
		}
	}
	return nil
}
