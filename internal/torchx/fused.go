package torchx

// #include "csrc/fused.h"
import "C"

// BlockDiag returns the matrices on the diagonal of one [Σ rows, Σ columns], zeros elsewhere.
func BlockDiag(blocks ...Tensor) Tensor {
	h, n := handles("block_diag", blocks)
	return made("block_diag", func(out *C.Tensor) *C.char { return C.fc_block_diag(h, n, out) }, blocks...)
}

// SwiGLUPair returns silu(left)·right of the halves of rows x [N, 2F]: SwiGLU of two products that were made as one.
func SwiGLUPair(x Tensor) Tensor {
	return made("swiglu_pair", func(out *C.Tensor) *C.char { return C.fc_swiglu_pair(x.c(), out) }, x)
}

// RopeHeads takes rows [N, (Hq+2·Hk)·D] of queries, keys and values apart: q [N, Hq, D] and k [N, Hk, D] with rotary positions
// (Rope), v [N, Hk, D] as it is.
func RopeHeads(x, cos, sin Tensor, hq, hk int) (q, k, v Tensor) {
	must("rope_heads", x, cos, sin)
	var a, b, c C.Tensor
	check("rope_heads", C.fc_rope_heads(x.c(), cos.c(), sin.c(), C.int64_t(hq), C.int64_t(hk), nil, nil, nil, &a, &b, &c), x, cos, sin)
	return adopt(a), adopt(b), adopt(c)
}

// RopeHeadsInto is RopeHeads with keys and values written to rows at [N] int64 of caches [M, Hk, D]. Autograd does not see it.
func RopeHeadsInto(x, cos, sin Tensor, hq int, kCache, vCache, at Tensor) (q Tensor) {
	must("rope_heads", x, cos, sin, kCache, vCache, at)
	var a, b, c C.Tensor
	check("rope_heads", C.fc_rope_heads(x.c(), cos.c(), sin.c(), C.int64_t(hq), C.int64_t(kCache.Shape()[1]), kCache.c(), vCache.c(),
		at.c(), &a, &b, &c), x, kCache, vCache, at)
	return adopt(a)
}
