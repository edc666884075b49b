#include "version.h"

#include <ATen/Version.h>
#include <torch/version.h>

#include "guard.h"

const char *fc_libtorch_version(void) { return TORCH_VERSION; }

const char *fc_libtorch_config(const char **out) {
  return guard([&] { *out = fc_message(at::show_config().c_str()); });
}
