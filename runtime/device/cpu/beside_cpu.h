/* beside_cpu: what a plan BEGINs on the CPU: works of a Comm, which go on while the threads
 * compute. No thread waits in one: its end is told by a call, and who has nothing else to do sleeps
 * until some work ends. Alone, a collective is a copy. */
#ifndef FT_RUNTIME_BESIDE_CPU_H
#define FT_RUNTIME_BESIDE_CPU_H
#include "runtime/common/pool.h"
#include "runtime/device/dev.h"

/* All of a graph. */
typedef struct {
  Comm *comm; /* NULL: alone */
  const bool *is_shared; /* works may be done in memory that the ranks share */
  Pool *pool;
  /* grows with every end, and while threads sleep until it grows, with all that others do */
  _Alignas(64) _Atomic uint64_t ends;
  _Atomic int sleepers;
  _Atomic int under_way;
  atomic_bool is_failing, has_failed;
  Status status; /* of the first failure; the rank's that failed */
  char message[2048];
} CpuBesides;

/* One BEGIN. */
typedef struct {
  CpuBesides *all;
  CommWork work;
  bool has_input, has_output;
  bool is_held;                  /* its operand and result lie in memory that other ranks reach */
  _Atomic uint64_t begun, ended; /* the run that began it last; that one plus 1 */
  _Atomic int64_t begun_at, ended_at; /* when, by clock_nanoseconds */
} CpuBeside;

/* Refused if these ranks cannot do it. The label must outlive it. */
STATUS_CHECKED Status cpu_beside_new(CpuBesides *all, Arena *arena, const Artifact *artifact,
                                     const PlanGraph *graph, const PlanStep *step,
                                     void *const *args, CpuBeside **out);
/* In the run of this ticket. Does not wait. */
void cpu_beside_begin(CpuBeside *beside, void *const *args, uint64_t ticket);
static inline void cpu_besides_wake(CpuBesides *all) {
  if (atomic_load(&all->sleepers)) pool_bump(all->pool, &all->ends);
}
/* Returns when nothing is under way. */
void cpu_besides_settle(CpuBesides *all);
/* How a work failed, and why, if one did. */
STATUS_CHECKED Status cpu_besides_status(CpuBesides *all);
#endif
