/* plan_stages: the plans of an artifact: one, or with distributed.pipeline one for each stage, their
 * texts one behind the other. They have the head in common, and one array of settings. */
#ifndef FT_PLAN_PLAN_STAGES_H
#define FT_PLAN_PLAN_STAGES_H
#include "plan/plan.h"

typedef struct {
  Plan **at; /* by stage */
  int count; /* distributed.pipeline */
} PlanStages;

/* As plan_parse, of all of them. A param or a state that several stages have is the same in each. */
bool plan_parse_stages(Arena *arena, const char *text, size_t length, PlanStages *out,
                       const char **why);
#endif
