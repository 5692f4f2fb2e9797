/* quantize_matrix: rules of `quantize` for matrices outside of Linear and Conv2d, "h.*.c_fc.weight=w4g32 wte.weight=w8". A matrix is a
 * parameter of two dimensions that @ multiplies or embed looks rows up in, meant by its own name, whose last word the rule spells out.
 * In place of it the model reads its rounded values (quant_matrix in std/quant.ft). Its scales run along the side that a product
 * sums over, the features of an embedded row alike, so that a tied head and its table are one rounded matrix; they are a state, "…_scale",
 * as that of a QuantLinear. With d in the rule, what a matrix multiplies as the second operand is rounded too (fake_quant_rows). */
#include "frontend/builder.h"
#include <string.h>

/* The weight of a Linear is meant by the layer. */
static bool is_of_layer(const Builder *b) {
  const Frame *frame = b->frame;
  while (frame && !frame->instance) frame = frame->up;
  if (!frame || !frame->instance->block) return false;
  return quantize_may(b, frame->instance->block) || quantize_is_done(b, frame->instance->block);
}

/* A parameter of two dimensions, as it is or turned; NULL: something else. *axis: where dimension `axis` of the operand is in it. */
static Node *matrix_of(Node *x, int *axis, bool *is_stopped) {
  *is_stopped = false;
  for (; x->op != OP_PARAM; x = x->input[0]) {
    if (x->op == OP_STOP_GRADIENT)
      *is_stopped = true;
    else if (x->op == OP_TRANSPOSE && x->type.shape.rank == 2 && node_attr(x, ATTR_PERM)->ints[0] == 1)
      *axis = 1 - *axis;
    else
      return NULL;
  }
  return x->type.shape.rank == 2 ? x : NULL;
}

static QuantMatrix *find_matrix(Builder *b, const Node *param) {
  for (int i = b->matrices.count - 1; i >= 0; i--)
    if (b->matrices.at[i].param == param) return &b->matrices.at[i];
  return NULL;
}

static QuantRule *find_matrix_rule(Builder *b, const char *name) {
  for (int i = b->quantized.count - 1; i >= 0; i--)
    if (quant_form_names(b->quantized.at[i].layer, name)) return &b->quantized.at[i];
  return NULL;
}

static bool matrix_form_fits(Builder *b, const QuantRule *rule, const Node *param, int axis, Loc loc) {
  const char *name = node_str(param, ATTR_NAME);
  int64_t features = param->type.shape.dim[axis];
  if ((rule->form.input_bits && !rule->form.is_dynamic) || rule->form.has_factor)
    return builder_fail(b, loc, "quantize: '%s' is a matrix outside of Linear and Conv2d, which observe nothing: give it a form without a and f, w%d, or w%da8d",
                        name, rule->form.bits, rule->form.bits);
  if (rule->form.group && features % rule->form.group)
    return builder_fail(b, loc, "quantize: groups of %lld do not divide the %lld features that '%s' sums over: choose another group",
                        (long long)rule->form.group, (long long)features, name);
  return true;
}

/* Of the sides [out, in]; turned: of [in, out]. */
static Shape scales_of(const QuantForm *form, const Shape *sides, int axis) {
  if (form->per_tensor) return (Shape){.rank = 1, .dim = {1}};
  int64_t out = sides->dim[1 - axis], groups = form->group ? sides->dim[axis] / form->group : 1;
  if (axis == 0) return (Shape){.rank = 2, .dim = {groups, out}};
  return form->group ? (Shape){.rank = 2, .dim = {out, groups}} : (Shape){.rank = 1, .dim = {out}};
}

static Node *round_matrix(Builder *b, const QuantRule *rule, Node *param, int axis, Loc loc) {
  const QuantForm *form = &rule->form;
  if (!matrix_form_fits(b, rule, param, axis, loc)) return NULL;
  Type type = {.dtype = DT_F32, .shape = scales_of(form, &param->type.shape, axis)};
  Node *scales = block_state(b, arena_printf(b->arena, "%s_scale", node_str(param, ATTR_NAME)), &type, loc);
  if (!scales) return NULL;
  Argument list[] = {{value_tensor(param), loc, NULL},
                     {value_int(form->bits), loc, NULL},
                     {value_int(axis), loc, NULL},
                     {form->group ? value_int(form->group) : value_none(), loc, NULL},
                     {value_bool(form->per_tensor), loc, NULL},
                     {value_tensor(scales), loc, NULL}};
  Value rounded = call_standard(b, "quant_matrix", &(Arguments){.at = list, .count = sizeof list / sizeof *list}, loc);
  return rounded.kind == VALUE_TENSOR ? rounded.node : NULL;
}

/* The matrix, noted once for each graph; NULL after an error. */
static QuantMatrix *note_matrix(Builder *b, Node *param, int axis, Loc loc) {
  QuantMatrix *known = find_matrix(b, param);
  const char *name = node_str(param, ATTR_NAME);
  if (known && known->axis == axis) return known;
  if (known) {
    builder_fail(b, loc, "quantize: '%s' sums over its dimension %d here and over the other one elsewhere, so no set of scales fits it: leave it out",
                 name, axis);
    return NULL;
  }
  QuantRule *rule = find_matrix_rule(b, name);
  Node *rounded = rule ? round_matrix(b, rule, param, axis, loc) : param;
  if (!rounded) return NULL;
  if (rule) rule->is_used = true;
  VEC_PUSH(b->arena, b->matrices, ((QuantMatrix){param, rounded, axis, 0}));
  return &b->matrices.at[b->matrices.count - 1];
}

