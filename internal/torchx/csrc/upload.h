// Host data on its way to a device (upload.go).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cgotorch/torchdef.h"

#ifdef __cplusplus
extern "C" {
#endif

bool fc_is_cuda(Tensor x);
const char *fc_staging(int64_t bytes, Tensor *out, void **data);  // host memory [bytes] uint8 that copies to a device start from
const char *fc_view(Tensor buffer, int64_t offset, int8_t dtype, const int64_t *shape, int64_t dims, Tensor *out);  // bytes of a uint8 buffer as numbers

#ifdef __cplusplus
}
#endif
