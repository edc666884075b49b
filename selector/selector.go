// Package selector is the interface between training phases and policies: batches of grouped candidates in,
// log-probabilities with or without gradient out. The policies live in its sub-packages: pointer (the
// composable in-context example selector), vl (Qwen2.5-VL) and seq2seq (T5 and BART).
//
//	out := policy.Forward(batch, selector.ForwardOptions{})   // LogP [B, G, T], with gradient
//
// Shapes: B queries (prompts), G candidates each (beams, samples), T scored steps a candidate (shots
// for a pointer sequence, tokens for text).
package selector

import (
	"iter"
	"slices"

	"fulcrum/internal/list"
	"fulcrum/internal/stat"
	"fulcrum/internal/torchx"
)

// Source is an indexed collection of queries that a policy can answer. Each policy's package has its own
// sources (pools of examples, conversations).
type Source interface {
	Name() string
	Len() int
	// ID returns the global id of query i, as in its file.
	ID(i int) int64
	// Recorded returns a batch of the recorded candidates of these queries, padded to the largest
	// group. Queries without candidates have only padding.
	Recorded(queries []int) *Batch
}

// Scorer is a Source that can score any candidate, not only recorded ones: on-policy samples and greedy selections.
type Scorer interface {
	Source
	// Score fills b.Rewards with the exact reward of every valid candidate and, where they are known, the
	// reward's terms (b.Terms) and the candidates as text (b.Texts).
	Score(b *Batch) error
	// Accuracy calls Score and returns the task accuracy of every candidate [B*G], or nil when it is not known.
	Accuracy(b *Batch) ([]float64, error)
	// CanScore reports whether there is a reward function.
	CanScore() bool
}

// Behind returns the source behind one that stands before another, as a trial's does, and its numbers of queries.
func Behind(src Source, queries []int) (Source, []int) {
	if s, ok := src.(interface {
		Behind(queries []int) (Source, []int)
	}); ok {
		return s.Behind(queries)
	}
	return src, queries
}

// Enumerator is a Scorer with few enough candidates to list them all.
type Enumerator interface {
	Scorer
	// Enumerate returns every candidate of so many steps of these queries, not scored; an error where they are too many.
	Enumerate(queries []int, steps int) (*Batch, error)
}

// Chunks cuts the queries 0 … n-1 into lists of size, the last one shorter.
func Chunks(n, size int) iter.Seq[[]int] { return slices.Chunk(stat.Indices(n), size) }

// Batch is B queries with G candidates of T steps each, on the host.
type Batch struct {
	Source  Source
	Queries []int     // [B] indices into Source
	G, T    int       //
	Actions []int64   // [B*G*T] pool positions or token ids
	Mask    []float32 // [B*G*T] 1 = a scored step; the scored steps of a candidate come first
	Valid   []bool    // [B*G] false = padding
	Rewards []float64 // [B*G] raw rewards; 0 where not valid
	Anchors []float64 // [B] rewards that candidates are to be better than; nil: none

	// Fields of text candidates; nil elsewhere.
	Truncated []bool // [B*G] cut at the length limit: no action that ends the candidate
	// [B*G] share of the policy's distribution that top-p and top-k left for sampling, mean over the steps of a candidate
	Kept []float64
	// [B*G*T] the log-probability that each step was sampled with, at the sampling temperature and before anything was left out;
	// NaN for a forced step, 0 for a step that is not scored
	Sampled []float64
	Terms   map[string][]float64 // [B*G] each: the parts of Rewards by name, before their weights
	Texts   []string             // [B*G] candidates as text
}

// NewBatch returns a batch of zeros: no candidate is valid yet.
func NewBatch(src Source, queries []int, g, t int) *Batch {
	n := len(queries) * g
	return &Batch{Source: src, Queries: queries, G: g, T: t,
		Actions: make([]int64, n*t), Mask: make([]float32, n*t), Valid: make([]bool, n), Rewards: make([]float64, n)}
}

func (b *Batch) B() int { return len(b.Queries) }

// Set stores candidate g of query i: its first len(actions) steps are scored.
func (b *Batch) Set(i, g int, actions []int64, reward float64) {
	at := (i*b.G + g) * b.T
	copy(b.Actions[at:at+b.T], actions)
	for t := range b.T {
		b.Mask[at+t] = 0
		if t < len(actions) {
			b.Mask[at+t] = 1
		}
	}
	b.Valid[i*b.G+g] = true
	b.Rewards[i*b.G+g] = reward
}

// Scored returns the scored steps of candidate g of query i, which come first.
func (b *Batch) Scored(i, g int) []int64 {
	at, n := (i*b.G+g)*b.T, 0
	for n < b.T && b.Mask[at+n] != 0 {
		n++
	}
	return b.Actions[at : at+n]
}

// Chosen is Scored without a last action that only ends the candidate (a negative one).
func (b *Batch) Chosen(i, g int) []int64 {
	actions := b.Scored(i, g)
	if n := len(actions); n > 0 && actions[n-1] < 0 {
		return actions[:n-1]
	}
	return actions
}

