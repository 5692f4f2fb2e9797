/* Every gradient rule against central differences of the interpreter, in double. A case is a few
 * lines of graph text: params are differentiated, %y is the result; the loss is the sum of %y times
 * fixed weights, so that every element of the gradient is told apart. Pointwise ops get their cases
 * from ops.def over several shapes. Where a function has a kink, the expected values are written
 * out. The last test fails if an op that has a gradient occurs in no case; those of several ranks
 * have theirs in passes_gradients_ranks.c. */
#include "gradients_help.h"

/* ── pointwise: from the table ──────────────────────────────────────────────────────────────── */
static const char *const shapes[] = {"[]", "[1]", "[5]", "[3,1]", "[7,3]", "[2,3,5]", "[0,3]"};
enum { SHAPE_COUNT = sizeof shapes / sizeof shapes[0] };

/* Where the op is smooth, if not on all of [-1, 1]. */
static void domain(Op op, double *low, double *high) {
  *low = -1, *high = 1;
  if (op == OP_LOG || op == OP_SQRT || op == OP_RSQRT || op == OP_DIV || op == OP_POW)
    *low = 0.3, *high = 2;
  if (op == OP_LOG1P) *low = -0.6;
  if (op == OP_FLOOR || op == OP_CEIL) *low = 0.1, *high = 0.9;
  if (op == OP_ROUND) *low = -0.4, *high = 0.4;
  if (op == OP_ROUND_E4M3 || op == OP_ROUND_E5M2) *low = 0.98, *high = 1.05;
}

static void pointwise(void **state) {
  (void)state;
  char body[512];
  for (int op = 0; op < OP_COUNT; op++) {
    if (op_info[op].op_class != CLASS_POINTWISE || !gradient_rule[op] || op == OP_SELECT) continue;
    double low, high;
    domain((Op)op, &low, &high);
    for (int i = 0; i < SHAPE_COUNT; i++) {
      const char *s = shapes[i], *text = op_info[op].text;
      if (op_info[op].max_inputs == 1)
        snprintf(body, sizeof body, "%%x = param {name=\"x\"} : f32%s\n%%y = %s %%x : f32%s", s,
                 text, s);
      else
        snprintf(body, sizeof body,
                 "%%x = param {name=\"x\"} : f32%s\n%%z = param {name=\"z\"} : f32%s\n"
                 "%%y = %s %%x, %%z : f32%s",
                 s, s, text, s);
      check_between(body, low, high);
      if (op_info[op].max_inputs == 2) { /* both inputs the same node */
        snprintf(body, sizeof body, "%%x = param {name=\"x\"} : f32%s\n%%y = %s %%x, %%x : f32%s",
                 s, text, s);
        if (op != OP_MAX && op != OP_MIN) check_between(body, low, high);
      }
    }
  }
}

static void casts(void **state) {
  (void)state;
  check("%x = param {name=\"x\"} : f32[5]\n%d = cast %x : f64[5]\n%e = mul %d, %d : f64[5]\n"
        "%y = cast %e : f32[5]");
  /* through an integer nothing flows */
  check_between("%x = param {name=\"x\"} : f32[5]\n%i = cast %x : i32[5]\n%y = cast %i : f32[5]",
                0.1, 0.9);
}

static void selects(void **state) {
  (void)state;
  check("%x = param {name=\"x\"} : f32[7,3]\n%z = param {name=\"z\"} : f32[7,3]\n"
        "%c = gt %x, %z : bool[7,3]\n%xx = mul %x, %x : f32[7,3]\n"
        "%y = select %c, %xx, %z : f32[7,3]");
  check(
      "%x = param {name=\"x\"} : f32[9]\n%z = const {value=0} : f32[9]\n%c = le %x, %z : bool[9]\n"
      "%y = select %c, %z, %x : f32[9]");
  check(
      "%x = param {name=\"x\"} : f32[9]\n%z = const {value=0} : f32[9]\n%c = gt %x, %z : bool[9]\n"
      "%y = select %c, %x, %z : f32[9]");
}

