/* body: what a kernel computes (plan/plan_body.h), one element at a time and on the host, to find
 * the operation that made a number which is not finite. Every operation rounds to its type; sums are
 * made in f64 and rounded once. Nothing here is fast. */
#ifndef FT_RUNTIME_BODY_H
#define FT_RUNTIME_BODY_H
#include "ir/scalar.h"
#include "plan/plan_body.h"
#include "runtime/common/status.h"

typedef struct Body Body;

/* operand[i]: all of operand i in memory of the host, which stays there; NULL: it is not known. */
STATUS_CHECKED Status body_new(const PlanGraph *graph, const PlanBody *of,
                               const char *const *operand, Body **out);
void body_free(Body *body); /* NULL is fine */
/* An element of a value, by its row-major number. False: it is not known, as where an operation
 * is not told by the plan, or where it would take too long. */
bool body_value(Body *body, int value, int64_t element, Scalar *out);

/* The kernel's result that is asked for, of an operation that has several; 0 if never called. */
void body_set_result(Body *body, int result);
/* The value as the operation makes it, before it is rounded to its type. */
bool body_unrounded(Body *body, int value, int64_t element, double *out);
/* The type of what an element of `value` is an element of. */
Type body_type_meant(const Body *body, int value);

/* Where an element that is not finite comes from. */
typedef enum {
  BODY_OPERAND, /* element `element` of operand `value` */
  BODY_OP,      /* the operation `value`, whose operands are finite there */
  BODY_UNKNOWN  /* it is finite by what is computed here, or not known */
} BodyCause;
typedef struct {
  BodyCause cause;
  int value;
  int64_t element;
  /* An operation on the way that made a NaN of infinities (Inf - Inf, 0 * Inf); -1: there is none. */
  int made_nan;
  int64_t made_nan_element;
} BodyTrace;
void body_trace(Body *body, int value, int64_t element, BodyTrace *out);

/* The elements that operation `value` makes this one of; false: `see` has ended it. Only the chosen
 * branch of a selection, and of a lookup what was found. */
typedef bool BodySee(void *context, int value, int64_t element);
bool body_sources(Body *body, int value, int64_t element, BodySee *see, void *context);

/* The products that an element of a matrix product or a convolution is the sum of: how many there are,
 * and the factors of the largest. False: it is none such. */
typedef struct {
  int64_t count;
  double factor[2];
} BodyProducts;
bool body_products(Body *body, int value, int64_t element, BodyProducts *out);

typedef struct {
  int64_t elements, looked_at; /* at most a few million of them are looked at, evenly */
  int64_t nan, infinite;
  double least, most, mean; /* of the finite ones */
  bool is_known;
} BodyStats;
void body_stats(Body *body, int value, BodyStats *out);
/* Attention's scores of the row that an element belongs to; hidden keys are not looked at. False: it
 * belongs to no single row, or the operation is no attention. */
bool body_scores(Body *body, int value, int64_t element, BodyStats *out);
/* The same of numbers in memory. */
void body_stats_of(const Type *type, const char *at, BodyStats *out);
/* An element in memory. */
Scalar body_read_element(DType dtype, const char *at, int64_t element);
#endif
