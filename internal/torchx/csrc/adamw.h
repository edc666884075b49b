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

#ifdef __cplusplus
}
#endif
