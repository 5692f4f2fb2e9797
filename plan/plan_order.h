/* plan_order: which steps of a graph wait for which. A plan states it, once, for every device: a
 * device may begin a step when those of its list `after` are done, and a run of a graph when the
 * run before it is done. The compiler finds the lists, plan_parse proves that they suffice: any two
 * steps that touch the same bytes, one of them writing, are ordered, in the order of the list of
 * steps. What a BEGIN begins touches its bytes until its END, so no step between the two may need
 * to wait for it. A library call in place of launches touches what the last of these launches
 * touches, besides its own arguments. */
#ifndef FT_PLAN_PLAN_ORDER_H
#define FT_PLAN_PLAN_ORDER_H
#include "plan/plan.h"

/* May a launch of `step` be begun while `before`, the only step that it waits for, is under way? NULL: it
 * waits for none or for several. Only between two kernels that keep the rule in codegen/ptx_text.h. What is no
 * kernel (a copy, a fill, a library call in the place of launches, what goes on between ranks) keeps no rule, so what
 * waits for it waits for its end. Which of several edges of a CUDA graph are programmatic if a launch is
 * said to be early, CUDA does not say; so with several all of them are ordinary. */
bool plan_begins_early(const PlanStep *step, const PlanStep *before);

bool plan_buffers_overlap(const PlanBuffer *a, const PlanBuffer *b);
/* Does one of them write what the other reads or writes? */
bool plan_steps_conflict(const PlanGraph *graph, const PlanStep *a, const PlanStep *b);
/* Sets `after` of every step, in the arena: no step that another one of the list brings along.
 * NULL, or the sentence (in the arena) that says why there is no such order. */
const char *plan_order_find(Arena *arena, PlanGraph *graph);
/* NULL, or the sentence (in the arena) that names two steps that are not ordered. */
const char *plan_order_check(Arena *arena, const PlanGraph *graph);
/* NULL, or the sentence (in the arena) that names a step which reads temporary bytes, or results,
 * that no step of the graph before it has written. */
const char *plan_order_check_reads(Arena *arena, const Plan *plan, const PlanGraph *graph);
#endif
