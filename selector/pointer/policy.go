// Package pointer is the in-context example selector: a policy that points, one after another, at S
// examples of a query's pool of candidates (the parity spec's bi-encoder with cross-attention over the
// pool and a gated, history-aware query state), optionally on top of plain embedding similarity.
//
//	policy, err := pointer.New(opt, dim, seed, "cpu")
//	out := policy.Forward(pointer.NewSource(set).Recorded(queries), selector.ForwardOptions{})
//
// It knows no rewards and no training phase.
package pointer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"fulcrum/beamdata"
	"fulcrum/beamdata/poolfeatures"
	"fulcrum/internal/rng"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// Policy is a pointer selector. It implements selector.Policy.
type Policy struct {
	opt       Options
	dim       int // width d of the embeddings
	device    string
	dtype     torchx.DType // of parameters and computation: float32, or float64 for gradient checks
	params    *torchx.Params
	tables    *tables
	diversity diversity          // nil = none
	clip      Embedder           // computes the rows of the table; nil = they are read
	features  *poolfeatures.List // nil = none
}

// tables are embedding tables on the device, shared by a policy and its clones.
type tables struct {
	on      map[*beamdata.Table]torchx.Tensor
	inverse map[*beamdata.Table]torchx.Tensor // 1/|row|
	slot    map[*beamdata.Table]*slots
	mu      sync.Mutex
	known   map[poolKey][]*description
}

// layer is one cross-attention layer: the packed projection in its three parts [h, h] and [h].
type layer struct{ wq, wk, wv, bq, bv, outWeight, outBias, normWeight, normBias torchx.Tensor }

func (p *Policy) layer(i int) layer {
	h := p.opt.HiddenDim
	attn, norm := fmt.Sprintf("cross_attn_layers.%d.", i), fmt.Sprintf("attn_norms.%d.", i)
	weight := func(n int) torchx.Tensor { return p.params.Part(attn+"in_proj_weight", 0, n*h, h) }
	bias := func(n int) torchx.Tensor { return p.params.Part(attn+"in_proj_bias", 0, n*h, h) }
	return layer{
		weight(0), weight(1), weight(2), bias(0), bias(2), // the key bias moves all scores of a head alike
		p.params.Get(attn + "out_proj.weight"), p.params.Get(attn + "out_proj.bias"),
		p.params.Get(norm + "weight"), p.params.Get(norm + "bias"),
	}
}

// weights lists the parameters of a selector over d-wide embeddings as the reference initialises them (parity
// spec §4): Xavier-uniform projections and gate, PyTorch's attention defaults, output projections at identity
// plus a little noise. What a variant adds stands in the variant's file.
func weights(opt Options, d int) []weight {
	h := opt.HiddenDim
	var w []weight
	if opt.Skip.Enabled {
		w = append([]weight{{name: "skip_scale", shape: []int{1}, start: constant(1)}}, relationWeights(opt.Relation, d)...)
	}
	w = append(w, opt.Features.weights()...)
	if !opt.encodes() {
		return w
	}
	if d != h {
		w = append(w, weight{name: "input_proj.weight", shape: []int{h, d}, start: xavier})
	}
	w = append(w, opt.CandidateEncoder.weights(h)...)
	for i := range opt.NumLayers {
		attn, norm := fmt.Sprintf("cross_attn_layers.%d.", i), fmt.Sprintf("attn_norms.%d.", i)
		w = slices.Concat(w, linearWeights(attn+"in_proj_", h, 3*h, xavier), linearWeights(attn+"out_proj.", h, h, kaiming),
			normWeights(norm, h))
	}
	w = append(w, weight{name: "query_proj.weight", shape: []int{h, h}, start: nearIdentity},
		weight{name: "cand_proj.weight", shape: []int{h, h}, start: nearIdentity})
	w = append(w, updateWeights(opt, h)...)
	if opt.Skip.Enabled {
		w = append(w, weight{name: "learned_scale", shape: []int{1}, start: constant(opt.Skip.LearnedScale)})
	}
	w = slices.Concat(w, headWeights(opt, h), slotWeights(opt, h))
	if kind := diversities(opt.Diversity.Kind); kind != nil {
		w = append(w, kind.weights(opt, h)...)
	}
	return slices.Concat(w, opt.Coarse.weights(h), opt.Stop.weights(h))
}

