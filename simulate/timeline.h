/* timeline: when the tasks of ranks begin and end, each rank having two queues: one computes, one
 * communicates. As the executor runs a plan (runtime/device/cpu/dev_cpu.c, plan/plan_order.h):
 *
 * - A task begins when those of its list `after` have ended and its queue is free.
 * - The compute queue takes the first of its tasks, in order of the list, that may begin.
 * - The communicate queue takes its tasks in their order, one at a time. A task of a collective
 *   begins when it is the next one of that queue on every rank that takes part, and ends together.
 * - A message is one task of two ranks. It begins when it may on both of them and those before it in
 *   its direction have ended; others may be under way beside it.
 * - A task of no queue takes no time: it is done when what it waits for is.
 */
#ifndef FT_SIMULATE_TIMELINE_H
#define FT_SIMULATE_TIMELINE_H
#include "base/arena.h"
#include <stdbool.h>

typedef enum { TIMELINE_COMPUTE, TIMELINE_COMMUNICATE, TIMELINE_MESSAGE, TIMELINE_NONE } TimelineQueue;

typedef struct {
  TimelineQueue queue;
  double seconds;   /* of a collective: those of its first rank's task count */
  const int *after; /* tasks before this one of the same rank */
  int after_count;
  int collective; /* tasks of several ranks with one number are one; less than 0: of this rank */
  int from, to;   /* of a message: the ranks; the n-th of one is the n-th of the other */
} TimelineTask;

typedef struct {
  const TimelineTask *task;
  int count;
} TimelineRank;

typedef struct {
  double begin, end;
} TimelineSpan;

typedef struct {
  TimelineSpan **span; /* by rank and task */
  double seconds;      /* until all have ended */
  double *compute,
      *exposed;   /* by rank: the compute queue at work; idle while the rank communicates */
  double *bubble; /* by rank: idle, nothing to communicate */
} Timeline;

/* False: the tasks wait for one another for ever. All in the arena. */
bool timeline_run(Arena *arena, const TimelineRank *rank, int ranks, Timeline *out);
#endif
