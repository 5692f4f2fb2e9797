/* plan_beside: beside.def as a table, and the check that the buffers of a BEGIN fit together. */
#ifndef FT_PLAN_PLAN_BESIDE_H
#define FT_PLAN_PLAN_BESIDE_H
#include "plan/plan.h"

enum { BESIDE_OPS = 4 }; /* sum, minimum, maximum, product */

/* Space separated, in order; NULL: there is nothing of this name. */
const char *beside_attributes(const char *name);
/* The step has a name and attributes of the table. False and *why, in the arena. */
bool beside_check(Arena *arena, const PlanStep *step, const PlanBuffer *buffers, const char **why);
#endif
