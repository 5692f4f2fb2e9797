/* float8_delayed: scales of 8-bit operands that follow from earlier steps (train.fp8.scaling = delayed), as in NVIDIA's
 * Transformer Engine (its recipe DelayedScaling, amax_compute_algo "max").
 *
 * A product of number n (ATTR_STREAM) has three tensors: its operands, rounded to e4m3, and its result's gradient, rounded
 * to e5m2. Two states hold what is known of the tensors of all products:
 *
 *   @float8.scale    f32[products, 3]           what a tensor is multiplied by in this step; 1 at first
 *   @float8.history  f32[history, products, 3]  the largest |x| of the last steps, the latest one last; 0 at first, and of
 *                                               what a step has no such tensor of
 *
 * At the end of a step the scale becomes (the format's largest number / the largest of the history, this step included) /
 * 2^margin. It stays what it was where the history has nothing but zeros, or something that is not finite; it is at most
 * the largest finite f32. A step is an update: all its micro-batches and ranks count, so that dividing a batch changes no
 * scale. Other graphs than a step's only read the scales. */
#ifndef FT_PASSES_FLOAT8_DELAYED_H
#define FT_PASSES_FLOAT8_DELAYED_H
#include "passes/pass.h"

typedef struct Histories Histories;

/* Of the graph before its products are scaled; NULL: scaling is current. */
Histories *histories_find(PassContext *context, const Graph *old);
/* Is the operand `old` of a product, without its views, scaled as a gradient is? */
bool histories_is_gradient(const Histories *h, const Node *old);
/* The scale of that operand, of one element and its rank; `fresh`: the operand in the new graph. */
Node *histories_scale(Histories *h, Graph *graph, const Node *old, Node *fresh);
/* Adds what a step remembers for the next one. */
void histories_update(Histories *h, Graph *graph);
#endif
