/* fake_state: see fake.h. */
#include "fake.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

FakeCounts fake_counts;
SimMachine *fake_machine;
CudaResult fake_sticky;

static pthread_mutex_t lock;
__attribute__((constructor)) static void make_lock(void) {
  pthread_mutexattr_t attribute;
  pthread_mutexattr_init(&attribute);
  pthread_mutexattr_settype(&attribute, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&lock, &attribute);
}
static _Thread_local int held;
int fake_lock(void) {
  int result = pthread_mutex_lock(&lock);
  held++;
  return result;
}
void fake_unlock(int *unused) {
  (void)unused;
  held--;
  pthread_mutex_unlock(&lock);
}
void fake_pause(void) {
  int times = held;
  for (; held; held--) pthread_mutex_unlock(&lock);
  usleep(30);
  for (; held < times; held++) pthread_mutex_lock(&lock);
}

long fake_setting(const char *name, long otherwise) {
  char full[64];
  snprintf(full, sizeof full, "FT_FAKE_CUDA_%s", name);
  const char *value = getenv(full);
  return value && value[0] ? atol(value) : otherwise;
}

void fake_die(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("fake CUDA driver: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  abort();
}

unsigned fake_chance(void) {
  static uint64_t state;
  if (!state) state = (uint64_t)fake_setting("SEED", 0) * 2654435761u + 1;
  if (state == 1) return 0;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(state >> 33);
}

/* ── memory ───────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  char *at;
  size_t bytes;
  bool is_mapped; /* the host's, and the GPU may write there */
} Block;
enum { MOST_BLOCKS = 4096 };
static Block device_block[MOST_BLOCKS], host_block[MOST_BLOCKS], variable[MOST_BLOCKS];
static size_t used, peak;

static Block *find(Block *blocks, const void *at, size_t bytes) {
  for (int i = 0; i < MOST_BLOCKS; i++) {
    const char *from = at;
    if (blocks[i].at && from >= blocks[i].at && from < blocks[i].at + blocks[i].bytes) {
      if (bytes > (size_t)(blocks[i].at + blocks[i].bytes - from))
        fake_die("%zu bytes from %p reach beyond their allocation of %zu", bytes, at,
                 blocks[i].bytes);
      return &blocks[i];
    }
  }
  return NULL;
}

static Block *find_free(Block *blocks) {
  for (int i = 0; i < MOST_BLOCKS; i++)
    if (!blocks[i].at) return &blocks[i];
  fake_die("more than %d allocations", MOST_BLOCKS);
}

void fake_context_check(void) {
  if (!fake_context()) fake_die("a call without a current context");
}

CudaResult fake_memory_alloc(CudaAddress *address, size_t bytes) {
  fake_context_check();
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > (size_t)fake_setting("MEMORY", 1 << 30) - used) return CUDA_ERROR_OUT_OF_MEMORY;
  char *at;
  if (sim_alloc(fake_machine, (int64_t)bytes, &at) != STATUS_OK) return CUDA_ERROR_OUT_OF_MEMORY;
  memset(at, 0xa5, bytes); /* a GPU's memory is not zero */
  *find_free(device_block) = (Block){at, bytes, false};
  used += bytes;
  if (used > peak) peak = used;
  fake_counts.memory_alloc++;
  *address = (CudaAddress)(uintptr_t)at;
  return CUDA_SUCCESS;
}

void fake_memory_free(CudaAddress address) {
  Block *block = find(device_block, (void *)(uintptr_t)address, 0);
  if (!block || block->at != (char *)(uintptr_t)address)
    fake_die("freeing %p, which was not allocated", (void *)(uintptr_t)address);
  used -= block->bytes;
  if (!sim_free(fake_machine, block->at)) fake_die("the simulator does not know %p", block->at);
  block->at = NULL;
}

size_t fake_memory_used(void) { return used; }

int fake_memory_blocks(void) {
  int count = 0;
  for (int i = 0; i < MOST_BLOCKS; i++)
    count += (device_block[i].at != NULL) + (host_block[i].at != NULL);
  return count;
}

void fake_memory_check(CudaAddress address, size_t bytes, const char *what) {
  void *at = (void *)(uintptr_t)address;
  Block *mapped = find(host_block, at, bytes);
  if (!find(device_block, at, bytes) && !find(variable, at, bytes) && !(mapped && mapped->is_mapped))
    fake_die("%s: %p is no memory of the GPU", what, at);
}

void fake_memory_know(void *at, size_t bytes) {
  if (!find(variable, at, bytes)) *find_free(variable) = (Block){at, bytes, false};
}

CudaResult fake_host_alloc(void **memory, size_t bytes, bool is_mapped) {
  char *at = NULL;
  fake_context_check();
  if (is_mapped && sim_alloc(fake_machine, (int64_t)bytes, &at) == STATUS_OK)
    sim_mark(fake_machine, at, (int64_t)bytes, true);
  *memory = is_mapped ? at : malloc(bytes);
  if (!*memory) return CUDA_ERROR_OUT_OF_MEMORY;
  *find_free(host_block) = (Block){*memory, bytes, is_mapped};
  return CUDA_SUCCESS;
}

void fake_host_free(void *memory) {
  Block *block = find(host_block, memory, 0);
  if (!block || block->at != memory) fake_die("freeing pinned memory that was not allocated");
  block->at = NULL;
  if (!block->is_mapped)
    free(memory);
  else if (!sim_free(fake_machine, memory))
    fake_die("the simulator does not know %p", memory);
}

bool fake_is_pinned(const void *memory, size_t bytes) {
  return find(host_block, memory, bytes) != NULL;
}

/* ── the report ───────────────────────────────────────────────────────────────────────────── */
__attribute__((destructor)) static void report(void) {
  const char *path = getenv("FT_FAKE_CUDA_REPORT");
  FILE *file = path && path[0] ? fopen(path, "w") : NULL;
  if (!file) return;
#define X(name) fprintf(file, #name " %ld\n", fake_counts.name);
  FAKE_COUNTS(X)
#undef X
  fprintf(file, "left %d\npeak %zu\n", fake_memory_blocks(), peak);
  fclose(file);
}
