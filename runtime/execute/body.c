/* body: see body.h. Values are asked for from the result backwards, so that only what one element is
 * made of is computed; each operation remembers some of its elements. */
#include "runtime/execute/body_private.h"
#include "runtime/common/element.h"
#include "runtime/common/float8.h"
#include "runtime/common/philox.h"
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_DEPTH = 1500, /* of operations of operations */
  MOST_REMEMBERED = 1 << 16 /* elements of a sum; of others */,
  FEW_REMEMBERED = 16,
  MOST_LOOKED_AT = 1 << 20
};
static const int64_t most_work = INT64_C(2000000000); /* elements computed */

static bool is_sum_like(Op op) {
  return op_info[op].op_class == CLASS_REDUCE || op == OP_DOT || op == OP_SCATTER_ADD ||
         op_is_conv(op) || op_is_pool(op) || op_is_attention(op);
}

Status body_new(const PlanGraph *graph, const PlanBody *of, const char *const *operand,
                Body **out) {
  Body *body = calloc(1, sizeof *body);
  bool is_made = body != NULL;
  *out = body;
  if (is_made) {
    *body = (Body){.graph = graph, .of = of};
    body->operand = calloc((size_t)of->input_count + 1, sizeof *body->operand);
    body->memory = calloc((size_t)of->ops.count + 1, sizeof *body->memory);
    body->room = calloc((size_t)of->ops.count + 1, sizeof *body->room);
    is_made = body->operand && body->memory && body->room;
  }
  if (is_made && of->input_count)
    memcpy(body->operand, operand, sizeof *operand * (size_t)of->input_count);
  for (int i = 0; is_made && i < of->ops.count; i++) {
    int64_t elements = shape_elements(&of->ops.at[i].type.shape);
    int64_t most = is_sum_like(of->ops.at[i].op) ? MOST_REMEMBERED : FEW_REMEMBERED;
    body->room[i] = elements < most ? elements + 1 : most;
    body->memory[i] = malloc((size_t)body->room[i] * sizeof **body->memory);
    is_made = body->memory[i] != NULL;
    for (int64_t k = 0; is_made && k < body->room[i]; k++) body->memory[i][k].element = -1;
  }
  if (is_made) return STATUS_OK;
  body_free(body);
  *out = NULL;
  return status_errno(ENOMEM, "looking at a kernel");
}

void body_free(Body *body) {
  if (!body) return;
  for (int i = 0; body->memory && i < body->of->ops.count; i++) free(body->memory[i]);
  free(body->operand);
  free(body->memory);
  free(body->room);
  free(body);
}

Scalar body_read_element(DType dtype, const char *at, int64_t element) {
  uint16_t half;
  uint32_t bits;
  switch (dtype) {
  case DT_F32:
    return (Scalar){.f = ((const float *)(const void *)at)[element]};
  case DT_F64:
    return (Scalar){.f = ((const double *)(const void *)at)[element]};
  case DT_F16:
    return (Scalar){.f = half_to_float(((const uint16_t *)(const void *)at)[element])};
  case DT_BF16: {
    float value;
    half = ((const uint16_t *)(const void *)at)[element];
    bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof value);
    return (Scalar){.f = value};
  }
  case DT_E4M3:
  case DT_E5M2:
    return (Scalar){.f = float8_value(((const uint8_t *)at)[element], dtype == DT_E5M2)};
  case DT_I32:
    return (Scalar){.i = ((const int32_t *)(const void *)at)[element]};
  case DT_U32:
    return (Scalar){.i = ((const uint32_t *)(const void *)at)[element]};
  case DT_I64:
    return (Scalar){.i = ((const int64_t *)(const void *)at)[element]};
  default:
    return (Scalar){.i = ((const uint8_t *)at)[element]};
  }
}

static const PlanOp *op_of(const Body *body, int value) {
  return value < body->of->input_count ? NULL : &body->of->ops.at[value - body->of->input_count];
}

