/* Every gradient rule against central differences of the interpreter, in double. A case is a few
 * lines of graph text: params are differentiated, %y is the result; the loss is the sum of %y times
 * fixed weights, so that every element of the gradient is told apart. Pointwise ops get their cases
 * from ops.def over several shapes. Where a function has a kink, the expected values are written
 * out. The last test fails if an op that has a gradient occurs in no case. */
#include "passes/autodiff.h"
#include "passes/gradients.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_LEAVES = 16, MOST_RANKS = 3 };

typedef struct {
  Arena *arena;
  Diag diag;
  Graph *graph;
  Node *loss;
  int leaf_count;
  const char *name[MAX_LEAVES];
  Tensor *value[MAX_LEAVES];              /* of rank 0, */
  Tensor *others[MOST_RANKS][MAX_LEAVES]; /* … and of the others, which stay as they are */
} Case;
static int ranks = 1; /* whose losses are added */

typedef struct {
  Case *c;
  int rank;
} Leaves;

static bool seen[OP_COUNT];

/* ── leaves ─────────────────────────────────────────────────────────────────────────────────── */
static uint64_t random_state;
static double random_between(double low, double high) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return low + (high - low) * ((double)(random_state >> 11) * 0x1p-53);
}

static const Tensor *find_leaf(const Node *leaf, void *context) {
  const Leaves *of = context;
  const Case *c = of->c;
  for (int i = 0; i < c->leaf_count; i++)
    if (strcmp(c->name[i], node_str(leaf, ATTR_NAME)) == 0)
      return of->rank ? c->others[of->rank][i] : c->value[i];
  return NULL;
}

static Tensor *made_up(Case *c, const Type *type, double low, double high) {
  Tensor *tensor = tensor_new(c->arena, *type);
  for (int64_t k = 0; k < shape_elements(&type->shape); k++)
    if (tensor->f)
      tensor->f[k] = random_between(low, high);
    else
      tensor->i[k] = (int64_t)random_between(-1, 4); /* an index, sometimes outside */
  return tensor;
}

static void fill_leaves(Case *c, double low, double high) {
  for (int i = 0; i < c->graph->nodes.count; i++) {
    Node *node = c->graph->nodes.at[i];
    if (node->op != OP_PARAM && node->op != OP_INPUT) continue;
    assert_true(c->leaf_count < MAX_LEAVES);
    int leaf = c->leaf_count++;
    c->name[leaf] = node_str(node, ATTR_NAME);
    c->value[leaf] = made_up(c, &node->type, low, high);
    for (int r = 1; r < ranks; r++) c->others[r][leaf] = made_up(c, &node->type, low, high);
  }
}

/* ── a case: parse, add the loss, differentiate ─────────────────────────────────────────────── */
static void case_begin(Case *c, const char *body, double low, double high) {
  *c = (Case){.arena = arena_new()};
  diag_init(&c->diag, c->arena, stderr);
  random_state = 20240607;
  char *text = arena_printf(c->arena, "graph \"case\" {\n%s\n  output \"y\" %%y\n}\n", body);
  if (graph_parse(c->arena, &c->diag, "case", text, &c->graph, 1) != 1) fail_msg("%s", text);
  for (int i = 0; i < c->graph->nodes.count; i++) seen[c->graph->nodes.at[i]->op] = true;
  Node *y = graph_find_root(c->graph, ROOT_OUTPUT, "y");
  Attr name = attr_str(ATTR_NAME, "weights of y");
  Node *weight = graph_node(c->graph, OP_INPUT, NULL, 0, &name, 1, &y->type);
  Node *product = make_binary(c->graph, OP_MUL, y, weight);
  int64_t axes[MAX_RANK];
  for (int i = 0; i < MAX_RANK; i++) axes[i] = i;
  Node *sum = make_reduce(c->graph, OP_SUM, product, axes, y->type.shape.rank);
  c->loss = make_reshape(c->graph, sum, shape_scalar());
  fill_leaves(c, low, high);
}

/* Values of rank 0, and the sum of the ranks' losses. */
static Tensor **evaluate(Case *c, double *loss) {
  Tensor **values[MOST_RANKS];
  Leaves leaves[MOST_RANKS];
  void *context[MOST_RANKS];
  for (int r = 0; r < ranks; r++) {
    values[r] = ARENA_ARRAY(c->arena, Tensor *, c->graph->nodes.count);
    leaves[r] = (Leaves){c, r};
    context[r] = &leaves[r];
  }
  if (!graph_interpret_ranks(c->graph, c->arena, find_leaf, context, ranks, values, &c->diag))
    fail_msg("the interpreter failed");
  *loss = 0;
  for (int r = 0; r < ranks; r++) *loss += values[r][c->loss->id]->f[0];
  return values[0];
}