static bool matrix_is_meant(Builder *b, const char *name) {
  bool is_tapped = false;
  for (int i = 0; i < b->tap_count && !b->training; i++) is_tapped |= quant_form_names(b->taps[i], name);
  return is_tapped || find_matrix_rule(b, name);
}

/* *x, whose dimension `axis` is summed over: read rounded in its place where a rule or a tap means it; *out: what is noted of it, or
 * NULL. False after an error. */
static bool read_rounded(Builder *b, Node **x, int axis, QuantMatrix **out, Loc loc) {
  static const int64_t turn[] = {1, 0};
  bool is_stopped;
  int of_param = axis;
  *out = NULL;
  if ((!b->quantized.count && !b->tap_count) || b->frozen.file || is_of_layer(b)) return true;
  Node *param = matrix_of(*x, &of_param, &is_stopped);
  if (!param || !matrix_is_meant(b, node_str(param, ATTR_NAME))) return true;
  *out = note_matrix(b, param, of_param, loc);
  if (!*out) return false;
  Node *rounded = (*out)->rounded;
  if (is_stopped) rounded = tensor_unary(b, OP_STOP_GRADIENT, rounded, loc);
  *x = of_param != axis ? tensor_transpose(b, rounded, turn, loc) : rounded;
  return *x != NULL;
}

/* What a product by the second operand reads and gives. */
static void tap_matrix(Builder *b, QuantMatrix *matrix, Node *input, Node *result) {
  const char *name = node_str(matrix->param, ATTR_NAME);
  int number = matrix->products++;
  graph_add_root(b->graph, ROOT_OUTPUT, arena_printf(b->arena, "in.%d.%s", number, name), input);
  graph_add_root(b->graph, ROOT_OUTPUT, arena_printf(b->arena, "out.%d.%s", number, name), result);
}

/* The form of a matrix whose rule rounds what it multiplies; NULL: that stays f32. */
static const QuantForm *form_with_rows(Builder *b, const QuantMatrix *matrix) {
  QuantRule *rule = matrix ? find_matrix_rule(b, node_str(matrix->param, ATTR_NAME)) : NULL;
  return rule && rule->form.input_bits ? &rule->form : NULL;
}

static bool round_rows(Builder *b, int bits, Node **x, Loc loc) {
  Argument list[] = {{value_tensor(*x), loc, NULL}, {value_int(bits), loc, NULL}};
  Value rounded = call_standard(b, "fake_quant_rows", &(Arguments){.at = list, .count = sizeof list / sizeof *list}, loc);
  if (rounded.kind != VALUE_TENSOR) return false;
  *x = rounded.node;
  return true;
}

Node *quantize_product(Builder *b, Node *x, Node *y, Loc loc) {
  QuantMatrix *first = NULL, *second = NULL;
  if (!x || !y) return NULL;
  if (x->type.shape.rank == 2 && !read_rounded(b, &x, 1, &first, loc)) return NULL;
  if (y->type.shape.rank == 2 && !read_rounded(b, &y, 0, &second, loc)) return NULL;
  const QuantForm *of_first = form_with_rows(b, first), *of_second = form_with_rows(b, second);
  if (of_first) {
    builder_fail(b, loc, "quantize: '%s' is the first operand of this product, and dynamic inputs (d) are the rows that a second operand multiplies: give it a form without a, w%d",
                 node_str(first->param, ATTR_NAME), of_first->bits);
    return NULL;
  }
  Node *input = x;
  if (of_second && !round_rows(b, of_second->input_bits, &x, loc)) return NULL;
  Node *product = tensor_matmul(b, x, y, loc);
  if (product && second && b->tap_count && !b->training) tap_matrix(b, second, input, product);
  return product;
}

Node *quantize_table(Builder *b, Node *table, Loc loc) {
  QuantMatrix *noted;
  if (!table || table->type.shape.rank != 2) return table;
  return read_rounded(b, &table, 1, &noted, loc) ? table : NULL;
}

void quantize_list_matrices(Builder *b) {
  for (int i = 0; i < b->matrices.count && b->tap_count && !b->is_again; i++) {
    const QuantMatrix *matrix = &b->matrices.at[i];
    MatrixTap tap = {node_str(matrix->param, ATTR_NAME), matrix->axis, matrix->products};
    VEC_PUSH(b->arena, b->program->matrix_taps, tap);
  }
}

bool quantize_refuse_scales(Builder *b, const Declared *scales) {
  static const char end[] = "_scale";
  size_t length = strlen(scales->name);
  if (scales->node->op != OP_STATE || length < sizeof end || strcmp(scales->name + length - strlen(end), end) != 0) return false;
  const char *matrix = arena_strndup(b->arena, scales->name, length - strlen(end));
  if (!find_matrix_rule(b, matrix)) return false;
  builder_fail(b, scales->loc, "quantize: '%s' is multiplied in training alone, or in evaluations alone, so nothing is gained by rounding it: leave it out", matrix);
  return true;
}