const Type *body_type_of(const Body *body, int value) {
  return body_type(body->graph, body->of, value);
}

static void unravel(const Shape *shape, int64_t linear, int64_t index[MAX_RANK]) {
  for (int i = shape->rank - 1; i >= 0; i--) {
    index[i] = linear % shape->dim[i];
    linear /= shape->dim[i];
  }
}

static int64_t ravel(const Shape *shape, const int64_t index[MAX_RANK]) {
  int64_t linear = 0;
  for (int i = 0; i < shape->rank; i++) linear = linear * shape->dim[i] + index[i];
  return linear;
}

/* ── what an element is made of ───────────────────────────────────────────────────────────── */
static const Shape *shape_in(const Seeing *s, int k) {
  return &body_type_of(s->body, s->op->inputs[k])->shape;
}

static bool see_reduced(const Seeing *s) {
  const Shape *from = shape_in(s, 0);
  int64_t index[MAX_RANK], inner = 1;
  unravel(&s->op->type.shape, s->element, index);
  for (int i = 0; i < s->op->int_count; i++) inner *= from->dim[s->op->ints[i]];
  for (int64_t n = 0; n < inner; n++) {
    int64_t left = n;
    for (int i = s->op->int_count - 1; i >= 0; i--) {
      int axis = (int)s->op->ints[i];
      index[axis] = left % from->dim[axis];
      left /= from->dim[axis];
    }
    if (!s->see(s->context, s->op->inputs[0], ravel(from, index))) return false;
  }
  return true;
}

/* Factor of a, factor of b, and so on along the sum. */
static bool see_dot(const Seeing *s) {
  const Shape *a = shape_in(s, 0), *b = shape_in(s, 1), *to = &s->op->type.shape;
  int row = to->rank - 2, column = to->rank - 1, ta = s->op->ints[0] != 0, tb = s->op->ints[1] != 0;
  int64_t at[MAX_RANK], x[MAX_RANK], y[MAX_RANK];
  unravel(to, s->element, at);
  memcpy(x, at, sizeof x);
  memcpy(y, at, sizeof y);
  x[ta ? column : row] = at[row];
  y[tb ? row : column] = at[column];
  for (int64_t k = 0; k < a->dim[ta ? row : column]; k++) {
    x[ta ? row : column] = k;
    y[tb ? column : row] = k;
    if (!s->see(s->context, s->op->inputs[0], ravel(a, x)) ||
        !s->see(s->context, s->op->inputs[1], ravel(b, y)))
      return false;
  }
  return true;
}

static bool see_concat(const Seeing *s) {
  int axis = (int)s->op->ints[0];
  int64_t index[MAX_RANK];
  unravel(&s->op->type.shape, s->element, index);
  for (int k = 0; k < s->op->input_count; k++) {
    const Shape *from = shape_in(s, k);
    if (index[axis] < from->dim[axis])
      return s->see(s->context, s->op->inputs[k], ravel(from, index));
    index[axis] -= from->dim[axis];
  }
  return true;
}

static int64_t width_of(const Shape *table) {
  return shape_elements_between(table, 1, table->rank);
}

static bool see_gather(const Seeing *s) {
  const Shape *table = shape_in(s, 0);
  int64_t width = width_of(table);
  Scalar row;
  if (!width || !body_value(s->body, s->op->inputs[1], s->element / width, &row)) return true;
  if (row.i < 0 || row.i >= table->dim[0]) return true;
  return s->see(s->context, s->op->inputs[0], row.i * width + s->element % width);
}

static bool see_scattered(const Seeing *s) {
  int64_t width = width_of(&s->op->type.shape), count = shape_elements(shape_in(s, 1));
  for (int64_t k = 0; width && k < count; k++) {
    Scalar row;
    if (!body_value(s->body, s->op->inputs[1], k, &row)) return true;
    if (row.i != s->element / width) continue;
    if (!s->see(s->context, s->op->inputs[0], k * width + s->element % width)) return false;
  }
  return true;
}

