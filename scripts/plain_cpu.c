// Preloaded, it hides what the processor can do from libtorch (make test-processors): libcpuinfo's table of instruction sets is empty, so
// products of bfloat16 go the way that they go without AVX-512. ATEN_CPU_CAPABILITY then chooses libtorch's kernels.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>

bool cpuinfo_initialize(void) {
  bool (*initialize)(void);
  *(void **)&initialize = dlsym(RTLD_NEXT, "cpuinfo_initialize");
  void *handle = dlopen("libcpuinfo.so.0", RTLD_NOW | RTLD_NOLOAD);
  if (!initialize && handle) *(void **)&initialize = dlsym(handle, "cpuinfo_initialize");
  if (!initialize || !initialize()) return false;
  Dl_info info;
  const ElfW(Sym) *symbol = NULL;
  void *table = handle ? dlsym(handle, "cpuinfo_isa") : NULL;
  if (table && dladdr1(table, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol) memset(table, 0, symbol->st_size);
  return table != NULL;
}
