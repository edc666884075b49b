package grpo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"fulcrum/internal/torchx"
	"fulcrum/phases"
	"fulcrum/phases/objective"
	"fulcrum/rewardutil/advantage"
	"fulcrum/selector"
)

// A tiny token policy: the next token's logits are a row for the kind of question plus a row for the token
// before it. Token 0 ends a completion. The questions of four kinds want their kind's token twice, then the
// end.
const (
	toyKinds = 4
	toyVocab = 6
	toyMost  = 5 // tokens of a completion
)

var _ selector.TokenPolicy = (*tokenPolicy)(nil)

type tokenPolicy struct {
	Weights  *torchx.Params
	Forwards *int // of this policy and its clones' counters are their own
}

func (p *tokenPolicy) Params() *torchx.Params { return p.Weights }

func (p *tokenPolicy) Metadata() map[string]string { return map[string]string{"kind": "toy"} }

func (p *tokenPolicy) Free() { p.Weights.Free() }

func (p *tokenPolicy) Clone() selector.Policy {
	specs := []torchx.Spec{}
	for _, name := range p.Weights.Names() {
		specs = append(specs, torchx.Spec{Name: name, Shape: p.Weights.Shape(name)})
	}
	c := &tokenPolicy{torchx.NewParams(specs, "cpu"), new(int)}
	c.Weights.CopyFrom(p.Weights)
	return c
}

// dist is the log-distribution of every step [B, G, T, V].
func (p *tokenPolicy) dist(b *selector.Batch, temperature float64) torchx.Tensor {
	src := b.Source.(*tokenSource)
	kinds, before := make([]int64, len(b.Actions)), make([]int64, len(b.Actions))
	for at := range b.Actions {
		kinds[at] = int64(src.kind(b.Queries[at/(b.G*b.T)]))
		before[at] = toyVocab
		if at%b.T > 0 {
			before[at] = b.Actions[at-1]
		}
	}
	shape := []int{b.B(), b.G, b.T}
	logits := torchx.Add(torchx.Embedding(p.Weights.Get("kind"), torchx.From(kinds, shape...)),
		torchx.Embedding(p.Weights.Get("before"), torchx.From(before, shape...)))
	if temperature == 0 {
		temperature = 1
	}
	return torchx.LogSoftmax(torchx.Scale(logits, 1/temperature), 3)
}

func (p *tokenPolicy) Forward(b *selector.Batch, opt selector.ForwardOptions) selector.Output {
	if opt.Dist || !opt.Reference.Nil() {
		panic("a token policy was asked for distributions")
	}
	*p.Forwards++
	dist := p.dist(b, opt.Temperature)
	picked := torchx.Squeeze(torchx.Gather(dist, 3, torchx.From(b.Actions, b.B(), b.G, b.T, 1)), 3)
	entropy := torchx.Neg(torchx.Sum(torchx.Mul(torchx.Exp(dist), dist), 3))
	if !opt.Entropy {
		entropy = torchx.Detach(entropy)
	}
	return selector.Output{LogP: torchx.Mul(picked, objective.Mask(picked, b)), Entropy: entropy}
}

// KL implements selector.TokenPolicy.
func (p *tokenPolicy) KL(b *selector.Batch, reference selector.Policy) torchx.Tensor {
	d, r := p.dist(b, 1), reference.(*tokenPolicy).dist(b, 1)
	return torchx.Sum(torchx.Mul(torchx.Exp(d), torchx.Sub(d, r)), 3)
}

// HalfPrecision implements selector.TokenPolicy.
func (p *tokenPolicy) HalfPrecision() bool { return false }

func (p *tokenPolicy) Sample(s selector.Source, queries []int, g, t int, temperature float64, seed uint64) *selector.Batch {
	r := rand.New(rand.NewPCG(seed, 1))
	return p.generate(s, queries, g, t, func(logits []float64) (int, float64) {
		total, most := 0.0, slices.Max(logits)
		for i, x := range logits {
			logits[i] = math.Exp((x - most) / temperature)
			total += logits[i]
		}
		u := r.Float64() * total
		for i, x := range logits {
			if u -= x; u < 0 {
				return i, math.Log(x / total)
			}
		}
		return len(logits) - 1, math.Log(logits[len(logits)-1] / total)
	})
}

func (p *tokenPolicy) Decode(s selector.Source, queries []int, t, _ int) (*selector.Batch, []float64) {
	b := p.generate(s, queries, 1, t, func(logits []float64) (int, float64) { return slices.Index(logits, slices.Max(logits)), 0 })
	b.Sampled = nil
	return b, make([]float64, len(queries))
}