/* Moves of which each element is one of the operand's, or a filler. */
static bool see_moved(const Seeing *s) {
  const Shape *from = shape_in(s, 0), *to = &s->op->type.shape;
  const int64_t *ints = s->op->ints;
  int64_t at[MAX_RANK], source[MAX_RANK];
  unravel(to, s->element, at);
  for (int i = 0; i < to->rank; i++) switch (s->op->op) {
    case OP_TRANSPOSE:
      source[ints[i]] = at[i];
      break;
    case OP_SLICE:
      source[i] = ints[i] + at[i] * ints[to->rank + i];
      break;
    case OP_PAD:
      source[i] = at[i] - ints[i];
      if (source[i] < 0 || source[i] >= from->dim[i]) return true;
      break;
    default: /* broadcast */
      source[i] = from->dim[i] == 1 ? 0 : at[i];
    }
  return s->see(s->context, s->op->inputs[0], ravel(from, source));
}

static bool see_pointwise(const Seeing *s) {
  Scalar choice;
  int first = 0, end = s->op->input_count;
  if (s->op->op == OP_SELECT) {
    if (!body_value(s->body, s->op->inputs[0], s->element, &choice)) return true;
    first = choice.i ? 1 : 2;
    end = first + 1;
  }
  for (int i = first; i < end; i++)
    if (!s->see(s->context, s->op->inputs[i], s->element)) return false;
  return true;
}

/* The part where it lies, else the tensor that it was put into. */
static bool see_put(const Seeing *s) {
  const Shape *part = shape_in(s, 1);
  int axis = (int)s->op->ints[0];
  int64_t index[MAX_RANK];
  Scalar from;
  if (!body_value(s->body, s->op->inputs[2], 0, &from)) return true;
  unravel(&s->op->type.shape, s->element, index);
  if (index[axis] < from.i || index[axis] - from.i >= part->dim[axis])
    return s->see(s->context, s->op->inputs[0], s->element);
  index[axis] -= from.i;
  return s->see(s->context, s->op->inputs[1], ravel(part, index));
}

bool body_sources(Body *body, int value, int64_t element, BodySee *see, void *context) {
  const PlanOp *op = op_of(body, value);
  Seeing s = {body, op, element, see, context};
  if (!op || !body_is_told(op->op)) return true;
  switch (op_info[op->op].op_class) {
  case CLASS_LEAF:
    return true;
  case CLASS_POINTWISE:
    return see_pointwise(&s);
  case CLASS_REDUCE:
    return see_reduced(&s);
  case CLASS_WINDOW:
    return body_see_pool(&s);
  default:
    break;
  }
  if (op->op == OP_DOT) return see_dot(&s);
  if (op_is_conv(op->op)) return body_see_conv(&s);
  if (op_is_attention(op->op)) return body_see_attention(&s);
  if (op->op == OP_PUT) return see_put(&s);
  if (op->op == OP_CONCAT) return see_concat(&s);
  if (op->op == OP_GATHER) return see_gather(&s);
  if (op->op == OP_SCATTER_ADD) return see_scattered(&s);
  if (op->op == OP_RESHAPE) return see(context, op->inputs[0], element);
  return see_moved(&s);
}

/* ── values ───────────────────────────────────────────────────────────────────────────────── */
/* A sum under way, or an element that was moved. */
typedef struct {
  Body *body;
  const PlanOp *op;
  Scalar sum, factor;
  double mean;
  int64_t seen, best;
  bool is_known, squares;
} Gather;

static bool body_is_better(const Gather *g, DType dtype, Scalar x) {
  bool most = g->op->op == OP_ARGMAX;
  if (!dtype_is_float(dtype)) return most ? x.i > g->sum.i : x.i < g->sum.i;
  if (isnan(g->sum.f)) return false;
  return isnan(x.f) || (most ? x.f > g->sum.f : x.f < g->sum.f);
}

double body_part_of_sum(DType dtype, double x) {
  return dtype != DT_F64 && fabs(x) > FLT_MAX ? copysign(INFINITY, x) : x;
}

