// Stands in for libtorch's torch/torch.h, which gotorch's header asks for: our units need its tensors and autograd functions alone, and read
// them in half the time. Of what gotorch's header names besides, only pointers are declared.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/version.h>

namespace torch {
namespace optim {
class Optimizer;
}
namespace data::datasets {
class MNIST;
}
namespace data::transforms {
template <typename Target = at::Tensor>
struct Normalize;
}
}  // namespace torch