// NumValid returns the number of candidates that are not padding.
func (b *Batch) NumValid() (n int) {
	for i := range b.Queries {
		for range b.Candidates(i) {
			n++
		}
	}
	return n
}

// Candidates returns the candidates of query i that are not padding: each one's place in its group and in [B*G].
func (b *Batch) Candidates(i int) iter.Seq2[int, int] {
	return func(yield func(g, at int) bool) {
		for g := range b.G {
			if at := i*b.G + g; b.Valid[at] && !yield(g, at) {
				return
			}
		}
	}
}

// Take returns the batch with k candidates of each query: entry [i*k+j] of index names the position in
// the group if valid is true.
func (b *Batch) Take(k int, index []int, valid []bool) *Batch {
	from := make([]int, len(valid)) // [B*k] where a candidate stands in b; -1 = padding
	for at, ok := range valid {
		if from[at] = -1; ok {
			from[at] = at/k*b.G + index[at]
		}
	}
	out := &Batch{Source: b.Source, Queries: b.Queries, G: k, T: b.T, Valid: pick(b.Valid, from, 1), Rewards: pick(b.Rewards, from, 1),
		Actions: pick(b.Actions, from, b.T), Mask: pick(b.Mask, from, b.T), Sampled: pick(b.Sampled, from, b.T),
		Truncated: pick(b.Truncated, from, 1), Texts: pick(b.Texts, from, 1), Kept: pick(b.Kept, from, 1)}
	for name, term := range b.Terms {
		out.setTerm(name, pick(term, from, 1))
	}
	return out
}

// Part returns queries from … to-1 of the batch, which share its memory.
func (b *Batch) Part(from, to int) *Batch {
	lo, hi := from*b.G, to*b.G
	out := &Batch{Source: b.Source, Queries: b.Queries[from:to], G: b.G, T: b.T,
		Actions: b.Actions[lo*b.T : hi*b.T], Mask: b.Mask[lo*b.T : hi*b.T], Valid: b.Valid[lo:hi], Rewards: b.Rewards[lo:hi],
		Truncated: part(b.Truncated, lo, hi), Texts: part(b.Texts, lo, hi), Kept: part(b.Kept, lo, hi),
		Sampled: part(b.Sampled, lo*b.T, hi*b.T), Anchors: part(b.Anchors, from, to)}
	for name, term := range b.Terms {
		out.setTerm(name, term[lo:hi])
	}
	return out
}

// part returns entries lo … hi-1; nil stays nil.
func part[E any](x []E, lo, hi int) []E {
	if x == nil {
		return nil
	}
	return x[lo:hi]
}

// Groups returns the batch with the groups of some of its queries, given by their place in it.
func (b *Batch) Groups(places []int) *Batch {
	return Join(b.Source, b.G, list.Map(places, func(at int) *Batch { return b.Part(at, at+1) })...)
}

// Join returns one batch with the queries of several batches with groups of g; candidates are padded to the
// most steps. Anchors, Truncated, Kept, Sampled, Terms and Texts are set if every batch that has queries has them.
func Join(src Source, g int, parts ...*Batch) *Batch {
	parts = list.Filter(parts, func(p *Batch) bool { return p.B() > 0 }) // an empty one lacks nothing
	t, queries := 0, []int{}
	for _, p := range parts {
		t, queries = max(t, p.T), append(queries, p.Queries...)
	}
	out := NewBatch(src, queries[:0], g, t)
	out.Queries = queries
	for i, p := range parts {
		out.Actions, out.Mask = append(out.Actions, Wider(p.Actions, p.T, t)...), append(out.Mask, Wider(p.Mask, p.T, t)...)
		out.Valid, out.Rewards = append(out.Valid, p.Valid...), append(out.Rewards, p.Rewards...)
		out.Sampled = joined(i, out.Sampled, Wider(p.Sampled, p.T, t))
		out.Truncated, out.Texts = joined(i, out.Truncated, p.Truncated), joined(i, out.Texts, p.Texts)
		out.Kept, out.Anchors = joined(i, out.Kept, p.Kept), joined(i, out.Anchors, p.Anchors)
		if i == 0 {
			for name, term := range p.Terms {
				out.setTerm(name, slices.Clone(term))
			}
		} else {
			for name, term := range out.Terms {
				if out.Terms[name] = joined(i, term, p.Terms[name]); out.Terms[name] == nil {
					delete(out.Terms, name)
				}
			}
		}
	}
	return out
}

// Wider adds zeros to rows of n entries up to t; nil stays nil.
func Wider[E any](x []E, n, t int) []E {
	if n == t || x == nil {
		return x
	}
	out := make([]E, len(x)/n*t)
	for i := range len(x) / n {
		copy(out[i*t:], x[i*n:(i+1)*n])
	}
	return out
}

// joined appends the entries of batch i; nil where one batch has none.
func joined[E any](i int, x, more []E) []E {
	if more == nil || x == nil && i > 0 {
		return nil
	}
	return append(x, more...)
}

