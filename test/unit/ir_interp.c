/* ir_interp: every op of the interpreter against values worked out by hand or by libm. Leaves are
 * named x, y, z and take their values from the test; the last node is what is compared. */
#include "ir_help.h"
#include <float.h>
#include <math.h>

typedef struct {
  const double *x, *y, *z;
} Given;

typedef struct {
  Arena *arena;
  const Given *given;
} Context;

static const Tensor *leaf(const Node *node, void *context) {
  Context *c = context;
  char name = *node_str(node, ATTR_NAME);
  const double *values = name == 'x' ? c->given->x : name == 'y' ? c->given->y : c->given->z;
  if (!values) return NULL;
  Tensor *tensor = tensor_new(c->arena, node->type);
  for (int64_t k = 0; k < shape_elements(&node->type.shape); k++) {
    if (tensor->f)
      tensor->f[k] = values[k];
    else
      tensor->i[k] = (int64_t)values[k];
  }
  return tensor;
}

static const Tensor *evaluate(Arena *arena, const char *lines, const Given *given, bool round) {
  Graph *graph = help_graph(arena, lines);
  Diag diag;
  diag_init(&diag, arena, stderr);
  Context context = {arena, given};
  Tensor **values = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
  assert_true(graph_interpret(graph, arena, leaf, &context, round, values, &diag));
  return values[graph->nodes.count - 1];
}

static double element(const Tensor *tensor, int64_t k) {
  return tensor->f ? tensor->f[k] : (double)tensor->i[k];
}

static void check(const char *lines, const Given *given, bool round, const double *want,
                  int count) {
  Arena *arena = arena_new();
  const Tensor *have = evaluate(arena, lines, given, round);
  if (shape_elements(&have->type.shape) != count)
    fail_msg("%s: %d values, want %d", lines, (int)shape_elements(&have->type.shape), count);
  for (int k = 0; k < count; k++) {
    double value = element(have, k);
    if (isnan(want[k])
            ? isnan(value)
            : value == want[k] || fabs(value - want[k]) <= 4 * DBL_EPSILON * fabs(want[k]))
      continue;
    fail_msg("%s\nelement %d is %.17g, not %.17g", lines, k, value, want[k]);
  }
  arena_free(arena);
}

#define V(...) ((const double[]){__VA_ARGS__})
#define COUNT(...) ((int)(sizeof V(__VA_ARGS__) / sizeof(double)))
#define X(...) (&(Given){.x = V(__VA_ARGS__)})
#define XY(a, b) (&(Given){.x = a, .y = b})
#define XYZ(a, b, c) (&(Given){.x = a, .y = b, .z = c})
#define EXPECT(lines, given, ...) check(lines, given, false, V(__VA_ARGS__), COUNT(__VA_ARGS__))
#define ROUNDED(lines, given, ...) check(lines, given, true, V(__VA_ARGS__), COUNT(__VA_ARGS__))

#define F64X "%x = input {name=\"x\"} : f64"
#define UNARY(op, n) F64X "[" #n "] %r = " op " %x : f64[" #n "]"
#define BINARY(op, t, n, to)                                                                       \
  "%x = input {name=\"x\"} : " t "[" #n "] %y = input {name=\"y\"} : " t "[" #n "] %r = " op       \
  " %x, %y : " to "[" #n "]"

static void unary_floats(void **state) {
  (void)state;
  EXPECT(UNARY("neg", 3), X(1, -2, NAN), -1, 2, NAN);
  EXPECT(UNARY("abs", 3), X(1, -2, NAN), 1, 2, NAN);
  EXPECT(UNARY("sign", 4), X(3, -2, 0, NAN), 1, -1, 0, NAN);
  EXPECT(UNARY("exp", 3), X(0, 1, -1000), 1, 2.7182818284590452, 0);
  EXPECT(UNARY("expm1", 2), X(1e-12, 1), 1.0000000000005e-12, 1.7182818284590452);
  EXPECT(UNARY("log", 4), X(1, 10, 0, -1), 0, 2.3025850929940457, -INFINITY, NAN);
  EXPECT(UNARY("log1p", 2), X(1e-12, -1), 9.999999999995e-13, -INFINITY);
  EXPECT(UNARY("sqrt", 3), X(4, 2, -1), 2, 1.4142135623730951, NAN);
  EXPECT(UNARY("rsqrt", 2), X(4, 0), 0.5, INFINITY);
  EXPECT(UNARY("sin", 2), X(0, 1), 0, 0.8414709848078965);
  EXPECT(UNARY("cos", 2), X(0, 1), 1, 0.54030230586813977);
  EXPECT(UNARY("tanh", 2), X(1, 100), 0.76159415595576485, 1);
  EXPECT(UNARY("sigmoid", 3), X(0, 1, -1000), 0.5, 0.73105857863000490, 0);
  EXPECT(UNARY("erf", 2), X(0.5, -1), 0.52049987781304652, -0.84270079294971489);
  EXPECT(UNARY("floor", 2), X(1.5, -1.5), 1, -2);
  EXPECT(UNARY("ceil", 2), X(1.5, -1.5), 2, -1);
  EXPECT(UNARY("round", 4), X(0.5, 1.5, 2.5, -0.6), 0, 2, 2, -1);
  EXPECT(F64X "[4] %r = isfinite %x : bool[4]", X(1, INFINITY, -INFINITY, NAN), 1, 0, 0, 0);
}

