// Layers that share an input, computed as one product, and what follows it (fused.go).
#pragma once

#include <stdint.h>

#include "cgotorch/torchdef.h"

#ifdef __cplusplus
extern "C" {
#endif

const char *fc_block_diag(Tensor *blocks, int64_t n, Tensor *out);  // [Σ rows, Σ columns], zeros outside of the blocks
const char *fc_swiglu_pair(Tensor x, Tensor *out);                  // silu(left half)·right half of rows [N, 2F] → [N, F]

// qkv [N, (hq + 2 hk)·D] → q [N, hq, D] and k [N, hk, D] turned by the angles of cos and sin [N, D/2], and v [N, hk, D]. With caches
// [M, hk, D], k and v go to their rows at [N] instead (no gradient).
const char *fc_rope_heads(Tensor qkv, Tensor cos, Tensor sin, int64_t hq, int64_t hk, Tensor k_cache_or_null, Tensor v_cache_or_null, Tensor at_or_null,
                          Tensor *q, Tensor *k, Tensor *v);

#ifdef __cplusplus
}
#endif