// Gains returns the rewards [B*G] over the group's anchor, where there are anchors.
func (b *Batch) Gains() []float64 {
	if b.Anchors == nil {
		return b.Rewards
	}
	out := slices.Clone(b.Rewards)
	for at := range out {
		out[at] -= b.Anchors[at/b.G]
	}
	return out
}

// Drop makes a candidate padding.
func (b *Batch) Drop(at int) {
	b.Valid[at], b.Rewards[at] = false, 0
	clear(b.Mask[at*b.T : (at+1)*b.T])
}

// Cut reports whether candidate at [B*G] was cut at the length limit.
func (b *Batch) Cut(at int) bool { return b.Truncated != nil && b.Truncated[at] }

func (b *Batch) setTerm(name string, values []float64) {
	if b.Terms == nil {
		b.Terms = map[string][]float64{}
	}
	b.Terms[name] = values
}

// pick returns the rows of n entries of x at the positions from, zeros for -1; nil stays nil.
func pick[E any](x []E, from []int, n int) []E {
	if x == nil {
		return nil
	}
	out := make([]E, len(from)*n)
	for i, at := range from {
		if at >= 0 {
			copy(out[i*n:(i+1)*n], x[at*n:])
		}
	}
	return out
}

// ForwardOptions selects the results of a forward pass. The zero value is an evaluation pass at
// temperature 1 without distributions.
type ForwardOptions struct {
	Train       bool          // dropout on: never in a forward that enters a ratio or a KL
	DropoutSeed uint64        // the stream of this step's dropout masks
	Temperature float64       // policy temperature; 0 means 1
	Dist        bool          // also return the whole log-distribution of every step
	Entropy     bool          // also return Entropy, with gradient outside torchx.NoGrad
	Reference   torchx.Tensor // Dist of the reference policy on the same batch, if wanted: also return KL
}

// Output holds a policy's log-probabilities of a batch, and the further tensors that ForwardOptions asks for.
type Output struct {
	LogP torchx.Tensor // [B, G, T] log π(action | query, earlier actions); 0 where masked
	Dist torchx.Tensor // [B, G, T, A] log-probabilities of all A actions, when asked for; very negative where impossible
	// KL is the exact KL(π ‖ reference) of every step, not masked, with gradient.
	KL torchx.Tensor // [B, G, T] nats
	// Entropy is -Σ_a π(a) log π(a) of every step, not masked; with gradient where ForwardOptions.Entropy
	// asks for it and the policy can't give Dist. Undefined if the policy doesn't give it.
	Entropy torchx.Tensor // [B, G, T] nats
}

// Policy is a trainable distribution over sequences of actions.
type Policy interface {
	// Forward returns log-probabilities, with gradient unless inside torchx.NoGrad.
	Forward(b *Batch, opt ForwardOptions) Output
	// Sample draws g sequences of t actions for each query, without gradient. Rewards are not filled.
	Sample(src Source, queries []int, g, t int, temperature float64, seed uint64) *Batch
	// Decode returns the width best sequences of t actions by beam search; width 1 is greedy.
	// scores [B*width] are their log-probabilities.
	Decode(src Source, queries []int, t, width int) (b *Batch, scores []float64)
	// Params returns the trainable parameters.
	Params() *torchx.Params
	// Clone returns an independent copy with the same weights: an old or reference policy.
	Clone() Policy
	// Metadata describes the policy well enough to rebuild it from a checkpoint.
	Metadata() map[string]string
	// Free releases the weights.
	Free()
}

// This file declares optional powers of policies, found by type assertion.

// Stager is a Policy whose forward pass has two parts: the host's and the device's.
type Stager interface {
	Policy
	// Stage adds what Forward reads of a batch to up. The returned function is Forward once up was sent.
	Stage(b *Batch, up *torchx.Upload) (forward func(ForwardOptions) Output)
	// Eager returns the reason why no CUDA graph can hold that function, a transfer from the host; "": a graph can.
	Eager(opt ForwardOptions) string
}

// Stage calls the policy's Stage; of other policies it stages Forward. eager is the reason why no CUDA graph can hold the function, or "".
func Stage(p Policy, b *Batch, up *torchx.Upload, opt ForwardOptions) (forward func(ForwardOptions) Output, eager string) {
	if s, ok := p.(Stager); ok {
		return s.Stage(b, up), s.Eager(opt)
	}
	return func(opt ForwardOptions) Output { return p.Forward(b, opt) }, "each batch has a shape of its own"
}

// TokenPolicy is a Policy whose actions are tokens of a vocabulary and whose candidates are texts. The vocabulary is
// too large for Output.Dist.
type TokenPolicy interface {
	Policy
	// KL returns KL(π ‖ reference) of every step [B, G, T] in nats, summed over the whole vocabulary: without gradient, 0
	// where masked.
	KL(b *Batch, reference Policy) torchx.Tensor
	// HalfPrecision reports whether the policy computes in 16 bits: log-probabilities of equal weights then agree to two
	// digits only, where the shapes of their batches differ.
	HalfPrecision() bool
}

// Stopper is a Policy that may have an action that ends a candidate: the last one of Output.Dist, after the pool's
// actions.
type Stopper interface {
	Policy
	MayStop() bool
}