/* The mask of a leaky relu may be taken from its result only if the slope is positive. */
static void leaky(void **state) {
  (void)state;
  char body[400];
  static const char *const slopes[] = {"0.25", "-0.25"};
  for (int i = 0; i < 2; i++) {
    snprintf(body, sizeof body,
             "%%x = param {name=\"x\"} : f32[9]\n%%z = const {value=0} : f32[9]\n"
             "%%k = const {value=%s} : f32[9]\n%%s = mul %%x, %%k : f32[9]\n"
             "%%c = le %%x, %%z : bool[9]\n%%y = select %%c, %%s, %%x : f32[9]",
             slopes[i]);
    check(body);
  }
}

/* ── reductions ─────────────────────────────────────────────────────────────────────────────── */
static void reductions(void **state) {
  (void)state;
  static const struct {
    const char *in, *out, *axes;
  } form[] = {
      {"[5]", "[1]", "[0]"},         {"[1]", "[1]", "[0]"},         {"[4,3]", "[4,1]", "[1]"},
      {"[4,3]", "[1,3]", "[0]"},     {"[4,3]", "[1,1]", "[0,1]"},   {"[2,3,4]", "[1,3,1]", "[0,2]"},
      {"[2,3,4]", "[2,1,4]", "[1]"}, {"[2,1,4]", "[2,1,4]", "[1]"}, {"[0,3]", "[0,1]", "[1]"},
  };
  static const char *const ops[] = {"sum", "prod", "rmax", "rmin"};
  char body[256];
  for (size_t op = 0; op < 4; op++)
    for (size_t i = 0; i < sizeof form / sizeof form[0]; i++) {
      snprintf(body, sizeof body,
               "%%x = param {name=\"x\"} : f32%s\n%%y = %s %%x {axes=%s} : f32%s", form[i].in,
               ops[op], form[i].axes, form[i].out);
      check(body);
    }
}

/* A product is a polynomial: differences are right with zeros in it as well. */
static void product_with_zeros(void **state) {
  (void)state;
  const char *body = "%x = param {name=\"x\"} : f32[4,5]\n%y = prod %x {axes=[1]} : f32[4,1]";
  Case c;
  case_begin(&c, body, 0.5, 1.5);
  double *x = c.value[0]->f;
  x[5 + 2] = 0;                           /* row 1: one zero */
  x[10] = x[13] = 0;                      /* row 2: two */
  for (int i = 15; i < 20; i++) x[i] = 0; /* row 3: all */
  check_leaf(&c, 0, body);
  arena_free(c.arena);
}

/* ── contractions and pooling ───────────────────────────────────────────────────────────────── */
static void dots(void **state) {
  (void)state;
  static const int64_t sizes[][4] = {{0, 2, 3, 5}, {0, 1, 1, 1}, {3, 2, 1, 4}, {2, 1, 5, 3}};
  char body[512], batch[16];
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (int t = 0; t < 4; t++) {
      int ta = t & 1, tb = t >> 1;
      int m = (int)sizes[i][1], k = (int)sizes[i][2], n = (int)sizes[i][3];
      batch[0] = 0;
      if (sizes[i][0]) snprintf(batch, sizeof batch, "%d,", (int)sizes[i][0]);
      snprintf(body, sizeof body,
               "%%a = param {name=\"a\"} : f32[%s%d,%d]\n%%b = param {name=\"b\"} : f32[%s%d,%d]\n"
               "%%y = dot %%a, %%b {ta=%s, tb=%s} : f32[%s%d,%d]",
               batch, ta ? k : m, ta ? m : k, batch, tb ? n : k, tb ? k : n, ta ? "true" : "false",
               tb ? "true" : "false", batch, m, n);
      check(body);
    }
}

