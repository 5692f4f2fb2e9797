/* plan_calls: calls.def as a table, and the check that a call's buffers hold what its attributes
 * say. Shared by the reader of plans and by the runtime that makes the calls. */
#ifndef FT_PLAN_PLAN_CALLS_H
#define FT_PLAN_PLAN_CALLS_H
#include "plan/plan.h"

/* In the order of calls.def, whose names are strings. */
typedef enum {
  CALL_GEMM,
  CALL_CONV,
  CALL_CONV_GRAD_INPUT,
  CALL_CONV_GRAD_WEIGHT,
  CALL_MATMUL,
  CALL_COUNT
} CallId;

/* The most attributes a call has, and the most arguments. */
enum { CALL_MAX_INTS = 24, CALL_MAX_ARGS = 8 };

typedef struct {
  const char *name;
  int input_count, output_count; /* without an optional bias */
  const char *attributes;        /* space separated, in order */
} CallInfo;
extern const CallInfo call_info[CALL_COUNT];
bool call_parse(const char *name, CallId *out);

/* A convolution's geometry, all checked: see calls.def. ho and wo are derived. */
typedef struct {
  int64_t n, c, h, w, o, kh, kw, sh, sw, pt, pl, pb, pr, dh, dw, groups, ho, wo;
  bool is_nhwc, has_bias, has_relu;
} ConvShape;
/* A matrix product's. */
typedef struct {
  int64_t batch, m, n, k;
  bool ta, tb, has_bias, has_relu;
} GemmShape;

/* A product of the GPU's library. The places of optional arguments, -1: not there. */
typedef enum { ACT_NONE, ACT_RELU, ACT_GELU, ACT_RELU_GRADIENT, ACT_GELU_GRADIENT } CallAct;
/* What the vector of sums (a bias's gradient) is of: columns of the result, with the gradient of an
 * activation; or, over k, rows of op(a) or columns of op(b). */
typedef enum { SUMS_RESULT, SUMS_A, SUMS_B } CallSums;
typedef enum { COMPUTE_F32, COMPUTE_TF32, COMPUTE_BF16, COMPUTE_F16 } CallCompute;
typedef struct {
  int64_t batch, m, n, k;
  bool ta, tb;
  CallCompute compute;
  CallAct act;
  CallSums of;               /* what the sums are of, if there are any */
  int bias, aux, c, d, sums; /* positions among the arguments; a is 0, b is 1 */
  int input_count, arg_count;
  int64_t aux_row; /* elements (relu: bits) of a row of aux */
} MatmulShape;

/* The attribute `key` of a call step; the key must exist. */
int64_t call_int(const PlanStep *step, const char *key);
/* These assume a step that call_check accepted. */
void call_conv_shape(const PlanStep *step, ConvShape *out);
void call_gemm_shape(const PlanStep *step, GemmShape *out);
void call_matmul_shape(const PlanStep *step, MatmulShape *out);

/* True if the step's attributes are those of the table, in range, and every buffer is large
 * enough and of a fitting type; else false and a reason (static or in the arena). */
bool call_check(Arena *arena, const PlanStep *step, const PlanBuffer *buffers, const char **why);
#endif
