/* interp: the walk over the graph: leaves, structure, fused bodies, rounding. The arithmetic is in
 * interp_point.c, interp_move.c and interp_window.c. Naive on purpose: it is the oracle. */
#include "ir/interp.h"
#include <math.h>
#include <string.h>

/* More than this is a mistake or an attack, not a test. */
static const int64_t most_elements = (int64_t)1 << 28;

typedef struct {
  Arena *arena;
  InterpLeaf *leaf;
  InterpAfter *after; /* NULL: none */
  void *context;
  bool round;
  Diag *diag;
  int64_t elements;
} Interp;

Tensor *tensor_new(Arena *arena, Type type) {
  Tensor *tensor = ARENA_NEW(arena, Tensor);
  int64_t count = shape_elements(&type.shape);
  tensor->type = type;
  if (dtype_is_float(type.dtype))
    tensor->f = ARENA_ARRAY(arena, double, count);
  else
    tensor->i = ARENA_ARRAY(arena, int64_t, count);
  return tensor;
}

void interp_unravel(const Shape *shape, int64_t linear, int64_t index[MAX_RANK]) {
  for (int i = shape->rank - 1; i >= 0; i--) {
    index[i] = linear % shape->dim[i];
    linear /= shape->dim[i];
  }
}

int64_t interp_ravel(const Shape *shape, const int64_t index[MAX_RANK]) {
  int64_t linear = 0;
  for (int i = 0; i < shape->rank; i++) linear = linear * shape->dim[i] + index[i];
  return linear;
}

void interp_lowest(DType dtype, int64_t *lowest, int64_t *highest) {
  *lowest = dtype == DT_I32 ? INT32_MIN : dtype == DT_I64 ? INT64_MIN : 0;
  *highest = dtype == DT_BOOL  ? 1
             : dtype == DT_U8  ? UINT8_MAX
             : dtype == DT_I32 ? INT32_MAX
             : dtype == DT_U32 ? UINT32_MAX
                               : INT64_MAX;
}

int64_t interp_wrap(DType dtype, int64_t value) {
  switch (dtype) {
  case DT_BOOL:
    return value & 1;
  case DT_U8:
    return (uint8_t)value;
  case DT_I32:
    return (int32_t)(uint32_t)(uint64_t)value;
  case DT_U32:
    return (uint32_t)value;
  default:
    return value;
  }
}

/* To the nearest float with `precision` bits whose last bit is worth at least 2^least. */
static double round_to(double value, int precision, int least, double largest) {
  if (!isfinite(value) || value == 0) return value;
  int exponent;
  frexp(value, &exponent);
  int unit = exponent - precision > least ? exponent - precision : least;
  double rounded = ldexp(nearbyint(ldexp(value, -unit)), unit);
  return fabs(rounded) > largest ? copysign(INFINITY, value) : rounded;
}

double interp_round(DType dtype, double value) {
  switch (dtype) {
  case DT_F16:
    return round_to(value, 11, -24, 65504);
  case DT_BF16:
    return round_to(value, 8, -133, 0x1.fep127);
  case DT_F32:
    return (float)value;
  default:
    return value;
  }
}

