// Draws of tokens without a copy to the host (draw.go).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cgotorch/torchdef.h"

#ifdef __cplusplus
extern "C" {
#endif

// logits [R, V] float32, which are overwritten; seen [R, V] bool; suppress [S] int64; uniforms [R] float64, without them
// greedy. ids [R] int64; kept and logp [R] float64 (greedy: logp at temperature 1 where scored, kept never).
const char *fc_draw_tokens(Tensor logits, Tensor seen_or_null, Tensor suppress_or_null, Tensor uniforms_or_null, double temperature, double top_p,
                           int64_t top_k, double penalty, bool scored, Tensor *ids, Tensor *kept, Tensor *logp);
const char *fc_mark_seen(Tensor seen, Tensor ids);               // seen[r, ids[r]] = true; seen [R, V] bool, ids [R]
const char *fc_is_any(Tensor x, Tensor values, Tensor *out);     // [R] bool: x[r] is one of values [n]
const char *fc_add_in_place(Tensor x, int64_t n);                // x += n, integers

#ifdef __cplusplus
}
#endif
