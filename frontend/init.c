/* init: initialisers. The language has PyTorch's; the graph knows the reduced ones (zeros, const,
 * uniform, normal, trunc_normal, orthogonal, identity), so fans and gains are settled here, by
 * torch.nn.init's definitions. */
#include "frontend/builder.h"
#include <math.h>
#include <string.h>

typedef struct {
  double in, out;
} Fans;

/* [out, in, window...]: torch's _calculate_fan_in_and_fan_out. */
static bool fans(Builder *b, const Shape *shape, const char *kind, Loc loc, Fans *out) {
  char text[TYPE_TEXT];
  if (shape->rank < 2)
    return builder_fail(b, loc, "%s needs at least two dimensions [out, in, ...], not %s", kind,
                        shape_text(shape, text));
  double window = 1;
  for (int i = 2; i < shape->rank; i++) window *= (double)shape->dim[i];
  out->in = (double)shape->dim[1] * window;
  out->out = (double)shape->dim[0] * window;
  return true;
}

static bool gain_of(Builder *b, const InitValue *init, Loc loc, double *gain) {
  static const char *const names[] = {"linear", "conv2d",     "sigmoid", "tanh",
                                      "relu",   "leaky_relu", "selu"};
  const char *name = init->nonlinearity;
  if (!strcmp(name, "linear") || !strcmp(name, "sigmoid") || !strcmp(name, "conv2d"))
    *gain = 1;
  else if (!strcmp(name, "tanh"))
    *gain = 5.0 / 3;
  else if (!strcmp(name, "relu"))
    *gain = sqrt(2);
  else if (!strcmp(name, "leaky_relu"))
    *gain = sqrt(2 / (1 + init->a * init->a));
  else if (!strcmp(name, "selu"))
    *gain = 0.75;
  else
    return builder_fail(b, loc, "unknown nonlinearity \"%s\"%s", name,
                        builder_hint(b, name, names, 7));
  return true;
}

static bool kaiming(Builder *b, const InitValue *init, const Shape *shape, Loc loc, double *std) {
  Fans fan;
  double gain = 1;
  if (!fans(b, shape, init->kind, loc, &fan) || !gain_of(b, init, loc, &gain)) return false;
  bool out = strcmp(init->mode, "fan_out") == 0;
  if (!out && strcmp(init->mode, "fan_in") != 0)
    return builder_fail(b, loc, "mode is \"fan_in\" or \"fan_out\", not \"%s\"", init->mode);
  double n = out ? fan.out : fan.in;
  *std = n > 0 ? gain / sqrt(n) : 0;
  return true;
}

static bool init_set(const char **kind, double arg[2], int *count, const char *text, int n,
                     double x, double y) {
  *kind = text;
  *count = n;
  arg[0] = x;
  arg[1] = y;
  return true;
}

bool init_reduce(Builder *b, const Value *v, const Shape *shape, Loc loc, const char **kind,
                 double arg[2], int *count) {
  Value named = v->kind == VALUE_BUILTIN ? init_named(b, v->builtin->name) : *v;
  if (value_is_number(&named)) {
    double x = value_number(&named);
    return x == 0 ? init_set(kind, arg, count, "zeros", 0, 0, 0)
                  : init_set(kind, arg, count, "const", 1, x, 0);
  }
  if (named.kind != VALUE_INIT)
    return builder_fail(b, loc,
                        "expected an initialiser such as zeros, normal(0.02) or "
                        "kaiming_uniform(), not %s",
                        value_describe(b->arena, v));
  const InitValue *init = named.init;
  const char *name = init->kind;
  double std;
  Fans fan;
  if (!strcmp(name, "zeros")) return init_set(kind, arg, count, "zeros", 0, 0, 0);
  if (!strcmp(name, "ones")) return init_set(kind, arg, count, "const", 1, 1, 0);
  if (!strcmp(name, "constant")) return init_set(kind, arg, count, "const", 1, init->a, 0);
  if (!strcmp(name, "uniform") || !strcmp(name, "normal") || !strcmp(name, "trunc_normal"))
    return init_set(kind, arg, count, name, 2, init->a, init->b);
  if (!strcmp(name, "kaiming_uniform"))
    return kaiming(b, init, shape, loc, &std) &&
           init_set(kind, arg, count, "uniform", 2, -sqrt(3) * std, sqrt(3) * std);
  if (!strcmp(name, "kaiming_normal"))
    return kaiming(b, init, shape, loc, &std) && init_set(kind, arg, count, "normal", 2, 0, std);
  if (!strcmp(name, "orthogonal") || !strcmp(name, "identity")) {
    if (shape->rank < 2) return builder_fail(b, loc, "%s needs at least two dimensions", name);
    return name[0] == 'o' ? init_set(kind, arg, count, "orthogonal", 1, init->a, 0)
                          : init_set(kind, arg, count, "identity", 0, 0, 0);
  }
  if (!fans(b, shape, name, loc, &fan)) return false; /* xavier: a is the gain */
  std = fan.in + fan.out > 0 ? init->a * sqrt(2 / (fan.in + fan.out)) : 0;
  if (!strcmp(name, "xavier_uniform"))
    return init_set(kind, arg, count, "uniform", 2, -sqrt(3) * std, sqrt(3) * std);
  return init_set(kind, arg, count, "normal", 2, 0, std);
}