static void binary_floats(void **state) {
  (void)state;
  EXPECT(BINARY("add", "f64", 2, "f64"), XY(V(1, 2), V(3, -4)), 4, -2);
  EXPECT(BINARY("sub", "f64", 2, "f64"), XY(V(1, 2), V(3, -4)), -2, 6);
  EXPECT(BINARY("mul", "f64", 2, "f64"), XY(V(1, 2), V(3, -4)), 3, -8);
  EXPECT(BINARY("div", "f64", 3, "f64"), XY(V(1, 2, 0), V(4, 0, 0)), 0.25, INFINITY, NAN);
  EXPECT(BINARY("pow", "f64", 4, "f64"), XY(V(2, 0, -8, 9), V(10, 0, 1.0 / 3, 0.5)), 1024, 1, NAN,
         3);
  EXPECT(BINARY("max", "f64", 4, "f64"), XY(V(1, 5, NAN, 1), V(2, -1, 1, NAN)), 2, 5, NAN, NAN);
  EXPECT(BINARY("min", "f64", 4, "f64"), XY(V(1, 5, NAN, 1), V(2, -1, 1, NAN)), 1, -1, NAN, NAN);
}

static void comparisons(void **state) {
  (void)state;
  const Given *given = XY(V(1, 2, 3, NAN), V(2, 2, 2, NAN));
  EXPECT(BINARY("eq", "f32", 4, "bool"), given, 0, 1, 0, 0);
  EXPECT(BINARY("ne", "f32", 4, "bool"), given, 1, 0, 1, 1);
  EXPECT(BINARY("lt", "f32", 4, "bool"), given, 1, 0, 0, 0);
  EXPECT(BINARY("le", "f32", 4, "bool"), given, 1, 1, 0, 0);
  EXPECT(BINARY("gt", "f32", 4, "bool"), given, 0, 0, 1, 0);
  EXPECT(BINARY("ge", "f32", 4, "bool"), given, 0, 1, 1, 0);
  EXPECT(BINARY("eq", "i64", 2, "bool"), XY(V(1, 2), V(2, 2)), 0, 1);
  EXPECT(BINARY("lt", "u8", 2, "bool"), XY(V(1, 200), V(2, 2)), 1, 0);
}

static void integers(void **state) {
  (void)state;
  EXPECT(BINARY("add", "u8", 2, "u8"), XY(V(250, 1), V(10, 2)), 4, 3);
  EXPECT(BINARY("sub", "u32", 1, "u32"), XY(V(0), V(1)), 4294967295.0);
  EXPECT(BINARY("mul", "i32", 1, "i32"), XY(V(65536), V(65537)), 65536);
  EXPECT(BINARY("add", "i32", 1, "i32"), XY(V(2147483647), V(1)), -2147483648.0);
  EXPECT(BINARY("div", "i32", 5, "i32"), XY(V(7, -7, 7, -2147483648.0, 0), V(2, 2, 0, -1, 3)), 3,
         -3, 0, -2147483648.0, 0);
  EXPECT(BINARY("rem", "i32", 5, "i32"), XY(V(7, -7, 7, -2147483648.0, 5), V(3, 3, 0, -1, -3)), 1,
         -1, 0, 0, 2);
  EXPECT(BINARY("max", "i64", 2, "i64"), XY(V(1, 5), V(2, -1)), 2, 5);
  EXPECT(BINARY("min", "u32", 2, "u32"), XY(V(1, 5), V(2, 4294967295.0)), 1, 5);
  EXPECT(BINARY("and", "i32", 2, "i32"), XY(V(12, -1), V(10, 7)), 8, 7);
  EXPECT(BINARY("or", "u8", 1, "u8"), XY(V(12), V(10)), 14);
  EXPECT(BINARY("xor", "bool", 4, "bool"), XY(V(0, 0, 1, 1), V(0, 1, 0, 1)), 0, 1, 1, 0);
  EXPECT("%x = input {name=\"x\"} : bool[2] %r = not %x : bool[2]", X(0, 1), 1, 0);
  EXPECT("%x = input {name=\"x\"} : u8[2] %r = not %x : u8[2]", X(0, 1), 255, 254);
  EXPECT("%x = input {name=\"x\"} : u8[2] %r = neg %x : u8[2]", X(0, 1), 0, 255);
  EXPECT("%x = input {name=\"x\"} : i32[3] %r = sign %x : i32[3]", X(-5, 0, 9), -1, 0, 1);
  EXPECT("%x = input {name=\"x\"} : i32[2] %r = abs %x : i32[2]", X(-5, 5), 5, 5);
}

