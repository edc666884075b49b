#include "cuda_kernels.h"

bool cuda::wide(int64_t k, std::initializer_list<const at::Tensor *> tensors) {
  for (const at::Tensor *x : tensors)
    if (x->defined() && (k * x->element_size() % 16 != 0 || reinterpret_cast<uintptr_t>(x->data_ptr()) % 16 != 0)) return false;
  return true;
}

#ifdef FULCRUM_CUDA

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

namespace {

const std::string kRows =
#include "kernels.cu"
    ;
const std::string kLogits =
#include "kernels_vocabulary.cu"
    ;
const std::string kDraw =
#include "kernels_draw.cu"
    ;
const std::string kPointer =
#include "kernels_pointer.cu"
    ;
const std::string kDecode =
#include "kernels_decode.cu"
    ;

const std::vector<std::string> kRowNames = {"rms_norm", "rms_norm_back", "rms_norm_weight_back", "swiglu", "swiglu_back", "swiglu_pair", "swiglu_pair_back", "rope", "rope_heads"};
const std::vector<std::string> kLogitsNames = {"token_stats", "token_back", "token_back_bf16", "token_back_f16", "token_kl", "pick", "pick_back",
                                              "unit_rows", "unit_rows_back", "squares", "total", "adamw", "pool_attend", "pool_attend_back", "pool_score", "pool_score_back",
                                              "pool_rows_back", "gather_back", "add_columns", "weighted_logp", "surrogate", "gate", "gate_back"};

// The driver and NVRTC, found in the process: linked, they would have to be on machines without a GPU too. libtorch's own
// library of them says where they are.
struct Driver {
#define FUNCTIONS(F)                                                                                                          \
  F(nvrtcCreateProgram) F(nvrtcAddNameExpression) F(nvrtcCompileProgram) F(nvrtcGetProgramLogSize) F(nvrtcGetProgramLog)      \
  F(nvrtcGetCUBINSize) F(nvrtcGetCUBIN) F(nvrtcGetLoweredName) F(nvrtcDestroyProgram) F(cuModuleLoadData) F(cuModuleGetFunction) \
  F(cuLaunchKernel) F(cuCtxGetCurrent) F(cuCtxSetCurrent) F(cuDevicePrimaryCtxRetain) F(cuDeviceGetAttribute) F(cuGetErrorString) \
  F(nvrtcVersion) F(cuFuncSetAttribute)
#define MEMBER(name) decltype(&::name) name;
  FUNCTIONS(MEMBER)
  Driver() {
    void *library = dlopen("libcaffe2_nvrtc.so", RTLD_NOW);
    TORCH_CHECK(library != nullptr, "cuda kernels: ", dlerror());
#define FIND(name)                                              \
  name = reinterpret_cast<decltype(name)>(dlsym(library, #name)); \
  TORCH_CHECK(name != nullptr, "cuda kernels: ", dlerror());
    FUNCTIONS(FIND)
    // NVRTC loads its headers' library by name, which pip puts where only NVRTC's own folder leads.
    Dl_info info;
    int major = 0, minor = 0;
    if (dladdr(reinterpret_cast<void *>(nvrtcVersion), &info) == 0 || nvrtcVersion(&major, &minor) != NVRTC_SUCCESS) return;
    const std::string path = info.dli_fname;
    dlopen((path.substr(0, path.rfind('/') + 1) + "libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor)).c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
};
const Driver &driver() {
  static const Driver d;
  return d;
}

void check(CUresult result, const char *what) {
  if (result == CUDA_SUCCESS) return;
  const char *text = nullptr;
  driver().cuGetErrorString(result, &text);
  TORCH_CHECK(false, "cuda kernels: ", what, ": ", text == nullptr ? "unknown error" : text);
}

// The thread's context: libtorch makes it current with a thread's first call of the runtime, which may be still to come.
void make_current(int device) {
  CUcontext context = nullptr;
  check(driver().cuCtxGetCurrent(&context), "context");
  if (context != nullptr) return;
  check(driver().cuDevicePrimaryCtxRetain(&context, device), "context");
  check(driver().cuCtxSetCurrent(context), "context");
}

const char *type_name(at::ScalarType type) { return type == at::kFloat ? "float" : type == at::kBFloat16 ? "bf16" : "f16"; }

using Functions = std::map<std::string, CUfunction>;

std::string expression(const std::string &name, int64_t width) { return name + "<" + std::to_string(width) + ">"; }

// Kernels that are programs of their own: large, and only generation needs them.
const std::map<std::string, const std::string *> kAlone = {{"draw", &kDraw}, {"decode_64", &kDecode}, {"decode_128", &kDecode}};

// What NVRTC has made of a source, and the names that it gave the expressions.
struct Code {
  std::vector<std::string> names;
  std::string binary;
};

CUresult load(const Code &code, const std::vector<std::string> &expressions, Functions *functions) {
  CUmodule module;  // for good
  CUresult result = driver().cuModuleLoadData(&module, code.binary.data());
  for (size_t i = 0; i < expressions.size() && result == CUDA_SUCCESS; i++)
    result = driver().cuModuleGetFunction(&(*functions)[expressions[i]], module, code.names[i].c_str());
  return result;
}

// Compiling takes seconds a process, so code is kept in the user's cache folder: a file holds the key, all that the code
// depends on, then names and code, each behind a zero byte. A file that is not whole, or of another key, counts as none.
std::string kept_in(const std::string &key) {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  std::string folder = cache != nullptr ? cache : "";
  if (folder.empty() && home != nullptr && *home != 0) folder = std::string(home) + "/.cache";
  if (folder.empty()) return "";
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const unsigned char c : key) hash = (hash ^ c) * 1099511628211u;
  return folder + "/fulcrum/kernels/" + std::to_string(hash);
}

bool read(const std::string &file, const std::string &key, size_t names, Code *code) {
  std::ifstream in(file, std::ios::binary);
  std::string text;
  if (!in || !std::getline(in, text, '\0') || text != key) return false;
  for (size_t i = 0; i < names && std::getline(in, text, '\0'); i++) code->names.push_back(text);
  std::string size;
  if (code->names.size() != names || !std::getline(in, size, '\0')) return false;
  code->binary.assign(std::istreambuf_iterator<char>(in), {});
  return std::to_string(code->binary.size()) == size;
}

// Another process may write the same file: the last rename stands. Where nothing can be written, the next process compiles too.
void write(const std::string &file, const std::string &key, const Code &code) {
  if (file.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
  const std::string fresh = file + "." + std::to_string(getpid());
  std::ofstream out(fresh, std::ios::binary);
  out << key << '\0';
  for (const std::string &name : code.names) out << name << '\0';
  out << code.binary.size() << '\0' << code.binary;
  out.close();
  if (out)
    std::filesystem::rename(fresh, file, error);
  else
    std::filesystem::remove(fresh, error);
}

// All kernels of a type, or the one of this expression of a source alone, compiled for a device.
Functions compile(int device, at::ScalarType type, const std::string &alone, const std::string *of) {
  const Driver &d = driver();
  int major = 0, minor = 0;
  check(d.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "device");
  check(d.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "device");
  TORCH_CHECK(major >= 8 || of != &kDecode, "cuda kernels: the fast kernel of decoding wants compute capability 8.0 or newer, here it is ", major, ".", minor);
  const std::string arch = "--gpu-architecture=sm_" + std::to_string(major * 10 + minor), element = std::string("-DELEMENT=") + type_name(type);
  const std::vector<const char *> options = {arch.c_str(), element.c_str(), "--std=c++17"};
  std::string source = kRows;
  std::vector<std::string> names = kRowNames, expressions;
  if (!alone.empty()) {
    source += *of;
    names.clear();
    expressions.push_back(alone);
  } else if (type == at::kFloat) {
    source += kLogits + kPointer;
    names.insert(names.end(), kLogitsNames.begin(), kLogitsNames.end());
  }
  for (const std::string &name : names)
    for (const bool wide : {false, true}) expressions.push_back(expression(name, wide ? 16 / static_cast<int64_t>(c10::elementSize(type)) : 1));
  int nvrtc_major = 0, nvrtc_minor = 0;
  d.nvrtcVersion(&nvrtc_major, &nvrtc_minor);
  std::string key = c10::str("NVRTC ", nvrtc_major, ".", nvrtc_minor, " ", c10::Join(" ", options), "\n");
  for (const std::string &e : expressions) key += e + "\n";
  key += source;
  const std::string file = kept_in(key);
  Functions functions;
  if (Code kept; read(file, key, expressions.size(), &kept) && load(kept, expressions, &functions) == CUDA_SUCCESS) return functions;

  nvrtcProgram program;
  TORCH_CHECK(d.nvrtcCreateProgram(&program, source.c_str(), "kernels.cu", 0, nullptr, nullptr) == NVRTC_SUCCESS, "cuda kernels: no program");
  for (const std::string &e : expressions) d.nvrtcAddNameExpression(program, e.c_str());
  if (d.nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data()) != NVRTC_SUCCESS) {
    size_t size = 0;
    d.nvrtcGetProgramLogSize(program, &size);
    std::string log(size, ' ');
    d.nvrtcGetProgramLog(program, log.data());
    TORCH_CHECK(false, "cuda kernels for ", arch, ", ", element, ":\n", log);
  }
  size_t size = 0;
  TORCH_CHECK(d.nvrtcGetCUBINSize(program, &size) == NVRTC_SUCCESS && size > 0, "cuda kernels: no code for ", arch);
  Code code;
  code.binary.resize(size);
  d.nvrtcGetCUBIN(program, code.binary.data());
  for (const std::string &e : expressions) {
    const char *lowered = nullptr;
    TORCH_CHECK(d.nvrtcGetLoweredName(program, e.c_str(), &lowered) == NVRTC_SUCCESS, "cuda kernels: no ", e);
    code.names.push_back(lowered);
  }
  d.nvrtcDestroyProgram(&program);
  check(load(code, expressions, &functions), "load");
  write(file, key, code);
  return functions;
}

// The kernel for its device and type.
CUfunction find(const cuda::Kernel &kernel) {
  static std::mutex mutex;
  static std::map<std::tuple<int, at::ScalarType, std::string>, Functions> compiled;
  const at::ScalarType type = kernel.like.scalar_type();
  const int device = kernel.like.get_device();
  make_current(device);
  const std::lock_guard<std::mutex> lock(mutex);
  const auto own = kAlone.find(kernel.name);
  const std::string name = expression(kernel.name, kernel.width()), alone = own == kAlone.end() ? "" : name;
  auto at = compiled.find({device, type, alone});
  if (at == compiled.end()) at = compiled.emplace(std::make_tuple(device, type, alone), compile(device, type, alone, alone.empty() ? nullptr : own->second)).first;
  const auto function = at->second.find(name);
  TORCH_CHECK(function != at->second.end(), "cuda kernels: no ", kernel.name);
  return function->second;
}

}  // namespace

bool cuda::runs(const at::Tensor &x) {
  static const bool on = [] {
    const char *value = std::getenv("FULCRUM_CUDA_KERNELS");
    return value == nullptr || strcmp(value, "0") != 0;
  }();
  const at::ScalarType type = x.scalar_type();
  return on && x.is_cuda() && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

void cuda::launch(const Kernel &kernel, int64_t blocks, int64_t blocks_y, int64_t threads, void **arguments) {
  if (blocks == 0) return;
  const c10::DeviceGuard guard(kernel.like.device());
  const CUfunction function = find(kernel);
  constexpr unsigned granted = 48 << 10;  // without being asked for
  if (kernel.shared > granted) check(driver().cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(kernel.shared)), kernel.name);
  check(driver().cuLaunchKernel(function, static_cast<unsigned>(blocks), static_cast<unsigned>(blocks_y), 1, static_cast<unsigned>(threads), 1, 1, kernel.shared,
                                c10::cuda::getCurrentCUDAStream().stream(), arguments, nullptr),
        kernel.name);
}

#endif
