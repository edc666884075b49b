// NCCL: tensors from the GPU of one process to that of another. It is found when it is asked for, so that no build needs it.
#include "guard.h"

#ifdef FULCRUM_CUDA
#include <c10/cuda/CUDAStream.h>
#endif
#include <dlfcn.h>

namespace {

// Of nccl.h, whose names and numbers are the same since NCCL 2.0; sending and receiving came with 2.7.
struct UniqueId {
  char bytes[128];
};
constexpr int kByte = 0, kOldest = 20700;
using Comm = void *;

void *library() {
  static void *const found = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);  // that of libtorch_cuda, where it has one
  static const std::string why = found != nullptr ? "" : dlerror();
  TORCH_CHECK(found != nullptr, why);
  return found;
}

template <class... Args>
void call(const char *name, Args... args) {
  auto f = reinterpret_cast<int (*)(Args...)>(dlsym(library(), name));
  TORCH_CHECK(f != nullptr, "NCCL has no ", name);
  const int code = f(args...);
  if (code == 0) return;
  auto text = reinterpret_cast<const char *(*)(int)>(dlsym(library(), "ncclGetErrorString"));
  TORCH_CHECK(false, name, ": ", text == nullptr ? std::to_string(code) : text(code));
}

int version() {
  int v = 0;
  call("ncclGetVersion", &v);
  return v;
}

// The stream in which x is computed.
void *stream_of(const at::Tensor &x) {
#ifdef FULCRUM_CUDA
  if (x.is_cuda()) return c10::cuda::getCurrentCUDAStream(x.device().index()).stream();
#endif
  (void)x;
  return nullptr;
}

size_t bytes_of(const at::Tensor &x) {
  TORCH_CHECK(x.is_contiguous(), "NCCL sends contiguous tensors");
  return static_cast<size_t>(x.nbytes());
}

}  // namespace

extern "C" {

const char *fc_nccl_version(int *out) {
  return guard([&] { *out = version(); });
}
const char *fc_nccl_id(char *id) {
  return guard([&] { call("ncclGetUniqueId", reinterpret_cast<UniqueId *>(id)); });
}
const char *fc_nccl_join(const char *id, int rank, int size, bool cuda, int gpu, void **out) {
  return guard([&] {
    const int v = version();  // 0: the stand-in of our tests, which sends the host's memory
    TORCH_CHECK(v == 0 || (cuda && v >= kOldest), "NCCL ", v, cuda ? "" : " on the CPU", ": want GPUs, and at least ", kOldest);
    c10::OptionalDeviceGuard on;
    if (cuda) on.reset_device(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu)));
    call("ncclCommInitRank", reinterpret_cast<Comm *>(out), size, *reinterpret_cast<const UniqueId *>(id), rank);
  });
}
const char *fc_nccl_send(void *comm, Tensor x, int to) {
  return guard([&] { call("ncclSend", static_cast<const void *>(x->data_ptr()), bytes_of(*x), kByte, to, comm, stream_of(*x)); });
}
const char *fc_nccl_receive(void *comm, Tensor x, int from) {
  return guard([&] { call("ncclRecv", x->data_ptr(), bytes_of(*x), kByte, from, comm, stream_of(*x)); });
}
const char *fc_nccl_group(bool begins) {
  return guard([&] { call(begins ? "ncclGroupStart" : "ncclGroupEnd"); });
}
const char *fc_nccl_state(void *comm) {
  return guard([&] {
    int state = 0;
    call("ncclCommGetAsyncError", comm, &state);
    TORCH_CHECK(state == 0 || state == 7, "NCCL reports error ", state);  // 7: in progress
  });
}
const char *fc_nccl_abort(void *comm) {
  return guard([&] { call("ncclCommAbort", comm); });
}

}  // extern "C"
