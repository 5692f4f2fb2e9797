/* autodiff: reverse-mode differentiation of one graph. */
#ifndef FT_PASSES_AUTODIFF_H
#define FT_PASSES_AUTODIFF_H
#include "base/diag.h"
#include "ir/graph.h"
#include "plan/plan.h"

/* From the beginning of a parameter of so many elements to that of the next, in elements: they start
 * at multiples of 64 bytes, as f32 or as bf16, and where ranks share parameters out there is room for
 * equal parts. settings may be NULL. */
int64_t autodiff_param_room(const SettingValue *settings, int64_t elements);
/* The same where one rank has all of it. */
int64_t autodiff_param_alone(const SettingValue *settings, int64_t elements);
/* Less than 0: there param a lies before b. */
int autodiff_compare_alone(const Node *a, const Node *b);

/* Appends to `graph` the gradients of the scalar float `loss` for `targets` (any float nodes of the
 * graph). result[i], in the graph's arena, has the type of targets[i]; it is NULL where the loss
 * does not depend on it. Returns NULL with an error in diag if something on the way cannot be
 * differentiated. */
Node **autodiff_gradients(Graph *graph, Diag *diag, Node *loss, Node *const *targets, int count);
#endif