// generate makes batches as wide as their longest completion. choose returns a token and its log-probability.
func (p *tokenPolicy) generate(s selector.Source, queries []int, g, t int, choose func([]float64) (int, float64)) *selector.Batch {
	kind, before := p.Weights.Get("kind").Floats(), p.Weights.Get("before").Floats()
	var all [][]int64
	var sampled [][]float64
	longest := 1
	for _, q := range queries {
		for range g {
			var tokens []int64
			var logps []float64
			last := toyVocab
			for len(tokens) < t && last != 0 {
				logits := make([]float64, toyVocab)
				for v := range logits {
					logits[v] = kind[s.(*tokenSource).kind(q)*toyVocab+v] + before[last*toyVocab+v]
				}
				var logp float64
				last, logp = choose(logits)
				tokens, logps = append(tokens, int64(last)), append(logps, logp)
			}
			all, sampled = append(all, tokens), append(sampled, logps)
			longest = max(longest, len(tokens))
		}
	}
	b := selector.NewBatch(s, queries, g, longest)
	b.Truncated, b.Sampled = make([]bool, len(b.Valid)), make([]float64, len(b.Actions))
	for at, tokens := range all {
		copy(b.Sampled[at*longest:], sampled[at])
		b.Set(at/g, at%g, tokens, 0)
		b.Truncated[at] = tokens[len(tokens)-1] != 0
	}
	return b
}

func newTokenPolicy(t *testing.T) *tokenPolicy {
	t.Helper()
	torchx.Attach(1)
	p := &tokenPolicy{torchx.NewParams([]torchx.Spec{{Name: "kind", Shape: []int{toyKinds, toyVocab}},
		{Name: "before", Shape: []int{toyVocab + 1, toyVocab}}}, "cpu"), new(int)}
	r := rand.New(rand.NewPCG(3, 3))
	v := make([]float32, p.Weights.Numel())
	for i := range v {
		v[i] = float32(0.3 * r.NormFloat64())
	}
	p.Weights.SetValues(v)
	t.Cleanup(p.Free)
	return p
}

func toyQuestions(name string, first, n int) *tokenSource {
	s := &tokenSource{name: name}
	for i := range n {
		s.ids = append(s.ids, int64(first+i))
	}
	return s
}

func tokenEnv(t *testing.T, rec phases.Recorder, dir string) *phases.Env {
	p := newTokenPolicy(t)
	initial := p.Clone()
	t.Cleanup(initial.Free)
	return &phases.Env{Policy: p, Initial: initial, Seed: 4, Rec: rec, Dir: dir, ConfigHash: "hash", Data: phases.Data{
		Val: toyQuestions("val", 100, 10), Shots: toyMost, Shuffle: true, EvalBatch: 4, Advantage: advantage.DefaultOptions(),
		ValLoss: phases.ValLoss{Temperature: 0.1, PerToken: true}}}
}

type tokenSource struct {
	name string
	ids  []int64
}

func (s *tokenSource) Name() string { return s.name }

func (s *tokenSource) Len() int { return len(s.ids) }

func (s *tokenSource) ID(i int) int64 { return s.ids[i] }

func (s *tokenSource) kind(i int) int { return int(s.ids[i]) % toyKinds }

func (s *tokenSource) CanScore() bool { return true }

func (s *tokenSource) Recorded(queries []int) *selector.Batch {
	b := selector.NewBatch(s, queries, 2, 3)
	b.Truncated = make([]bool, len(b.Valid))
	for i, q := range queries {
		own := int64(s.kind(q) + 1)
		b.Set(i, 0, []int64{own, own, 0}, 1)
		b.Set(i, 1, []int64{own%toyKinds + 1, 0}, 0)
	}
	return b
}

// Score: 0.5 for each of the first two tokens that is right, 0.5 for ending after them.
func (s *tokenSource) Score(b *selector.Batch) error {
	right, ended := make([]float64, len(b.Valid)), make([]float64, len(b.Valid))
	b.Texts = make([]string, len(b.Valid))
	for at, ok := range b.Valid {
		if !ok {
			continue
		}
		tokens := b.Scored(at/b.G, at%b.G)
		for t, x := range tokens {
			if t < 2 && x == int64(s.kind(b.Queries[at/b.G])+1) {
				right[at] += 0.5
			}
		}
		if len(tokens) == 3 && tokens[2] == 0 {
			ended[at] = 1
		}
		b.Rewards[at] = right[at] + 0.5*ended[at]
		b.Texts[at] = strings.Trim(fmt.Sprint(tokens), "[]")
	}
	b.Terms = map[string][]float64{"right": right, "ended": ended}
	return nil
}

func (s *tokenSource) Accuracy(b *selector.Batch) ([]float64, error) {
	err := s.Score(b)
	return b.Terms["right"], err
}
