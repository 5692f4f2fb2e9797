/* plan_prepare: what a graph has of weights alone, such as weights rounded to integers and packed for a
 * kernel, is made by a graph of its own, which the graph's line names: graph "eval" prepare
 * "eval.prepare". It keeps its results in places FOR_WEIGHTS. It runs before the first run of its
 * graph, and again before a run whenever something that it reads may have been written meanwhile;
 * who runs graphs and writes to places sees to that (runtime/execute/exec_prepare.c).
 *
 * plan_check_prepare proves what this relies on:
 * - such a graph reads what is kept for ever and no batch, and besides what it has written itself;
 * - it writes places FOR_WEIGHTS, and what is gone when it is done; nothing that anyone else sees, and for
 *   graphs of texts nothing of what is kept of these;
 * - no two of its steps, and no two graphs, write the same byte of a place FOR_WEIGHTS, so that what is
 *   kept there is not overwritten by what is made later;
 * - a graph reads of these places what its own prepare graph writes, and it does not write what that
 *   one reads: so within a run, and between two of them, nothing goes stale;
 * - no programme runs it. */
#ifndef FT_PLAN_PLAN_PREPARE_H
#define FT_PLAN_PLAN_PREPARE_H
#include "plan/plan.h"

/* NULL, or what is wrong, a sentence in the arena. */
const char *plan_check_prepare(Arena *arena, const Plan *plan);
/* The graph that prepares weights for this one; -1: there is none. */
int plan_prepare_of(const Plan *plan, const PlanGraph *graph);
/* The bytes that a graph reads of what is kept for ever: ascending, none touches the next. */
typedef struct {
  int place; /* no window */
  int64_t begin, end;
} PlanBytes;
typedef VEC(PlanBytes) PlanSources;
PlanSources plan_sources_of(Arena *arena, const Plan *plan, const PlanGraph *prepare);
/* Are any of these bytes among them? `place` may be a window. */
bool plan_sources_have(const PlanSources *sources, const Plan *plan, int place, int64_t offset,
                       int64_t bytes);
/* Does a step of the graph write any of them? */
bool plan_sources_are_written(const PlanSources *sources, const Plan *plan,
                              const PlanGraph *writer);
#endif
