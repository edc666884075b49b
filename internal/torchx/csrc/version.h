// Which libtorch this is, for `run doctor` and summary.json.
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

const char *fc_libtorch_version(void);  // "1.13.1": of the headers, as built; static
// Message or NULL; *out, which fc_free_string frees, gets libtorch's own account of itself.
const char *fc_libtorch_config(const char **out);    // compiler, BLAS, LAPACK, build settings: many lines

#ifdef __cplusplus
}
#endif