static void convolutions(void **state) {
  (void)state;
  check("%x = param {name=\"x\"} : f32[2,3,5,5]\n%w = param {name=\"w\"} : f32[4,3,3,3]\n"
        "%y = conv %x, %w {padding=[1,1,1,1]} : f32[2,4,5,5]");
  check("%x = param {name=\"x\"} : f32[1,1,1,1]\n%w = param {name=\"w\"} : f32[1,1,1,1]\n"
        "%y = conv %x, %w : f32[1,1,1,1]");
  check("%x = param {name=\"x\"} : f32[2,4,7,6]\n%w = param {name=\"w\"} : f32[6,2,3,2]\n"
        "%y = conv %x, %w {stride=[2,1], padding=[1,0,2,1], dilation=[1,2], groups=2}"
        " : f32[2,6,4,5]");
  check("%x = param {name=\"x\"} : f32[2,5,5,3]\n%w = param {name=\"w\"} : f32[4,3,2,3]\n"
        "%y = conv %x, %w {stride=[2,2], padding=[1,1,1,1], layout=\"nhwc\"} : f32[2,3,3,4]");
  check("%x = param {name=\"x\"} : f32[2,6,5,4]\n%w = param {name=\"w\"} : f32[6,2,3,2]\n"
        "%y = conv %x, %w {stride=[1,2], padding=[1,1,1,1], dilation=[2,1], groups=2,"
        " layout=\"nhwc\"} : f32[2,6,3,6]");
}

static void transposed_convolutions(void **state) {
  (void)state;
  check("%y = param {name=\"y\"} : f32[2,4,3,3]\n%w = param {name=\"w\"} : f32[4,3,3,3]\n"
        "%x = conv_grad_input %y, %w {stride=[2,2], padding=[1,1,1,1]} : f32[2,3,5,6]");
  check("%y = param {name=\"y\"} : f32[2,6,4,5]\n%w = param {name=\"w\"} : f32[6,2,3,2]\n"
        "%x = conv_grad_input %y, %w {stride=[2,1], padding=[1,0,2,1], dilation=[1,2], groups=2}"
        " : f32[2,4,7,6]");
  check("%y = param {name=\"y\"} : f32[2,3,3,4]\n%w = param {name=\"w\"} : f32[4,3,2,3]\n"
        "%x = conv_grad_input %y, %w {stride=[2,2], padding=[1,1,1,1], layout=\"nhwc\"}"
        " : f32[2,5,5,3]");
}

static void pooling(void **state) {
  (void)state;
  static const char *const ops[] = {"pool_max", "pool_avg"};
  char body[512];
  for (size_t i = 0; i < 2; i++) {
    const char *op = ops[i];
    snprintf(body, sizeof body,
             "%%x = param {name=\"x\"} : f32[2,3,4,6]\n"
             "%%y = %s %%x {kernel=[2,2], stride=[2,2]} : f32[2,3,2,3]",
             op);
    check(body);
    snprintf(body, sizeof body, /* overlapping and padded */
             "%%x = param {name=\"x\"} : f32[1,2,5,5]\n"
             "%%y = %s %%x {kernel=[3,3], stride=[2,2], padding=[1,1,1,1]} : f32[1,2,3,3]",
             op);
    check(body);
    snprintf(body, sizeof body,
             "%%x = param {name=\"x\"} : f32[2,5,4,3]\n"
             "%%y = %s %%x {kernel=[2,3], stride=[1,1], layout=\"nhwc\"} : f32[2,4,2,3]",
             op);
    check(body);
  }
  check("%x = param {name=\"x\"} : f32[1,2,5,5]\n%y = pool_avg %x {kernel=[3,3], stride=[2,2], "
        "padding=[1,1,1,1], count_pad=true} : f32[1,2,3,3]");
  check(
      "%x = param {name=\"x\"} : f32[1,2,3,3]\n%y = pool_avg_grad %x {kernel=[3,3], stride=[2,2], "
      "padding=[1,1,1,1]} : f32[1,2,5,5]");
}

