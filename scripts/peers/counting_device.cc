// A CUDA device that counts and computes nothing: CUDA's runtime, what of its driver is asked for, and cuBLAS, preloaded before a libtorch with
// CUDA on a machine without a GPU. Memory is the host's, copies to the device are made, kernels do not run, and every number that is read back
// is 0, a single truth value true. So a program runs all its code for CUDA; test_device.py reads what it has launched, copied, waited for and allocated.
//
// COUNTS=FILE: FILE.PID holds a process's counts and then its kernels' names, while it runs and after it.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <set>
#include <string>

namespace {

enum Count { launches, recorded, uploads, pageable, readbacks, waits, allocations, pinned, graphs, refused, counts };
constexpr int kKernels = 4096;
struct Kernel {
  char name[248];
  uint64_t launches;
};
struct Table {
  uint64_t count[16];
  Kernel kernels[kKernels];
};

std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;

Table *table() {
  static Table *const t = [] {
    const char *file = getenv("COUNTS");
    const int fd = file == nullptr ? -1 : open((std::string(file) + "." + std::to_string(getpid())).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    void *at = fd >= 0 && ftruncate(fd, sizeof(Table)) == 0 ? mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    return at == MAP_FAILED ? new Table{} : static_cast<Table *>(at);
  }();
  return t;
}
void *asked = nullptr;  // the event that the host has just asked for in vain
void add(Count c, uint64_t n = 1) {
  __atomic_fetch_add(&table()->count[c], n, __ATOMIC_RELAXED);
  __atomic_store_n(&asked, nullptr, __ATOMIC_RELAXED);
}

// Blocks of memory by their first byte, and which are the device's.
struct Block {
  size_t size;
  bool device;
};
std::map<uintptr_t, Block> *blocks = new std::map<uintptr_t, Block>;  // like all below never deleted: libtorch ends after us
constexpr size_t kTotal = size_t(80) << 30;
size_t used = 0;

bool allocate(void **out, size_t size, bool device) {
  const Lock lock(mutex);
  if (device && used + size > kTotal) return false;
  void *at = mmap(nullptr, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  (*blocks)[reinterpret_cast<uintptr_t>(at)] = {size, device};
  if (device) used += size;
  add(device ? allocations : pinned);
  *out = at;
  return true;
}
void release(void *at) {
  const Lock lock(mutex);
  const auto found = blocks->find(reinterpret_cast<uintptr_t>(at));
  if (found == blocks->end()) return;
  if (found->second.device) used -= found->second.size;
  munmap(at, found->second.size + 1);
  blocks->erase(found);
}
const Block *block_of(const void *p) {
  const Lock lock(mutex);
  const auto at = reinterpret_cast<uintptr_t>(p);
  auto found = blocks->upper_bound(at);
  if (found == blocks->begin()) return nullptr;
  --found;
  return at < found->first + found->second.size + 1 ? &found->second : nullptr;
}
bool on_device(const void *p) {
  const Block *b = block_of(p);
  return b != nullptr && b->device;
}

// A recording: the streams in it, and the events that were recorded on them.
std::set<void *> *streams = new std::set<void *>, *events = new std::set<void *>;
unsigned long long recordings = 0;
uint64_t begun = 0;
bool broken = false;
bool recording(cudaStream_t s) {
  const Lock lock(mutex);
  return streams->count(s) > 0;
}
// Events by the order of their records, the last in their first bytes. The device has reached those that the host has waited for.
uint64_t records = 0, reached = 0;
uint64_t &record_of(cudaEvent_t e) { return *reinterpret_cast<uint64_t *>(e); }

// A wait, or what implies one: not while a graph is recorded.
cudaError_t wait(bool forbidden) {
  if (!forbidden) {
    add(waits);
    const Lock lock(mutex);
    reached = records;
    return cudaSuccess;
  }
  add(refused);
  broken = true;
  return cudaErrorStreamCaptureUnsupported;
}
cudaError_t last = cudaSuccess;
cudaError_t said(cudaError_t e) { return e == cudaSuccess ? e : last = e; }

void launched(const char *name, cudaStream_t s) {
  add(recording(s) ? recorded : launches);
  const Lock lock(mutex);
  static auto *index = new std::map<std::string, int>;
  const auto at = index->emplace(name, static_cast<int>(index->size())).first;
  if (at->second >= kKernels) return;
  Kernel &k = table()->kernels[at->second];
  if (k.launches++ == 0) snprintf(k.name, sizeof k.name, "%s", name);
}

std::map<const void *, std::string> *names = new std::map<const void *, std::string>;
const char *name_of(const void *function) {
  const Lock lock(mutex);
  const auto found = names->find(function);
  return found == names->end() ? "unknown" : found->second.c_str();
}

template <class T>
T *handle() { return static_cast<T *>(calloc(1, 64)); }

cudaError_t copy(void *to, const void *from, size_t n, cudaStream_t s) {
  const bool down = on_device(from), up = on_device(to);
  if (down && up) {
    launched("copy on the device", s);
    return cudaSuccess;
  }
  add(up ? uploads : readbacks);
  if (up && block_of(from) == nullptr) add(pageable);
  if (recording(s)) return said(wait(true));  // CUDA would copy what the host's memory holds at each replay: no step of ours means that
  if (up)
    memcpy(to, from, n);
  else
    memset(to, n == 1, n);
  return cudaSuccess;
}

struct Config {
  dim3 grid, block;
  size_t shared;
  void *stream;
};
thread_local Config config;

int attribute(int a) {
  switch (a) {
  case cudaDevAttrComputeCapabilityMajor: return 9;
  case cudaDevAttrComputeCapabilityMinor: return 0;
  case cudaDevAttrMultiProcessorCount: return 132;
  case cudaDevAttrWarpSize: return 32;
  case cudaDevAttrMaxThreadsPerBlock: return 1024;
  case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
  case cudaDevAttrMaxSharedMemoryPerBlock: return 49152;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin: return 232448;
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return 233472;
  case cudaDevAttrMaxGridDimX: return 2147483647;
  case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: return 65535;
  case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: return 1024;
  case cudaDevAttrMaxBlockDimZ: return 64;
  default: return 0;
  }
}

}  // namespace

extern "C" {

// --- kernels

void **__cudaRegisterFatBinary(void *) { return handle<void *>(); }
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
char __cudaInitModule(void **) { return 1; }
void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, uint3 *, uint3 *, dim3 *, dim3 *, int *) {
  const Lock lock(mutex);
  (*names)[host] = name;
}
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  config = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  *grid = config.grid, *block = config.block, *shared = config.shared, *static_cast<void **>(stream) = config.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(const void **kernel, const void *function) {
  *kernel = function;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(const void *kernel, dim3, dim3, void **, size_t, cudaStream_t s) {
  launched(name_of(kernel), s);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void *function, dim3, dim3, void **, size_t, cudaStream_t s) {
  launched(name_of(function), s);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *function, void **) {
  launched(name_of(function), c->stream);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, const void *) {
  *a = {};
  a->ptxVersion = a->binaryVersion = 90, a->maxThreadsPerBlock = 1024, a->numRegs = 32, a->maxDynamicSharedSizeBytes = 232448;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *, int, size_t, unsigned) {
  *n = 2;
  return cudaSuccess;
}

// --- the device

cudaError_t cudaGetDeviceCount(int *n) {
  *n = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *d) {
  *d = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
  memset(p, 0, sizeof *p);
  strcpy(p->name, "counting device");
  p->major = 9, p->multiProcessorCount = 132, p->warpSize = 32, p->totalGlobalMem = kTotal, p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048, p->maxBlocksPerMultiProcessor = 32, p->sharedMemPerBlock = 49152, p->sharedMemPerBlockOptin = 232448;
  p->sharedMemPerMultiprocessor = 233472, p->l2CacheSize = 50 << 20, p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
  p->textureAlignment = p->texturePitchAlignment = 512;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr a, int) {
  *v = attribute(a);
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v) { return cudaRuntimeGetVersion(v); }
cudaError_t cudaDeviceSynchronize() {
  const Lock lock(mutex);
  return said(wait(!streams->empty()));
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **f, unsigned, unsigned long long, cudaDriverEntryPointQueryResult *found) {
  *f = nullptr;
  if (found != nullptr) *found = cudaDriverEntryPointSymbolNotFound;
  return cudaErrorSymbolNotFound;
}
cudaError_t cudaGetLastError() {
  const cudaError_t e = last;
  last = cudaSuccess;
  return e;
}
cudaError_t cudaPeekAtLastError() { return last; }
const char *cudaGetErrorName(cudaError_t) { return "error"; }
const char *cudaGetErrorString(cudaError_t e) {
  return e == cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing" : e == cudaErrorMemoryAllocation ? "out of memory" : "error";
}

// --- memory

cudaError_t cudaMalloc(void **p, size_t n) { return allocate(p, n, true) ? cudaSuccess : said(cudaErrorMemoryAllocation); }
cudaError_t cudaFree(void *p) {
  release(p);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned) { return allocate(p, n, false) ? cudaSuccess : said(cudaErrorMemoryAllocation); }
cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  const Lock lock(mutex);
  *free = kTotal - used, *total = kTotal;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p) {
  *a = {};
  const Block *b = block_of(p);
  a->type = b == nullptr ? cudaMemoryTypeUnregistered : b->device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  a->devicePointer = a->hostPointer = const_cast<void *>(p);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind, cudaStream_t s) { return copy(to, from, n, s); }
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind) {
  const cudaError_t e = wait(false);
  return e == cudaSuccess ? copy(to, from, n, nullptr) : e;
}
cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t s) {
  launched("memset", s);
  return cudaSuccess;
}
cudaError_t cudaMemset(void *p, int v, size_t n) { return cudaMemsetAsync(p, v, n, nullptr); }

