/* layout: what the two files of the pass share. layout_form.c says in which form each value is
 * computed, layout.c makes them. */
#ifndef FT_PASSES_LAYOUT_H
#define FT_PASSES_LAYOUT_H
#include "passes/pass.h"

/* A dimension of a matrix that holds images: places first, of each all channels. No channels: it
 * lies as the front end has it. */
typedef struct {
  int64_t channels, places;
} Fold;

/* How a value lies. All zero, "plain": as the front end has it. */
typedef struct {
  bool is_nhwc; /* of rank 4 */
  Fold fold[2]; /* of rank 2, for each dimension */
} Form;

/* By node. */
typedef struct {
  Form *home;      /* in which it is computed, unless it is free: */
  bool *is_free;   /* made in the form that is asked for */
  bool *is_weight; /* depends on parameters and constants only */
  Form *wish;      /* what its readers would like it to be */
} Homes;

Homes layout_forms(const Graph *graph, Arena *arena);
/* Do an image's elements lie alike in NCHW and NHWC? */
bool layout_is_view(const Shape *image);
bool layout_is_same(const Form *a, const Form *b);
/* The form in which a node that is made in `form` takes an input. */
Form layout_of_input(const Homes *forms, const Node *node, int input, const Form *form);
#endif
