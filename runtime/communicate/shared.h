/* shared: works of ranks of one machine, done in memory that they share, without a message. Each rank
 * has a header, in which the others find its works and leave its wake-up calls, and segments, in
 * which operands and results may lie. Both are files without a name (memfd), which the others open
 * through /proc: they are bound to no limit of /dev/shm, and nothing is left when the ranks are gone,
 * however they went.
 *
 * A work of at most SHARED_STAGE bytes is copied to the header; when all have entered each computes
 * its own result from the copies. A larger one must have its operands and results in segments
 * (CommWork.is_shared). It is cut into units, and whoever of the ranks has come and has a core does
 * the next one, for all: a rank that waits for a core keeps nobody waiting. The order in which
 * values are added does not depend on who does it.
 *
 * One thread at a time goes on with a work; begin, leave, and memory are under the lock of the Comm. */
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
