// Pools of candidates on CUDA (pool.go): candidates are rows of one table, and no query has a copy of its own.
#pragma once

#include <stdbool.h>

#include "cgotorch/torchdef.h"

#ifdef __cplusplus
extern "C" {
#endif

bool fc_pool_runs(Tensor x);  // whether the kernels below run on tensors like x

// Of u [B, H, D] and candidates c [U, D]: Σ softmax(scale·u·c) c over each pool → [B, H, D]. index [B, K] int64 are the rows of c, padding
// [B, K] bool the places that are none; order int32 lists the places of a row one after another, and starts [U+1] int32 where each row's
// begin. Without an index (and order, starts) row k is candidate k of every pool.
const char *fc_pool_attend(Tensor u, Tensor c, Tensor index, Tensor padding, Tensor order, Tensor starts, double scale, Tensor *out);

// q [B, N, D] times the candidates of each pool → [B, N, K]. It needs an index.
const char *fc_pool_score(Tensor q, Tensor c, Tensor index, Tensor order, Tensor starts, Tensor *out);

#ifdef __cplusplus
}
#endif
