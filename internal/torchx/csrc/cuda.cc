// What a CUDA device is and how much memory it has given out, for `run doctor`, the memory forecast and benchmarks.
#include "guard.h"

#ifdef FULCRUM_CUDA
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <dlfcn.h>

#include <sstream>

// Of ATen/cuda/CUDAContext.h, which includes all of CUDA's libraries: pip's headers of them are not complete.
namespace at::cuda {
TORCH_CUDA_CPP_API cudaDeviceProp *getDeviceProperties(c10::DeviceIndex device);
}

namespace {

// Functions of the CUDA runtime that libtorch_cuda has loaded: linking to it would name its version.
template <class F>
F runtime(const char *name) {
  auto f = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
  TORCH_CHECK(f != nullptr, "the CUDA runtime has no ", name);
  return f;
}

std::string version(const char *function) {
  int v = 0;
  TORCH_CHECK(runtime<int (*)(int *)>(function)(&v) == 0, function, " fails");
  return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
}

// PyTorch compiles kernels at run time with the NVRTC that it loads here.
bool compiles() {
  try {
    at::detail::getCUDAHooks().nvrtc();
    return true;
  } catch (const std::exception &) {
    return false;
  }
}

// A call of libtorch's flash attention: it throws where this build has none or the device is too old.
bool flash() {
  try {
    at::NoGradGuard no_grad;
    auto x = at::zeros({1, 1, 16, 64}, at::TensorOptions(at::kBFloat16).device(at::kCUDA));
    at::_scaled_dot_product_flash_attention(x, x, x);
    return true;
  } catch (const std::exception &) {
    return false;
  }
}

}  // namespace
#endif

extern "C" {

const char *fc_cuda_describe(int device, const char **out) {
  return guard([&] {
#ifdef FULCRUM_CUDA
    c10::DeviceGuard on(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
    const auto *p = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
    std::ostringstream text;
    text << p->name << '\t' << p->major << '.' << p->minor << '\t' << p->multiProcessorCount << '\t' << version("cudaRuntimeGetVersion")
         << '\t' << version("cudaDriverGetVersion") << '\t' << (p->major >= 8) << '\t' << flash() << '\t' << compiles();
    *out = fc_message(text.str().c_str());
#else
    (void)device, (void)out;
    TORCH_CHECK(false, "this build found no headers of CUDA beside libtorch");
#endif
  });
}

const char *fc_cuda_memory(int device, int64_t *out, bool reset_peak) {
  return guard([&] {
#ifdef FULCRUM_CUDA
    auto index = static_cast<c10::DeviceIndex>(device);
    c10::DeviceGuard on(at::Device(at::kCUDA, index));
    size_t free = 0, total = 0;
    TORCH_CHECK(runtime<int (*)(size_t *, size_t *)>("cudaMemGetInfo")(&free, &total) == 0, "cudaMemGetInfo fails");
    auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index);
    out[0] = static_cast<int64_t>(free);
    out[1] = static_cast<int64_t>(total);
    out[2] = stats.allocated_bytes[0].current;  // 0: of small and large blocks together
    out[3] = stats.allocated_bytes[0].peak;
    out[4] = stats.reserved_bytes[0].current;
    out[5] = stats.reserved_bytes[0].peak;
    if (reset_peak) c10::cuda::CUDACachingAllocator::resetPeakStats(index);
#else
    (void)device, (void)out, (void)reset_peak;
    TORCH_CHECK(false, "this build found no headers of CUDA beside libtorch");
#endif
  });
}

}  // extern "C"
