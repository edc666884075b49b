#include "version.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include "guard.h"

const char *fc_libtorch_version(void) { return TORCH_VERSION; }

bool fc_libtorch_cuda(void) { return FULCRUM_TORCH_CUDA; }

const char *fc_libtorch_config(const char **out) {
  return guard([&] { *out = fc_message(at::show_config().c_str()); });
}

const char *fc_libtorch_parallel(const char **out) {
  return guard([&] { *out = fc_message(at::get_parallel_info().c_str()); });
}
