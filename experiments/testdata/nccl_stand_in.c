// A libnccl.so.2 for tests on a CPU: the memory of the host goes through named pipes in a folder, whose name is the id. Like NCCL it
// notices nothing of a process that dies: what waits for it waits until it is aborted.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
  char bytes[128];
} id;
typedef struct {
  char dir[128];
  int rank, size, to[64], from[64];
  atomic_int aborted;
} comm;

static void say(const char *file, const char *what) { // to the test
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", getenv("NCCL_STAND_IN"), file);
  FILE *f = fopen(path, "a");
  if (f == NULL) return;
  fprintf(f, "%s\n", what);
  fclose(f);
}
static int planted(const char *file) { // by the test
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", getenv("NCCL_STAND_IN"), file);
  return access(path, F_OK) == 0;
}

int ncclGetVersion(int *version) { return *version = 0; }
const char *ncclGetErrorString(int code) { return code == 3 ? "internal error" : "aborted"; }
int ncclGetUniqueId(id *out) {
  memset(out, 0, sizeof *out);
  snprintf(out->bytes, sizeof out->bytes, "%s/XXXXXX", getenv("NCCL_STAND_IN"));
  return mkdtemp(out->bytes) == NULL ? 3 : 0;
}

static int pipe_of(comm *c, int from, int to) {
  char path[256];
  snprintf(path, sizeof path, "%s/%d-%d", c->dir, from, to);
  if (mkfifo(path, 0600) != 0 && errno != EEXIST) return -1;
  return open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC); // open at both ends: it never breaks
}
int ncclCommInitRank(comm **out, int size, id of, int rank) {
  comm *c = calloc(1, sizeof *c);
  *out = c;
  if (rank == 1 && planted("refuses")) return 3;
  for (char name[160]; rank >= 0; usleep(1000)) { // until all are here
    int here = 0;
    snprintf(name, sizeof name, "%s/%d", strrchr(of.bytes, '/') + 1, rank);
    if (!planted(name)) say(name, "here");
    for (int peer = 0; peer < size; peer++) {
      snprintf(name, sizeof name, "%s/%d", strrchr(of.bytes, '/') + 1, peer);
      here += planted(name);
    }
    if (here == size) break;
  }
  memcpy(c->dir, of.bytes, sizeof c->dir);
  c->rank = rank, c->size = size;
  for (int peer = 0; peer < size; peer++)
    if ((c->to[peer] = pipe_of(c, rank, peer)) < 0 || (c->from[peer] = pipe_of(c, peer, rank)) < 0) return 3;
  return 0;
}

// Operations between ncclGroupStart and ncclGroupEnd are under way at once.
static struct {
  comm *of;
  int fd, out;
  char *at;
  size_t n;
} begun[1024];
static int count;

static int begin(comm *c, int fd, char *at, size_t n, int out) {
  if (count == 1024) return 3;
  begun[count].of = c, begun[count].fd = fd, begun[count].at = at, begun[count].n = n, begun[count].out = out;
  count++;
  return 0;
}
int ncclSend(const void *x, size_t n, int type, int peer, comm *c, void *stream) {
  (void)type, (void)stream;
  say("asked", "send");
  if (c->rank == 1 && planted("hangs")) {
    say("hung", "here");
    for (;;) pause();
  }
  return begin(c, c->to[peer], (char *)(uintptr_t)x, n, 1);
}
int ncclRecv(void *x, size_t n, int type, int peer, comm *c, void *stream) {
  (void)type, (void)stream;
  return begin(c, c->from[peer], x, n, 0);
}
int ncclGroupStart(void) { return count = 0; }
int ncclGroupEnd(void) {
  for (int left = count; left > 0;) {
    left = 0;
    for (int i = 0; i < count; i++) {
      int first = 1; // of those that use its pipe
      for (int j = 0; j < i; j++) first &= begun[j].fd != begun[i].fd || begun[j].n == 0;
      if (begun[i].n == 0 || !first) continue;
      if (atomic_load(&begun[i].of->aborted)) return 1;
      const ssize_t done = begun[i].out ? write(begun[i].fd, begun[i].at, begun[i].n) : read(begun[i].fd, begun[i].at, begun[i].n);
      if (done < 0 && errno != EAGAIN && errno != EINTR) return 3;
      if (done > 0) begun[i].at += done, begun[i].n -= (size_t)done;
    }
    for (int i = 0; i < count; i++) left += begun[i].n > 0;
    if (left > 0) usleep(100);
  }
  return 0;
}
int ncclCommGetAsyncError(comm *c, int *state) {
  (void)c;
  *state = planted("fails") ? 6 : 0;
  return 0;
}
int ncclCommAbort(comm *c) {
  atomic_store(&c->aborted, 1);
  return 0;
}