// --- streams, events, graphs

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int) {
  *s = handle<CUstream_st>();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return said(wait(recording(s))); }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  const Lock lock(mutex);
  if (events->count(e) > 0) streams->insert(s);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
  *e = handle<CUevent_st>();
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) {
  const Lock lock(mutex);
  record_of(e) = ++records;
  if (recording(s))
    events->insert(e);
  else
    events->erase(e);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return cudaEventRecordWithFlags(e, s, 0); }
// Asked again with nothing in between, the host waits for it.
cudaError_t cudaEventQuery(cudaEvent_t e) {
  const Lock lock(mutex);
  if (record_of(e) <= reached) return cudaSuccess;
  if (asked != e) {
    asked = e;
    return cudaErrorNotReady;
  }
  add(waits);
  reached = record_of(e);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return said(wait(false)); }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  const Lock lock(mutex);
  streams->insert(s);
  recordings++;
  broken = false;
  begun = table()->count[recorded];
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus *status) {
  *status = recording(s) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **nodes,
                                     const cudaGraphEdgeData **edges, size_t *n) {
  if (id != nullptr) *id = recordings;
  if (graph != nullptr) *graph = nullptr;
  if (nodes != nullptr) *nodes = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (n != nullptr) *n = 0;
  return cudaStreamIsCapturing(s, status);
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *graph) {
  const Lock lock(mutex);
  streams->clear();
  events->clear();
  *graph = broken ? nullptr : handle<CUgraph_st>();
  return said(broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t, unsigned long long) {
  *e = handle<CUgraphExec_st>();
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t *, size_t *n) {
  *n = table()->count[recorded] - begun;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  add(graphs);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

// --- the driver, which our own kernels are loaded and launched by

CUresult cuCtxGetCurrent(CUcontext *c) {
  *c = reinterpret_cast<CUcontext>(table());
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
  *v = attribute(a);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned *flags, int *active) {
  *flags = 0, *active = 1;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char **text) {
  *text = "error";
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *m, const void *) {
  *m = handle<CUmod_st>();
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *f, CUmodule, const char *name) {
  *f = handle<CUfunc_st>();
  const Lock lock(mutex);
  (*names)[*f] = std::string("ours: ") + name;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream s, void **, void **) {
  launched(name_of(f), s);
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
#define NEVER(name)                                \
  CUresult never_##name() __asm__(#name); /* whatever it takes */ \
  CUresult never_##name() { return CUDA_ERROR_NOT_SUPPORTED; }
NEVER(cuCtxSetCurrent) NEVER(cuDeviceGet) NEVER(cuDevicePrimaryCtxRetain) NEVER(cuFuncGetAttribute)
NEVER(cuFuncSetCacheConfig) NEVER(cuLaunchCooperativeKernel) NEVER(cuLinkAddData_v2) NEVER(cuLinkComplete) NEVER(cuLinkCreate_v2)
NEVER(cuModuleLoad) NEVER(cuModuleLoadDataEx) NEVER(cuModuleUnload) NEVER(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NEVER(cuPointerGetAttribute) NEVER(cuTensorMapEncodeTiled)

// --- cuBLAS: a product is one launch

thread_local cudaStream_t blas_stream;
int cublasCreate_v2(void **h) {
  *h = handle<void>();
  return 0;
}
int cublasSetStream_v2(void *, cudaStream_t s) {
  blas_stream = s;
  return 0;
}
#define NOTHING(name) \
  int name() { return 0; }
NOTHING(cublasDestroy_v2) NOTHING(cublasSetWorkspace_v2) NOTHING(cublasSetMathMode) NOTHING(cublasSetPointerMode_v2) NOTHING(cublasLtMatmulDescDestroy)
NOTHING(cublasLtMatmulDescSetAttribute) NOTHING(cublasLtMatmulPreferenceDestroy) NOTHING(cublasLtMatmulPreferenceSetAttribute)
NOTHING(cublasLtMatrixLayoutDestroy) NOTHING(cublasLtMatrixLayoutSetAttribute)
int cublasGetMathMode(void *, int *mode) { return *mode = 0; }
int cublasGetPointerMode_v2(void *, int *mode) { return *mode = 0; }
#define CREATED(name)           \
  int name(void **p) {          \
    *p = handle<void>();        \
    return 0;                   \
  }
CREATED(cublasLtMatmulDescCreate) CREATED(cublasLtMatmulPreferenceCreate) CREATED(cublasLtMatrixLayoutCreate)
int cublasLtMatmulAlgoGetHeuristic(void *, void *, void *, void *, void *, void *, void *, int, void *result, int *found) {
  memset(result, 0, 64);
  return *found = 1, 0;
}
int cublasLtMatmul(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, size_t, cudaStream_t s) {
  launched("cublasLtMatmul", s);
  return 0;
}
#define PRODUCT(name)              \
  int name() {                     \
    launched(#name, blas_stream);  \
    return 0;                      \
  }
PRODUCT(cublasSgemm_v2) PRODUCT(cublasDgemm_v2) PRODUCT(cublasGemmEx) PRODUCT(cublasSgemmEx) PRODUCT(cublasSgemmStridedBatched) PRODUCT(cublasDgemmStridedBatched)
PRODUCT(cublasGemmStridedBatchedEx) PRODUCT(cublasSgemv_v2) PRODUCT(cublasDgemv_v2) PRODUCT(cublasSdot_v2) PRODUCT(cublasDdot_v2) PRODUCT(cublasDotEx)

}  // extern "C"
