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
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

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

// Threads that wait for each other give their core away: OpenMP's and OpenBLAS's own default is to turn in a circle for milliseconds,
// which beside one busy process takes ten times the processor time of the work. Both libraries read the environment when they are
// loaded. It is set before main, while there is one thread; Go and the programs it starts see the environment as it was. What the
// user has set stays.
__attribute__((constructor)) static void wait_asleep(void) {
  if (!getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT") && !getenv("KMP_BLOCKTIME")) {
    setenv("OMP_WAIT_POLICY", "passive", 1);
    setenv("GOMP_SPINCOUNT", "1000", 1);  // microseconds, and not the round trip through the kernel between short operations
  }
  setenv("OPENBLAS_THREAD_TIMEOUT", "4", 0);  // 2^4 cycles, its least
}

// Address space, where ulimit -v limits it, as login nodes do. Without enough of it Go ends in pages of its stacks, and OpenBLAS asks for
// its buffers again and again, for ever. In MB, measured and rounded up:
enum {
  program_space = 1500,  // Go reserves 1,190 before main; this program, its threads and its records
  program_core = 16,     // Go's threads for each core, 8 of stack each
  torch_space = 1000,    // libtorch, the libraries that it names, and the numbers of a small model
  cuda_space = 4000,     // the same with the libraries of CUDA, before a device is used
  torch_core = 80,       // OpenBLAS has a thread for each core, with its stack and a buffer of 32, twice while they are made
};

// The limit in MB, 0 where there is none.
static size_t limit_of_space(void) {
  struct rlimit r;
  return getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY ? (size_t)(r.rlim_cur >> 20) + 1 : 0;
}

static size_t for_cores(size_t once, size_t each) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return once + each * (size_t)(cores < 1 ? 1 : cores);
}

// Whether the library beside this one names those of CUDA.
static int names_cuda(void) {
  char path[PATH_MAX];
  struct stat s;
  int found = 0;
  const int file = beside_this_library(path, sizeof(path)) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return 0;
  if (fstat(file, &s) == 0 && s.st_size > 0) {
    void *p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (p != MAP_FAILED) {
      found = memmem(p, (size_t)s.st_size, "libtorch_cuda.so", strlen("libtorch_cuda.so")) != NULL;
      munmap(p, (size_t)s.st_size);
    }
  }
  close(file);
  return found;
}

static size_t space_of_torch(void) { return for_cores(names_cuda() ? cuda_space : torch_space, torch_core); }

__attribute__((constructor)) static void enough_for_go(void) {
  const size_t limit = limit_of_space(), program = for_cores(program_space, program_core);
  if (!limit) return;
  mallopt(M_ARENA_MAX, 1);  // glibc reserves 64 MB for each thread's own
  if (limit > program) return;
  fprintf(stderr, "%s: ulimit -v allows %zu MB of address space: want at least %zu MB, and %zu MB to train: ulimit -v unlimited\n",
          program_invocation_short_name, limit - 1, program, program + space_of_torch());
  _exit(1);
}

// Whether so much address space is left.
static int space_left(size_t megabytes) {
  const size_t bytes = megabytes << 20;
  void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p != MAP_FAILED && munmap(p, bytes) == 0;
}

// Makes OpenBLAS's threads take their buffers by a product that all of them share.
static void take_buffers(void *library) {
  void (*sgemm)(const char *, const char *, const int *, const int *, const int *, const float *, const float *, const int *, const float *, const int *,
                const float *, float *, const int *);
  *(void **)&sgemm = dlsym(library, "sgemm_");
  enum { n = 512 };
  float *x = sgemm ? calloc(2 * n * n, sizeof(float)) : NULL;
  if (!x) return;
  const int size = n;
  const float one = 1;
  sgemm("N", "N", &size, &size, &size, &one, x, &size, x, &size, &one, x + n * n, &size);
  free(x);
}

// Opens the library and fills the table, or writes problem. Called once, under the lock.
static void load(void) {
  char path[PATH_MAX];
  if (!beside_this_library(path, sizeof(path))) {
    snprintf(problem, sizeof(problem), "cannot find the folder of " REAL_LIBRARY "; run make setup, then make build");
    return;
  }
  const size_t limit = limit_of_space(), needed = limit ? space_of_torch() : 0;
  if (limit && !space_left(needed)) {
    snprintf(problem, sizeof(problem), "ulimit -v allows %zu MB of address space: want at least %zu MB: ulimit -v unlimited", limit - 1,
             for_cores(program_space, program_core) + needed);
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
  if (limit) take_buffers(library);
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
