// The forwarding libcgotorch.so; forward.h says what it is for.
//
//   bin/run ──NEEDED──> libcgotorch.so (this file) ──dlopen on first use──> libfulcrum_torch.so ──> libtorch
//
// Each function of the real library is a trampoline here: one jump through a table slot. A jump
// leaves every argument register and the stack as they were, so one trampoline fits any signature.
// Until the real library is loaded, a slot points to a function that aborts, naming the symbol:
// calling into libtorch before torchx.Load is a bug, and must not be a jump to null.
//
// symbols.inc holds one FORWARD(index, name) line for each function; scripts/native.mk writes it
// from `nm -D` of the real library.
#define _GNU_SOURCE
#include "forward.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REAL_LIBRARY "libfulcrum_torch.so"
#define HIDDEN __attribute__((visibility("hidden")))

typedef void (*function)(void);

__attribute__((noreturn, cold)) static void called_before_load(const char *name) {
  fprintf(stderr, "fulcrum: bug: %s was called before torchx.Load opened " REAL_LIBRARY "\n", name);
  abort();
}

// One aborting function for each symbol, and the table of slots that starts out pointing to them.
#define FORWARD(index, name) \
  static void before_load_##name(void) { called_before_load(#name); }
#include "symbols.inc"
#undef FORWARD

HIDDEN function fulcrum_forward_table[] = {
#define FORWARD(index, name) before_load_##name,
#include "symbols.inc"
#undef FORWARD
};

static const char *const names[] = {
#define FORWARD(index, name) #name,
#include "symbols.inc"
#undef FORWARD
};

enum { COUNT = sizeof(names) / sizeof(names[0]) };

// The trampolines. endbr64 and bti c (hint 34) mark legal targets of indirect calls, for machines
// that check; x16 is the register that arm64's procedure call standard gives to such veneers.
#if defined(__x86_64__)
#define JUMP(index) \
  "  endbr64\n"     \
  "  jmp *fulcrum_forward_table+8*" #index "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(index)                                           \
  "  hint #34\n"                                              \
  "  adrp x16, fulcrum_forward_table+8*" #index "\n"          \
  "  ldr x16, [x16, #:lo12:fulcrum_forward_table+8*" #index "]\n" \
  "  br x16\n"
#else
#error "the forwarding library knows amd64 and arm64 only; a trampoline is one jump through a table slot"
#endif

#define FORWARD(index, name)         \
  __asm__(".text\n.p2align 4\n"      \
          ".globl " #name "\n"       \
          ".type " #name ", %function\n" \
          #name ":\n" JUMP(index)    \
          ".size " #name ", .-" #name "\n");
#include "symbols.inc"
#undef FORWARD

// gotorch calls SetNumThreads while the program starts, before anything may be loaded, and with one
// CPU it asks for 0, which libtorch refuses by aborting. The wish is recorded and granted at load.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int32_t wanted_threads; // 0: nobody asked
static void (*set_num_threads)(int32_t);
static int loaded;
static char problem[PATH_MAX + 1024]; // the message of a failed load

void SetNumThreads(int32_t n) {
  if (n < 1) n = 1;
  pthread_mutex_lock(&lock);
  wanted_threads = n;
  void (*set)(int32_t) = set_num_threads;
  pthread_mutex_unlock(&lock);
  if (set) set(n);
}

// Fills path with the real library's: it lies beside this one.
static int beside_this_library(char *path, size_t size) {
  Dl_info self;
  if (!dladdr((void *)fulcrum_forward_load, &self) || !self.dli_fname) return 0;
  const char *slash = strrchr(self.dli_fname, '/');
  int folder = slash ? (int)(slash - self.dli_fname) + 1 : 0;
  int n = snprintf(path, size, "%.*s%s", folder, self.dli_fname, REAL_LIBRARY);
  return n > 0 && (size_t)n < size;
}

// Opens the library and fills the table, or writes problem. Called once, under the lock.
static void load(void) {
  char path[PATH_MAX];
  if (!beside_this_library(path, sizeof(path))) {
    snprintf(problem, sizeof(problem), "cannot find the folder of " REAL_LIBRARY "; run make setup, then make build");
    return;
  }
  // NOW: an unresolved symbol is an error here and not an abort in the middle of a run.
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    snprintf(problem, sizeof(problem), "cannot load %s: %s; run make setup, then make build", path, why ? why : "unknown error");
    return;
  }
  function found[COUNT];
  for (int i = 0; i < COUNT; i++) {
    *(void **)&found[i] = dlsym(library, names[i]);
    if (!found[i]) {
      snprintf(problem, sizeof(problem), "%s lacks the function %s: it is of another version; run make build", path, names[i]);
      return;
    }
  }
  *(void **)&set_num_threads = dlsym(library, "SetNumThreads");
  if (!set_num_threads) {
    snprintf(problem, sizeof(problem), "%s lacks the function SetNumThreads: it is of another version; run make build", path);
    return;
  }
  memcpy(fulcrum_forward_table, found, sizeof(found));
  if (wanted_threads > 0) set_num_threads(wanted_threads);
  loaded = 1;
}

const char *fulcrum_forward_load(void) {
  pthread_mutex_lock(&lock);
  if (!loaded && !problem[0]) load();
  const char *message = loaded ? NULL : problem;
  pthread_mutex_unlock(&lock);
  return message;
}