static bool fail(Interp *in, const Node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool fail(Interp *in, const Node *node, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(in->arena, format, args);
  va_end(args);
  diag_error(in->diag, node->loc, "cannot interpret %%%d = %s: %s", node->id,
             op_info[node->op].text, text);
  return false;
}

static void copy_elements(const Tensor *from, Tensor *to) {
  size_t count = (size_t)shape_elements(&to->type.shape);
  if (!count) return;
  if (to->f)
    memcpy(to->f, from->f, count * sizeof *to->f);
  else
    memcpy(to->i, from->i, count * sizeof *to->i);
}

static bool eval_leaf(Interp *in, const Node *node, Tensor *out) {
  char need[TYPE_TEXT], have[TYPE_TEXT];
  const char *name = node_str(node, ATTR_NAME);
  const Tensor *given = in->leaf ? in->leaf(node, in->context) : NULL;
  if (!given) return fail(in, node, "no value was given for '%s'", name);
  if (!type_equal(&given->type, &node->type))
    return fail(in, node, "'%s' was given as %s, but is %s", name, type_text(&given->type, have),
                type_text(&node->type, need));
  copy_elements(given, out);
  return true;
}

static void eval_const(const Node *node, Tensor *out) {
  double value = node_float(node, ATTR_VALUE, 0);
  int64_t count = shape_elements(&out->type.shape);
  for (int64_t k = 0; k < count; k++) {
    if (out->f)
      out->f[k] = value;
    else
      out->i[k] = (int64_t)value;
  }
}

static void eval_iota(const Node *node, Tensor *out) {
  int64_t axis = node_int(node, ATTR_AXIS, 0), count = shape_elements(&out->type.shape);
  for (int64_t k = 0; k < count; k++) {
    int64_t index[MAX_RANK] = {0};
    interp_unravel(&out->type.shape, k, index);
    out->i[k] = index[axis];
  }
}

/* What a body sees of its fused node: the operands. */
typedef struct {
  const Node *fused; /* NULL: not in a body */
  const Tensor *const *value;
} Args;

static bool eval_graph(Interp *in, const Graph *graph, const Args *args, Tensor **values);

static bool eval_arg(Interp *in, const Node *node, const Args *args, Tensor *out) {
  int64_t index = node_int(node, ATTR_INDEX, 0);
  if (!args->fused) return fail(in, node, "it stands outside of a body");
  if (index >= args->fused->input_count ||
      !type_equal(&args->fused->input[index]->type, &node->type))
    return fail(in, node, "%%%d has no such operand", args->fused->id);
  copy_elements(args->value[index], out);
  return true;
}

static bool eval_fused(Interp *in, const Node *node, const Tensor *const *inputs, Tensor *out,
                       Tensor ***results) {
  if (!node->body || !node->body->roots.count) return fail(in, node, "it has no body");
  Tensor **values = ARENA_ARRAY(in->arena, Tensor *, node->body->nodes.count);
  if (!type_equal(&node->body->roots.at[0].node->type, &node->type))
    return fail(in, node, "its type is not that of its first result");
  Args args = {node, inputs};
  if (!eval_graph(in, node->body, &args, values)) return false;
  *results = ARENA_ARRAY(in->arena, Tensor *, node->body->roots.count);
  for (int i = 0; i < node->body->roots.count; i++)
    (*results)[i] = values[node->body->roots.at[i].node->id];
  copy_elements((*results)[0], out);
  return true;
}

/* All results, the first of which is also the node's own value. */
static bool eval_attention(Interp *in, const Eval *eval, Tensor ***results) {
  const Node *node = eval->node;
  int count = node_result_count(node);
  *results = ARENA_ARRAY(in->arena, Tensor *, count);
  (*results)[0] = eval->out;
  for (int i = 1; i < count; i++) {
    Type type = node_result_type(node, i);
    if (shape_elements(&type.shape) > most_elements - in->elements)
      return fail(in, node, "this graph is too large for the interpreter");
    in->elements += shape_elements(&type.shape);
    (*results)[i] = tensor_new(in->arena, type);
  }
  if (node->op == OP_ATTENTION)
    interp_attention(eval, *results);
  else
    interp_attention_grad(eval, *results);
  return true;
}

/* Everything with inputs whose meaning is arithmetic or movement. */
static bool eval_plain(Interp *in, const Eval *eval) {
  switch (op_info[eval->node->op].op_class) {
  case CLASS_POINTWISE:
    interp_pointwise(eval);
    return true;
  case CLASS_REDUCE:
    interp_reduce(eval);
    return true;
  case CLASS_WINDOW:
    interp_pool(eval);
    return true;
  case CLASS_MOVE:
    interp_move(eval);
    return true;
  case CLASS_CONTRACT:
    if (eval->node->op == OP_DOT)
      interp_dot(eval);
    else
      interp_conv(eval);
    return true;
  default:
    return fail(in, eval->node, "the interpreter does not know this operation");
  }
}

static bool eval_node(Interp *in, const Node *node, const Tensor *const *inputs, const Args *args,
                      Tensor ***results, Tensor *out) {
  const Eval eval = {node, inputs, out};
  switch (node->op) {
  case OP_INPUT:
  case OP_PARAM:
  case OP_STATE:
  case OP_SETTING:
    return eval_leaf(in, node, out);
  case OP_CONST:
    eval_const(node, out);
    return true;
  case OP_IOTA:
    eval_iota(node, out);
    return true;
  case OP_RANDOM:
    interp_random(&eval);
    return true;
  case OP_STOP_GRADIENT:
  case OP_ASSIGN:
    copy_elements(inputs[0], out);
    return true;
  case OP_PACK:
    interp_move(&eval);
    return true;
  case OP_ARG:
    return eval_arg(in, node, args, out);
  case OP_RESULT:
    copy_elements(results[node->input[0]->id][node_int(node, ATTR_INDEX, 0)], out);
    return true;
  case OP_ATTENTION:
  case OP_ATTENTION_GRAD:
    return eval_attention(in, &eval, &results[node->id]);
  case OP_FUSED:
    return eval_fused(in, node, inputs, out, &results[node->id]);
  default:
    return eval_plain(in, &eval);
  }
}

static bool eval_graph(Interp *in, const Graph *graph, const Args *args, Tensor **values) {
  Tensor ***results = ARENA_ARRAY(in->arena, Tensor **, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    int64_t count = shape_elements(&node->type.shape);
    if (count > most_elements - in->elements)
      return fail(in, node, "this graph is too large for the interpreter");
    in->elements += count;
    const Tensor **inputs = ARENA_ARRAY(in->arena, const Tensor *, node->input_count);
    for (int k = 0; k < node->input_count; k++) inputs[k] = values[node->input[k]->id];
    Tensor *out = tensor_new(in->arena, node->type);
    if (!eval_node(in, node, inputs, args, results, out)) return false;
    if (in->after) in->after(node, inputs, out, in->context);
    bool is_narrow = node->type.dtype == DT_F16 || node->type.dtype == DT_BF16;
    if ((in->round || is_narrow) && out->f)
      for (int64_t k = 0; k < count; k++) out->f[k] = interp_round(node->type.dtype, out->f[k]);
    values[i] = out;
  }
  return true;
}

bool graph_interpret(const Graph *graph, Arena *arena, InterpLeaf *leaf, void *context, bool round,
                     Tensor **values, Diag *diag) {
  Interp in = {.arena = arena, .leaf = leaf, .context = context, .round = round, .diag = diag};
  Args none = {0};
  return eval_graph(&in, graph, &none, values);
}

bool graph_interpret_changed(const Graph *graph, Arena *arena, InterpLeaf *leaf, InterpAfter *after,
                             void *context, Tensor **values, Diag *diag) {
  Interp in = {.arena = arena, .leaf = leaf, .after = after, .context = context, .diag = diag};
  Args none = {0};
  return eval_graph(&in, graph, &none, values);
}