static double loss_at(Case *c) {
  double loss;
  evaluate(c, &loss);
  return loss;
}

/* The gradient of the loss for the leaf named `name`. */
static const Tensor *gradient_of(Case *c, const char *name) {
  for (int i = 0; i < c->graph->nodes.count; i++) {
    Node *leaf = c->graph->nodes.at[i];
    if (leaf->op != OP_PARAM || strcmp(node_str(leaf, ATTR_NAME), name) != 0) continue;
    Node **gradient = autodiff_gradients(c->graph, &c->diag, c->loss, &leaf, 1);
    assert_non_null(gradient);
    if (!gradient[0]) return tensor_new(c->arena, leaf->type);
    assert_true(type_equal(&gradient[0]->type, &leaf->type));
    assert_true(gradient[0]->origin.is_backward);
    assert_true(graph_verify(c->graph, STAGE_FORWARD, &c->diag));
    double loss;
    return evaluate(c, &loss)[gradient[0]->id];
  }
  fail_msg("no param '%s'", name);
  return NULL;
}

static void check_leaf(Case *c, int leaf, const char *body) {
  Tensor *x = c->value[leaf];
  int64_t count = shape_elements(&x->type.shape);
  double *differences = ARENA_ARRAY(c->arena, double, count);
  for (int64_t k = 0; k < count; k++) {
    double at = x->f[k], h = 1e-5 * fmax(1, fabs(at));
    x->f[k] = at + h;
    double above = loss_at(c);
    x->f[k] = at - h;
    differences[k] = (above - loss_at(c)) / (2 * h);
    x->f[k] = at;
  }
  const Tensor *exact = gradient_of(c, c->name[leaf]);
  for (int64_t k = 0; k < count; k++) {
    double tolerance = 2e-8 * fmax(1, fabs(differences[k]));
    if (!(fabs(exact->f[k] - differences[k]) <= tolerance))
      fail_msg("d/d%s[%lld]: rule %.12g, differences %.12g in\n%s", c->name[leaf], (long long)k,
               exact->f[k], differences[k], body);
  }
}

static void check_between(const char *body, double low, double high) {
  Case probe, c;
  case_begin(&probe, body, low, high);
  int count = probe.leaf_count;
  arena_free(probe.arena);
  for (int leaf = 0; leaf < count; leaf++) { /* a fresh graph each: gradients are added to it */
    case_begin(&c, body, low, high);
    bool is_param = false;
    for (int i = 0; i < c.graph->nodes.count; i++)
      is_param |= c.graph->nodes.at[i]->op == OP_PARAM &&
                  strcmp(node_str(c.graph->nodes.at[i], ATTR_NAME), c.name[leaf]) == 0;
    if (is_param) check_leaf(&c, leaf, body);
    arena_free(c.arena);
  }
}

static void check(const char *body) { check_between(body, -1, 1); }

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

/* The loss is the sum of all ranks' losses, and x that of one rank. */
static void over_ranks(void **state) {
  (void)state;
  for (ranks = 1; ranks <= MOST_RANKS; ranks++) {
    check("%x = param {name=\"x\"} : f32[4,3]\n%a = all_reduce %x {reduction=\"sum\"} : f32[4,3]\n"
          "%b = result %a {index=0} : f32[4,3]\n%y = mul %b, %x : f32[4,3]");
    check("%x = param {name=\"x\"} : f32[4,3]\n%a = all_reduce %x {reduction=\"rmax\"} : f32[4,3]\n"
          "%b = result %a {index=0} : f32[4,3]\n%y = mul %b, %x : f32[4,3]");
    check("%x = param {name=\"x\"} : f32[4,3]\n%a = all_reduce %x {reduction=\"rmin\"} : f32[4,3]\n"
          "%b = result %a {index=0} : f32[4,3]\n%y = exp %b : f32[4,3]");
  }
  ranks = 1;
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
                                      "scale=-1"};
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
    if (gradient_rule[op] && !seen[op]) {
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
      cmocka_unit_test(pooling),
      cmocka_unit_test(moves),
      cmocka_unit_test(slices),
      cmocka_unit_test(over_ranks),
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
