// Work beside the rest of a recorded step: gradients of weights, which nothing in the backward pass waits for (graph.cc).
#pragma once

#include <torch/torch.h>

#include <functional>

namespace beside {

// Runs f, which reads tensors; they are kept until join. While a graph is recorded on CUDA it goes to a stream of its own, whose work begins
// when what was launched so far is done, and which join waits for.
void run(std::initializer_list<at::Tensor> reads, const std::function<void()> &f);

// What is launched from now on waits for all that run has launched.
void join();

}  // namespace beside