static void casts(void **state) {
  (void)state;
  EXPECT(F64X "[7] %r = cast %x : i32[7]", X(1.9, -1.9, 3e9, -3e9, NAN, INFINITY, 0.5), 1, -1,
         2147483647, -2147483648.0, 0, 2147483647, 0);
  EXPECT(F64X "[4] %r = cast %x : u8[4]", X(255.9, 256, -1, 7), 255, 255, 0, 7);
  EXPECT(F64X "[4] %r = cast %x : bool[4]", X(0, -0.0, 0.25, NAN), 0, 0, 1, 1);
  EXPECT("%x = input {name=\"x\"} : i32[3] %r = cast %x : u8[3]", X(256, -1, 5), 0, 255, 5);
  EXPECT("%x = input {name=\"x\"} : i32[3] %r = cast %x : bool[3]", X(256, -1, 0), 1, 1, 0);
  EXPECT("%x = input {name=\"x\"} : bool[2] %r = cast %x : f32[2]", X(0, 1), 0, 1);
  EXPECT("%x = input {name=\"x\"} : u32[1] %r = cast %x : i32[1]", X(4294967295.0), -1);
}

static void selection(void **state) {
  (void)state;
  EXPECT("%x = input {name=\"x\"} : bool[3] %y = input {name=\"y\"} : f32[3]"
         "%z = input {name=\"z\"} : f32[3] %r = select %x, %y, %z : f32[3]",
         XYZ(V(1, 0, 1), V(1, 2, 3), V(4, 5, NAN)), 1, 5, 3);
  EXPECT("%x = input {name=\"x\"} : bool[2] %y = input {name=\"y\"} : i32[2]"
         "%r = select %x, %y, %y : i32[2]",
         XY(V(1, 0), V(1, 2)), 1, 2);
}

#define REDUCE(op, from, axes, to)                                                                 \
  "%x = input {name=\"x\"} : " from " %r = " op " %x {axes=" axes "} : " to

static void reductions(void **state) {
  (void)state;
  const Given *given = X(1, 2, 3, 4, 5, -6);
  EXPECT(REDUCE("sum", "f32[2,3]", "[1]", "f32[2,1]"), given, 6, 3);
  EXPECT(REDUCE("sum", "f32[2,3]", "[0]", "f32[1,3]"), given, 5, 7, -3);
  EXPECT(REDUCE("sum", "f32[2,3]", "[0,1]", "f32[1,1]"), given, 9);
  EXPECT(REDUCE("sum", "f32[2,3]", "[]", "f32[2,3]"), given, 1, 2, 3, 4, 5, -6);
  EXPECT(REDUCE("sum", "f32[1,2,3]", "[0,2]", "f32[1,2,1]"), given, 6, 3);
  EXPECT(REDUCE("prod", "f32[2,3]", "[1]", "f32[2,1]"), given, 6, -120);
  EXPECT(REDUCE("rmax", "f32[2,3]", "[1]", "f32[2,1]"), given, 3, 5);
  EXPECT(REDUCE("rmin", "f32[2,3]", "[0]", "f32[1,3]"), given, 1, 2, -6);
  EXPECT(REDUCE("rmax", "f32[4]", "[0]", "f32[1]"), X(1, NAN, 3, 2), NAN);
  EXPECT(REDUCE("rmin", "f32[4]", "[0]", "f32[1]"), X(1, NAN, 3, 2), NAN);
  EXPECT(REDUCE("sum", "u8[3]", "[0]", "u8[1]"), X(200, 50, 10), 4);
  EXPECT(REDUCE("rmax", "i32[3]", "[0]", "i32[1]"), X(-3, -2, -9), -2);
  EXPECT(REDUCE("argmax", "f32[2,3]", "[1]", "i32[2,1]"), given, 2, 1);
  EXPECT(REDUCE("argmin", "f32[2,3]", "[1]", "i32[2,1]"), given, 0, 2);
  EXPECT(REDUCE("argmax", "f32[2,3]", "[0]", "i32[1,3]"), given, 1, 1, 0);
  EXPECT(REDUCE("mean", "f32[2,3]", "[0]", "f32[1,3]"), given, 2.5, 3.5, -1.5);
  EXPECT(REDUCE("spread", "f32[2,3]", "[0]", "f32[1,3]"), given, 4.5, 4.5, 40.5);
  EXPECT(REDUCE("spread", "f32[2]", "[0]", "f32[1]"), X(1, NAN), NAN);
  EXPECT(REDUCE("argmax", "f32[4]", "[0]", "i32[1]"), X(1, 7, 7, 2), 1); /* the first of equals */
  EXPECT(REDUCE("argmax", "u8[4]", "[0]", "i32[1]"), X(3, 9, 9, 2), 1);
  EXPECT(REDUCE("argmin", "i32[4]", "[0]", "i32[1]"), X(7, 1, 1, 2), 1);
  EXPECT(REDUCE("argmax", "f32[4]", "[0]", "i32[1]"), X(9, NAN, INFINITY, NAN), 1);
  EXPECT(REDUCE("argmin", "f32[4]", "[0]", "i32[1]"), X(9, NAN, -INFINITY, NAN), 1);
}

