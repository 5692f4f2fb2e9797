/* recognise: see recognise.h. The points are drawn from fixed seeds, in -4 to 4, where gelu's tanh
 * form and the exact one differ by 1e-4 and more at most places: a thousand times what is allowed.
 */
#include "codegen/recognise.h"
#include "ir/interp.h"
#include <math.h>

struct Recogniser {
  Arena *arena;
  const Graph *body;
  const Node *product;
  Tensor **value; /* by node; points all the same whatever the node's shape */
  bool *is_known;
  double **variable; /* by argument, from 0; the last one: the product */
  int variable_count;
};

static double *draw_points(Arena *arena, uint64_t seed) {
  double *points = ARENA_ARRAY(arena, double, RECOGNISE_POINTS);
  uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15u;
  for (int i = 0; i < RECOGNISE_POINTS; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    points[i] = (double)(state >> 11) * 0x1p-53 * 8 - 4;
  }
  points[seed % RECOGNISE_POINTS] = 0; /* where the gradients of relu and of maximum(x, 0) differ */
  return points;
}

Recogniser *recogniser_new(Arena *arena, const Graph *body, const Node *product) {
  Recogniser *r = ARENA_NEW(arena, Recogniser);
  *r = (Recogniser){.arena = arena, .body = body, .product = product};
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    int index = node->op == OP_ARG ? (int)node_int(node, ATTR_INDEX, 0) : -1;
    if (index >= r->variable_count) r->variable_count = index + 1;
  }
  r->value = ARENA_ARRAY(arena, Tensor *, body->nodes.count);
  r->is_known = ARENA_ARRAY(arena, bool, body->nodes.count);
  r->variable = ARENA_ARRAY(arena, double *, r->variable_count + 1);
  for (int i = 0; i <= r->variable_count; i++) r->variable[i] = draw_points(arena, (uint64_t)i);
  return r;
}

const double *recognise_variable(Recogniser *r, int index) {
  return r->variable[index < 0 ? r->variable_count : index];
}

static Tensor *new_tensor(Recogniser *r, DType dtype) {
  return tensor_new(r->arena, (Type){dtype, shape_of(1, (int64_t[]){RECOGNISE_POINTS})});
}

static Tensor *find_value(Recogniser *r, const Node *node);

static Tensor *recognise_evaluate(Recogniser *r, const Node *node) {
  const Tensor *in[3] = {NULL};
  DType dtype = node->type.dtype;
  bool is_variable = node == r->product || node->op == OP_ARG;
  if (is_variable) {
    if (!dtype_is_float(dtype)) return NULL;
    Tensor *out = new_tensor(r, dtype);
    int index = node == r->product ? -1 : (int)node_int(node, ATTR_INDEX, 0);
    out->f = r->variable[index < 0 ? r->variable_count : index];
    return out;
  }
  if (node->op == OP_CONST) {
    Tensor *out = new_tensor(r, dtype);
    interp_const(&(Eval){node, in, out, NULL});
    return out;
  }
  if (node->op == OP_RESHAPE || node->op == OP_BROADCAST || node->op == OP_STOP_GRADIENT)
    return find_value(r, node->input[0]);
  if (op_info[node->op].op_class != CLASS_POINTWISE || node->input_count > 3) return NULL;
  for (int i = 0; i < node->input_count; i++)
    if (!(in[i] = find_value(r, node->input[i]))) return NULL;
  Tensor *out = new_tensor(r, dtype);
  interp_pointwise(&(Eval){node, in, out, NULL});
  return out;
}

static Tensor *find_value(Recogniser *r, const Node *node) {
  if (!r->is_known[node->id]) {
    r->value[node->id] = recognise_evaluate(r, node);
    r->is_known[node->id] = true;
  }
  return r->value[node->id];
}

const double *recognise_values(Recogniser *r, const Node *node) {
  const Tensor *found = find_value(r, node);
  return found ? found->f : NULL;
}

/* ── functions ────────────────────────────────────────────────────────────────────────────── */
static bool is_near(double a, double b) { return fabs(a - b) <= 1e-9 * (1 + fabs(b)); }

static double gelu_inner(double x) { return tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)); }

static double form_value(Form form, double x) {
  if (form == FORM_SAME) return x;
  if (form == FORM_RELU) return x > 0 ? x : 0;
  return 0.5 * x * (1 + gelu_inner(x));
}

static double slope_of(Form form, double x) {
  if (form == FORM_SAME) return 1;
  if (form == FORM_RELU) return x > 0;
  double t = gelu_inner(x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x);
}

bool recognise_form(const double *values, Form form, const double *x) {
  if (!values) return false;
  for (int i = 0; i < RECOGNISE_POINTS; i++)
    if (!is_near(values[i], form_value(form, x[i]))) return false;
  return true;
}

bool recognise_slope(const double *values, Form form, const double *x, const double *g) {
  if (!values) return false;
  for (int i = 0; i < RECOGNISE_POINTS; i++)
    if (!is_near(values[i], g[i] * slope_of(form, x[i]))) return false;
  return true;
}