/* ── data movement ──────────────────────────────────────────────────────────────────────────── */
static void moves(void **state) {
  (void)state;
  check("%x = param {name=\"x\"} : f32[2,6]\n%y = reshape %x : f32[3,1,4]");
  check("%x = param {name=\"x\"} : f32[2,3,5]\n%y = transpose %x {perm=[2,0,1]} : f32[5,2,3]");
  check("%x = param {name=\"x\"} : f32[1,3,1]\n%y = broadcast %x : f32[4,3,5]");
  check("%x = param {name=\"x\"} : f32[]\n%r = reshape %x : f32[1]\n%y = broadcast %r : f32[4]");
  check("%x = param {name=\"x\"} : f32[2,3]\n"
        "%y = pad %x {value=2, low=[1,0], high=[0,2]} : f32[3,5]");
  check("%x = param {name=\"x\"} : f32[2,3]\n%z = param {name=\"z\"} : f32[2,1]\n"
        "%y = concat %x, %z, %x {axis=1} : f32[2,7]");
}

static void slices(void **state) {
  (void)state;
  check("%x = param {name=\"x\"} : f32[5,4]\n%y = slice %x {start=[1,0], step=[1,1]} : f32[3,4]");
  /* the zeros behind the last element end before, at and beyond the end */
  check("%x = param {name=\"x\"} : f32[9]\n%y = slice %x {start=[0], step=[2]} : f32[4]");
  check("%x = param {name=\"x\"} : f32[9]\n%y = slice %x {start=[1], step=[2]} : f32[4]");
  check("%x = param {name=\"x\"} : f32[9]\n%y = slice %x {start=[0], step=[2]} : f32[5]");
  check("%x = param {name=\"x\"} : f32[9]\n%y = slice %x {start=[8], step=[7]} : f32[1]");
  check("%x = param {name=\"x\"} : f32[4,7,3]\n"
        "%y = slice %x {start=[1,0,2], step=[2,3,1]} : f32[2,3,1]");
}

static void gathers(void **state) {
  (void)state;
  check("%x = param {name=\"x\"} : f32[4,3]\n%i = input {name=\"i\"} : i32[2,5]\n"
        "%y = gather %x, %i : f32[2,5,3]");
  check("%x = param {name=\"x\"} : f32[2,5,3]\n%i = input {name=\"i\"} : i64[2,5]\n"
        "%y = scatter_add %x, %i : f32[4,3]");
}

/* At a place inside, and where some of the part falls off either end. */
static void puts_at(void **state) {
  (void)state;
  static const char *const places[] = {"1", "3", "-1"};
  for (int i = 0; i < 3; i++) {
    char text[256];
    snprintf(text, sizeof text,
             "%%x = param {name=\"x\"} : f32[2,4,3]\n%%u = param {name=\"u\"} : f32[2,2,3]\n"
             "%%i = const {value=%s} : i32[]\n%%y = put %%x, %%u, %%i {axis=1} : f32[2,4,3]",
             places[i]);
    check(text);
  }
}

/* ── the driver ─────────────────────────────────────────────────────────────────────────────── */
static void attentions(void **state) {
  (void)state;
  static const char *const forms[] = {"2,3,4,5",
                                      "2,3,6,5",
                                      "2,3,6,5",
                                      "%y = result %a {index=0} : f32[2,3,4,5]",
                                      "",
                                      "scale=0.7",
                                      "2,2,3,4",
                                      "2,1,5,4",
                                      "2,1,5,3",
                                      "%y = result %a {index=0} : f32[2,2,3,3]",
                                      "",
                                      "causal=true, scale=0.5",
                                      "1,4,5,2",
                                      "1,2,3,2",
                                      "1,2,3,2",
                                      "%y = result %a {index=0} : f32[1,4,5,2]",
                                      "bool[1,1,5,3]",
                                      "causal=true, scale=1", /* its first rows see nothing */
                                      "1,4,3,2",
                                      "1,4,6,2",
                                      "1,4,6,2",
                                      "%y = result %a {index=0} : f32[1,4,3,2]",
                                      "f32[1,4,1,6]",
                                      "scale=-1",
                                      "1,4,3,2",
                                      "1,2,6,2",
                                      "1,2,6,2",
                                      "%y = result %a {index=0} : f32[1,4,3,2]",
                                      "f32[1,1,3,6]",
                                      "causal=true, scale=-1, softcap=0.6"};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i += 6) {
    char body[1024], mask[256] = "";
    if (*forms[i + 4]) snprintf(mask, sizeof mask, "%%m = input {name=\"m\"} : %s\n", forms[i + 4]);
    snprintf(body, sizeof body,
             "%%q = param {name=\"q\"} : f32[%s]\n%%k = param {name=\"k\"} : f32[%s]\n"
             "%%v = param {name=\"v\"} : f32[%s]\n%s%%a = attention %%q, %%k, %%v%s {%s} : %s\n%s",
             forms[i], forms[i + 1], forms[i + 2], mask, *mask ? ", %m" : "", forms[i + 5],
             strchr(forms[i + 3], ':') + 2, forms[i + 3]);
    check(body);
  }
}

