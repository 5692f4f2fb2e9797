/* pool: see pool.h. A job is announced by bumping `number`, which is odd while the description is
 * being written (a seqlock): workers wait for it to change, copy the description, and work. Only
 * pool_run counts the threads that are done. */
#define _GNU_SOURCE /* sched_getaffinity, syscall */
#include "runtime/common/pool.h"
#include "runtime/common/guard.h"
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* libgomp's, which oneDNN and OpenBLAS obey and bring along; NULL until one of them is opened, while workers may be about to look. */
static int (*_Atomic omp_get_max_threads)(void);
static void (*_Atomic omp_set_num_threads)(int threads);

/* Where a thread may be delayed while others go on: test/unit/runtime_pool.c, which includes this
 * file, delays it there. */
#ifndef POOL_MAY_BE_DELAYED
#define POOL_MAY_BE_DELAYED(where) ((void)0)
#endif

/* A pause takes some 30 ns: about 300 us, then a wait sleeps. */
enum { MOST_THREADS = 256, SPINS = 10000 };

/* What to do: work, on every thread; or help, on any thread that comes; or neither. */
typedef struct {
  PoolWork *work;
  PoolHelp *help;
  void *context;
  int first, end;
} Job;

struct Pool {
  _Alignas(64) _Atomic uint64_t number; /* of the job */
  struct {
    _Atomic(PoolWork *) work;
    _Atomic(PoolHelp *) help;
    _Atomic(void *) context;
    _Atomic int first, end;
  } job;
  _Alignas(64) _Atomic uint64_t done; /* workers that are, with the job of pool_run */
  _Alignas(64) _Atomic int sleepers;
  _Alignas(64) _Atomic uint64_t call; /* to the reserved threads: the number they are called for */
  _Alignas(64) int threads;
  int reserved, started; /* started: workers that exist */
  atomic_bool is_ending;
  struct Worker {
    _Alignas(64) Pool *pool;
    int share;
    atomic_bool is_inside; /* a job, or about to be */
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

static Status choose_threads(int requested, int *out) {
  if (requested < 0 || requested > MOST_THREADS)
    return status_fail(STATUS_USER, "%d threads: expected 1 to %d", requested, MOST_THREADS);
  *out = requested > 0 ? requested : available_threads();
  if (requested > 0) return STATUS_OK;
  STATUS_TRY(read_variable("OMP_NUM_THREADS", out));
  return read_variable("FT_THREADS", out);
}

void pool_find_libraries(void) {
  void *library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return;
  void *get = dlsym(library, "omp_get_max_threads"), *set = dlsym(library, "omp_set_num_threads");
  int (*get_threads)(void);
  void (*set_threads)(int);
  if (!get || !set) return;
  memcpy(&get_threads, &get, sizeof get);
  memcpy(&set_threads, &set, sizeof set);
  omp_get_max_threads = get_threads;
  omp_set_num_threads = set_threads; /* last: it is the one that is asked for */
}

int pool_quiet_libraries(void) {
  if (!omp_set_num_threads) return 0;
  int before = omp_get_max_threads();
  omp_set_num_threads(1);
  return before;
}

void pool_restore_libraries(int before) {
  if (omp_set_num_threads && before > 0) omp_set_num_threads(before);
}

/* ── waiting ──────────────────────────────────────────────────────────────────────────────── */
/* The kernel compares 32 bits: the word's lower half, which comes first. */
static void futex(_Atomic uint64_t *word, int operation, uint32_t value) {
  syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

void pool_sleep(Pool *pool, _Atomic uint64_t *word, uint64_t value) {
  atomic_fetch_add(&pool->sleepers, 1); /* before the kernel looks at the word */
  while (atomic_load(word) == value) futex(word, FUTEX_WAIT_PRIVATE, (uint32_t)value);
  atomic_fetch_sub(&pool->sleepers, 1);
}

void pool_wait(Pool *pool, _Atomic uint64_t *word, uint64_t value) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(word, memory_order_acquire) != value) return;
    pool_relax();
  }
  pool_sleep(pool, word, value);
}

/* Called after the word was changed; only now does it look whether a thread sleeps. A waiting
 * thread may have seen the change already, gone on and freed the word, so the word is not read
 * here. To wake a thread that sleeps for another reason does no harm. */
static void wake(Pool *pool, _Atomic uint64_t *word) {
  POOL_MAY_BE_DELAYED("wake");
  if (atomic_load(&pool->sleepers)) futex(word, FUTEX_WAKE_PRIVATE, MOST_THREADS);
}

void pool_post(Pool *pool, _Atomic uint64_t *word, uint64_t value) {
  atomic_store(word, value);
  wake(pool, word);
}

void pool_bump(Pool *pool, _Atomic uint64_t *word) {
  atomic_fetch_add(word, 1);
  wake(pool, word);
}

/* ── jobs ─────────────────────────────────────────────────────────────────────────────────── */
static uint64_t pool_announce(Pool *pool, const Job *job) {
  uint64_t number = atomic_load_explicit(&pool->number, memory_order_relaxed);
  atomic_store_explicit(&pool->number, number + 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_release);
  atomic_store_explicit(&pool->job.work, job->work, memory_order_relaxed);
  atomic_store_explicit(&pool->job.help, job->help, memory_order_relaxed);
  atomic_store_explicit(&pool->job.context, job->context, memory_order_relaxed);
  atomic_store_explicit(&pool->job.first, job->first, memory_order_relaxed);
  atomic_store_explicit(&pool->job.end, job->end, memory_order_relaxed);
  pool_post(pool, &pool->number, number + 2);
  return number + 2;
}

