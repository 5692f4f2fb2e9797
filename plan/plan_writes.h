/* plan_writes: checks what the graphs of a plan write against the purpose of their runs (the BY_… of
 * base/role.h). A programme names its graphs. A wrong graph in it would train or evaluate wrongly
 * without an error: an evaluation that changes parameters, a step that counts twice, a micro-batch
 * whose gradients are lost. */
#ifndef FT_PLAN_PLAN_WRITES_H
#define FT_PLAN_PLAN_WRITES_H
#include "plan/plan.h"

/* Does a step of the graph write a value of this type at this place? */
bool plan_is_written(const PlanGraph *graph, int place, int64_t offset, const Type *type);
/* NULL, or what the graph does that a run `by` must not, or does not do what it must, in the arena:
 * "writes the parameters", behind the words "graph "eval"". Params that rest in a step of the form, and
 * their moments, need not be written. */
const char *plan_check_writes(Arena *arena, const Plan *plan, const PlanGraph *graph, RoleTrait by,
                              StepForm form);
/* The same of the gradients of a step of several runs, by each of these: a step that writes
 * them has read them, or one before it, and at its end the last run clears them. */
const char *plan_check_sums(Arena *arena, const Plan *plan, const PlanGraph *graph, RoleTrait by);
#endif
