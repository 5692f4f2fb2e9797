/* tasks: which task of a pipeline's order (plan/pipeline_order.h) each node of a stage's graph
 * belongs to. A rank does its tasks one after the other. This bounds the number of micro-batches
 * whose activations it keeps, and no two ranks wait for each other. */
#ifndef FT_PASSES_TASKS_H
#define FT_PASSES_TASKS_H
#include "passes/pass.h"

typedef struct {
  int *task; /* by node: no less than that of any operand */
  VEC(const Node *)
  messages; /* and collectives between stages, in the order in which they are begun,
                                 which is the same for the two ends of each */
} Tasks;

/* false: the graph is of no pipeline. */
bool tasks_find(const PassContext *context, const Graph *graph, Arena *arena, Tasks *out);
#endif
