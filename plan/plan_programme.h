/* plan_programme: the lines that say which graphs run in which order, as text and as a Plan, and
 * what must hold of them. */
#ifndef FT_PLAN_PLAN_PROGRAMME_H
#define FT_PLAN_PLAN_PROGRAMME_H
#include "plan/plan_words.h"

/* Behind the word `programme`; all graphs have been read. */
bool plan_read_programme(Words *words, Plan *plan);
void plan_print_programmes(const Plan *plan, Text *out);
bool plan_has_loss(const PlanProgramme *programme); /* must each of its graphs have one? */
/* NULL, or what is wrong, in the arena. */
const char *plan_check_programmes(Arena *arena, const Plan *plan);
#endif
