/* eval: expressions. A name is a variable, a dimension, a top-level definition, a standard one, or
 * a built-in, in this order. */
#include "frontend/builder.h"
#include "frontend/watch.h"
#include <math.h>
#include <string.h>

static Value eval_name(Builder *b, const Ast *ast) {
  Variable *found = builder_find(b, ast->name);
  if (found) {
    watch_mention(b, ast->name, found, ast->loc);
    return found->value;
  }
  if (strcmp(ast->name, "training") == 0) return value_bool(builder_trains(b));
  if (strcmp(ast->name, "pi") == 0) return value_float(3.14159265358979323846);
  if (strcmp(ast->name, "inf") == 0) return value_float(INFINITY);
  const Builtin *builtin = builtin_find(ast->name);
  if (builtin) return (Value){.kind = VALUE_BUILTIN, .builtin = builtin};
  builder_fail(b, ast->loc, "unknown name '%s'%s", ast->name, builder_hint_name(b, ast->name));
  return value_error();
}

static Value eval_items(Builder *b, const Ast *ast) {
  if (ast->count > LIMIT_ITEMS) {
    builder_fail(b, ast->loc, "a list of more than %d items", LIMIT_ITEMS);
    return value_error();
  }
  Value *items = ARENA_ARRAY(b->arena, Value, ast->count);
  for (int i = 0; i < ast->count; i++) {
    items[i] = eval(b, ast->kid[i]);
    if (items[i].kind == VALUE_ERROR) return value_error();
  }
  return value_sequence(ast->kind == AST_LIST ? VALUE_LIST : VALUE_TUPLE, items, ast->count);
}

static Value eval_attribute(Builder *b, const Ast *ast) {
  if (hint_module(b, ast)) return value_error();
  Value base = eval(b, ast->kid[0]);
  if (base.kind == VALUE_ERROR) return base;
  if (base.kind == VALUE_TENSOR) {
    const Type *type = &base.node->type;
    if (strcmp(ast->name, "rank") == 0) return value_int(type->shape.rank);
    if (strcmp(ast->name, "size") == 0) return value_int(shape_elements(&type->shape));
    if (strcmp(ast->name, "dtype") == 0) return value_string(dtype_text(type->dtype));
    if (strcmp(ast->name, "shape") == 0) {
      Value *items = ARENA_ARRAY(b->arena, Value, type->shape.rank);
      for (int i = 0; i < type->shape.rank; i++) items[i] = value_int(type->shape.dim[i]);
      return value_sequence(VALUE_LIST, items, type->shape.rank);
    }
  }
  hint_method(b, ast, &base);
  return value_error();
}

/* ── indexing ─────────────────────────────────────────────────────────────────────────────── */
static bool bound(Builder *b, const Ast *ast, int64_t size, int64_t otherwise, int64_t least,
                  int64_t most, int64_t *out) {
  *out = otherwise;
  if (!ast) return true;
  Value v = eval(b, ast);
  if (v.kind == VALUE_NONE) return true;
  if (v.kind == VALUE_ERROR) return false;
  if (!value_to_int(&v, out))
    return builder_fail(b, ast->loc, "a slice's ends are integers, not %s",
                        value_describe(b->arena, &v));
  if (*out < 0) *out += size;
  *out = *out < least ? least : *out > most ? most : *out; /* clamped, as in Python */
  return true;
}

/* start, step and count of a written slice of a dimension. A step below 0 goes from the end to the
 * front, as in Python: start is then the last place that is taken in the dimension's own order. */
static bool read_slice(Builder *b, const Ast *ast, int64_t size, int64_t *start, int64_t *step,
                       int64_t *count) {
  int64_t end;
  *step = 1;
  if (ast->kid[2] && !eval_int(b, ast->kid[2], "a slice's step", step)) return false;
  if (*step == 0) return builder_fail(b, ast->kid[2]->loc, "a slice's step cannot be 0");
  int64_t most = size > 1 ? size : 1; /* a longer step takes one element, too */
  *step = *step > most ? most : *step < -most ? -most : *step;
  if (*step > 0) {
    if (!bound(b, ast->kid[0], size, 0, 0, size, start) ||
        !bound(b, ast->kid[1], size, size, 0, size, &end))
      return false;
    *count = end > *start ? (end - *start + *step - 1) / *step : 0;
    return true;
  }
  if (!bound(b, ast->kid[0], size, size - 1, -1, size - 1, start) ||
      !bound(b, ast->kid[1], size, -1, -1, size - 1, &end))
    return false;
  *count = *start > end ? (*start - end - *step - 1) / -*step : 0;
  return true;
}

