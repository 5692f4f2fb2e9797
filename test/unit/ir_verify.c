/* ir_verify: what each stage allows, and the messages, which name the node. Also that docs/ir.md
 * speaks of every op and attribute, and that the DOT dump draws every node. */
#include "ir_help.h"

static bool verify(Arena *arena, const Graph *graph, Stage stage, char **message) {
  size_t size;
  FILE *out = open_memstream(message, &size);
  Diag diag;
  diag_init(&diag, arena, out);
  bool good = graph_verify(graph, stage, &diag);
  assert_int_equal(good, diag.errors == 0);
  fclose(out);
  return good;
}

#define X "%x = input {name=\"x\"} : f32[2] "
#define LOOP "body { %p = arg {index=0} : f32[2] result %p } : f32[2] "

typedef struct {
  const char *lines;
  const char *why[3]; /* forward, step, fused; NULL: legal there */
} Case;

static const Case cases[] = {
    {X "%r = exp %x : f32[2]",
     {NULL, NULL, "node %1 = exp: should be in the body of a fused node"}},
    {X "%r = reshape %x : f32[2,1]", {NULL, NULL, NULL}},
    {X "%r = transpose %x {perm=[0]} : f32[2]", {NULL, NULL, "should be in the body"}},
    {X "%r = stop_gradient %x : f32[2]",
     {NULL, "goes with stage forward, and this is step", "goes with stage forward"}},
    {X "%r = pack %x {offsets=[0]} : f32[2]",
     {"node %1 = pack: comes only with stage backward, and this is forward", NULL, NULL}},
    {X "%r = fused %x {kind=\"loop\"} " LOOP,
     {"comes only with stage fused", "comes only with", NULL}},
    {"%r = arg {index=0} : f32[2]",
     {"stands outside of a fused node's body", "stands outside", "stands outside"}},
    {"%a = param {name=\"a\"} : f32[2,2] %r = dot %a, %a : f32[2,2]", {NULL, NULL, NULL}},
    {"%a = state {name=\"s\"} : i64[] %r = random %a, %a {stream=0} : f32[2]",
     {NULL, NULL, "should be in the body"}},
    /* attributes */
    {X "%r = neg %x {axis=1} : f32[2]", {"node %1 = neg: it has no attribute 'axis'", "", ""}},
    {X "%r = neg %x {why=\"x\", place=\"work\", at=0} : f32[2]", {NULL, NULL, "should be in"}},
    {"%r = param {name=\"w\", init=\"ones\"} : f32[2]", {"there is no initialiser 'ones'", "", ""}},
    {"%r = param {name=\"w\", init=\"normal\", init_args=[1]} : f32[2]",
     {"init 'normal' takes 2 arguments, not 1", "", ""}},
    /* names */
    {X "%y = input {name=\"x\"} : f32[3]", {"'x' is f32[3] here and f32[2] at %0", "", ""}},
    {X "%y = param {name=\"x\"} : f32[3]", {NULL, NULL, NULL}},
    /* roots */
    {X "loss \"loss\" %x", {"the loss must be a floating-point scalar", "", ""}},
    {X "%r = reshape %x : f32[2,1,1] metric \"m\" %r",
     {"the metric 'm' must be a scalar, or a row", "", ""}},
    {X "metric \"m\" %x", {NULL, NULL, NULL}},
    {X "auc \"a\" %x", {"the auc 'a' must be f32[n, 1 + classes]", "", ""}},
    {X "output \"o\" %x output \"o\" %x", {"there are two roots of this kind named 'o'", "", ""}},
    {X "gradients \"g\" %x", {"the root gradients must be a pack", "", NULL}},
    {X "result %x", {"a result is a root only in a body", "", ""}},
    {"%s = state {name=\"s\"} : i64[] %a = assign %s {target=\"s\"} : i64[] assign \"s\" %a",
     {NULL, NULL, NULL}},
    {"%s = state {name=\"s\"} : i64[] %a = assign %s {target=\"s\"} : i64[]",
     {"an assign must be exactly one root, not 0", "", ""}},
    {"%s = state {name=\"s\"} : i64[] %a = assign %s {target=\"t\"} : i64[] assign \"t\" %a",
     {"there is no state 't'", "", ""}},
    {"%s = state {name=\"s\"} : i64[] %b = const {value=1} : i64[2] %a = assign %b {target=\"s\"} "
     ": i64[2]"
     "assign \"s\" %a",
     {"the state 's', %0, has another type", "", ""}},
    {"%s = state {name=\"s\"} : i64[] assign \"s\" %s",
     {"must be the assign of that state", "", ""}},
    {"%s = state params {name=\"@params\"} : f32[4] %a = assign %s {target=\"@params\"} : f32[4]"
     "assign \"@params\" %a",
     {"parameters are assigned only from stage step on", NULL, NULL}},
    /* roles */
    {"%m = state moment {name=\"@adam.m\"} : f32[4]", {NULL, NULL, NULL}},
    {"%m = state moment {name=\"@adam.m\"} : bf16[4]", {"role moment is flat and f32", "", ""}},
    {"%m = state average {name=\"@ema\"} : f32[2,2]", {"role average is flat and f32", "", ""}},
    {"%m = state {name=\"@adam.m\"} : f32[4]",
     {"the role model does not go with the name '@adam.m'", "", ""}},
    {"%m = state moment {name=\"m\"} : f32[4]", {"does not go with the name 'm'", "", ""}},
    {"%s = state step {name=\"@step\"} : i32[]", {"the role step is i64[]", "", ""}},
    {"%s = state keep {name=\"@eval.keep\"} : f32[]", {"the role keep is f64[]", "", ""}},
    {"%s = state step {name=\"@step\"} : i64[] %t = state step {name=\"@steps\"} : i64[]",
     {"'@step' and '@steps' have the role step, which only one state can have", "", ""}},
    {"%s = state total {name=\"@t\"} : f64[] %t = state loss_scale {name=\"@t\"} : f64[]",
     {"'@t' has the role loss_scale here and total at %0", "", ""}},
    {"%g = state gradient_sum {name=\"@g\"} : f32[4]",
     {"a sum of gradients, and no other state, has an offset", "", ""}},
    {"%g = state total {name=\"@g\", offset=16} : f32[4]",
     {"a sum of gradients, and no other state, has an offset", "", ""}},
    {"%g = state given {name=\"g\", file=\"f\", tensor_name=\"t\"} : f32[4]", {NULL, NULL, NULL}},
    {"%g = state given {name=\"g\", file=\"f\"} : f32[4]",
     {"a state that is given, and no other, has a file and a name there", "", ""}},
    {"%g = state {name=\"g\", file=\"f\", tensor_name=\"t\"} : f32[4]",
     {"a state that is given, and no other, has a file and a name there", "", ""}},
    {"%g = state given {name=\"@g\", file=\"f\", tensor_name=\"t\"} : f32[4]",
     {"the role given does not go with the name '@g'", "", ""}},
    {"%p = param moment {name=\"p\"} : f32[4]", {"a param cannot have the role moment", "", ""}},
    {"%p = param narrow {name=\"p\"} : bf16[4]", {NULL, NULL, NULL}},
    {"%s = state narrow {name=\"@n\"} : bf16[4]", {NULL, NULL, NULL}},
    /* orders in memory */
    {"%p = param {name=\"p\", perm=[0,2,1], shape=[2,6], view=[2,3,2]} : f32[2,2,3]",
     {NULL, NULL, NULL}},
    {"%p = param {name=\"p\", perm=[0,2,1], shape=[2,6], view=[2,3,2]} : f32[2,6]",
     {"its type is not view, transposed by perm", "", ""}},
    {"%p = param {name=\"p\", perm=[0,2,1], view=[2,3,2]} : f32[2,2,3]", {"tell no order", "", ""}},
    {"%p = param {name=\"p\", perm=[0,2,1], shape=[2,6]} : f32[2,6]", {"tell no order", "", ""}},
    {"%p = param {name=\"p\", perm=[0,2,2], shape=[2,6], view=[2,3,2]} : f32[2,2,2]",
     {"tell no order", "", ""}},
    {"%p = param {name=\"p\", perm=[0,-1], shape=[2,6], view=[2,6]} : f32[2,6]",
     {"tell no order", "", ""}},
    {"%p = param {name=\"p\", perm=[1,0], shape=[2,6], view=[2,3]} : f32[3,2]",
     {"tell no order", "", ""}},
    {"%p = param {name=\"p\", perm=[0,1,2,3,4,5,6,7,8], shape=[2], view=[2,1,1,1,1,1,1,1,1]}"
     " : f32[2]",
     {"tell no order", "", ""}},
    {X "%t = tanh %x {view=[2]} : f32[2]", {"it has no attribute 'view'", "", ""}},
    /* bodies */
    {X "%r = fused %x {kind=\"loop\"} body { %p = arg {index=1} : f32[2] result %p } : f32[2]",
     {"", "", "the body of %1: node %0 = arg: the fused node has no operand 1"}},
    {X "%r = fused %x {kind=\"loop\"} body { %p = arg {index=0} : f32[3] result %p } : f32[3]",
     {"", "", "operand 0 of the fused node has another type"}},
    {X "%r = fused %x {kind=\"loop\"} body { %p = arg {index=0} : f32[2] } : f32[2]",
     {"", "", "its body has no results"}},
    {X "%r = fused %x {kind=\"loop\"} body { %p = arg {index=0} : f32[2] result %p } : f32[1]",
     {"", "", "its type is not that of its first result"}},
    {X "%r = fused %x {kind=\"loop\"} body { %p = input {name=\"y\"} : f32[2] result %p } : f32[2]",
     {"", "", "may not stand in the body of a fused node"}},
    {X
     "%r = fused %x {kind=\"loop\"} body { %p = arg {index=0} : f32[2] output \"o\" %p } : f32[2]",
     {"", "", "a body's roots are results"}},
    /* the contracts of kernels */
    {X "%r = fused %x {kind=\"lop\"} " LOOP,
     {"", "", "node %1 = fused: its kind must be loop, row, column, dot or conv"}},
    {X "%r = fused %x {kind=\"row\", axes=[0]} " LOOP,
     {"", "", "a kernel of this kind needs a reduction"}},
    {X "%r = fused %x {kind=\"dot\"} " LOOP,
     {"", "", "a kernel of this kind has exactly one contraction"}},
    {X "%r = fused %x {kind=\"loop\"} body { %p = arg {index=0} : f32[2]"
       "%s = sum %p {axes=[0]} : f32[1] result %s } : f32[1]",
     {"", "", "a kernel of this kind has none"}},
    {X "%r = fused %x {kind=\"row\", axes=[]} body { %p = arg {index=0} : f32[2]"
       "%s = sum %p {axes=[0]} : f32[1] result %s } : f32[1]",
     {"", "", "the body of %1: node %1 = sum: it reduces other axes than its kernel"}},
    {X "%r = fused %x {kind=\"row\", axes=[0]} body { %p = arg {index=0} : f32[2]"
       "%s = sum %p {axes=[0]} : f32[1] %q = rmax %s {axes=[0]} : f32[1] result %q } : f32[1]",
     {"", "", "node %2 = rmax: it reduces another shape"}},
    {X "%r = fused %x {kind=\"row\", axes=[0]} body { %p = arg {index=0} : f32[2]"
       "%s = sum %p {axes=[0]} : f32[1] %q = reshape %s : f32[1,1] result %q } : f32[1,1]",
     {"", "", "node %2 = reshape: as a result it has neither the shape"}},
    {X "%r = fused %x {kind=\"row\", axes=[0]} body { %p = arg {index=0} : f32[2]"
       "%s = sum %p {axes=[0]} : f32[1] %e = exp %p : f32[2] result %s result %e } : f32[1]",
     {"", "", NULL}},
    {X "%r = fused %x {kind=\"loop\"} body { %p = arg {index=0} : f32[2]"
       "%q = reshape %p : f32[2,1] result %p result %q } : f32[2]",
     {"", "", "node %1 = reshape: as a result it has neither the shape"}},
    {"%a = param {name=\"a\"} : f32[2,2] %r = fused %a {kind=\"dot\"} body {"
     "%p = arg {index=0} : f32[2,2] %q = dot %p, %p : f32[2,2] %t = tanh %q : f32[2,2] result %t }"
     ": f32[2,2]",
     {"", "", NULL}},
    {"%a = param {name=\"a\"} : f32[2,2] %r = fused %a {kind=\"conv\"} body {"
     "%p = arg {index=0} : f32[2,2] %q = dot %p, %p : f32[2,2] result %q } : f32[2,2]",
     {"", "", "node %1 = dot: it is not the contraction of its kernel's kind"}},
    {"%a = param {name=\"a\"} : f32[2,2] %r = fused %a {kind=\"dot\"} body {"
     "%p = arg {index=0} : f32[2,2] %n = neg %p : f32[2,2] %q = dot %p, %n : f32[2,2] result %q }"
     ": f32[2,2]",
     {"", "", "node %2 = dot: an operand of it is not an arg"}},
};

