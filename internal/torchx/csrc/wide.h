// The type in which an operation computes that must not round as its rows do.
#pragma once

#include <torch/torch.h>

// The bits are those of Rounding in rounding.go.
enum class Wide : int { norm = 1, attention = 2, vocabulary = 4 };

// The bits of Wide that compute in their rows' type all the same: what tests of bfloat16 must see. 0 but in such tests.
extern int planted_rounding;

// float64 of float64, else float32.
inline at::ScalarType wide(const at::Tensor &x, Wide operation) {
  return x.scalar_type() == at::kDouble || (planted_rounding & static_cast<int>(operation)) != 0 ? x.scalar_type() : at::kFloat;
}