static Value index_sequence(Builder *b, const Ast *ast, const Value *base) {
  if (ast->count != 2) {
    builder_fail(b, ast->loc, "%s takes one index", value_describe(b->arena, base));
    return value_error();
  }
  const Ast *subscript = ast->kid[1];
  if (subscript->kind == AST_SLICE) {
    int64_t start, step, count;
    if (!read_slice(b, subscript, base->count, &start, &step, &count)) return value_error();
    Value *items = ARENA_ARRAY(b->arena, Value, count);
    for (int64_t i = 0; i < count; i++) items[i] = base->items[start + i * step];
    return value_sequence(base->kind, items, (int)count);
  }
  int64_t at;
  if (!eval_int(b, subscript, "an index", &at)) return value_error();
  if (at < -base->count || at >= base->count) {
    builder_fail(b, subscript->loc, "index %lld is outside a list of %d items", (long long)at,
                 base->count);
    return value_error();
  }
  return base->items[at < 0 ? at + base->count : at];
}

typedef struct {
  int64_t start[MAX_RANK], step[MAX_RANK];
  bool is_flipped[MAX_RANK]; /* the slice is taken with the step's size, then turned around */
  Shape sliced, result;
} Selection;

static void select_whole(Selection *s, const Shape *shape, int axis) {
  s->step[axis] = 1;
  s->sliced.dim[axis] = shape->dim[axis];
  s->result.dim[s->result.rank++] = shape->dim[axis];
}

static bool select_one(Builder *b, const Ast *subscript, const Shape *shape, int axis,
                       Selection *s) {
  int64_t size = shape->dim[axis], at = 0;
  if (subscript->kind == AST_SLICE) {
    if (!read_slice(b, subscript, size, &s->start[axis], &s->step[axis], &s->sliced.dim[axis]))
      return false;
    int64_t count = s->sliced.dim[axis];
    s->result.dim[s->result.rank++] = count;
    if (s->step[axis] < 0) {
      s->step[axis] = -s->step[axis];
      s->start[axis] -= (count - 1) * s->step[axis];
      s->is_flipped[axis] = count > 1;
    }
    if (count == 0) s->start[axis] = 0;
    return true;
  }
  Value v = eval(b, subscript);
  if (v.kind == VALUE_ERROR) return false;
  if (v.kind == VALUE_TENSOR)
    return builder_fail(b, subscript->loc,
                        "a tensor as index must stand alone: x[ids]; see also gather and one_hot");
  if (!value_to_int(&v, &at))
    return builder_fail(b, subscript->loc, "an index is an integer, not %s",
                        value_describe(b->arena, &v));
  if (at < -size || at >= size)
    return builder_fail(b, subscript->loc, "index %lld is outside dimension %d of size %lld",
                        (long long)at, axis, (long long)size);
  s->start[axis] = at < 0 ? at + size : at;
  s->step[axis] = 1;
  s->sliced.dim[axis] = 1;
  return true;
}

static Value index_tensor(Builder *b, const Ast *ast, Node *x) {
  const Shape *shape = &x->type.shape;
  int given = ast->count - 1, ellipses = 0;
  for (int i = 1; i < ast->count; i++) ellipses += ast->kid[i]->kind == AST_ELLIPSIS;
  if (ellipses > 1 || given - ellipses > shape->rank) {
    char text[TYPE_TEXT];
    builder_fail(b, ast->loc,
                 ellipses > 1 ? "only one ... in an index of %s"
                              : "too many indices for a tensor %s",
                 type_text(&x->type, text));
    return value_error();
  }
  Selection s = {.sliced.rank = shape->rank};
  int axis = 0;
  for (int i = 1; i < ast->count; i++) {
    if (ast->kid[i]->kind == AST_ELLIPSIS) {
      for (int left = shape->rank - (given - 1); left > 0; left--) select_whole(&s, shape, axis++);
    } else if (!select_one(b, ast->kid[i], shape, axis++, &s)) {
      return value_error();
    }
  }
  while (axis < shape->rank) select_whole(&s, shape, axis++);
  Node *sliced = x;
  if (!shape_equal(&s.sliced, shape)) {
    Type type = {x->type.dtype, s.sliced};
    Attr attrs[2] = {attr_ints(ATTR_START, s.start, shape->rank),
                     attr_ints(ATTR_STEP, s.step, shape->rank)};
    sliced = tensor_node(b, OP_SLICE, &x, 1, attrs, 2, &type, ast->loc);
  }
  for (int i = 0; i < shape->rank; i++)
    if (s.is_flipped[i]) sliced = tensor_flip(b, sliced, i, ast->loc);
  return value_tensor(tensor_reshape(b, sliced, s.result, ast->loc));
}

static Value eval_index(Builder *b, const Ast *ast) {
  Value base = eval(b, ast->kid[0]);
  if (base.kind == VALUE_LIST || base.kind == VALUE_TUPLE) return index_sequence(b, ast, &base);
  if (base.kind == VALUE_TENSOR) {
    const Ast *only = ast->count == 2 ? ast->kid[1] : NULL;
    if (only && only->kind != AST_SLICE && only->kind != AST_ELLIPSIS) {
      Value at = eval(b, only);
      if (at.kind == VALUE_ERROR) return at;
      if (at.kind == VALUE_TENSOR)
        return value_tensor(tensor_gather(b, base.node, at.node, ast->loc));
    }
    return index_tensor(b, ast, base.node);
  }
  if (base.kind != VALUE_ERROR)
    builder_fail(b, ast->loc, "%s cannot be indexed", value_describe(b->arena, &base));
  return value_error();
}