static void empty_reductions(void **state) {
  (void)state;
  const Given *none = X(0);
  EXPECT(REDUCE("sum", "f32[2,0]", "[1]", "f32[2,1]"), none, 0, 0);
  EXPECT(REDUCE("prod", "f32[0]", "[0]", "f32[1]"), none, 1);
  EXPECT(REDUCE("rmax", "f32[0,1]", "[0]", "f32[1,1]"), none, -INFINITY);
  EXPECT(REDUCE("rmin", "f32[0]", "[0]", "f32[1]"), none, INFINITY);
  EXPECT(REDUCE("rmax", "i32[0]", "[0]", "i32[1]"), none, -2147483648.0);
  EXPECT(REDUCE("rmin", "u8[0]", "[0]", "u8[1]"), none, 255);
}

#define DOT(a, b, flags, to)                                                                       \
  "%x = input {name=\"x\"} : " a " %y = input {name=\"y\"} : " b " %r = dot %x, %y {" flags        \
  "} : " to

static void products(void **state) {
  (void)state;
  EXPECT(DOT("f32[2,3]", "f32[3,2]", "", "f32[2,2]"),
         XY(V(1, 2, 3, 4, 5, 6), V(7, 8, 9, 10, 11, 12)), 58, 64, 139, 154);
  EXPECT(DOT("f32[3,2]", "f32[3,2]", "ta=true", "f32[2,2]"),
         XY(V(1, 4, 2, 5, 3, 6), V(7, 8, 9, 10, 11, 12)), 58, 64, 139, 154);
  EXPECT(DOT("f32[2,3]", "f32[2,3]", "tb=true", "f32[2,2]"),
         XY(V(1, 2, 3, 4, 5, 6), V(7, 9, 11, 8, 10, 12)), 58, 64, 139, 154);
  EXPECT(DOT("f32[3,2]", "f32[2,3]", "ta=true, tb=true", "f32[2,2]"),
         XY(V(1, 4, 2, 5, 3, 6), V(7, 9, 11, 8, 10, 12)), 58, 64, 139, 154);
  EXPECT(DOT("f32[2,1,2]", "f32[2,2,1]", "", "f32[2,1,1]"), XY(V(1, 2, 3, 4), V(5, 6, 7, 8)), 17,
         53);
  EXPECT(DOT("f32[2,2,2]", "f32[2,2,1]", "", "f32[2,2,1]"),
         XY(V(1, 2, 3, 4, 5, 6, 7, 8), V(1, 10, 100, 1000)), 21, 43, 6500, 8700);
  EXPECT(DOT("f32[2,0]", "f32[0,1]", "", "f32[2,1]"), XY(V(0), V(0)), 0, 0);
}

#define CONV(op, a, b, attrs, to)                                                                  \
  "%x = input {name=\"x\"} : " a " %y = input {name=\"y\"} : " b " %r = " op " %x, %y {" attrs     \
  "} : " to