static void several_uses(void **state) {
  (void)state;
  check("%x = param {name=\"x\"} : f32[3]\n%a = exp %x : f32[3]\n%b = mul %a, %x : f32[3]\n"
        "%c = add %b, %a : f32[3]\n%y = mul %c, %x : f32[3]");
}

static void stopped(void **state) {
  (void)state;
  Case c;
  case_begin(&c,
             "%x = param {name=\"x\"} : f32[3]\n%s = stop_gradient %x : f32[3]\n"
             "%y = mul %s, %x : f32[3]",
             -1, 1);
  const Tensor *gradient = gradient_of(&c, "x");
  const double *x = c.value[0]->f, *weight = c.value[1]->f;
  for (int i = 0; i < 3; i++) assert_true(gradient->f[i] == weight[i] * x[i]);
  arena_free(c.arena);
}

static void not_reached(void **state) {
  (void)state;
  Case c;
  case_begin(&c,
             "%x = param {name=\"x\"} : f32[3]\n%z = param {name=\"z\"} : f32[3]\n"
             "%y = neg %x : f32[3]",
             -1, 1);
  Node *z = c.graph->nodes.at[1];
  Node **gradient = autodiff_gradients(c.graph, &c.diag, c.loss, &z, 1);
  assert_non_null(gradient);
  assert_null(gradient[0]);
  arena_free(c.arena);
}

/* ── kinks: what PyTorch gives ──────────────────────────────────────────────────────────────── */
static void check_kink(const char *body, const double *x, int count, const char *name,
                       const double *expected, int expected_count) {
  Case c;
  case_begin(&c, body, -1, 1);
  memcpy(c.value[0]->f, x, sizeof *x * (size_t)count);
  Tensor *weights = c.value[c.leaf_count - 1];
  for (int64_t i = 0; i < shape_elements(&weights->type.shape); i++) weights->f[i] = 1;
  const Tensor *gradient = gradient_of(&c, name);
  for (int i = 0; i < expected_count; i++)
    if (gradient->f[i] != expected[i])
      fail_msg("d/d%s[%d] is %g, not %g, in\n%s", name, i, gradient->f[i], expected[i], body);
  arena_free(c.arena);
}
#define KINK(body, name, x, expected)                                                              \
  check_kink(body, x, (int)(sizeof(x) / sizeof *(x)), name, expected,                              \
             (int)(sizeof(expected) / sizeof *(expected)))