static bool take(void *context, int value, int64_t element) {
  Gather *g = context;
  DType dtype = body_type_of(g->body, value)->dtype, type = g->op->type.dtype;
  bool is_float = dtype_is_float(dtype);
  Scalar x;
  if (!(g->is_known = body_value(g->body, value, element, &x))) return false;
  int64_t at = g->seen++;
  if (g->op->op == OP_DOT || op_is_conv(g->op->op)) {
    if (at % 2)
      g->sum.f = body_part_of_sum(type, g->sum.f + body_part_of_sum(type, g->factor.f * x.f));
    g->factor = x;
  } else if (op_is_arg(g->op->op)) {
    if (at && !body_is_better(g, dtype, x)) return true;
    g->sum = x;
    g->best = at;
  } else if (g->op->op == OP_SUM || g->op->op == OP_MEAN || g->op->op == OP_SPREAD ||
             g->op->op == OP_SCATTER_ADD) {
    double part = g->squares ? (x.f - g->mean) * (x.f - g->mean) : x.f;
    if (is_float)
      g->sum.f = body_part_of_sum(type, g->sum.f + part);
    else
      g->sum.i = dtype_wrap(dtype, (int64_t)((uint64_t)g->sum.i + (uint64_t)x.i));
  } else if (op_info[g->op->op].op_class == CLASS_REDUCE) {
    Scalar both[2] = {g->sum, x};
    g->sum = at ? scalar_eval(op_joining(g->op->op), dtype, dtype, both) : x;
  } else {
    g->sum = x; /* moved */
  }
  return true;
}

/* What the sum over nothing is, and what a pad fills with. */
static Scalar start_value(const PlanOp *op) {
  DType dtype = op->type.dtype;
  double start = op->op == OP_PROD                        ? 1
                 : op->op == OP_RMAX || op->op == OP_RMIN ? dtype_extreme(dtype, op->op == OP_RMAX)
                 : op->op == OP_PAD                       ? op->value
                                                          : 0;
  return dtype_is_float(dtype) ? (Scalar){.f = start} : (Scalar){.i = (int64_t)start};
}

static bool gather_value(Body *body, const PlanOp *op, int value, int64_t element, Scalar *out) {
  Gather g = {.body = body, .op = op, .sum = start_value(op), .is_known = true};
  body_sources(body, value, element, take, &g);
  if (!g.is_known) return false;
  if (op->op == OP_MEAN || op->op == OP_SPREAD) g.mean = g.sum.f / (double)g.seen;
  if (op->op == OP_MEAN) g.sum.f = g.mean;
  if (op->op == OP_SPREAD) {
    g.sum.f = 0, g.squares = true;
    body_sources(body, value, element, take, &g);
  }
  *out = op_is_arg(op->op) ? (Scalar){.i = g.best} : g.sum;
  return g.is_known;
}

double body_draw(uint64_t seed, uint64_t step, uint32_t stream, uint64_t number) {
  uint64_t block = number / 4;
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, bits[4];
  uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)step, stream + (uint32_t)(step >> 32)};
  philox(key, counter, bits);
  return ldexp(bits[number % 4] >> 8, -24);
}

static bool random_value(Body *body, const PlanOp *op, int64_t element, Scalar *out) {
  Scalar seed, step, first = {.i = 0};
  if (!body_value(body, op->inputs[0], 0, &seed) || !body_value(body, op->inputs[1], 0, &step))
    return false;
  if (op->input_count > 2) {
    bool is_each = body_type_of(body, op->inputs[2])->shape.rank > 0;
    if (!body_value(body, op->inputs[2], is_each ? element : 0, &first)) return false;
  }
  out->f = body_draw((uint64_t)seed.i, (uint64_t)step.i, (uint32_t)op->ints[0], (uint64_t)first.i + (uint64_t)element);
  return true;
}

