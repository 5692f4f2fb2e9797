/* builtin: looking up and calling built-in functions, and reading their arguments. */
#include "frontend/builder.h"
#include <math.h>
#include <string.h>

static const Builtin *const tables[] = {builtin_math,  builtin_shape,     builtin_window,
                                        builtin_other, builtin_attention, builtin_move,
                                        builtin_init,  builtin_mix};
enum { TABLES = sizeof tables / sizeof *tables };

const Builtin *builtin_find(const char *name) {
  Op op;
  if (op_parse(name, &op) && op_has(op, TRAIT_FUNCTION)) return &builtin_ops[op];
  for (int t = 0; t < TABLES; t++)
    for (const Builtin *f = tables[t]; f->name; f++)
      if (strcmp(f->name, name) == 0) return f;
  return NULL;
}

void builtin_names(Builder *b, const char ***names, int *count) {
  VEC(const char *) list = {0};
  for (int i = 0; i < OP_COUNT; i++)
    if (op_has((Op)i, TRAIT_FUNCTION)) VEC_PUSH(b->arena, list, op_info[i].text);
  for (int t = 0; t < TABLES; t++)
    for (const Builtin *f = tables[t]; f->name; f++) VEC_PUSH(b->arena, list, f->name);
  *names = list.at;
  *count = list.count;
}

/* "x axis= *rest" */
static int read_parameters(Builder *b, const char *text, Parameter *out) {
  int count = 0;
  while (*text && count < BUILTIN_MAX_PARAMETERS) {
    size_t length = strcspn(text, " ");
    Parameter *p = &out[count++];
    p->is_rest = text[0] == '*';
    p->is_optional = text[length - 1] == '=';
    p->name = arena_strndup(b->arena, text + p->is_rest,
                            length - (size_t)p->is_rest - (size_t)p->is_optional);
    text += length;
    text += strspn(text, " ");
  }
  return count;
}

/* rearrange(x, pattern, h=12): its free keywords become name, size, name, size ... behind the two.
 * A dimension may be called x or pattern too, where these are given by their place. */
static bool sizes_as_rest(Builder *b, const Arguments *arguments, Arguments *out) {
  static const char *const own[] = {"x", "pattern"};
  bool *is_own = ARENA_ARRAY(b->arena, bool, arguments->count), is_behind = false;
  int by_place = 0;
  for (int i = 0; i < arguments->count; i++) {
    if (arguments->at[i].name) continue;
    if (by_place == 2)
      return builder_fail(b, arguments->at[i].loc,
                          "rearrange() takes a tensor and a pattern; a size is given by the "
                          "dimension's name: h=12");
    VEC_PUSH(b->arena, *out, arguments->at[i]);
    by_place++;
  }
  for (int k = by_place; k < 2; k++) {
    int at = 0;
    while (at < arguments->count &&
           (!arguments->at[at].name || strcmp(arguments->at[at].name, own[k]) != 0))
      at++;
    is_behind |= at == arguments->count; /* one is missing: the next keeps its name */
    if (at == arguments->count) continue;
    const Argument *argument = &arguments->at[at];
    is_own[at] = true;
    VEC_PUSH(b->arena, *out,
             ((Argument){argument->value, argument->loc, is_behind ? argument->name : NULL}));
  }
  if (is_behind) return true;
  for (int i = 0; i < arguments->count; i++) {
    Argument argument = arguments->at[i];
    if (!argument.name || is_own[i]) continue;
    VEC_PUSH(b->arena, *out, ((Argument){value_string(argument.name), argument.loc, NULL}));
    argument.name = NULL;
    VEC_PUSH(b->arena, *out, argument);
  }
  return true;
}

Value builtin_call(Builder *b, const Builtin *builtin, Loc loc, const Arguments *arguments) {
  Parameter parameters[BUILTIN_MAX_PARAMETERS];
  Value values[BUILTIN_MAX_PARAMETERS];
  Loc locs[BUILTIN_MAX_PARAMETERS];
  int count = read_parameters(b, builtin->parameters, parameters);
  Arguments plain = {0};
  if (strcmp(builtin->name, "rearrange") == 0) {
    if (!sizes_as_rest(b, arguments, &plain)) return value_error();
    arguments = &plain;
  }
  if (!call_match(b, builtin->name, loc, parameters, count, arguments, values, locs))
    return value_error();
  Call call = {b, builtin, loc, values, locs, count};
  const char *function = b->function;
  if (!function) b->function = builtin->name;
  Written before = builder_write(b, builtin->name, false);
  Value result = builtin->run(&call);
  b->written = before;
  b->function = function;
  return result;
}

Node *builtin_tensor(Call *call, int index) {
  Value *v = &call->arg[index];
  if (v->kind == VALUE_TENSOR) return v->node;
  if (v->kind != VALUE_ERROR)
    builder_fail(call->b, call->at[index], "%s() needs a tensor, not %s", call->builtin->name,
                 value_describe(call->b->arena, v));
  return NULL;
}

Node *builtin_float_tensor(Call *call, int index) {
  Node *x = builtin_tensor(call, index);
  if (!x || dtype_is_float(x->type.dtype)) return x;
  char text[TYPE_TEXT];
  const Written *written = &call->b->written;
  builder_fail(call->b, call->at[index], "%s() needs a float tensor, not %s; cast it with f32(x)",
               written->is_operator ? call->builtin->name : written->name, type_text(&x->type, text));
  return NULL;
}

