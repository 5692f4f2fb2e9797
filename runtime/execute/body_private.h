/* body_private: what the files of body share: body.c, body_window.c (convolutions and pooling),
 * body_attention.c. */
#ifndef FT_RUNTIME_BODY_PRIVATE_H
#define FT_RUNTIME_BODY_PRIVATE_H
#include "plan/plan_window.h"
#include "runtime/execute/body.h"

typedef struct {
  int64_t element; /* -1: none */
  Scalar value;
} Remembered;

struct Body {
  const PlanGraph *graph;
  const PlanBody *of;
  const char **operand;
  Remembered **memory; /* by op */
  int64_t *room;
  int64_t work;
  int depth;
  int result; /* of an op that has several: the one that is meant */
};

/* What an element is made of, under way. */
typedef struct {
  Body *body;
  const PlanOp *op;
  int64_t element;
  BodySee *see;
  void *context;
} Seeing;

const Type *body_type_of(const Body *body, int value);
/* Convolutions: factor and factor of each product of the sum. Pooling: the elements of the window, or
 * the gradients of the windows that the element lies in. */
bool body_see_conv(const Seeing *s);
bool body_see_pool(const Seeing *s);
bool body_pool_value(Body *body, const PlanOp *op, int64_t element, Scalar *out);
/* Of the query, all keys and their values, what is added to their scores, and of a gradient what the
 * softmax was and is told; an infinity that hides a key is left out. */
bool body_see_attention(const Seeing *s);
bool body_attention_value(Body *body, const PlanOp *op, int64_t element, Scalar *out);
/* In what is added up, if narrower types are in f32: an infinity beyond its range. */
double body_part_of_sum(DType dtype, double x);
void body_take_number(BodyStats *stats, double x);
/* The draw of this number in [0,1), as op `random` makes it. */
double body_draw(uint64_t seed, uint64_t step, uint32_t stream, uint64_t number);
Type body_attention_type(const Body *body, const PlanOp *op);
#endif
