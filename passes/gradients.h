/* gradients: the local derivative of every op, one rule for each name in the gradient column of
 * ir/ops.def. A rule sees one node and the gradient of its value, and emits the gradients of its
 * inputs. It sums nothing, marks nothing and knows no graph beyond its node: autodiff does that.
 * A name in ops.def without a function here does not compile. */
#ifndef FT_PASSES_GRADIENTS_H
#define FT_PASSES_GRADIENTS_H
#include "base/diag.h"
#include "ir/graph.h"

typedef struct {
  Graph *graph; /* where the rule puts its nodes */
  Diag *diag;
  Node *node;         /* the forward node y = op(x...) */
  Node *dy;           /* the gradient of y, of y's type */
  const bool *needed; /* per input: is its gradient wanted? */
  Node **dx;          /* per input, of its type; left NULL: zero everywhere */
} Gradient;

typedef void GradientRule(Gradient *gradient);
extern GradientRule *const gradient_rule[OP_COUNT]; /* NULL: none */
#endif
