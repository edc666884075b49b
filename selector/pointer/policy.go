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
	"fmt"
	"math"
	"strconv"
	"strings"

	"fulcrum/beamdata"
	"fulcrum/internal/rng"
	"fulcrum/internal/torchx"
	"fulcrum/selector"
)

// Policy is a pointer selector. It implements selector.Policy.
type Policy struct {
	opt    Options
	dim    int // width d of the embeddings
	device string
	dtype  torchx.DType // of parameters and computation: float32, or float64 for gradient checks
	params *torchx.Params
	tables *tables
}

// tables are embedding tables on the device, shared by a policy and its clones.
type tables struct {
	on   map[*beamdata.Table]torchx.Tensor
	slot map[*beamdata.Table]*slots
}

func newTables() *tables {
	return &tables{map[*beamdata.Table]torchx.Tensor{}, map[*beamdata.Table]*slots{}}
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

// Specs lists the parameters of a selector over d-wide embeddings, in the reference's state-dict names
// (parity spec §1.8); skip_scale and learned_scale are ours.
func Specs(opt Options, d int) []torchx.Spec {
	h := opt.HiddenDim
	var s []torchx.Spec
	if opt.Skip.Enabled {
		s = append(s, torchx.Spec{Name: "skip_scale", Shape: []int{1}})
		s = append(s, relationSpecs(opt.Relation, d)...)
	}
	if opt.Encoder == "none" {
		return s
	}
	if d != h {
		s = append(s, torchx.Spec{Name: "input_proj.weight", Shape: []int{h, d}})
	}
	for i := range opt.NumLayers {
		attn, norm := fmt.Sprintf("cross_attn_layers.%d.", i), fmt.Sprintf("attn_norms.%d.", i)
		s = append(s,
			torchx.Spec{Name: attn + "in_proj_weight", Shape: []int{3 * h, h}}, torchx.Spec{Name: attn + "in_proj_bias", Shape: []int{3 * h}},
			torchx.Spec{Name: attn + "out_proj.weight", Shape: []int{h, h}}, torchx.Spec{Name: attn + "out_proj.bias", Shape: []int{h}},
			torchx.Spec{Name: norm + "weight", Shape: []int{h}}, torchx.Spec{Name: norm + "bias", Shape: []int{h}})
	}
	s = append(s, torchx.Spec{Name: "query_proj.weight", Shape: []int{h, h}}, torchx.Spec{Name: "cand_proj.weight", Shape: []int{h, h}})
	if opt.StateUpdate == "gate" {
		s = append(s, torchx.Spec{Name: "query_update_gate.weight", Shape: []int{h, 2 * h}}, torchx.Spec{Name: "query_update_gate.bias", Shape: []int{h}})
	}
	if opt.Skip.Enabled {
		s = append(s, torchx.Spec{Name: "learned_scale", Shape: []int{1}})
	}
	return s
}

// New returns a freshly initialised selector for d-wide embeddings. The weights depend on seed only.
func New(opt Options, d int, seed int64, device string) (*Policy, error) {
	if opt.DModel != nil && *opt.DModel != d {
		return nil, fmt.Errorf("selector.d_model=%d: the embeddings have %d columns", *opt.DModel, d)
	}
	if err := opt.Validate(); err != nil {
		return nil, fmt.Errorf("selector.%w", err)
	}
	if err := fits(opt, d); err != nil {
		return nil, err
	}
	return newPolicy(opt, d, seed, device, torchx.Float32)
}

func newPolicy(opt Options, d int, seed int64, device string, dtype torchx.DType) (*Policy, error) {
	p := &Policy{opt: opt, dim: d, device: device, dtype: dtype, tables: newTables()}
	p.params = torchx.NewParamsOf(dtype, Specs(opt, d), device)
	for _, name := range p.params.Names() {
		if err := p.params.Set(name, p.initial(name, seed)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// initial draws one parameter as the reference initialises it (parity spec §4): Xavier-uniform
// projections and gate, PyTorch's attention defaults, output heads at identity plus a little noise.
func (p *Policy) initial(name string, seed int64) []float32 {
	shape := p.params.Shape(name)
	n := 1
	for _, s := range shape {
		n *= s
	}
	out := make([]float32, n)
	r := rng.New(seed, "init "+name)
	uniform := func(bound float64) {
		for i := range out {
			out[i] = float32((2*r.Float64() - 1) * bound)
		}
	}
	fill := func(v float32) {
		for i := range out {
			out[i] = v
		}
	}
	switch {
	case name == "skip_scale":
		fill(1)
	case name == "relation.gate_in.weight" || name == "relation.product_in.weight" || name == "relation.gate_in.bias" || name == "relation.product_in.bias":
		bound := 1 / math.Sqrt(float64(p.dim)) // PyTorch's default for linear layers
		if name == "relation.gate_in.weight" {
			bound *= p.opt.Relation.GateInitial
		}
		uniform(bound)
	case strings.HasPrefix(name, "relation."): // bilinear and output weights start at 0
	case name == "learned_scale":
		fill(float32(p.opt.Skip.LearnedScale))
	case name == "query_proj.weight" || name == "cand_proj.weight":
		for i := range out {
			out[i] = float32(0.01 * r.NormFloat64())
		}
		for i := range shape[0] {
			out[i*shape[1]+i]++
		}
	case strings.HasSuffix(name, "out_proj.weight"): // Kaiming-uniform, a = √5: bound 1/√fan_in
		uniform(1 / math.Sqrt(float64(shape[1])))
	case len(shape) == 2: // Xavier-uniform
		uniform(math.Sqrt(6 / float64(shape[0]+shape[1])))
	case strings.HasPrefix(name, "attn_norms.") && strings.HasSuffix(name, ".weight"):
		fill(1)
	}
	return out
}

// Params returns the trainable parameters.
func (p *Policy) Params() *torchx.Params { return p.params }

// Options returns the configuration the policy was built with.
func (p *Policy) Options() Options { return p.opt }

// SetShots sets how many examples the policy is asked for; its checkpoints say so.
func (p *Policy) SetShots(n int) { p.opt.ShotNum = &n }

// Dim returns the width of the embeddings it reads.
func (p *Policy) Dim() int { return p.dim }

// Clone returns a selector with its own copy of the weights.
func (p *Policy) Clone() selector.Policy {
	q := &Policy{opt: p.opt, dim: p.dim, device: p.device, dtype: p.dtype, tables: p.tables}
	q.params = torchx.NewParamsOf(p.dtype, Specs(p.opt, p.dim), p.device)
	q.params.CopyFrom(p.params)
	return q
}

// CloneWithHeads returns a selector with a copy of the weights, read with another number of attention
// heads: the Python reference rebuilds its old policy so (defect D5 of the parity spec).
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
func (p *Policy) Free() { p.params.Free() }

// Metadata describes the architecture for a checkpoint: enough to rebuild the policy.
func (p *Policy) Metadata() map[string]string {
	m := map[string]string{"policy": "pointer", "selector.d_model": strconv.Itoa(p.dim)}
	opt := p.opt
	for _, k := range opt.keys() {
		m["selector."+k.key] = k.get()
	}
	if opt.ShotNum != nil {
		m["selector.shot_num"] = strconv.Itoa(*opt.ShotNum)
	}
	return m
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
