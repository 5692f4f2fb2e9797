/* layout: what the two files of the pass share. layout_choose.c chooses the layout in which each
 * value is computed, layout.c rewrites the graph. */
#ifndef FT_PASSES_LAYOUT_H
#define FT_PASSES_LAYOUT_H
#include "passes/pass.h"

/* One dimension of a matrix whose rows were images: it goes over the places of the image, and over
 * all channels at each place. No channels: the order is the front end's. */
typedef struct {
  int64_t channels, places;
} Fold;

/* The order of a value's elements. All zero, "plain": the front end's. */
typedef struct {
  bool is_nhwc; /* of rank 4 and more: dimension 1 is the last one */
  Fold fold[2]; /* of rank 2, for each dimension */
} Layout;

/* By node. */
typedef struct {
  Layout *chosen;    /* in which it is computed, unless it is free: */
  bool *is_free;     /* it is computed in any layout that a consumer asks for */
  bool *is_weight;   /* it depends on parameters and constants only */
  Layout *preferred; /* by its consumers */
} Layouts;

Layouts layout_choose(const Graph *graph, Arena *arena);
/* Is the order of an image's elements the same in NCHW and NHWC? */
bool layout_is_view(const Shape *image);
bool layout_is_same(const Layout *a, const Layout *b);
/* The layout in which a node that is computed in `layout` takes an operand. */
Layout layout_of_input(const Layouts *l, const Node *node, int input, const Layout *layout);
#endif
