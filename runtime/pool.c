/* pool: see pool.h. A run bumps `job`; workers wait for that, work, and count `done` up. */
#define _GNU_SOURCE /* sched_getaffinity, syscall */
#include "runtime/pool.h"
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* libgomp's, which oneDNN and OpenBLAS obey; declared here since not every compiler has omp.h */
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);

/* A pause takes some 30 ns, a yield that finds nobody waiting 300 ns. */
enum { MOST_THREADS = 256, SPINS = 64, YIELDS = 500 };

struct Pool {
  _Alignas(64) _Atomic unsigned job; /* counts runs; workers sleep on it */
  _Alignas(64) _Atomic int sleepers;
  _Alignas(64) _Atomic int done;
  _Alignas(64) _Atomic int arrived; /* of the barrier */
  _Alignas(64) _Atomic unsigned generation;
  _Alignas(64) int threads;
  int started; /* workers that exist */
  bool is_ending;
  PoolWork *work;
  void *context;
  struct Worker {
    Pool *pool;
    int share;
    pthread_t thread;
  } worker[];
};

/* ── how many ─────────────────────────────────────────────────────────────────────────────── */
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

static Status choose_threads(int wish, int *out) {
  if (wish < 0 || wish > MOST_THREADS)
    return status_fail(STATUS_USER, "%d threads: expected 1 to %d", wish, MOST_THREADS);
  *out = wish > 0 ? wish : available_threads();
  if (wish > 0) return STATUS_OK;
  STATUS_TRY(read_variable("OMP_NUM_THREADS", out));
  return read_variable("FT_THREADS", out);
}

int pool_quiet_libraries(void) {
  int before = omp_get_max_threads();
  omp_set_num_threads(1);
  return before;
}

void pool_restore_libraries(int before) { omp_set_num_threads(before); }

/* ── waiting ──────────────────────────────────────────────────────────────────────────────── */
static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/* The `turn`-th look at something in vain. Yielding soon costs nothing on an idle machine, and on a
 * busy one lets the thread that is waited for run, should it share our core. */
static inline void wait_a_little(int turn) {
  if (turn < SPINS)
    relax();
  else
    sched_yield();
}

static void sleep_on(_Atomic unsigned *word, unsigned seen) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void wake_all(_Atomic unsigned *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, MOST_THREADS, NULL, NULL, 0);
}

static void wait_for_job(Pool *pool, unsigned seen) {
  for (int i = 0; i < SPINS + YIELDS; i++) {
    if (atomic_load_explicit(&pool->job, memory_order_acquire) != seen) return;
    wait_a_little(i);
  }
  atomic_fetch_add(&pool->sleepers, 1); /* before the kernel looks at job, after which we bump it */
  while (atomic_load(&pool->job) == seen) sleep_on(&pool->job, seen);
  atomic_fetch_sub(&pool->sleepers, 1);
}

void pool_barrier(Pool *pool) {
  if (pool->threads == 1) return;
  unsigned seen = atomic_load_explicit(&pool->generation, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) == pool->threads - 1) {
    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->generation, seen + 1, memory_order_release);
    return;
  }
  for (int i = 0; atomic_load_explicit(&pool->generation, memory_order_acquire) == seen; i++)
    wait_a_little(i);
}

/* ── running ──────────────────────────────────────────────────────────────────────────────── */
static void *worker_main(void *argument) {
  struct Worker *worker = argument;
  Pool *pool = worker->pool;
  pool_quiet_libraries();
  for (unsigned seen = 0;; seen++) {
    wait_for_job(pool, seen);
    if (pool->is_ending) return NULL;
    pool->work(pool->context, worker->share);
    atomic_fetch_add_explicit(&pool->done, 1, memory_order_release);
  }
}

static void start_job(Pool *pool) {
  atomic_fetch_add(&pool->job, 1);
  if (atomic_load(&pool->sleepers)) wake_all(&pool->job);
}

void pool_run(Pool *pool, PoolWork *work, void *context) {
  int before = pool_quiet_libraries();
  if (pool->threads > 1) {
    pool->work = work;
    pool->context = context;
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    start_job(pool);
  }
  work(context, 0);
  for (int i = 0; atomic_load_explicit(&pool->done, memory_order_acquire) != pool->threads - 1; i++)
    wait_a_little(i);
  pool_restore_libraries(before);
}

int pool_threads(const Pool *pool) { return pool->threads; }

/* Workers take no signals: Ctrl-C is the main thread's. */
static Status start_workers(Pool *pool) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  for (int i = 1; i < pool->threads && !error; i++) {
    struct Worker *worker = &pool->worker[i];
    *worker = (struct Worker){.pool = pool, .share = i};
    error = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (!error) pool->started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!error) return STATUS_OK;
  return status_fail(STATUS_FAULT, "cannot start %d threads: %s", pool->threads, strerror(error));
}

Status pool_new(int wish, Pool **out) {
  int threads;
  STATUS_TRY(choose_threads(wish, &threads));
  size_t bytes = sizeof(Pool) + (size_t)threads * sizeof(struct Worker);
  Pool *pool = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
  if (!pool) return status_fail(STATUS_FAULT, "out of memory");
  memset(pool, 0, bytes);
  pool->threads = threads;
  Status status = start_workers(pool);
  if (status != STATUS_OK) {
    pool_free(pool);
    return status;
  }
  *out = pool;
  return STATUS_OK;
}

void pool_free(Pool *pool) {
  if (!pool) return;
  pool->is_ending = true;
  start_job(pool);
  for (int i = 1; i <= pool->started; i++) pthread_join(pool->worker[i].thread, NULL);
  free(pool);
}
