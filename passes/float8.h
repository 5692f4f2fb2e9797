/* float8: what `precision = fp8` does before the pass precision, which then treats the graph as it treats bf16's.
 *
 * Each operand of a matrix product is multiplied by a scale of its own and rounded to an 8-bit float format: to e4m3,
 * and where it is a gradient to e5m2, which has a larger range (Micikevicius et al., FP8 Formats for Deep Learning,
 * 2022). The scale is the format's largest number over the largest |x| of the tensor itself ("current scaling"), or of
 * earlier steps (float8_delayed.h). The product is divided by both scales. Numbers of both formats are numbers of bf16, and products of these are exact in
 * f32, so that a product of bf16 operands with f32 sums gives what one of 8-bit operands gives. */
#ifndef FT_PASSES_FLOAT8_H
#define FT_PASSES_FLOAT8_H
#include "passes/pass.h"

/* The largest numbers of the two formats. */
#define FLOAT8_LARGEST_E4M3 448
#define FLOAT8_LARGEST_E5M2 57344

/* Do the setting or the layer say that the operands of this product are 8-bit floats? Not where a text is generated: a
 * position would have another scale than the same position among others. Of delayed scaling it has a number. */
bool float8_is_product(const PassContext *context, const Node *node);
/* What is scaled of an operand of a product: behind views, which several products have of one value. */
const Node *float8_operand(const Node *node);
/* The largest |x|, of one element and x's rank. */
Node *float8_largest(Graph *graph, Node *x);
/* The graph with its products scaled; itself, if there are none; NULL: refused. Each such product has one consumer, the
 * OP_MUL by the inverse of its scales. */
Graph *float8_scale(PassContext *context, Graph *graph);
#endif