static void convolutions(void **state) {
  (void)state;
  const double image[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, kernel[] = {1, 2, 3, 4};
  const Given *given = XY(image, kernel);
  EXPECT(CONV("conv", "f32[1,1,3,3]", "f32[1,1,2,2]", "", "f32[1,1,2,2]"), given, 37, 47, 67, 77);
  EXPECT(CONV("conv", "f32[1,1,3,3]", "f32[1,1,2,2]", "stride=[2,2], padding=[1,1,0,0]",
              "f32[1,1,2,2]"),
         given, 4, 3 * 2 + 4 * 3, 2 * 4 + 4 * 7, 77);
  EXPECT(CONV("conv", "f32[1,1,3,3]", "f32[1,1,2,2]", "dilation=[2,2]", "f32[1,1,1,1]"), given,
         1 + 2 * 3 + 3 * 7 + 4 * 9);
  /* two channels in, two out, in two groups: each output sees its own channel */
  EXPECT(CONV("conv", "f32[1,2,1,2]", "f32[2,1,1,1]", "groups=2", "f32[1,2,1,2]"),
         XY(V(1, 2, 3, 4), V(10, 100)), 10, 20, 300, 400);
  EXPECT(CONV("conv", "f32[1,2,1,2]", "f32[1,2,1,1]", "", "f32[1,1,1,2]"),
         XY(V(1, 2, 3, 4), V(10, 100)), 310, 420);
  EXPECT(CONV("conv", "f32[1,1,2,2]", "f32[2,1,1,2]", "layout=\"nhwc\"", "f32[1,1,2,2]"),
         XY(V(1, 2, 3, 4), V(1, 10, 100, 1000)), 21, 2100, 43, 4300);
}

static void convolution_gradients(void **state) {
  (void)state;
  EXPECT(CONV("conv_grad_input", "f32[1,1,2,2]", "f32[1,1,2,2]", "", "f32[1,1,3,3]"),
         XY(V(1, 10, 100, 1000), V(1, 2, 3, 4)), 1, 12, 20, 103, 1234, 2040, 300, 3400, 4000);
  EXPECT(CONV("conv_grad_weight", "f32[1,1,2,2]", "f32[1,1,3,3]", "", "f32[1,1,2,2]"),
         XY(V(1, 10, 100, 1000), V(1, 2, 3, 4, 5, 6, 7, 8, 9)), 5421, 6532, 8754, 9865);
}

/* <dy, conv(x, w)> is linear in x and in w, so it equals <conv_grad_input(dy, w), x> and
 * <conv_grad_weight(dy, x), w>: holds the gradients to conv for every attribute at once. */
static void convolution_adjoint(void **state) {
  (void)state;
  static const struct {
    const char *x, *w, *y, *attrs;
  } cases[] = {
      {"f64[2,4,5,6]", "f64[6,2,3,2]", "f64[2,6,5,3]",
       "stride=[1,2], padding=[1,0,1,1], dilation=[1,2], groups=2"},
      {"f64[2,5,6,4]", "f64[6,3,2,2]", "f64[2,5,3,6]",
       "stride=[1,2], padding=[1,0,1,1], dilation=[1,2], groups=2, layout=\"nhwc\""},
      {"f64[1,1,7,1]", "f64[3,1,3,1]", "f64[1,3,2,1]", "stride=[3,1], padding=[0,0,1,0]"},
  };
  double values[3][400];
  for (int k = 0; k < 400; k++) {
    values[0][k] = sin(k * 1.3);
    values[1][k] = cos(k * 0.7);
    values[2][k] = sin(k * 2.1 + 1);
  }
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Arena *arena = arena_new();
    const char *x = cases[i].x, *w = cases[i].w, *y = cases[i].y, *attrs = cases[i].attrs;
    const char *leaves = arena_printf(arena,
                                      "%%x = input {name=\"x\"} : %s %%w = input {name=\"y\"} : %s"
                                      "%%d = input {name=\"z\"} : %s ",
                                      x, w, y);
    const Given given = {values[0], values[1], values[2]};
    const Tensor *forward =
        evaluate(arena, arena_printf(arena, "%s %%r = conv %%x, %%w {%s} : %s", leaves, attrs, y),
                 &given, 0);
    const Tensor *dx = evaluate(
        arena, arena_printf(arena, "%s %%r = conv_grad_input %%d, %%w {%s} : %s", leaves, attrs, x),
        &given, 0);
    const Tensor *dw = evaluate(
        arena,
        arena_printf(arena, "%s %%r = conv_grad_weight %%d, %%x {%s} : %s", leaves, attrs, w),
        &given, 0);
    double sum[3] = {0};
    for (int64_t k = 0; k < shape_elements(&forward->type.shape); k++)
      sum[0] += forward->f[k] * values[2][k];
    for (int64_t k = 0; k < shape_elements(&dx->type.shape); k++) sum[1] += dx->f[k] * values[0][k];
    for (int64_t k = 0; k < shape_elements(&dw->type.shape); k++) sum[2] += dw->f[k] * values[1][k];
    assert_true(fabs(sum[0]) > 1e-3);
    assert_true(fabs(sum[1] - sum[0]) < 1e-12 * fabs(sum[0]) + 1e-12);
    assert_true(fabs(sum[2] - sum[0]) < 1e-12 * fabs(sum[0]) + 1e-12);
    arena_free(arena);
  }
}

/* The layouts agree: a transposed image convolved with a transposed weight, or pooled, in nhwc is
 * the transposed result. */
static void layouts(void **state) {
  (void)state;
  double values[2][200];
  for (int k = 0; k < 200; k++) {
    values[0][k] = sin(k * 1.3);
    values[1][k] = cos(k * 0.7);
  }
  static const char *const ops[][2] = {
      {"conv %a, %v {stride=[1,2], padding=[1,0,0,1]", "f64[2,3,4,2] : f64[2,4,2,3]"},
      {"pool_max %a {kernel=[2,1], stride=[1,2]", "f64[2,2,3,3] : f64[2,3,3,2]"},
      {"pool_avg %a {kernel=[2,1], stride=[1,2], padding=[1,0,0,0]", "f64[2,2,4,3] : f64[2,4,3,2]"},
  };
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    Arena *arena = arena_new();
    const Given given = {values[0], values[1], NULL};
    const char *split = strstr(ops[i][1], " : ");
    const char *lines = "%x = input {name=\"x\"} : f64[2,2,4,5] %w = input {name=\"y\"} : "
                        "f64[3,2,2,3] ";
    const char *plain = arena_printf(arena,
                                     "%s %%a = reshape %%x : f64[2,2,4,5] "
                                     "%%v = reshape %%w : f64[3,2,2,3] %%y = %s} : %.*s",
                                     lines, ops[i][0], (int)(split - ops[i][1]), ops[i][1]);
    const Tensor *want = evaluate(
        arena, arena_printf(arena, "%s %%r = transpose %%y {perm=[0,2,3,1]} %s", plain, split),
        &given, false);
    const Tensor *have =
        evaluate(arena,
                 arena_printf(arena,
                              "%s %%a = transpose %%x {perm=[0,2,3,1]} : f64[2,4,5,2]"
                              "%%v = transpose %%w {perm=[0,2,3,1]} : f64[3,2,3,2]"
                              "%%y = %s, layout=\"nhwc\"} %s",
                              lines, ops[i][0], split),
                 &given, false);
    assert_true(type_equal(&want->type, &have->type));
    for (int64_t k = 0; k < shape_elements(&want->type.shape); k++)
      assert_true(fabs(want->f[k] - have->f[k]) < 1e-14);
    arena_free(arena);
  }
}

