/* pipeline_order: when the ranks of a pipeline do what. A model is cut into chunks, of which rank r
 * of R has chunks r, r + R, ..; a step takes micro-batches through all of them, forward and back.
 * One chunk a rank: 1F1B (Narayanan et al. 2019, PipeDream-Flush). Several: interleaved (Narayanan et
 * al. 2021, Efficient large-scale language model training on GPU clusters, section 2.2).
 *
 * A rank has a fixed order of forwards and one of backwards. It does as many forwards as must be
 * under way for it never to be idle later, then one backward and one forward in turns. */
#ifndef FT_PLAN_PIPELINE_ORDER_H
#define FT_PLAN_PIPELINE_ORDER_H
#include "base/arena.h"
#include <stdbool.h>

typedef struct {
  int ranks, chunks; /* of a rank; at least 1 */
  int micros;        /* micro-batches; at least 1 */
  bool is_forward;   /* nothing goes back: evaluation */
  /* In any unit: by chunk, ranks * chunks of them, what a task takes (NULL: 1 forward, 2 back);
   * what a value takes from one rank to the next. */
  const int64_t *forward, *backward;
  int64_t transfer;
} Pipeline;

typedef struct {
  int rank, chunk; /* of all: chunk % ranks is the rank */
  int micro;
  bool is_backward;
  int64_t start, end;
} PipelineTask;

static inline int pipeline_rank(int ranks, int chunk) { return chunk % ranks; }

/* All tasks by their start, those of one start by rank. A task comes behind all that it waits for.
 * *count: ranks * chunks * micros, twice that with backward. */
PipelineTask *pipeline_order(Arena *arena, const Pipeline *pipeline, int *count);
#endif
