// An optimizer step of which the host knows no number (params.go).
#pragma once

#include <stdbool.h>

#include "cgotorch/torchdef.h"

#ifdef __cplusplus
extern "C" {
#endif

// fc_adamw's update on CUDA without a wait: rates are [lr, 1 - beta1^t, sqrt(1 - beta2^t), t] in float64 on the device. The factor
// min(1, clip/(norm + 1e-6)) is taken from squares = Σ grad² [1] float64; clip 0 cuts nothing.
// With guard, refused [1] is set by a step that is not finite, which changes nothing, and no later step changes anything either.
const char *fc_adamw_queued(Tensor param, Tensor grad, Tensor m, Tensor v, Tensor lr_scale, Tensor decay_mask, Tensor squares, Tensor losses_or_null,
                            Tensor refused, bool guard, double clip, Tensor rates, double beta1, double beta2, double eps, double weight_decay, bool clear);

// Rounds float32 moments to bfloat16 up or down at random, in proportion to the distance, so that the mean is kept. The bits come from the
// step and the place of an element, the first of which is `at`, alone: equal on every device.
const char *fc_round_moments(Tensor m, Tensor v, Tensor m_out, Tensor v_out, int64_t step, int64_t at);

// Elements of a task on the CPU, and of a part of Σ x²: the sum of the parts, in their order, is the same for any thread count.
enum { FC_GRAIN = 16384 };

// Σ x² of every FC_GRAIN elements of x, float32 on the CPU; elsewhere of all x. float64 in the host's memory.
const char *fc_square_parts(Tensor x, Tensor *out);

#ifdef __cplusplus
}
#endif