static bool wrong_argument(Call *call, int index, const char *want) {
  Value *v = &call->arg[index];
  if (v->kind == VALUE_ERROR) return false;
  return builder_fail(call->b, call->at[index], "expected %s for %s(), not %s", want,
                      call->builtin->name, value_describe(call->b->arena, v));
}

bool builtin_int(Call *call, int index, int64_t otherwise, int64_t *out) {
  *out = otherwise;
  if (call->arg[index].kind == VALUE_ABSENT) return true;
  return value_to_int(&call->arg[index], out) || wrong_argument(call, index, "an integer");
}

bool builtin_number(Call *call, int index, double otherwise, double *out) {
  *out = otherwise;
  if (call->arg[index].kind == VALUE_ABSENT) return true;
  if (!value_is_number(&call->arg[index])) return wrong_argument(call, index, "a number");
  *out = value_number(&call->arg[index]);
  return true;
}

bool builtin_element(Call *call, int index, DType dtype, double *out) {
  Value *v = &call->arg[index];
  *out = 0;
  if (v->kind == VALUE_ABSENT) return true;
  if (dtype == DT_BOOL) {
    bool is_number = value_is_number(v) && (value_number(v) == 0 || value_number(v) == 1);
    if (v->kind != VALUE_BOOL && !is_number) return wrong_argument(call, index, "true or false");
    *out = is_number ? value_number(v) : (double)v->i;
    return true;
  }
  if (!value_is_number(v)) return wrong_argument(call, index, "a number");
  return tensor_number(call->b, v, dtype, call->at[index], out);
}

bool builtin_bool(Call *call, int index, bool otherwise, bool *out) {
  *out = otherwise;
  if (call->arg[index].kind == VALUE_ABSENT) return true;
  if (call->arg[index].kind != VALUE_BOOL) return wrong_argument(call, index, "true or false");
  *out = call->arg[index].i;
  return true;
}

static bool normal_axis(Call *call, Loc loc, int64_t axis, int rank, const Node *x, int64_t *out) {
  char text[TYPE_TEXT];
  if (axis < -rank || axis >= rank)
    return builder_fail(call->b, loc, "axis %lld is outside %s, which has %d dimension%s",
                        (long long)axis, type_text(&x->type, text), rank, rank == 1 ? "" : "s");
  *out = axis < 0 ? axis + rank : axis;
  return true;
}

bool builtin_axis(Call *call, int index, const Node *x, int64_t otherwise, int *out) {
  int64_t axis, normal;
  if (!builtin_int(call, index, otherwise, &axis)) return false;
  if (!normal_axis(call, call->at[index], axis, x->type.shape.rank, x, &normal)) return false;
  *out = (int)normal;
  return true;
}

static void sort(int64_t *axes, int count) {
  for (int i = 1; i < count; i++)
    for (int k = i; k > 0 && axes[k - 1] > axes[k]; k--) {
      int64_t swap = axes[k];
      axes[k] = axes[k - 1];
      axes[k - 1] = swap;
    }
}

bool builtin_axes(Call *call, int index, const Node *x, int64_t axes[MAX_RANK], int *count) {
  Value *v = &call->arg[index];
  int rank = x->type.shape.rank;
  *count = 0;
  if (!value_is_given(v)) {
    for (int i = 0; i < rank; i++) axes[(*count)++] = i;
    return true;
  }
  bool many = v->kind == VALUE_LIST || v->kind == VALUE_TUPLE;
  int given = many ? v->count : 1;
  for (int i = 0; i < given; i++) {
    int64_t axis;
    if (!value_to_int(many ? &v->items[i] : v, &axis))
      return wrong_argument(call, index, "an axis or a list of axes");
    if (!normal_axis(call, call->at[index], axis, rank, x, &axis)) return false;
    for (int k = 0; k < *count; k++)
      if (axes[k] == axis)
        return builder_fail(call->b, call->at[index], "axis %lld is named twice", (long long)axis);
    axes[(*count)++] = axis;
  }
  sort(axes, *count);
  return true;
}

bool builtin_shape_arg(Call *call, int index, Shape *out) {
  Value *v = &call->arg[index];
  /* reshape(x, 2, 3) and reshape(x, [2, 3]) are the same */
  if (v->kind == VALUE_TUPLE && v->count == 1 &&
      (v->items[0].kind == VALUE_LIST || v->items[0].kind == VALUE_TUPLE))
    v = &v->items[0];
  Value one = value_sequence(VALUE_LIST, &call->arg[index], 1);
  if (v->kind == VALUE_INT) v = &one;
  if (v->kind != VALUE_LIST && v->kind != VALUE_TUPLE)
    return wrong_argument(call, index, "a shape such as [2, 3]");
  if (v->count > MAX_RANK)
    return builder_fail(call->b, call->at[index], "a tensor has at most %d dimensions", MAX_RANK);
  out->rank = v->count;
  for (int i = 0; i < v->count; i++)
    if (!value_to_int(&v->items[i], &out->dim[i]))
      return builder_fail(call->b, call->at[index], "a dimension must be an integer, not %s",
                          value_describe(call->b->arena, &v->items[i]));
  return true;
}
