/* shared: collectives of the ranks of one machine, computed in shared memory, without messages. Each
 * rank has a header, where the others find its collectives and wake it up, and segments, where
 * operands and results may lie. Both are files without a name (memfd), which the others open through
 * /proc: no limit of /dev/shm applies to them, and nothing is left when the ranks are gone, however
 * they ended.
 *
 * An operand of at most SHARED_STAGE bytes is copied to the header; when all ranks have entered, each
 * computes its own result from the copies. A larger collective must have its operands and results in
 * segments (CommWork.is_shared). It is cut into units. Any rank that has come and has a free core
 * computes the next unit, for all ranks, so a rank that waits for a core delays nobody. The order in
 * which values are added does not depend on who computes them.
 *
 * One thread at a time advances a collective; begin, leave, and memory are under the lock of the
 * Comm. */
#ifndef FT_RUNTIME_SHARED_H
#define FT_RUNTIME_SHARED_H
#include "runtime/communicate/engine.h"
#include <stdint.h>

enum { SHARED_RANKS = 64, SHARED_STAGE = 1 << 14 };

typedef struct Shared Shared;
typedef struct SharedWork SharedWork;

/* What the others need to open a header. */
typedef struct {
  uint8_t token[16];
  int32_t pid, file; /* file: -1: there is none */
  uint64_t address;  /* in this process */
} SharedCard;

/* NULL, and a card of nobody, where the system gives no such memory. */
Shared *shared_new(int rank, int ranks, SharedCard *card);
void shared_free(Shared *shared); /* NULL is fine */
/* False: that rank is on another machine, or may not be looked at. */
bool shared_meet(Shared *shared, int rank, const SharedCard *card);
/* The works of the axis are done here from now on: all of these ranks have met each other. */
void shared_admit(Shared *shared, MeshAxis axis, const int *rank, int count, int index);
bool shared_serves(const Shared *shared, MeshAxis axis);

/* Is this work done here? All its ranks find the same. */
bool shared_can(const Shared *shared, const CommWork *work);
bool shared_is_small(const CommWork *work); /* it is copied to the header */
/* May the next work of the axis begin? If not, some rank has yet to leave one that is long over. */
bool shared_has_room(const Shared *shared, MeshAxis axis);
/* Enters. NULL: out of memory. */
SharedWork *shared_begin(Shared *shared, const CommWork *work);
bool shared_go_on(Shared *shared, SharedWork *work, EngineState *state, char *why);
/* After ENGINE_DONE. */
void shared_leave(Shared *shared, SharedWork *work);
void shared_drop(SharedWork *work); /* of a job that has failed; NULL is fine */

/* The bell is rung when something has changed for this rank's works. Whoever waits has read it before
 * it looked. */
uint32_t shared_bell(const Shared *shared);
void shared_ring(Shared *shared);
/* At most so long. may_spin: for some microseconds without giving the core away, where each rank of
 * this machine has one. */
void shared_wait(Shared *shared, uint32_t bell, int64_t nanoseconds, bool may_spin);

/* Zeroed and aligned as the CPU's own. NULL: there is none. */
char *shared_memory_new(Shared *shared, int64_t bytes);
bool shared_memory_free(Shared *shared, char *memory); /* false: it is none of these */
bool shared_holds(const Shared *shared, const void *at, int64_t bytes);
#endif
