/* plan_same: kernels that compute what an earlier one of their graph does, but for the layers whose work it
 * is, as those of a model's equal blocks. The plan has their operations once:
 *
 *   does 9 10 (7 8) -> (9) same 3 "h.1.mlp.c_fc" none     those of the graph's kernel 3, which names
 *                                                         two layers, none being one of them */
#ifndef FT_PLAN_PLAN_SAME_H
#define FT_PLAN_PLAN_SAME_H
#include "plan/plan_words.h"

/* Operations that a plan may have this way: a line as short as this must not take memory without end. */
enum { SAME_MOST_OPS = 1 << 18 };
/* Prints the end of the line if an earlier kernel does the same. *copied: operations so far, of the plan. */
bool same_print(Text *out, const PlanGraph *graph, const PlanBody *body, int64_t *copied);
/* Behind the word: the operations and results of `body`, whose operands are read. */
bool same_read(Words *words, const PlanGraph *graph, PlanBody *body);
#endif