static void stages(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int column = 0; column < 3; column++) {
      static const Stage stages[] = {STAGE_FORWARD, STAGE_STEP, STAGE_FUSED};
      Stage stage = stages[column];
      Arena *arena = arena_new();
      char *message;
      const char *why = cases[i].why[column];
      bool good = verify(arena, help_graph(arena, cases[i].lines), stage, &message);
      if (good != !why || (why && !strstr(message, why)))
        fail_msg("stage %d of %s\ngives: %s\nnot: %s", stage, cases[i].lines, message,
                 why ? why : "(legal)");
      free(message);
      arena_free(arena);
    }
}

/* A pass that breaks the structure is caught before anything follows a wrong pointer. */
static void broken_structure(void **state) {
  (void)state;
  for (int damage = 0; damage < 6; damage++) {
    Arena *arena = arena_new();
    Graph *graph = help_graph(arena, X "%r = exp %x : f32[2] output \"o\" %r");
    Graph *other = help_graph(arena, X);
    Node *node = graph->nodes.at[1];
    char *message;
    if (damage == 0) node->input[0] = node;
    if (damage == 1) node->input[0] = other->nodes.at[0];
    if (damage == 2) node->id = 5;
    if (damage == 3) node->input[0] = NULL;
    if (damage == 4) graph->roots.at[0].node = other->nodes.at[0];
    if (damage == 5) node->type.shape.dim[0] = 3;
    assert_false(verify(arena, graph, STAGE_FORWARD, &message));
    static const char *const why[] = {"input 0 is not a node before it",
                                      "input 0 is not a node before it",
                                      "stands at place 1",
                                      "input 0 is not a node before it",
                                      "root 'o' is not a node",
                                      "its type should be f32[2], not f32[3]"};
    if (!strstr(message, why[damage])) fail_msg("damage %d: %s", damage, message);
    free(message);
    arena_free(arena);
  }
}