static Value init_make(Builder *b, const char *kind, double x, double y) {
  InitValue *init = ARENA_NEW(b->arena, InitValue);
  *init = (InitValue){kind, x, y, "fan_in", "leaky_relu"};
  return (Value){.kind = VALUE_INIT, .init = init};
}

Value init_named(Builder *b, const char *name) {
  static const struct {
    const char *name;
    double a, b;
  } plain[] = {{"zeros", 0, 0},          {"ones", 0, 0},           {"uniform", 0, 1},
               {"normal", 0, 1},         {"trunc_normal", 0, 1},   {"kaiming_uniform", 0, 0},
               {"kaiming_normal", 0, 0}, {"xavier_uniform", 1, 0}, {"xavier_normal", 1, 0},
               {"orthogonal", 1, 0},     {"identity", 0, 0}};
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    if (strcmp(plain[i].name, name) == 0)
      return init_make(b, plain[i].name, plain[i].a, plain[i].b);
  return value_none();
}

/* ── the constructors ─────────────────────────────────────────────────────────────────────── */
static Value run_constant(Call *call) {
  double x;
  if (!builtin_number(call, 0, 0, &x)) return value_error();
  return init_make(call->b, "constant", x, 0);
}

static Value run_uniform(Call *call) {
  double low, high;
  if (!builtin_number(call, 0, 0, &low) || !builtin_number(call, 1, 1, &high)) return value_error();
  if (!(low <= high)) {
    builder_fail(call->b, call->loc, "uniform(low, high) needs low <= high");
    return value_error();
  }
  return init_make(call->b, "uniform", low, high);
}

/* normal(std) or normal(mean, std); trunc_normal cuts at two standard deviations. */
static Value run_normal(Call *call) {
  double x, y;
  if (!builtin_number(call, 0, 1, &x) || !builtin_number(call, 1, 0, &y)) return value_error();
  bool both = call->arg[1].kind != VALUE_ABSENT; /* normal(std=0.02) too */
  double std = both ? y : x, mean = both && call->arg[0].kind != VALUE_ABSENT ? x : 0;
  if (!(std >= 0)) {
    builder_fail(call->b, call->loc, "a standard deviation cannot be negative: %g", std);
    return value_error();
  }
  return init_make(call->b, call->builtin->name, mean, std);
}

static bool text_argument(Call *call, int index, const char **out) {
  Value *v = &call->arg[index];
  if (v->kind == VALUE_ABSENT) return true;
  if (v->kind != VALUE_STRING)
    return builder_fail(call->b, call->at[index], "expected a string, not %s",
                        value_describe(call->b->arena, v));
  *out = v->s;
  return true;
}

static Value run_kaiming(Call *call) {
  double a;
  InitValue *init = ARENA_NEW(call->b->arena, InitValue);
  *init = (InitValue){call->builtin->name, 0, 0, "fan_in", "leaky_relu"};
  if (!builtin_number(call, 0, 0, &a) || !text_argument(call, 1, &init->mode) ||
      !text_argument(call, 2, &init->nonlinearity))
    return value_error();
  init->a = a;
  return (Value){.kind = VALUE_INIT, .init = init};
}

static Value run_gain(Call *call) {
  double gain;
  if (!builtin_number(call, 0, 1, &gain)) return value_error();
  return init_make(call->b, call->builtin->name, gain, 0);
}

static Value run_identity(Call *call) { return init_make(call->b, "identity", 0, 0); }

const Builtin builtin_init[] = {
    {"constant", "value", run_constant, 0},
    {"uniform", "low= high=", run_uniform, 0},
    {"normal", "mean= std=", run_normal, 0},
    {"trunc_normal", "mean= std=", run_normal, 0},
    {"kaiming_uniform", "a= mode= nonlinearity=", run_kaiming, 0},
    {"kaiming_normal", "a= mode= nonlinearity=", run_kaiming, 0},
    {"xavier_uniform", "gain=", run_gain, 0},
    {"xavier_normal", "gain=", run_gain, 0},
    {"orthogonal", "gain=", run_gain, 0},
    {"identity", "", run_identity, 0},
    {0},
};