static uint64_t read_job(Pool *pool, Job *out) {
  for (;; pool_relax()) {
    uint64_t number = atomic_load(&pool->number);
    if (number & 1) continue;
    out->work = atomic_load_explicit(&pool->job.work, memory_order_relaxed);
    out->help = atomic_load_explicit(&pool->job.help, memory_order_relaxed);
    out->context = atomic_load_explicit(&pool->job.context, memory_order_relaxed);
    out->first = atomic_load_explicit(&pool->job.first, memory_order_relaxed);
    out->end = atomic_load_explicit(&pool->job.end, memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&pool->number, memory_order_relaxed) == number) return number;
  }
}

static void *worker_main(void *argument) {
  struct Worker *worker = argument;
  Pool *pool = worker->pool;
  bool is_reserved = worker->share >= pool->threads;
  for (uint64_t seen = 0, called = 0;;) {
    if (is_reserved) {
      pool_sleep(pool, &pool->call, called);
      called = atomic_load(&pool->call);
    } else {
      pool_wait(pool, &pool->number, seen);
    }
    POOL_MAY_BE_DELAYED("enter");
    Job job;
    atomic_store(&worker->is_inside, true); /* before reading the job: see pool_settle */
    seen = read_job(pool, &job);
    POOL_MAY_BE_DELAYED("begin");
    pool_quiet_libraries(); /* each time: they may have been opened since */
    if (job.work && !is_reserved) {
      job.work(job.context, worker->share);
      atomic_store_explicit(&worker->is_inside, false, memory_order_release);
      /* the last one releases pool_run by this, and the next job may begin at once */
      if (atomic_fetch_add(&pool->done, 1) + 2 == (uint64_t)pool->threads) wake(pool, &pool->done);
      continue;
    }
    if (job.help) job.help(job.context, job.first, job.end, seen, worker->share);
    atomic_store_explicit(&worker->is_inside, false, memory_order_release);
    if (atomic_load(&pool->is_ending)) return NULL;
  }
}

void pool_run(Pool *pool, PoolWork *work, void *context) {
  int before = pool_quiet_libraries();
  uint64_t others = (uint64_t)pool->threads - 1;
  atomic_store(&pool->done, 0);
  if (others) pool_announce(pool, &(Job){.work = work, .context = context});
  work(context, 0);
  for (uint64_t done; (done = atomic_load(&pool->done)) != others;)
    pool_wait(pool, &pool->done, done);
  pool_restore_libraries(before);
}

uint64_t pool_ask(Pool *pool, PoolHelp *help, void *context, int first, int end) {
  return pool_announce(pool, &(Job){.help = help, .context = context, .first = first, .end = end});
}

uint64_t pool_ask_all(Pool *pool, PoolHelp *help, void *context, int first, int end) {
  uint64_t ticket = pool_ask(pool, help, context, first, end);
  if (pool->reserved) pool_post(pool, &pool->call, ticket);
  return ticket;
}

/* A worker is inside before it reads the job: either it reads this empty one, or we see it. */
void pool_settle(Pool *pool) {
  pool_announce(pool, &(Job){0});
  for (int i = 1; i <= pool->started; i++)
    while (atomic_load(&pool->worker[i].is_inside)) sched_yield();
}

int pool_threads(const Pool *pool) { return pool->threads; }
int pool_reserved(const Pool *pool) { return pool->reserved; }

/* Workers take no signals: Ctrl-C is the main thread's. */
static Status pool_start_workers(Pool *pool) {
  sigset_t before;
  guard_block_signals(&before);
  int error = 0;
  for (int i = 1; i < pool->threads + pool->reserved && !error; i++) {
    struct Worker *worker = &pool->worker[i];
    worker->pool = pool;
    worker->share = i;
    error = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (!error) pool->started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!error) return STATUS_OK;
  return status_fail(STATUS_FAULT, "cannot start %d threads: %s", pool->threads + pool->reserved,
                     strerror(error));
}

Status pool_new_reserving(int requested, int reserved, Pool **out) {
  int threads;
  STATUS_TRY(choose_threads(requested, &threads));
  if (reserved < 0 || reserved >= MOST_THREADS)
    return status_fail(STATUS_USER, "%d threads reserved: expected 0 to %d", reserved,
                       MOST_THREADS - 1);
  threads = threads > reserved ? threads - reserved : 1;
  size_t bytes = sizeof(Pool) + (size_t)(threads + reserved) * sizeof(struct Worker);
  Pool *pool = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
  if (!pool) return status_fail(STATUS_FAULT, "out of memory");
  memset(pool, 0, bytes);
  pool->threads = threads;
  pool->reserved = reserved;
  Status status = pool_start_workers(pool);
  if (status != STATUS_OK) {
    pool_free(pool);
    return status;
  }
  *out = pool;
  return STATUS_OK;
}

Status pool_new(int requested, Pool **out) { return pool_new_reserving(requested, 0, out); }

void pool_free(Pool *pool) {
  if (!pool) return;
  atomic_store(&pool->is_ending, true);
  pool_post(pool, &pool->call, pool_announce(pool, &(Job){0}));
  for (int i = 1; i <= pool->started; i++) pthread_join(pool->worker[i].thread, NULL);
  free(pool);
}