#define IMAGE "%x = input {name=\"x\"} : f32[1,1,3,3] "

static void pooling(void **state) {
  (void)state;
  const Given *given = X(1, 2, 3, 4, 9, 6, 7, 8, 5);
  EXPECT(IMAGE "%r = pool_max %x {kernel=[2,2], stride=[1,1]} : f32[1,1,2,2]", given, 9, 9, 9, 9);
  EXPECT(IMAGE "%r = pool_index %x {kernel=[2,2], stride=[1,1]} : u8[1,1,2,2]", given, 3, 2, 1, 0);
  EXPECT(IMAGE "%r = pool_max %x {kernel=[2,2], padding=[1,1,0,0]} : f32[1,1,2,2]", given, 1, 3, 7,
         9);
  EXPECT(IMAGE "%r = pool_index %x {kernel=[2,2], padding=[1,1,0,0]} : u8[1,1,2,2]", given, 3, 3, 3,
         0);
  EXPECT(IMAGE "%r = pool_max %x {kernel=[1,3]} : f32[1,1,3,1]", X(1, NAN, 3, -4, -9, -6, 7, 8, 8),
         NAN, -4, 8);
  EXPECT(IMAGE "%r = pool_index %x {kernel=[1,3]} : u8[1,1,3,1]", X(1, NAN, 3, -4, -9, -6, 7, 8, 8),
         1, 0, 1);
  EXPECT(IMAGE "%r = pool_avg %x {kernel=[2,2], stride=[1,1]} : f32[1,1,2,2]", given, 4, 5, 7, 7);
  EXPECT(IMAGE "%r = pool_avg %x {kernel=[2,2], padding=[1,1,0,0]} : f32[1,1,2,2]", given, 1, 2.5,
         5.5, 7);
  EXPECT(IMAGE "%r = pool_avg %x {kernel=[2,2], padding=[1,1,0,0], count_pad=true} : f32[1,1,2,2]",
         given, 0.25, 1.25, 2.75, 7);
  EXPECT(
      "%x = input {name=\"x\"} : f32[1,1,2,2] %r = pool_avg %x {kernel=[1,2], layout=\"nhwc\"} : "
      "f32[1,1,1,2]",
      X(1, 2, 3, 4), 2, 3);
}

static void pooling_gradients(void **state) {
  (void)state;
  EXPECT("%x = input {name=\"x\"} : f32[1,1,2,2] %y = input {name=\"y\"} : u8[1,1,2,2]"
         "%r = pool_max_grad %x, %y {kernel=[2,2], stride=[1,1]} : f32[1,1,3,3]",
         XY(V(1, 10, 100, 1000), V(3, 2, 1, 2)), 0, 0, 0, 0, 111, 0, 0, 1000, 0);
  EXPECT("%x = input {name=\"x\"} : f32[1,1,2,2]"
         "%r = pool_avg_grad %x {kernel=[2,2], stride=[1,1]} : f32[1,1,3,3]",
         X(4, 40, 400, 4000), 1, 11, 10, 101, 1111, 1010, 100, 1100, 1000);
  EXPECT("%x = input {name=\"x\"} : f32[1,1,2,2]"
         "%r = pool_avg_grad %x {kernel=[2,2], padding=[1,1,0,0]} : f32[1,1,3,3]",
         X(1, 2, 4, 8), 1, 1, 1, 2, 2, 2, 2, 2, 2);
}

