/* recognise: what a scalar function of a kernel's body computes, told by its values: however the
 * passes have rearranged it, x * 0.5 * (1 + tanh(...)) is a gelu if it is one at many points. */
#ifndef FT_CODEGEN_RECOGNISE_H
#define FT_CODEGEN_RECOGNISE_H
#include "ir/graph.h"

enum { RECOGNISE_POINTS = 48 };
typedef struct Recogniser Recogniser;
typedef double Points[RECOGNISE_POINTS];

/* `body` is a fused node's; `product`, a node of it or NULL, is a variable like the arguments are.
 * Lives in the arena. */
Recogniser *recogniser_new(Arena *arena, const Graph *body, const Node *product);
/* The values of a node, which are one for one with those of the variables that it reads: casts
 * between float types do not round. NULL: it does more than point by point. */
const double *recognise_values(Recogniser *r, const Node *node);
/* The points of a variable: argument `index` of the body, -1: the product. */
const double *recognise_variable(Recogniser *r, int index);

typedef enum { FORM_SAME, FORM_RELU, FORM_GELU } Form;
/* Is `values` the function of x? For gelu the tanh form; the exact one is another function. */
bool recognise_form(const double *values, Form form, const double *x);
/* Is `values` g times the function's slope at x? relu's at 0 is 0; x may be what relu made. */
bool recognise_slope(const double *values, Form form, const double *x, const double *g);
#endif
