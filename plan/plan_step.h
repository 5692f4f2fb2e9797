/* plan_step: reads the lines of a graph's steps, and of the library calls in place of some, behind
 * their first word; what is read is added to the graph (NULL: no line has begun one, which is
 * said). Every index, size and attribute is checked; that steps wait for one another where they
 * must is plan_order.h's, once all are there. */
#ifndef FT_PLAN_PLAN_STEP_H
#define FT_PLAN_PLAN_STEP_H
#include "plan/plan_words.h"

bool plan_read_step(Words *words, const Plan *plan, PlanGraph *graph, StepKind kind);
bool plan_read_instead(Words *words, const Plan *plan, PlanGraph *graph);
bool plan_read_also(Words *words, const Plan *plan, PlanGraph *graph); /* one more call of it */
#endif