static void movement(void **state) {
  (void)state;
  const Given *given = X(1, 2, 3, 4, 5, 6);
  EXPECT(F64X "[2,3] %r = reshape %x : f64[3,2]", given, 1, 2, 3, 4, 5, 6);
  EXPECT(F64X "[2,3] %r = transpose %x {perm=[1,0]} : f64[3,2]", given, 1, 4, 2, 5, 3, 6);
  EXPECT(F64X "[1,2,3] %r = transpose %x {perm=[2,0,1]} : f64[3,1,2]", given, 1, 4, 2, 5, 3, 6);
  EXPECT(F64X "[2,1] %r = broadcast %x : f64[2,3]", given, 1, 1, 1, 2, 2, 2);
  EXPECT(F64X "[1,3] %r = broadcast %x : f64[2,3]", given, 1, 2, 3, 1, 2, 3);
  EXPECT(F64X "[2,3] %r = slice %x {start=[0,1]} : f64[2,2]", given, 2, 3, 5, 6);
  EXPECT(F64X "[6] %r = slice %x {start=[1], step=[2]} : f64[3]", given, 2, 4, 6);
  EXPECT(F64X "[2] %r = pad %x {low=[1], high=[2], value=9} : f64[5]", given, 9, 1, 2, 9, 9);
  EXPECT("%x = input {name=\"x\"} : i32[1,2] %r = pad %x {low=[1,0], high=[0,1]} : i32[2,3]", given,
         0, 0, 0, 1, 2, 0);
  EXPECT(F64X "[2,1] %y = input {name=\"y\"} : f64[2,2] %r = concat %x, %y, %x {axis=1} : f64[2,4]",
         XY(V(1, 2), V(3, 4, 5, 6)), 1, 3, 4, 1, 2, 5, 6, 2);
  EXPECT(F64X "[0,2] %y = input {name=\"y\"} : f64[1,2] %r = concat %x, %y {axis=0} : f64[1,2]",
         XY(V(0), V(3, 4)), 3, 4);
}

static void lookup(void **state) {
  (void)state;
  EXPECT(F64X "[3,2] %y = input {name=\"y\"} : i32[2,2] %r = gather %x, %y : f64[2,2,2]",
         XY(V(1, 2, 3, 4, 5, 6), V(2, 0, -1, 3)), 5, 6, 1, 2, 0, 0, 0, 0);
  EXPECT(F64X "[3] %y = input {name=\"y\"} : i64[] %r = gather %x, %y : f64[]",
         XY(V(1, 2, 3), V(1)), 2);
  EXPECT(F64X "[4,2] %y = input {name=\"y\"} : i32[4] %r = scatter_add %x, %y : f64[3,2]",
         XY(V(1, 2, 3, 4, 5, 6, 7, 8), V(2, 0, 2, 3)), 3, 4, 0, 0, 6, 8);
}

#define PUT(at)                                                                                    \
  "%x = input {name=\"x\"} : f64[2,3,2] %y = input {name=\"y\"} : f64[2,2,2] %z = const "          \
  "{value=" at "} : i64[] %r = put %x, %y, %z {axis=1} : f64[2,3,2]"