static bool pointwise_value(Body *body, const PlanOp *op, int64_t element, Scalar *out) {
  Scalar in[3] = {{0}};
  if (op->op == OP_SELECT) { /* of the branch that is not chosen nothing need be known */
    if (!body_value(body, op->inputs[0], element, &in[0])) return false;
    return body_value(body, op->inputs[in[0].i ? 1 : 2], element, out);
  }
  for (int i = 0; i < op->input_count; i++)
    if (!body_value(body, op->inputs[i], element, &in[i])) return false;
  *out = scalar_eval(op->op, body_type_of(body, op->inputs[0])->dtype, op->type.dtype, in);
  return true;
}

static bool op_value(Body *body, const PlanOp *op, int value, int64_t element, Scalar *out) {
  bool is_float = dtype_is_float(op->type.dtype);
  int64_t index[MAX_RANK];
  if (!body_is_told(op->op)) return false;
  if (op_info[op->op].op_class == CLASS_POINTWISE) return pointwise_value(body, op, element, out);
  if (op_is_pool(op->op)) return body_pool_value(body, op, element, out);
  if (op_is_attention(op->op)) return body_attention_value(body, op, element, out);
  if (op->op == OP_RANDOM) return random_value(body, op, element, out);
  if (op->op == OP_IOTA) {
    unravel(&op->type.shape, element, index);
    out->i = index[op->ints[0]];
    return true;
  }
  if (op->op == OP_CONST) {
    *out = is_float ? (Scalar){.f = op->value} : (Scalar){.i = (int64_t)op->value};
    return true;
  }
  return gather_value(body, op, value, element, out);
}

void body_set_result(Body *body, int result) { body->result = result; }

Type body_type_meant(const Body *body, int value) {
  const PlanOp *op = op_of(body, value);
  return op && op_is_attention(op->op) ? body_attention_type(body, op) : *body_type_of(body, value);
}

bool body_unrounded(Body *body, int value, int64_t element, double *out) {
  const PlanOp *op = op_of(body, value);
  Scalar x;
  if (!op || !dtype_is_float(op->type.dtype) || !op_value(body, op, value, element, &x))
    return false;
  *out = x.f;
  return true;
}

/* Products under way. */
typedef struct {
  Body *body;
  BodyProducts *out;
  int64_t seen;
  double factor;
  bool is_known;
} Products;

static bool take_factor(void *context, int value, int64_t element) {
  Products *p = context;
  Scalar x;
  if (!(p->is_known = body_value(p->body, value, element, &x))) return false;
  if (p->seen++ % 2 == 0) {
    p->factor = x.f;
    return true;
  }
  if (!p->out->count++ || fabs(p->factor * x.f) > fabs(p->out->factor[0] * p->out->factor[1]))
    p->out->factor[0] = p->factor, p->out->factor[1] = x.f;
  return true;
}

bool body_products(Body *body, int value, int64_t element, BodyProducts *out) {
  const PlanOp *op = op_of(body, value);
  Products p = {.body = body, .out = out, .is_known = true};
  *out = (BodyProducts){0};
  if (!op || (op->op != OP_DOT && !op_is_conv(op->op))) return false;
  body_sources(body, value, element, take_factor, &p);
  return p.is_known && out->count;
}

bool body_value(Body *body, int value, int64_t element, Scalar *out) {
  const PlanOp *op = op_of(body, value);
  if (!op) {
    if (body->operand[value])
      *out = body_read_element(body_type_of(body, value)->dtype, body->operand[value], element);
    return body->operand[value] != NULL;
  }
  int64_t which = value - body->of->input_count;
  Remembered *memory = &body->memory[which][element % body->room[which]];
  if (memory->element == element) {
    *out = memory->value;
    return true;
  }
  if (body->depth >= MOST_DEPTH || body->work++ > most_work) return false;
  body->depth++;
  bool is_known = op_value(body, op, value, element, out);
  body->depth--;
  DType dtype = body_type_meant(body, value).dtype;
  if (is_known && dtype_is_float(dtype)) out->f = dtype_round(dtype, out->f);
  if (is_known) *memory = (Remembered){element, *out};
  return is_known;
}