static void documentation(void **state) {
  (void)state;
  Arena *arena = arena_new();
  char *text = help_read(arena, "docs/ir.md");
  for (int i = 0; i < OP_COUNT; i++)
    if (!strstr(text, arena_printf(arena, "| `%s` |", op_info[i].text)))
      fail_msg("docs/ir.md has no row for %s", op_info[i].text);
  for (int i = 0; i < ATTR_COUNT; i++)
    if (!strstr(text, arena_printf(arena, "| `%s` |", attr_info[i].text)))
      fail_msg("docs/ir.md has no row for the attribute %s", attr_info[i].text);
  arena_free(arena);
}

static void dot_dump(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Graph *graph = help_parse(arena, help_read(arena, "test/lit/ir/Inputs/every_op.ftir"));
  char *text;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  graph_print_dot(graph, out);
  fclose(out);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    bool is_inside = node->op == OP_FUSED || (node->op == OP_RESULT && node->input[0]->body);
    const char *want = node->op == OP_FUSED ? arena_printf(arena, "subgraph cluster_%d {", i)
                                            : arena_printf(arena, "  n%d [label=\"%%%d %s", i, i,
                                                           op_info[node->op].text);
    if (node->op != OP_RESULT && !strstr(text, want)) fail_msg("no %s", want);
    if (is_inside) assert_null(strstr(text, arena_printf(arena, "  n%d [", i)));
  }
  assert_non_null(strstr(text, "n0 -> b86_0;")); /* an operand reaches the arg that reads it */
  assert_non_null(strstr(text, "b86_2 -> r2;")); /* a result is the body's node */
  int depth = 0;
  for (const char *s = text; *s; s++) depth += *s == '{' ? 1 : *s == '}' ? -1 : 0;
  assert_int_equal(depth, 0);
  free(text);
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(stages), cmocka_unit_test(broken_structure),
                                     cmocka_unit_test(documentation), cmocka_unit_test(dot_dump)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