static void kinks(void **state) {
  (void)state;
  const double around[] = {-1, 0, 1}, of_abs[] = {-1, 0, 1}, halves[] = {0, 0.5, 1};
  const double step[] = {0, 0, 1}, other[] = {1, 0.5, 0};
  KINK("%x = param {name=\"x\"} : f32[3]\n%y = abs %x : f32[3]", "x", around, of_abs);
  const char *relu = "%x = param {name=\"x\"} : f32[3]\n%z = const {value=0} : f32[3]\n"
                     "%c = le %x, %z : bool[3]\n%y = select %c, %z, %x : f32[3]";
  KINK(relu, "x", around, step);
  const char *max = "%x = param {name=\"x\"} : f32[3]\n%z = const {value=0} : f32[3]\n"
                    "%y = max %x, %z : f32[3]";
  KINK(max, "x", around, halves);
  const char *min = "%x = param {name=\"x\"} : f32[3]\n%z = const {value=0} : f32[3]\n"
                    "%y = min %x, %z : f32[3]";
  KINK(min, "x", around, other);
  const double tied[] = {2, 5, 5, 1, 5, 5, 5, 5}, shared[] = {0, 0.5, 0.5, 0, .25, .25, .25, .25};
  KINK("%x = param {name=\"x\"} : f32[2,4]\n%y = rmax %x {axes=[1]} : f32[2,1]", "x", tied, shared);
  const double first[] = {0, 1, 0, 0, 1, 0, 0, 0};
  KINK("%x = param {name=\"x\"} : f32[2,1,2,2]\n%y = pool_max %x {kernel=[2,2], stride=[2,2]} : "
       "f32[2,1,1,1]",
       "x", tied, first);
}

static void power_at_zero(void **state) {
  (void)state;
  const double base[] = {0, 0, 0, 3};
  /* x^0, x^1, x^2 at 0, and 3^0: torch.pow's gradients */
  const char *text = "%%x = param {name=\"x\"} : f32[4]\n%%i = iota {axis=0} : i32[4]\n"
                     "%%m = const {value=3} : i32[4]\n%%r = rem %%i, %%m : i32[4]\n"
                     "%%e = cast %%r : f32[4]\n%%y = pow %%%s : f32[4]";
  char body[400];
  const double of_base[] = {0, 1, 0, 0};
  snprintf(body, sizeof body, text, "x, %e");
  KINK(body, "x", base, of_base);
  /* 0^x: 0 for x >= 0, not -inf * 0 */
  const double exponent[] = {0, 1, 2, 3}, of_exponent[] = {0, 0, 0, 0};
  KINK("%x = param {name=\"x\"} : f32[4]\n%z = const {value=0} : f32[4]\n%y = pow %z, %x : f32[4]",
       "x", exponent, of_exponent);
}

/* A pooling window that its index cannot address is the user's error, not ours. */
static void window_too_large(void **state) {
  (void)state;
  Case c;
  FILE *quiet = tmpfile();
  case_begin(&c,
             "%x = param {name=\"x\"} : f32[1,1,20,20]\n"
             "%y = pool_max %x {kernel=[20,20], stride=[20,20]} : f32[1,1,1,1]",
             -1, 1);
  c.diag.out = quiet;
  Node *x = c.graph->nodes.at[0];
  assert_null(autodiff_gradients(c.graph, &c.diag, c.loss, &x, 1));
  assert_int_equal(c.diag.errors, 1);
  arena_free(c.arena);
  fclose(quiet);
}

/* Must be the last. */
static void every_op_has_a_case(void **state) {
  (void)state;
  int missing = 0;
  for (int op = 0; op < OP_COUNT; op++)
    if (gradient_rule[op] && !seen[op] && !op_has((Op)op, TRAIT_RANKS)) {
      print_error("'%s' has a gradient and no case here\n", op_info[op].text);
      missing++;
    }
  assert_int_equal(missing, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pointwise),
      cmocka_unit_test(casts),
      cmocka_unit_test(selects),
      cmocka_unit_test(leaky),
      cmocka_unit_test(reductions),
      cmocka_unit_test(product_with_zeros),
      cmocka_unit_test(dots),
      cmocka_unit_test(convolutions),
      cmocka_unit_test(transposed_convolutions),
      cmocka_unit_test(pooling),
      cmocka_unit_test(moves),
      cmocka_unit_test(slices),
      cmocka_unit_test(gathers),
      cmocka_unit_test(puts_at),
      cmocka_unit_test(attentions),
      cmocka_unit_test(several_uses),
      cmocka_unit_test(stopped),
      cmocka_unit_test(not_reached),
      cmocka_unit_test(kinks),
      cmocka_unit_test(power_at_zero),
      cmocka_unit_test(window_too_large),
      cmocka_unit_test(every_op_has_a_case),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