/* ── causes ───────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  Body *body;
  bool has_nan, has_infinite;
  int nan, infinite; /* values, and elements of them */
  int64_t nan_element, infinite_element;
} BadSources;

static bool find_bad_source(void *context, int value, int64_t element) {
  BadSources *bad = context;
  Scalar x;
  if (!dtype_is_float(body_type_of(bad->body, value)->dtype) ||
      !body_value(bad->body, value, element, &x) || isfinite(x.f))
    return true;
  if (isnan(x.f)) {
    bad->has_nan = true, bad->nan = value, bad->nan_element = element;
    return false;
  }
  if (!bad->has_infinite) bad->infinite = value, bad->infinite_element = element;
  bad->has_infinite = true;
  return true;
}

void body_trace(Body *body, int value, int64_t element, BodyTrace *out) {
  int user = -1;
  int64_t user_element = 0;
  *out = (BodyTrace){.cause = BODY_UNKNOWN, .value = value, .element = element, .made_nan = -1};
  for (;;) {
    Scalar x;
    BadSources bad = {.body = body};
    out->value = value, out->element = element;
    const PlanOp *op = op_of(body, value);
    if (!op) {
      out->cause = BODY_OPERAND;
      return;
    }
    if (!dtype_is_float(op->type.dtype) || !body_value(body, value, element, &x) || isfinite(x.f))
      return;
    body_sources(body, value, element, find_bad_source, &bad);
    if (!bad.has_nan && !bad.has_infinite) break;
    if (isnan(x.f) && !bad.has_nan && out->made_nan < 0)
      out->made_nan = value, out->made_nan_element = element;
    user = value, user_element = element;
    value = bad.has_nan ? bad.nan : bad.infinite;
    element = bad.has_nan ? bad.nan_element : bad.infinite_element;
  }
  out->cause = BODY_OP;
  /* an infinity that the program wrote is none to tell of, but what is made of it */
  if (op_of(body, value)->op == OP_CONST || op_of(body, value)->op == OP_PAD) {
    if (out->made_nan >= 0)
      out->value = out->made_nan, out->element = out->made_nan_element;
    else if (user >= 0)
      out->value = user, out->element = user_element;
  }
}

/* ── statistics ───────────────────────────────────────────────────────────────────────────── */
void body_take_number(BodyStats *stats, double x) {
  stats->looked_at++;
  if (isnan(x)) {
    stats->nan++;
    return;
  }
  if (isinf(x)) {
    stats->infinite++;
    return;
  }
  double n = (double)(stats->looked_at - stats->nan - stats->infinite);
  if (n == 1 || x < stats->least) stats->least = x;
  if (n == 1 || x > stats->most) stats->most = x;
  stats->mean += (x - stats->mean) / n;
}

static double as_number(DType dtype, Scalar x) { return dtype_is_float(dtype) ? x.f : (double)x.i; }

/* Of how many elements one is looked at. */
static int64_t stride_of(int64_t elements) { return elements / MOST_LOOKED_AT + 1; }

void body_stats_of(const Type *type, const char *at, BodyStats *out) {
  *out = (BodyStats){.elements = shape_elements(&type->shape), .is_known = true};
  for (int64_t k = 0; k < out->elements; k += stride_of(out->elements))
    body_take_number(out, as_number(type->dtype, body_read_element(type->dtype, at, k)));
}

void body_stats(Body *body, int value, BodyStats *out) {
  enum { WORK = 50000000 }; /* for one value */
  const Type *type = body_type_of(body, value);
  *out = (BodyStats){.elements = shape_elements(&type->shape), .is_known = true};
  int64_t before = body->work;
  for (int64_t k = 0; k < out->elements && out->is_known; k += stride_of(out->elements)) {
    Scalar x;
    out->is_known = body->work - before < WORK && body_value(body, value, k, &x);
    if (out->is_known) body_take_number(out, as_number(type->dtype, x));
  }
}
