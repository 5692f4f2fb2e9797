/* pool: the one pool of threads. Library code (oneDNN, OpenBLAS) runs inside its shares, one thread
 * each, so no second pool exists to fight with. Waiting threads spin for a moment, since steps take
 * microseconds, then sleep, since others may need the processor (measured: with other programs at
 * work, OpenMP's endless spinning made a step of 0.1 ms last 28 ms, and barriers made it 22 ms). */
#ifndef FT_RUNTIME_POOL_H
#define FT_RUNTIME_POOL_H
#include "runtime/common/status.h"
#include <stdatomic.h>
#include <stdint.h>

typedef struct Pool Pool;

/* `requested` threads if positive, else FT_THREADS, else OMP_NUM_THREADS, else the cores that this
 * process may use (affinity mask and cgroup quota). The caller is one of them. */
STATUS_CHECKED Status pool_new(int requested, Pool **out);
/* The same with `reserved` of these threads kept for work of their own (communication, loading):
 * they take no part in pool_run, sleep until pool_ask_all calls for them, and do not count in
 * pool_threads. One thread at least is left for all else. */
STATUS_CHECKED Status pool_new_reserving(int requested, int reserved, Pool **out);
void pool_free(Pool *pool); /* NULL is fine */
int pool_threads(const Pool *pool);
int pool_reserved(const Pool *pool);

/* Runs work(context, share) for every share in 0 … threads-1, share 0 on the calling thread, at the
 * same time; returns when all are done. */
typedef void PoolWork(void *context, int share);
void pool_run(Pool *pool, PoolWork *work, void *context);

/* Asks the other threads to run help(context, first, end, ticket, share), and does not wait for
 * them: on a busy machine they may come late, or find all done. The ticket grows with each call.
 * The caller must be able to do all of the work itself, and pool_settle before it frees the
 * context. */
typedef void PoolHelp(void *context, int first, int end, uint64_t ticket, int share);
uint64_t pool_ask(Pool *pool, PoolHelp *help, void *context, int first, int end);
/* Asks the reserved threads too; their shares are pool_threads and up. */
uint64_t pool_ask_all(Pool *pool, PoolHelp *help, void *context, int first, int end);
/* Returns when no thread is, or will be, in any help. */
void pool_settle(Pool *pool);
/* Returns when *word is no longer `value`; pool_post changes it and wakes the waiting threads. */
void pool_wait(Pool *pool, _Atomic uint64_t *word, uint64_t value);
void pool_post(Pool *pool, _Atomic uint64_t *word, uint64_t value);
/* pool_wait without spinning, for what takes longer; pool_bump adds 1 and wakes the waiting threads,
 * and may be called by several at a time, of this pool or not. */
void pool_sleep(Pool *pool, _Atomic uint64_t *word, uint64_t value);
void pool_bump(Pool *pool, _Atomic uint64_t *word);
/* What a loop that waits for another core does meanwhile. */
static inline void pool_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/* Behind the opening of a library that brings libgomp; until then the next two do nothing. */
void pool_find_libraries(void);
/* Libraries called by this thread use one thread only; returns what to give back to pool_restore.
 */
int pool_quiet_libraries(void);
void pool_restore_libraries(int before);
#endif
