/* builtin_other: random numbers, gradients, and helpers for compile-time values. */
#include "frontend/builder.h"
#include <string.h>

/* Of a tensor, or of a layer: that is the layer, whose parameters get no gradient where it is
 * applied; gradients flow through it to its input. */
static Value run_stop_gradient(Call *call) {
  if (call->arg[0].kind == VALUE_LAYER) {
    Value layer = call->arg[0];
    layer.count = 1;
    return layer;
  }
  Node *x = builtin_tensor(call, 0);
  return x ? value_tensor(tensor_unary(call->b, OP_STOP_GRADIENT, x, call->loc)) : value_error();
}

static Value run_random_uniform(Call *call) {
  Shape shape;
  if (!builtin_shape_arg(call, 0, &shape)) return value_error();
  return value_tensor(tensor_uniform(call->b, shape, call->loc));
}

/* weighted(x, w): x, with w saying which elements a mean counts, or how much. */
static Value run_weighted(Call *call) {
  Node *x = builtin_tensor(call, 0), *w = builtin_tensor(call, 1);
  if (!x || !w) return value_error();
  Shape whole;
  char left[TYPE_TEXT], right[TYPE_TEXT];
  if (!shape_broadcast(&x->type.shape, &w->type.shape, &whole) ||
      !shape_equal(&whole, &x->type.shape)) {
    builder_fail(call->b, call->loc, "weights must have the tensor's shape: %s and %s",
                 type_text(&x->type, left), type_text(&w->type, right));
    return value_error();
  }
  if (w->type.dtype != DT_BOOL && !dtype_is_float(w->type.dtype)) {
    builder_fail(call->b, call->at[1], "weights are bool or float, not %s; compare: w != 0",
                 type_text(&w->type, right));
    return value_error();
  }
  return value_tensor(weight_add(call->b, x, w, call->loc));
}

/* unweighted(x): x, all of whose elements count in a mean. */
static Value run_unweighted(Call *call) {
  Node *x = builtin_tensor(call, 0);
  return x ? value_tensor(weight_drop(call->b, x, call->loc)) : value_error();
}

/* within(x, n, ignore): x, whose values count n things. Where x is an input, the loader checks.
 * is_within(x, n, ignore): the same, and true if that or the way x is computed leaves no doubt;
 * else a tensor that tells of each element. */
static Value run_within(Call *call) {
  Node *x = builtin_tensor(call, 0);
  int64_t below, ignore;
  if (!x || !builtin_int(call, 1, 0, &below) || !builtin_int(call, 2, 0, &ignore))
    return value_error();
  bool has_ignore = call->arg[2].kind != VALUE_ABSENT;
  const int64_t *also = has_ignore ? &ignore : NULL;
  bool is_known = tensor_within(call->b, x, below, also);
  if (!call->builtin->which) return value_tensor(x);
  if (is_known || dtype_is_float(x->type.dtype)) return value_bool(true);
  return value_tensor(tensor_is_within(call->b, x, below, also, call->loc));
}

/* ranked(rows): f32[n, 1 + C], of each row its class (less than 0: it does not count) and C scores:
 * a metric of which the runtime makes the AUC. */
static Value run_ranked(Call *call) {
  Node *rows = builtin_tensor(call, 0);
  char text[TYPE_TEXT];
  if (!rows) return value_error();
  if (!type_is_auc(&rows->type)) {
    builder_fail(call->b, call->at[0], "ranked() needs rows of f32, not %s",
                 type_text(&rows->type, text));
    return value_error();
  }
  if (weight_of(call->b, rows)) {
    builder_fail(call->b, call->loc,
                 "an AUC counts whole samples: leave some out with ignore=, and "
                 "the weight with unweighted(x)");
    return value_error();
  }
  return (Value){.kind = VALUE_RANKING, .node = rows};
}

static Value run_range(Call *call) {
  int64_t from, to;
  if (!builtin_int(call, 0, 0, &from) || !builtin_int(call, 1, 0, &to)) return value_error();
  if (call->arg[1].kind == VALUE_ABSENT) {
    to = from;
    from = 0;
  }
  if (to > from && (uint64_t)to - (uint64_t)from > LIMIT_ITEMS) {
    builder_fail(call->b, call->loc, "a list of more than %d items", LIMIT_ITEMS);
    return value_error();
  }
  int count = to > from ? (int)(to - from) : 0;
  call->b->evaluations += count;
  Value *items = ARENA_ARRAY(call->b->arena, Value, count);
  for (int i = 0; i < count; i++) items[i] = value_int(from + i);
  return value_sequence(VALUE_LIST, items, count);
}

static Value run_len(Call *call) {
  const Value *v = &call->arg[0];
  if (v->kind == VALUE_LIST || v->kind == VALUE_TUPLE) return value_int(v->count);
  if (v->kind == VALUE_STRING) return value_int((int64_t)strlen(v->s));
  builder_fail(call->b, call->at[0], "len() needs a list, a tuple or a string, not %s",
               value_describe(call->b->arena, v));
  return value_error();
}

static Value run_str(Call *call) { return value_string(value_text(call->b->arena, &call->arg[0])); }

/* pair(3) is [3, 3]; pair((3, 5)) is [3, 5]. */
static Value run_pair(Call *call) {
  Value *v = &call->arg[0];
  if ((v->kind == VALUE_LIST || v->kind == VALUE_TUPLE) && v->count == 2)
    return value_sequence(VALUE_LIST, v->items, 2);
  if (!value_is_number(v)) {
    builder_fail(call->b, call->at[0], "expected a number or a pair, not %s",
                 value_describe(call->b->arena, v));
    return value_error();
  }
  Value *items = ARENA_ARRAY(call->b->arena, Value, 2);
  items[0] = items[1] = *v;
  return value_sequence(VALUE_LIST, items, 2);
}

static bool is_float_type(const Value *v) {
  return v->kind == VALUE_TENSOR && dtype_is_float(v->node->type.dtype);
}

static Value run_is_float(Call *call) { return value_bool(is_float_type(&call->arg[0])); }
static Value run_is_list(Call *call) {
  return value_bool(call->arg[0].kind == VALUE_LIST || call->arg[0].kind == VALUE_TUPLE);
}
static Value run_is_tensor(Call *call) { return value_bool(call->arg[0].kind == VALUE_TENSOR); }

const Builtin builtin_other[] = {
    {"stop_gradient", "x", run_stop_gradient, 0},
    {"average", "layer decay", average_layer, 0},
    {"frozen", "layer weights dtype=", frozen_layer, 0},
    {"running_average", "old x momentum scale=", statistics_average, 0},
    {"when_rounding", "rounded x", quantize_switched, 0},
    {"when_observing", "now before", quantize_observed, 0},
    {"random_uniform", "shape", run_random_uniform, 0},
    {"weighted", "x weight", run_weighted, 0},
    {"unweighted", "x", run_unweighted, 0},
    {"within", "x n ignore=", run_within, 0},
    {"is_within", "x n ignore=", run_within, 1},
    {"ranked", "rows", run_ranked, 0},
    {"range", "from to=", run_range, 0},
    {"len", "x", run_len, 0},
    {"str", "x", run_str, 0},
    {"pair", "x", run_pair, 0},
    {"is_float", "x", run_is_float, 0},
    {"is_tensor", "x", run_is_tensor, 0},
    {"is_list", "x", run_is_list, 0},
    {0},
};
