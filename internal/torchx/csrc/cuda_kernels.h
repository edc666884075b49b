// Our own CUDA kernels: kernels*.cu, compiled for the device at first use, so that neither nvcc nor its output is needed.
#pragma once

#include <torch/torch.h>

#include <tuple>

namespace cuda {

// A kernel's name in kernels*.cu, the tensor whose device it runs on and whose type its T stands for, whether it
// reads 16 bytes at a time, and how many bytes of shared memory a block is given.
struct Kernel {
  const char *name;
  const at::Tensor &like;
  bool wide;
  unsigned shared = 0;
  int64_t width() const { return wide ? 16 / like.element_size() : 1; }  // elements that a thread reads at once
  // Threads for a row of k elements: whole warps, at most 512.
  int64_t threads(int64_t k) const { return std::max<int64_t>(32, std::min<int64_t>(512, (k / width() + 31) / 32 * 32)); }
};

#ifdef FULCRUM_CUDA

// Whether our kernels run on x: a CUDA tensor of float32, bfloat16 or float16. FULCRUM_CUDA_KERNELS=0 says no, to compare
// them with libtorch's operations.
bool runs(const at::Tensor &x);

// Starts the kernel on the current stream of its device; arguments point to what it takes. The first call for a type compiles
// all kernels of that type (about a second) and must not be within the capture of a graph.
void launch(const Kernel &kernel, int64_t blocks, int64_t blocks_y, int64_t threads, void **arguments);

#else

inline bool runs(const at::Tensor &) { return false; }
inline void launch(const Kernel &, int64_t, int64_t, int64_t, void **) {}

#endif

// Whether rows of k elements of these tensors (contiguous, or undefined) can be read 16 bytes at a time.
bool wide(int64_t k, std::initializer_list<const at::Tensor *> tensors);

inline void *argument(const at::Tensor &x) { return x.defined() ? x.data_ptr() : nullptr; }
template <class A>
A argument(A value) {
  return value;
}

// launch with the arguments themselves: tensors, whose memory is passed (nullptr for an undefined one), and numbers of
// exactly the types of the kernel's parameters.
template <class... A>
void run(const Kernel &kernel, int64_t blocks, int64_t blocks_y, int64_t threads, const A &...arguments) {
  std::tuple<decltype(argument(arguments))...> values(argument(arguments)...);
  std::apply([&](auto &...value) {
    void *pointers[] = {&value...};
    launch(kernel, blocks, blocks_y, threads, pointers);
  }, values);
}

}  // namespace cuda
