// Reads of mapped files that were cut. A page that its file no longer has (or that its disk cannot read) raises SIGBUS in whatever
// reads it: Go, a kernel of ours, or a worker thread of libtorch, none of which can go on or give up there. The handler puts zeros in
// the place of the mapping, marks its record, and the read goes on; internal/tensorfile looks at the records before anything that was
// computed is saved, and the run ends with the name of the file. Any other SIGBUS is Go's, as before.
#define _GNU_SOURCE
#include "faults.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

// A record of a mapping, as internal/tensorfile writes it. address is 0 where there is none.
typedef struct {
  _Atomic uint64_t address, bytes, cut, unused;
} record;

static record *records;
static size_t count;
static struct sigaction go;

static void on_fault(int signal, siginfo_t *info, void *context) {
  uint64_t at = (uint64_t)(uintptr_t)info->si_addr;
  for (size_t i = 0; info->si_code == BUS_ADRERR && i < count; i++) {
    uint64_t from = atomic_load(&records[i].address), bytes = atomic_load(&records[i].bytes);
    if (from == 0 || at < from || at - from >= bytes) continue;
    int kept = errno;
    void *page = (void *)(uintptr_t)from; // all of it: single pages would be too many mappings
    void *zeros = mmap(page, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    errno = kept;
    if (zeros != page) break;
    atomic_store(&records[i].cut, 1);
    return;
  }
  if (go.sa_flags & SA_SIGINFO)
    go.sa_sigaction(signal, info, context);
  else
    sigaction(SIGBUS, &go, NULL); // the read comes again, and ends the process
}

void fulcrum_catch_faults(void *table, uint64_t n) {
  records = table;
  count = n;
  struct sigaction ours;
  if (sigaction(SIGBUS, NULL, &go) != 0) return;
  ours = go; // with Go's mask and its stack for signals
  ours.sa_flags |= SA_SIGINFO | SA_ONSTACK;
  ours.sa_sigaction = on_fault;
  sigaction(SIGBUS, &ours, NULL);
}
