// Tensors in and out of Go memory, their life, random numbers, threads and devices.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include "guard.h"
#include "upload.h"

#include <dlfcn.h>
#include <stdlib.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

// x on a device. A copy from the host to CUDA starts in pinned memory and is not waited for; the allocator keeps that
// memory until it is done. Whole models are not pinned: such memory is the kernel's to the end.
static at::Tensor moved(const at::Tensor &x, at::Device to) {
  constexpr size_t kPinned = 256 << 20;
  if (!to.is_cuda() || !x.is_cpu() || x.numel() == 0 || x.nbytes() > kPinned) return x.to(to);
  return (x.is_pinned() ? x : x.pin_memory()).to(to, /*non_blocking=*/true);
}

extern "C" {

void fc_free_string(const char *s) { free(const_cast<char *>(s)); }

void fc_free(Tensor *tensors, int64_t n) {
  for (int64_t i = n - 1; i >= 0; i--) delete tensors[i];  // newest first, as they were made
}

const char *fc_from_data(const void *data, int8_t dtype, const int64_t *shape, int64_t dims, Tensor *out) {
  return guard([&] {
    at::Tensor t = at::empty(ints(shape, dims), at::TensorOptions(static_cast<at::ScalarType>(dtype)));
    if (t.nbytes() > 0) memcpy(t.data_ptr(), data, t.nbytes());
    *out = wrap(std::move(t));
  });
}
const char *fc_from_static(void *data, int8_t dtype, const int64_t *shape, int64_t dims, Tensor *out) {
  return guard([&] {
    *out = wrap(torch::from_blob(data, ints(shape, dims), at::TensorOptions(static_cast<at::ScalarType>(dtype))));
  });
}
const char *fc_copy_out(Tensor x, void *data, int64_t bytes) {
  return guard([&] {
    at::Tensor host = x->detach().to(at::kCPU).contiguous();
    TORCH_CHECK(static_cast<int64_t>(host.nbytes()) == bytes, "tensor has ", host.nbytes(), " bytes, the buffer ", bytes);
    if (bytes > 0) memcpy(data, host.data_ptr(), bytes);
  });
}
const char *fc_pack(Tensor *xs, int64_t n, Tensor *out) {
  return guard([&] {
    at::NoGradGuard no_grad;
    std::vector<at::Tensor> bytes;
    for (int64_t i = 0; i < n; i++) bytes.push_back(xs[i]->detach().reshape({-1}).contiguous().view(at::kByte));
    *out = wrap(bytes.size() == 1 ? bytes[0] : at::cat(bytes));
  });
}
const char *fc_full(const int64_t *shape, int64_t dims, double value, int8_t dtype, Tensor like, Tensor *out) {
  return guard([&] {
    auto opt = at::TensorOptions(static_cast<at::ScalarType>(dtype));
    if (like != nullptr) opt = opt.device(like->device());
    *out = wrap(at::full(ints(shape, dims), value, opt));
  });
}
const char *fc_copy_(Tensor dst, Tensor src) {
  return guard([&] {
    at::NoGradGuard no_grad;
    const bool pinned = dst->is_cuda() ? src->is_cpu() && src->is_pinned() : src->is_cuda() && dst->is_pinned();
    dst->copy_(*src, /*non_blocking=*/pinned);
  });
}
const char *fc_add_(Tensor dst, Tensor x) {
  return guard([&] {
    at::NoGradGuard no_grad;
    dst->add_(*x);
  });
}
const char *fc_to_like(Tensor x, Tensor like, Tensor *out) {
  return guard([&] { *out = wrap(moved(*x, like->device())); });
}
bool fc_is_cuda(Tensor x) { return x->is_cuda(); }
const char *fc_staging(int64_t bytes, Tensor *out, void **data) {
  return guard([&] {
    at::Tensor t = at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(torch::cuda::is_available()));
    *data = t.data_ptr();
    *out = wrap(std::move(t));
  });
}
const char *fc_view(Tensor buffer, int64_t offset, int8_t dtype, const int64_t *shape, int64_t dims, Tensor *out) {
  return guard([&] {
    const auto type = static_cast<at::ScalarType>(dtype);
    int64_t n = 1;
    for (int64_t i = 0; i < dims; i++) n *= shape[i];
    *out = wrap(buffer->narrow(0, offset, n * static_cast<int64_t>(c10::elementSize(type))).view(type).view(ints(shape, dims)));
  });
}
void fc_info(Tensor x, int64_t *dims, int64_t *shape8, int8_t *dtype, bool *requires_grad) {
  *dims = x->dim();
  for (int64_t i = 0; i < x->dim() && i < 8; i++) shape8[i] = x->size(i);
  *dtype = static_cast<int8_t>(x->scalar_type());
  *requires_grad = x->requires_grad();
}

// --- random numbers

const char *fc_generator(uint64_t seed, const char *device, Generator *out) {
  return guard([&] {
    at::Device d{std::string(device)};
    // A copy of the device's default generator needs no CUDA headers.
    at::Generator g = d.is_cpu() ? at::detail::createCPUGenerator() : at::globalContext().defaultGenerator(d).clone();
    g.set_current_seed(seed);
    *out = new at::Generator(g);
  });
}
void fc_generator_free(Generator g) { delete static_cast<at::Generator *>(g); }
const char *fc_generator_seed(Generator g, uint64_t seed) {
  return guard([&] { static_cast<at::Generator *>(g)->set_current_seed(seed); });
}
const char *fc_uniform_(Tensor x, double lo, double hi, Generator g) {
  return guard([&] {
    at::NoGradGuard no_grad;
    x->uniform_(lo, hi, *static_cast<at::Generator *>(g));
  });
}
const char *fc_normal_(Tensor x, double mean, double std, Generator g) {
  return guard([&] {
    at::NoGradGuard no_grad;
    x->normal_(mean, std, *static_cast<at::Generator *>(g));
  });
}

// --- threads, devices

// By default glibc gives every buffer above 128 kB back to the kernel and takes it anew, zeroed page by
// page: a third of a training step's time. Keeping freed memory costs no more than the step's peak.
void fc_keep_freed_memory(void) {
#ifdef __GLIBC__
  mallopt(M_ARENA_MAX, 1);  // the main arena grows in place; the others' heaps end at 64 MB
  mallopt(M_MMAP_MAX, 0);  // else buffers above 32 MB, the largest threshold that glibc takes, are mapped anew at each use
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

// libtorch tells OpenMP and MKL; OpenBLAS, where libtorch uses it, keeps threads of its own.
void fc_set_num_threads(int n) {
  at::set_num_threads(n);
  using Set = void (*)(int);
  if (auto set = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) set(n);
}
// Operations that have a deterministic form use it, others fail. cuBLAS has one only with a workspace of
// fixed size, which it reads from the environment at its first product.
void fc_set_deterministic(bool on) {
  if (on) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(on);
  at::globalContext().setBenchmarkCuDNN(false);
}
int fc_get_num_threads(void) { return at::get_num_threads(); }
bool fc_cuda_available(void) { return torch::cuda::is_available(); }
int fc_cuda_device_count(void) { return static_cast<int>(torch::cuda::device_count()); }
const char *fc_cuda_synchronize(void) {
  return guard([&] {
    if (torch::cuda::is_available()) torch::cuda::synchronize();
  });
}

}  // extern "C"
