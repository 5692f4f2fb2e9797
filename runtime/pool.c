/* pool: see pool.h. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "runtime/pool.h"
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* libgomp's interface, stable since gcc 4.9 and offered by LLVM's libomp as well. */
void GOMP_parallel(void (*work)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
void omp_set_num_threads(int threads);
void omp_set_dynamic(int is_dynamic);

enum { MOST_THREADS = 256 };

/* "200000 100000" in cpu.max means two processors' worth; 0 if there is no quota. */
static int quota_threads(void) {
  long quota = 0, period = 0;
  FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
  if (!file) return 0;
  int got = fscanf(file, "%ld %ld", &quota, &period);
  fclose(file);
  if (got != 2 || quota <= 0 || period <= 0) return 0;
  return (int)((quota + period - 1) / period);
}

static int available_threads(void) {
  cpu_set_t set;
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  int quota = quota_threads();
  if (quota > 0 && quota < count) count = quota;
  return count < 1 ? 1 : count > MOST_THREADS ? MOST_THREADS : count;
}

static Status read_variable(const char *name, int *out) {
  const char *text = getenv(name);
  if (!text || !*text) return STATUS_OK;
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  bool is_list = *end == ','; /* OMP_NUM_THREADS=4,2: nested levels; the first counts */
  if (end == text || (*end && !is_list) || errno || value < 1 || value > MOST_THREADS)
    return status_fail(STATUS_USER, "%s=%s: expected a number of threads, 1 to %d", name, text,
                       MOST_THREADS);
  *out = (int)value;
  return STATUS_OK;
}

Status pool_start(int wish, int *threads) {
  int count = available_threads();
  if (wish < 0 || wish > MOST_THREADS)
    return status_fail(STATUS_USER, "%d threads: expected 1 to %d", wish, MOST_THREADS);
  if (wish > 0) {
    count = wish;
  } else {
    STATUS_TRY(read_variable("OMP_NUM_THREADS", &count));
    STATUS_TRY(read_variable("FT_THREADS", &count));
  }
  omp_set_dynamic(0);
  omp_set_num_threads(count);
  *threads = count;
  return STATUS_OK;
}

void pool_limit(int threads) { omp_set_num_threads(threads); }

typedef struct {
  PoolWork *work;
  void *context;
} Region;

static void enter(void *data) {
  const Region *region = data;
  region->work(region->context, omp_get_thread_num(), omp_get_num_threads());
}

void pool_run(int threads, PoolWork *work, void *context) {
  if (threads == 1) {
    work(context, 0, 1);
    return;
  }
  Region region = {work, context};
  GOMP_parallel(enter, &region, (unsigned)threads, 0);
}

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void pool_wait(PoolBarrier *barrier, int shares) {
  enum { SPINS = 4000 };
  if (shares == 1) return;
  int generation = atomic_load_explicit(&barrier->generation, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) == shares - 1) {
    atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&barrier->generation, generation + 1, memory_order_release);
    return;
  }
  for (int i = 0; atomic_load_explicit(&barrier->generation, memory_order_acquire) == generation;
       i++)
    if (i < SPINS)
      relax();
    else
      sched_yield();
}
