// Products with weights, and where the gradient of a weight goes.
#pragma once

#include <torch/torch.h>

// The gradient buffer of a leaf that has one (a view of Params), else nothing.
inline c10::IValue buffer(const at::Tensor &w) {
  if (w.defined() && w.is_leaf() && w.requires_grad() && w.grad().defined()) return w.grad();
  return c10::IValue();
}

// Whether a graph is recorded for any of these. Where none is, an operation's forward runs without its node (ctx is
// null): making and dropping one takes as long as a row's arithmetic.
inline bool recorded(std::initializer_list<const at::Tensor *> inputs) {
  if (!at::GradMode::is_enabled()) return false;
  for (const at::Tensor *x : inputs)
    if (x->defined() && x->requires_grad()) return true;
  return false;
}

// Adds a gradient to the buffer and returns no tensor, or returns it where there is no buffer.
inline at::Tensor into(const c10::IValue &buffer, at::Tensor gradient) {
  if (buffer.isNone()) return gradient;
  buffer.toTensor().add_(gradient);
  return at::Tensor();
}

// x·wᵀ + bias of x [N, in], w [out, in] of any float type, in x's type; bias may be undefined. No gradient.
at::Tensor product(const at::Tensor &x, const at::Tensor &w, const at::Tensor &bias);

// left·right in float32, of factors of any one type. No gradient.
at::Tensor float_product(const at::Tensor &left, const at::Tensor &right);

// to += scale·left·right; to is float32, or has the factors' type. No gradient.
void add_product(at::Tensor to, const at::Tensor &left, const at::Tensor &right, double scale);
