package pointer

import (
	"cmp"
	"math"
	"strconv"

	"fulcrum/internal/torchx"
)

// RelationOptions adds a learned relation between the raw embeddings of query and candidate to the skip
// term's cosine. All parts start at exactly 0, so the untrained selector is similarity:
//
//	z   = q·W + q ∘ (V relu(U q + u) + v)                      bilinear form, and a gate on dimensions
//	r_j = scale · (E_j · z + o · relu(A (c·q ∘ E_j) + a) + o₀)   and a small network on the products
//
// q and E_j are rows divided by RowLength: the steps of r grow with the square of their length, and those of the gate with its cube.
type RelationOptions struct {
	// factor on the relation's score: its learning speed; null = 10240/columns, between 20 and 320
	Scale *float64 `koanf:"scale" range:"(0,inf)"`
	// length that rows are divided by; null = median length of data.embeddings, to two digits; 1 = rows as they are
	RowLength *float64 `koanf:"row_length" range:"(0,inf)"`
	// bilinear form on the embeddings: none, free W, or symmetric (W + Wᵀ)/2
	Bilinear string `koanf:"bilinear" enum:"none,free,symmetric"`
	// hidden width of the query-dependent gate on embedding dimensions; 0 = none
	GateDim int `koanf:"gate_dim" range:"[0,inf)"`
	// hidden width of the network on elementwise products; 0 = none
	ProductDim int `koanf:"product_dim" range:"[0,inf)"`
	// factor on the gate's initial input weights: unit-length embeddings have entries of size 1/√d
	GateInitial float64 `koanf:"gate_initial" range:"(0,inf)" constant:"true"`
}

// DefaultRelationOptions switches the relation off.
func DefaultRelationOptions() RelationOptions {
	return RelationOptions{Scale: new(20.0), RowLength: new(1.0), Bilinear: "none", GateInitial: 5}
}

// Choose fills in what is null: for rows with so many columns and this median length, the numbers in docs/log/row_lengths.md.
func (o *RelationOptions) Choose(columns int, length float64) {
	if o.Scale == nil {
		scale := min(max(twoDigits(10240/float64(columns)), 20), 320)
		if columns == 256 { // the built-in rows, whose recorded figures are all of 20
			scale = 20
		}
		o.Scale = new(scale)
	}
	if o.RowLength == nil {
		o.RowLength = new(cmp.Or(twoDigits(length), 1))
	}
}

// twoDigits rounds to two digits that count: rows of about length 1 are read as they are.
func twoDigits(x float64) float64 {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 2, 64), 64)
	return x
}

func (o RelationOptions) enabled() bool {
	return o.Bilinear != "none" || o.GateDim > 0 || o.ProductDim > 0
}

// relationWeights lists the relation's parameters for d-wide embeddings.
func relationWeights(o RelationOptions, d int) []weight {
	bound := 1 / math.Sqrt(float64(d)) // PyTorch's default for linear layers
	var w []weight
	if o.Bilinear != "none" {
		w = append(w, weight{name: "relation.bilinear.weight", shape: []int{d, d}, start: zeros})
	}
	if g := o.GateDim; g > 0 {
		w = append(w,
			weight{name: "relation.gate_in.weight", shape: []int{g, d}, start: uniform(bound * o.GateInitial)},
			weight{name: "relation.gate_in.bias", shape: []int{g}, start: uniform(bound)})
		w = append(w, linearWeights("relation.gate_out.", g, d, zeros)...)
	}
	if m := o.ProductDim; m > 0 {
		w = append(w,
			weight{name: "relation.product_in.weight", shape: []int{m, d}, start: uniform(bound)},
			weight{name: "relation.product_in.bias", shape: []int{m}, start: uniform(bound)})
		w = append(w, linearWeights("relation.product_out.", m, 1, zeros)...)
	}
	return w
}

// relation scores the pool [B, K] for the queries of a batch.
func (p *Policy) relation(in *inputs, e encoded) torchx.Tensor {
	o, w := p.opt.Relation, p.params.Get
	rows := in.rows // [U+B, d]
	if *o.RowLength != 1 {
		rows = torchx.Scale(rows, 1 / *o.RowLength)
	}
	q := torchx.Narrow(rows, 0, in.u, in.b)          // [B, d]
	c := e.perQuery(torchx.Narrow(rows, 0, 0, in.u)) // [B, K, d] or [K, d], no gradient
	var score, z torchx.Tensor                       // [B, K], [B, d]
	if o.Bilinear != "none" {
		weight := w("relation.bilinear.weight")
		z = torchx.MatMul(q, weight)
		if o.Bilinear == "symmetric" {
			z = torchx.Scale(torchx.Add(z, torchx.MatMul(q, torchx.Transpose(weight, 0, 1))), 0.5)
		}
	}
	if o.GateDim > 0 {
		gate := torchx.ReLU(torchx.Linear(q, w("relation.gate_in.weight"), w("relation.gate_in.bias")))
		gate = torchx.Mul(q, torchx.Linear(gate, w("relation.gate_out.weight"), w("relation.gate_out.bias")))
		z = plus(z, gate)
	}
	if !z.Nil() {
		score = torchx.Squeeze(products(torchx.Unsqueeze(z, 1), c), 1)
	}
	if o.ProductDim > 0 {
		scaled := torchx.Scale(q, math.Sqrt(float64(p.dim)))  // entries of unit size
		product := torchx.Mul(torchx.Unsqueeze(scaled, 1), c) // [B, K, d]
		hidden := torchx.ReLU(torchx.Linear(product, w("relation.product_in.weight"), w("relation.product_in.bias")))
		score = plus(score, torchx.Squeeze(torchx.Linear(hidden, w("relation.product_out.weight"), w("relation.product_out.bias")), 2))
	}
	return torchx.Scale(score, *o.Scale)
}

// plus returns sum + x, or x where there is no sum yet.
func plus(sum, x torchx.Tensor) torchx.Tensor {
	if sum.Nil() {
		return x
	}
	return torchx.Add(sum, x)
}
