// Parts of a pointer's step that are one kernel each on CUDA, where libtorch's operations are dozens of short ones (pointer.go).
#pragma once

#include "cgotorch/torchdef.h"

#ifdef __cplusplus
extern "C" {
#endif

// factor·Σ weight·Σ_t logp of logp [B, G, T], weight [B, G] and factor [1]: a scalar.
const char *fc_weighted_logp(Tensor logp, Tensor weight, Tensor factor, Tensor *out);

// PPO's clipped surrogate and the KL penalty of sequences with log-probabilities logp [B, G, T]. old, ref, adv, weight and given (the
// penalty itself, with kind 0) are [B, G]; share, minus_share and beta [1]. kind: 1 k1, 2 k2, 3 k3, 4 k3_reversed. loss is a scalar; parts
// [3] are loss, ppo and kl; sequences, ratios (their logarithms) and penalties [B, G] have no gradient.
const char *fc_surrogate(Tensor logp, Tensor old, Tensor ref_or_null, Tensor given_or_null, Tensor adv, Tensor weight, Tensor share, Tensor minus_share,
                         Tensor beta_or_null, double limit, double low, double high, int kind, Tensor *loss, Tensor *parts, Tensor *sequences, Tensor *ratios,
                         Tensor *penalties);

// u / max(|u|, eps) of u = c + z (s - c), z = sigmoid(p + q): s, p [B, 1 or N, D], c, q [B, N, D].
const char *fc_gate(Tensor s, Tensor p, Tensor c, Tensor q, double eps, Tensor *out);

#ifdef __cplusplus
}
#endif
