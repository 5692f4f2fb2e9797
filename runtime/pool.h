/* pool: the one pool of threads. Library code (oneDNN, OpenBLAS) runs inside its shares, one thread
 * each, so no second pool exists to fight with. Waiting threads spin for a moment, since steps take
 * microseconds, then sleep or yield, since others may need the processor (measured: with other
 * programs at work, OpenMP's endless spinning made a step of 0.1 ms last 28 ms). */
#ifndef FT_RUNTIME_POOL_H
#define FT_RUNTIME_POOL_H
#include "runtime/status.h"

typedef struct Pool Pool;

/* `wish` threads if positive, else FT_THREADS, else OMP_NUM_THREADS, else the cores that this
 * process may use (affinity mask and cgroup quota). The caller is one of them. */
STATUS_CHECKED Status pool_new(int wish, Pool **out);
void pool_free(Pool *pool); /* NULL is fine */
int pool_threads(const Pool *pool);

/* Runs work(context, share) for every share in 0 … threads-1, share 0 on the calling thread, at the
 * same time; returns when all are done. */
typedef void PoolWork(void *context, int share);
void pool_run(Pool *pool, PoolWork *work, void *context);
/* Inside work: returns when every share has come here. */
void pool_barrier(Pool *pool);

/* Libraries called by this thread use one thread only; returns what to give back to pool_restore.
 */
int pool_quiet_libraries(void);
void pool_restore_libraries(int before);
#endif