static void puts_at(void **state) {
  (void)state;
#define BASE V(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
#define PART V(-1, -2, -3, -4, -5, -6, -7, -8)
  EXPECT(PUT("1"), XY(BASE, PART), 1, 2, -1, -2, -3, -4, 7, 8, -5, -6, -7, -8);
  EXPECT(PUT("2"), XY(BASE, PART), 1, 2, 3, 4, -1, -2, 7, 8, 9, 10, -5, -6);
  EXPECT(PUT("-1"), XY(BASE, PART), -3, -4, 3, 4, 5, 6, -7, -8, 9, 10, 11, 12);
  EXPECT(PUT("3"), XY(BASE, PART), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
  EXPECT(PUT("-9007199254740992"), XY(BASE, PART), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
}

static void leaves_and_structure(void **state) {
  (void)state;
  EXPECT("%r = const {value=2.5} : f32[2]", X(0), 2.5, 2.5);
  EXPECT("%r = const {value=1} : bool[1]", X(0), 1);
  EXPECT("%r = iota {axis=1} : i64[2,3]", X(0), 0, 1, 2, 0, 1, 2);
  EXPECT("%r = iota {axis=0} : i32[2,1]", X(0), 0, 1);
  EXPECT("%x = param {name=\"x\"} : f32[2] %r = stop_gradient %x : f32[2]", X(1, 2), 1, 2);
  EXPECT("%x = state {name=\"x\"} : i32[1] %r = assign %x {target=\"x\"} : i32[1]", X(7), 7);
  EXPECT("%x = setting {name=\"x\"} : f64[] %r = neg %x : f64[]", X(7), -7);
  EXPECT(F64X "[2] %y = input {name=\"y\"} : f64[1,1] %r = pack %x, %y {offsets=[1,4]} : f64[6]",
         XY(V(1, 2), V(3)), 0, 1, 2, 0, 3, 0);
  EXPECT("%x = input {name=\"x\"} : f32[2,2] %y = input {name=\"y\"} : f32[]"
         "%f = fused %x, %y {kind=\"row\", axes=[1]} body {"
         "  %a = arg {index=0} : f32[2,2] %b = arg {index=1} : f32[]"
         "  %s = sum %a {axes=[1]} : f32[2,1] %c = reshape %b : f32[1,1]"
         "  %d = broadcast %c : f32[2,1] %e = mul %s, %d : f32[2,1]"
         "  result %s result %e } : f32[2,1]"
         "%r0 = result %f {index=0} : f32[2,1] %r1 = result %f {index=1} : f32[2,1]"
         "%r = concat %r0, %r1, %f {axis=1} : f32[2,3]",
         XY(V(1, 2, 3, 4), V(10)), 3, 30, 3, 7, 70, 7);
}

/* The known answers of Random123's kat_vectors for philox4x32-10: counter and key all zero, and
 * all ones. Here counter = (block, 0, step, stream), so the second is out of reach but for the key.
 */
static void random_numbers(void **state) {
  (void)state;
  const char *lines = "%x = input {name=\"x\"} : i64[] %y = input {name=\"y\"} : i64[]"
                      "%r = random %x, %y {stream=0} : f32[4]";
  EXPECT(lines, XY(V(0), V(0)), (0x6627e8d5u >> 8) * 0x1p-24, (0xe169c58du >> 8) * 0x1p-24,
         (0xbc57ac4cu >> 8) * 0x1p-24, (0x9b00dbd8u >> 8) * 0x1p-24);
  Arena *arena = arena_new();
  const char *large = "%x = input {name=\"x\"} : i64[] %y = input {name=\"y\"} : i64[]"
                      "%r = random %x, %y {stream=5} : f32[10000]";
  const Tensor *a = evaluate(arena, large, XY(V(42), V(1)), true);
  const Tensor *b = evaluate(arena, large, XY(V(42), V(2)), true);
  double sum = 0, square = 0;
  int equal = 0;
  for (int k = 0; k < 10000; k++) {
    assert_true(a->f[k] >= 0 && a->f[k] < 1);
    assert_true(a->f[k] == (float)a->f[k]);
    sum += a->f[k];
    square += a->f[k] * a->f[k];
    equal += a->f[k] == b->f[k];
  }
  assert_true(fabs(sum / 10000 - 0.5) < 0.015);
  assert_true(fabs(square / 10000 - 1.0 / 3) < 0.015);
  assert_true(equal < 5);
  arena_free(arena);
}

static void rounding(void **state) {
  (void)state;
  ROUNDED("%x = input {name=\"x\"} : f32[3] %r = neg %x : f32[3]", X(0.1, 1e39, 1e-46),
          -(double)0.1f, -INFINITY, 0);
  ROUNDED("%x = input {name=\"x\"} : f16[6] %r = neg %x : f16[6]",
          X(0.1, 2049, 65519, 65520, 0x1p-24, 0x1p-26), -0.0999755859375, -2048, -65504, -INFINITY,
          -0x1p-24, 0);
  ROUNDED("%x = input {name=\"x\"} : bf16[4] %r = neg %x : bf16[4]", X(0.1, 257, 259, NAN),
          -0.10009765625, -256, -260, NAN);
  /* f32 is not rounded unless that is asked for; narrow types, whose casts are there to round, are
   */
  EXPECT("%x = input {name=\"x\"} : f32[1] %r = neg %x : f32[1]", X(0.1), -0.1);
  EXPECT("%x = input {name=\"x\"} : f16[1] %r = neg %x : f16[1]", X(0.1), -0.0999755859375);
  EXPECT("%x = input {name=\"x\"} : f32[2] %c = cast %x : bf16[2] %r = cast %c : f32[2]",
         X(0.1, 257), 0.10009765625, 256);
}

static void errors(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"%x = input {name=\"x\"} : f32[]", "no value was given for 'x'"},
      {"%x = const {value=1} : f32[1048576,1024]", "too large for the interpreter"},
      {"%a = arg {index=0} : f32[]", "outside of a body"},
      {"%f = fused {kind=\"loop\"} body { %a = arg {index=0} : f32[] result %a } : f32[]",
       "has no such operand"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Arena *arena = arena_new();
    Graph *graph = help_graph(arena, cases[i][0]);
    char *message;
    size_t size;
    FILE *out = open_memstream(&message, &size);
    Diag diag;
    diag_init(&diag, arena, out);
    Tensor *values[4];
    Context context = {arena, &(Given){0}};
    assert_false(graph_interpret(graph, arena, leaf, &context, false, values, &diag));
    fclose(out);
    if (!strstr(message, cases[i][1])) fail_msg("%s: %s", cases[i][0], message);
    free(message);
    arena_free(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unary_floats),
      cmocka_unit_test(binary_floats),
      cmocka_unit_test(comparisons),
      cmocka_unit_test(integers),
      cmocka_unit_test(casts),
      cmocka_unit_test(selection),
      cmocka_unit_test(reductions),
      cmocka_unit_test(empty_reductions),
      cmocka_unit_test(products),
      cmocka_unit_test(convolutions),
      cmocka_unit_test(convolution_gradients),
      cmocka_unit_test(convolution_adjoint),
      cmocka_unit_test(layouts),
      cmocka_unit_test(pooling),
      cmocka_unit_test(pooling_gradients),
      cmocka_unit_test(movement),
      cmocka_unit_test(lookup),
      cmocka_unit_test(puts_at),
      cmocka_unit_test(leaves_and_structure),
      cmocka_unit_test(random_numbers),
      cmocka_unit_test(rounding),
      cmocka_unit_test(errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
