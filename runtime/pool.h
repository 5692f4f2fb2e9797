/* pool: the one pool of threads, that of OpenMP's libgomp, which oneDNN and OpenBLAS use too. It is
 * called by its stable binary interface, so that any compiler builds us (Debian's clang has no
 * OpenMP headers of its own). */
#ifndef FT_RUNTIME_POOL_H
#define FT_RUNTIME_POOL_H
#include "runtime/status.h"

/* How many threads to use: `wish` if positive, else FT_THREADS, else OMP_NUM_THREADS, else the
 * cores that this process may use (affinity mask and cgroup quota). Sets it for the libraries. */
STATUS_CHECKED Status pool_start(int wish, int *threads);
/* Runs work(context, share, shares) for each share in 0 … shares-1 in parallel; returns when all
 * are done. `shares` is what pool_start gave, or fewer if the pool gives fewer. */
typedef void PoolWork(void *context, int share, int shares);
void pool_run(int threads, PoolWork *work, void *context);
/* For libraries called from here on: how many threads they may use. */
void pool_limit(int threads);

/* A barrier for the shares of one pool_run: spins, since steps take microseconds, and gives up the
 * processor after a while, since others may need it. */
typedef struct {
  _Alignas(64) _Atomic int arrived;
  _Alignas(64) _Atomic int generation;
} PoolBarrier;
void pool_wait(PoolBarrier *barrier, int shares);
#endif