/* ── the rest ─────────────────────────────────────────────────────────────────────────────── */
bool eval_int(Builder *b, const Ast *ast, const char *what, int64_t *out) {
  Value v = eval(b, ast);
  if (v.kind == VALUE_ERROR) return false;
  return value_to_int(&v, out) || builder_fail(b, ast->loc, "%s must be an integer, not %s", what,
                                               value_describe(b->arena, &v));
}

bool eval_condition(Builder *b, const Ast *ast, bool *out) {
  Value v = eval(b, ast);
  if (v.kind == VALUE_ERROR) return false;
  *out = v.kind == VALUE_BOOL && v.i;
  if (v.kind == VALUE_BOOL) return true;
  if (v.kind == VALUE_TENSOR)
    return builder_fail(b, ast->loc,
                        "a condition is decided at compile time and cannot be a tensor; "
                        "where(condition, a, b) chooses by element");
  return builder_fail(b, ast->loc, "a condition must be true or false, not %s",
                      value_describe(b->arena, &v));
}

/* `and` and `or` of compile-time values evaluate their right side only if needed. */
static Value eval_binary(Builder *b, const Ast *ast) {
  if (strcmp(ast->name, "|") == 0) {
    builder_fail(b, ast->loc,
                 "`|` puts a transform behind a data source, in data { ... }: train = "
                 "npy(\"x.npy\", \"y.npy\") | hflip; flags and bool tensors are joined by 'or'");
    return value_error();
  }
  Value left = eval(b, ast->kid[0]);
  bool is_and = strcmp(ast->name, "and") == 0, is_or = strcmp(ast->name, "or") == 0;
  if ((is_and || is_or) && left.kind == VALUE_BOOL) {
    if (left.i == is_or) return left;
    Value right = eval(b, ast->kid[1]);
    if (right.kind == VALUE_BOOL || right.kind == VALUE_ERROR) return right;
    return arith_binary(b, ast->name, left, right, ast->loc);
  }
  return arith_binary(b, ast->name, left, eval(b, ast->kid[1]), ast->loc);
}

static Value eval_kind(Builder *b, const Ast *ast) {
  switch (ast->kind) {
  case AST_INT:
    return value_int(ast->integer);
  case AST_FLOAT:
    return value_float(ast->number);
  case AST_BOOL:
    return value_bool(ast->integer);
  case AST_STRING:
    return value_string(ast->name);
  case AST_NONE:
    return value_none();
  case AST_DURATION:
    return (Value){.kind = VALUE_DURATION, .i = ast->integer, .unit = ast->name};
  case AST_NAME:
    return eval_name(b, ast);
  case AST_LIST:
  case AST_TUPLE:
    return eval_items(b, ast);
  case AST_CALL:
    return call_eval(b, ast, NULL);
  case AST_INDEX:
    return eval_index(b, ast);
  case AST_ATTRIBUTE:
    return eval_attribute(b, ast);
  case AST_UNARY:
    return arith_unary(b, ast->name, eval(b, ast->kid[0]), ast->loc);
  case AST_BINARY:
    return eval_binary(b, ast);
  case AST_CONDITIONAL: {
    bool holds;
    if (!eval_condition(b, ast->kid[0], &holds)) return value_error();
    return eval(b, ast->kid[holds ? 1 : 2]);
  }
  case AST_OF:
    builder_fail(b, ast->loc,
                 "`of` is for data { ... }: valid = 0.1 of train, valid = fold of train by label, "
                 "fold = 2 of 5");
    return value_error();
  case AST_FACTOR:
  case AST_ON:
  case AST_PER:
    builder_fail(b, ast->loc,
                 "%s is for train { ... }: lr = 0.1x on \"head.*\", lr = 0.1 per 256, "
                 "weight_decay = 0.1 on rank >= 2",
                 ast->kind == AST_ON    ? "`on`"
                 : ast->kind == AST_PER ? "`per`"
                                        : ast_to_text(b->arena, ast));
    return value_error();
  default:
    builder_fail(b, ast->loc, "this cannot be evaluated");
    return value_error();
  }
}

Value eval(Builder *b, const Ast *ast) {
  if (b->exhausted) return value_error();
  if (++b->evaluations > LIMIT_EVALUATIONS || b->depth >= LIMIT_DEPTH) {
    b->exhausted = true;
    builder_fail(b, ast->loc,
                 b->depth >= LIMIT_DEPTH ? "this nests too deep to be evaluated"
                                         : "the program takes too many steps to evaluate");
    return value_error();
  }
  if (watch_ends(b)) {
    b->exhausted = true;
    return value_error();
  }
  b->depth++;
  Value v = eval_kind(b, ast);
  b->depth--;
  return v;
}
