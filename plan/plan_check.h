/* plan_check: what must hold of a plan as a whole, before and after its lines are read one by one.
 */
#ifndef FT_PLAN_PLAN_CHECK_H
#define FT_PLAN_PLAN_CHECK_H
#include "plan/plan_words.h"

/* NULL, or what is wrong, in the arena: programmes fit (plan_programme.h), each graph that trains
 * or evaluates has one loss, what they give out is written by a step in the type that is declared,
 * steps that touch the same bytes are ordered, and the train graph counts its steps. */
const char *plan_check(Arena *arena, const Plan *plan);
/* Version first, then checksum: a newer file says so rather than "damaged". Returns the length of
 * the text before the checksum line, or 0. */
size_t plan_check_envelope(Words *words, const char *text, size_t length);
#endif