// New returns a freshly initialised selector for d-wide embeddings. The weights depend on seed only.
func New(opt Options, d int, seed int64, device string) (*Policy, error) {
	return NewOver(nil, opt, d, seed, device)
}

// NewOver is New for embeddings that a model computes, whose adapters start fresh and are trained with the selector; nil = the rows of
// the sources' tables. The policy frees the model.
func NewOver(model Embedder, opt Options, d int, seed int64, device string) (*Policy, error) {
	if opt.DModel != nil && *opt.DModel != d {
		return nil, fmt.Errorf("selector.d_model=%d: the embeddings have %d columns", *opt.DModel, d)
	}
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("selector.%w", err)
	}
	if err := opt.Features.scaled(); err != nil {
		return nil, err
	}
	if err := fits(opt, d); err != nil {
		return nil, err
	}
	return newPolicy(model, opt, d, seed, device, torchx.Float32)
}

func newPolicy(model Embedder, opt Options, d int, seed int64, device string, dtype torchx.DType) (*Policy, error) {
	opt.Relation.Choose(d, 1)
	p := &Policy{opt: opt, dim: d, device: device, dtype: dtype, diversity: diversities(opt.Diversity.Kind),
		tables: &tables{on: map[*beamdata.Table]torchx.Tensor{}, inverse: map[*beamdata.Table]torchx.Tensor{}, slot: map[*beamdata.Table]*slots{},
			known: map[poolKey][]*description{}}}
	if opt.Features.enabled() {
		p.features = opt.Features.list()
	}
	p.own(model)
	if model != nil {
		if err := model.Start(p.params, seed); err != nil {
			return nil, err
		}
	}
	for _, w := range weights(opt, d) {
		values := make([]float32, p.params.Get(w.name).Numel())
		w.start(rng.New(seed, "init "+cmp.Or(w.stream, w.name)), w.shape, values)
		if err := p.params.Set(w.name, values); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// own gives the policy parameters of its own, those of the model's adapters behind the others.
func (p *Policy) own(model Embedder) {
	specs := Specs(p.opt, p.dim)
	if model != nil {
		specs = append(specs, model.Specs()...)
	}
	if p.params = torchx.NewParamsOf(p.dtype, specs, p.device); model != nil {
		p.clip = model.Over(p.params)
	}
}

func (p *Policy) Params() *torchx.Params { return p.params }
func (p *Policy) Options() Options       { return p.opt }

// SetShots sets how many examples the policy is asked for; its checkpoints say so.
func (p *Policy) SetShots(n int) { p.opt.ShotNum = &n }

func (p *Policy) Clone() selector.Policy {
	q := &Policy{opt: p.opt, dim: p.dim, device: p.device, dtype: p.dtype, tables: p.tables, diversity: p.diversity, features: p.features}
	q.own(p.clip)
	q.params.CopyFrom(p.params)
	return q
}

// CloneWithHeads returns a selector with a copy of the weights, read with another number of attention heads: in the same
// shapes they make another function.
func (p *Policy) CloneWithHeads(heads int) (selector.Policy, error) {
	q := p.Clone().(*Policy)
	q.opt.NumHeads = heads
	if err := q.opt.Validate(); err != nil {
		q.Free()
		return nil, fmt.Errorf("selector.%w", err)
	}
	return q, nil
}

// Free releases the weights (tables stay with the other clones).
func (p *Policy) Free() {
	p.params.Free()
	if p.clip != nil {
		p.clip.Free()
	}
}

// Metadata describes the architecture for a checkpoint: enough to rebuild the policy.
func (p *Policy) Metadata() map[string]string {
	m := map[string]string{"policy": "pointer", "selector.d_model": strconv.Itoa(p.dim)}
	opt := p.opt
	keys := opt.keys()
	if opt.StateUpdate == transformerState {
		keys = append(keys, opt.Transformer.keys()...)
	}
	if p.features != nil {
		keys = append(keys, opt.Features.keys()...)
	}
	if p.clip != nil {
		keys = append(keys, opt.clipKeys()...)
		m["selector.clip.fingerprint"] = p.clip.Fingerprint()
	}
	for _, k := range keys {
		m["selector."+k.key] = k.get()
	}
	if *opt.Relation.RowLength == 1 {
		delete(m, "selector."+rowLength)
	}
	if opt.ShotNum != nil {
		m["selector.shot_num"] = strconv.Itoa(*opt.ShotNum)
	}
	return m
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
