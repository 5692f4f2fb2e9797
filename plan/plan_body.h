/* plan_body: what kernels compute, operation by operation, so that a value that is not finite can be
 * followed to the operation that made it (--check=nan), and values have the names of the operations
 * that made them (train.log.layers). Devices do not ask for it: they run the kernels.
 *
 *   does 4 6 (3 4) -> (5)                                  steps 4 and 5, of their operands and results
 *   op sub f32[64,10] of 0 1 line 12 layer "fc" function "softmax"
 *   op exp = of 2                                          type, file, line, layer, function: as before
 *   op sum f32[64,1] of 3 with 1 phase backward
 *   gives 3                                                which of these the results are
 *
 * Values are numbered: the operands first, then the ops. */
#ifndef FT_PLAN_PLAN_BODY_H
#define FT_PLAN_PLAN_BODY_H
#include "plan/plan_words.h"

enum { BODY_MOST_OPS = 4096 };

/* Whether the plan tells enough of an op to do it: of others it has names and operands. */
bool body_is_told(Op op);
/* *copied: see plan_same.h. */
void body_print(Text *out, const PlanGraph *graph, const PlanBody *body, int64_t *copied);
/* The lines, behind their first word. Every index and shape is checked: whoever does the ops need
 * not. */
bool body_read(Words *words, PlanGraph *graph);
bool body_read_op(Words *words, PlanGraph *graph);
bool body_read_results(Words *words, PlanGraph *graph);
bool bodies_are_whole(const PlanGraph *graph); /* does the last one have all of its lines? */
/* What computes step `index`; NULL: the plan does not tell. Of several, where a launch joins kernels, the one that
 * gives this buffer, if any. */
const PlanBody *body_of_step(const PlanGraph *graph, int index, int buffer);
/* Of layers, functions, files: NULL is a name, too, that of none. */
bool body_is_same_name(const char *a, const char *b);
/* The type of a value. */
const Type *body_type(const PlanGraph *graph, const PlanBody *body, int value);
#endif
