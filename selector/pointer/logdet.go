package pointer

import (
	"math"

	"fulcrum/internal/torchx"
)

// logdet is the gain of adding j to a determinantal point process (Kulesza & Taskar 2012, arXiv:1207.6083) with the
// kernel L = G Gᵀ + ε·1 of the candidates' unit vectors (v4-7):
//
//	w · (log det L(chosen + j) - log det L(chosen)) = w · log(1 + ε - Σ_s (b_s·g_j)²)
//
// where b_s are the rows of the incremental Cholesky factor as vectors: with chosen g,
//
//	b = (g - Σ_s (b_s·g) b_s) / d,  d² = 1 + ε - Σ_s (b_s·g)²
//
// d² ≥ ε, so neither the logarithm nor its gradient runs away. One product a choice, no determinant is ever taken.
// Its memory is 1 + ε - Σ (b_s·g_j)² of the pool [B, N, K], then b_1, b_2, … [B, N, h].
type logdet struct{}

func (logdet) weights(opt Options, _ int) []weight {
	return []weight{{name: "diversity.weight", shape: []int{1}, start: constant(opt.Diversity.Weight)}}
}

func (logdet) prepare(*Policy, *encoded) {}

func (logdet) remember(p *Policy, e encoded, memory []torchx.Tensor, chosen torchx.Tensor) []torchx.Tensor {
	full := 1 + p.opt.Diversity.Ridge
	if len(memory) == 0 {
		b := torchx.Scale(chosen, 1/math.Sqrt(full))
		return []torchx.Tensor{torchx.AddScalar(torchx.Neg(torchx.Square(products(b, e.cand))), full), b}
	}
	rest, left := chosen, torchx.Tensor{} // left = Σ (b_s·g)² [B, N, 1]
	for _, b := range memory[1:] {
		along := torchx.SumKeep(torchx.Mul(b, chosen), 2) // [B, N, 1]
		rest = torchx.Sub(rest, torchx.Mul(along, b))
		left = plus(left, torchx.Square(along))
	}
	b := torchx.Div(rest, torchx.Sqrt(torchx.AddScalar(torchx.Neg(left), full)))
	gain := torchx.Sub(memory[0], torchx.Square(products(b, e.cand)))
	return append(append([]torchx.Tensor{gain}, memory[1:]...), b)
}

func (logdet) bonus(p *Policy, _ encoded, memory []torchx.Tensor, step int) torchx.Tensor {
	if step == 0 {
		return torchx.Tensor{}
	}
	return torchx.Mul(torchx.Log(memory[0]), p.params.Get("diversity.weight"))
}
