/* codegen_body: what --check=nan computes of convolutions, pooling, attention and their gradients, one
 * element at a time (runtime/execute/body_window.c, body_attention.c), against the interpreter; and
 * forms that a plan is refused for. */
#include "test/unit/ir_help.h"
#include "plan/plan_body.h"
#include "runtime/execute/body.h"
#include <math.h>

enum { MOST_OPERANDS = 11, MOST_ELEMENTS = 2000 };

typedef struct {
  const char *operand[MOST_OPERANDS]; /* types */
  const char *op, *attrs, *type;      /* for the interpreter */
  const char *ints;                   /* for the plan */
  const char *results[3];             /* types, of an op that has several; NULL: type */
} Case;

/* Numbers of all operands: doubles, integers, or bytes. */
typedef struct {
  Arena *arena;
  double number[MOST_OPERANDS][MOST_ELEMENTS];
  int64_t integer[MOST_OPERANDS][MOST_ELEMENTS];
  unsigned char byte[MOST_OPERANDS][MOST_ELEMENTS];
} Numbers;

static void fill(Numbers *numbers) {
  for (int i = 0; i < MOST_OPERANDS; i++)
    for (int k = 0; k < MOST_ELEMENTS; k++) {
      numbers->number[i][k] = sin(k * (1.1 + i) + i);
      numbers->integer[i][k] = k * 5000000021 + i * 77;
      numbers->byte[i][k] = (unsigned char)((k * 7 + k / 3 + i) % 2);
    }
}

static const Tensor *leaf(const Node *node, void *context) {
  Numbers *numbers = context;
  int which = *node_str(node, ATTR_NAME) - 'a';
  Tensor *tensor = tensor_new(numbers->arena, node->type);
  for (int64_t k = 0; k < shape_elements(&node->type.shape); k++) {
    if (tensor->f)
      tensor->f[k] = numbers->number[which][k];
    else
      tensor->i[k] = node->type.dtype == DT_I64 ? numbers->integer[which][k] : numbers->byte[which][k];
  }
  return tensor;
}

static int operands_of(const Case *c) {
  int count = 0;
  while (count < MOST_OPERANDS && c->operand[count]) count++;
  return count;
}

static const Tensor *interpreted(Numbers *numbers, const Case *c, int result) {
  Text text = {0};
  Diag diag;
  int count = operands_of(c);
  for (int i = 0; i < count; i++)
    text_printf(&text, "%%%c = input {name=\"%c\"} : %s\n", 'a' + i, 'a' + i, c->operand[i]);
  text_printf(&text, "%%r = %s ", c->op);
  for (int i = 0; i < count; i++) text_printf(&text, "%s%%%c", i ? ", " : "", 'a' + i);
  text_printf(&text, " {%s} : %s\n", c->attrs, c->type);
  if (c->results[0])
    text_printf(&text, "%%s = result %%r {index=%d} : %s\n", result, c->results[result]);
  Graph *graph = help_graph(numbers->arena, text_cstr(&text));
  text_free(&text);
  diag_init(&diag, numbers->arena, stderr);
  Tensor **values = ARENA_ARRAY(numbers->arena, Tensor *, graph->nodes.count);
  assert_true(graph_interpret(graph, numbers->arena, leaf, numbers, false, values, &diag));
  return values[graph->nodes.count - 1];
}

static void add_type(Arena *arena, PlanGraph *graph, const char *text) {
  Words words = {.arena = arena, .line = 1, .at = text};
  PlanBuffer buffer = {0};
  if (!words_type(&words, &buffer.type)) fail_msg("%s: %s", text, words.why);
  VEC_PUSH(arena, graph->buffers, buffer);
}

/* NULL, or why it is refused. */
static const char *read_case(Arena *arena, const Case *c, PlanGraph *graph) {
  Text does = {0}, op = {0}, gives = {0};
  PlanStep step = {.kind = STEP_LAUNCH, .name = "k"};
  int count = operands_of(c), results = 0;
  VEC_PUSH(arena, graph->steps, step);
  text_printf(&does, "0 1 (");
  text_printf(&op, "%s %s of", c->op, c->type);
  for (int i = 0; i < count; i++) {
    add_type(arena, graph, c->operand[i]);
    text_printf(&does, "%d ", i);
    text_printf(&op, " %d", i);
  }
  text_printf(&op, " with %s", c->ints);
  text_printf(&does, ") -> (");
  do {
    add_type(arena, graph, c->results[0] ? c->results[results] : c->type);
    text_printf(&does, "%d ", count + results);
    text_printf(&gives, "%d ", count);
  } while (++results < 3 && c->results[0] && c->results[results]);
  text_printf(&does, ")");
  Words words = {.arena = arena, .line = 1, .at = arena_strdup(arena, text_cstr(&does))};
  bool is_read = body_read(&words, graph);
  words.at = arena_strdup(arena, text_cstr(&op));
  is_read = is_read && body_read_op(&words, graph);
  words.at = arena_strdup(arena, text_cstr(&gives));
  is_read = is_read && body_read_results(&words, graph);
  text_free(&does), text_free(&op), text_free(&gives);
  return is_read ? NULL : words.why;
}

typedef struct {
  int64_t seen;
  int64_t most[MOST_OPERANDS];
} Seen;

static bool see(void *context, int value, int64_t element) {
  Seen *seen = context;
  seen->seen++;
  if (element > seen->most[value]) seen->most[value] = element;
  return true;
}

static void check_case(const Case *c) {
  Numbers *numbers = calloc(1, sizeof *numbers);
  Arena *arena = numbers->arena = arena_new();
  fill(numbers);
  for (int result = 0; result < 3 && (!result || (c->results[0] && c->results[result])); result++) {
    PlanGraph *graph = ARENA_NEW(arena, PlanGraph);
    const char *why = read_case(arena, c, graph), *at[MOST_OPERANDS];
    if (why) fail_msg("%s: %s", c->op, why);
    int count = operands_of(c);
    for (int i = 0; i < count; i++) {
      DType dtype = graph->buffers.at[i].type.dtype;
      at[i] = dtype_is_float(dtype) ? (const char *)numbers->number[i]
              : dtype == DT_I64     ? (const char *)numbers->integer[i]
                                    : (const char *)numbers->byte[i];
    }
    Body *body;
    assert_int_equal(body_new(graph, &graph->bodies.at[0], at, &body), STATUS_OK);
    body_set_result(body, result);
    const Tensor *want = interpreted(numbers, c, result);
    Seen seen = {0};
    for (int64_t k = 0; k < shape_elements(&want->type.shape); k++) {
      Scalar have;
      assert_true(body_value(body, count, k, &have));
      double wanted = want->f ? want->f[k] : (double)want->i[k];
      double made = want->f ? have.f : (double)have.i;
      if (!(fabs(made - wanted) <= 1e-9 * (1 + fabs(wanted))))
        fail_msg("%s {%s}: element %d of result %d is %.17g, not %.17g", c->op, c->attrs, (int)k,
                 result, made, wanted);
      body_sources(body, count, k, see, &seen);
    }
    assert_true(seen.seen > 0);
    for (int i = 0; i < count; i++)
      assert_true(seen.most[i] < shape_elements(&graph->buffers.at[i].type.shape));
    body_free(body);
  }
  arena_free(arena);
  free(numbers);
}

#define WINDOW "stride=[1,2], padding=[1,0,1,1], dilation=[1,2], groups=2"
#define WINDOW_INTS "1 2 1 0 1 1 1 2 2"
#define POOL "kernel=[2,3], stride=[1,2], padding=[1,0,0,1]"
#define POOL_INTS "2 3 1 2 1 0 0 1"
#define Q "f64[2,4,3,5]"
#define K "f64[2,2,3,5]"
#define V "f64[2,2,3,6]"
#define Y "f64[2,4,3,6]"
#define LSE "f64[2,4,3,1]"
#define TWO "4611686018427387904" /* the bits of 2 */
#define HALF "4602678819172646912"
#define DRAWS "i64[]", "i64[]", "i64[2,4,1,1]", "i64[]"
#define BESIDE "heads=[4,2,3], start=[1,2,0]"
#define QB "f64[2,3,14]"
#define KB "f64[2,3,8]"
#define YB "f64[2,3,12]"
#define KGB "f64[2,3,6]"
#define JOINED "f64[2,3,24]"

static const Case cases[] = {
    {{"f64[2,4,5,6]", "f64[6,2,3,2]"},
     "conv",
     WINDOW ", layout=\"nchw\"",
     "f64[2,6,5,3]",
     WINDOW_INTS " 0",
     {0}},
    {{"f64[2,5,6,4]", "f64[6,3,2,2]"},
     "conv",
     WINDOW ", layout=\"nhwc\"",
     "f64[2,5,3,6]",
     WINDOW_INTS " 1",
     {0}},
    {{"f64[2,6,5,3]", "f64[6,2,3,2]"},
     "conv_grad_input",
     WINDOW ", layout=\"nchw\"",
     "f64[2,4,5,6]",
     WINDOW_INTS " 0",
     {0}},
    {{"f64[2,5,3,6]", "f64[6,3,2,2]"},
     "conv_grad_input",
     WINDOW ", layout=\"nhwc\"",
     "f64[2,5,6,4]",
     WINDOW_INTS " 1",
     {0}},
    {{"f64[2,6,5,3]", "f64[2,4,5,6]"},
     "conv_grad_weight",
     WINDOW ", layout=\"nchw\"",
     "f64[6,2,3,2]",
     WINDOW_INTS " 0",
     {0}},
    {{"f64[2,5,3,6]", "f64[2,5,6,4]"},
     "conv_grad_weight",
     WINDOW ", layout=\"nhwc\"",
     "f64[6,3,2,2]",
     WINDOW_INTS " 1",
     {0}},
    {{"f64[2,3,4,6]"}, "pool_max", POOL ", layout=\"nchw\"", "f64[2,3,4,3]", POOL_INTS " 0 0", {0}},
    {{"f64[2,4,6,3]"}, "pool_max", POOL ", layout=\"nhwc\"", "f64[2,4,3,3]", POOL_INTS " 1 0", {0}},
    {{"f64[2,4,6,3]"},
     "pool_index",
     POOL ", layout=\"nhwc\"",
     "u8[2,4,3,3]",
     POOL_INTS " 1 0",
     {0}},
    {{"f64[2,3,4,6]"}, "pool_avg", POOL ", layout=\"nchw\"", "f64[2,3,4,3]", POOL_INTS " 0 0", {0}},
    {{"f64[2,3,4,6]"},
     "pool_avg",
     POOL ", layout=\"nchw\", count_pad=true",
     "f64[2,3,4,3]",
     POOL_INTS " 0 1",
     {0}},
    {{"f64[2,3,4,3]"},
     "pool_avg_grad",
     POOL ", layout=\"nchw\"",
     "f64[2,3,4,6]",
     POOL_INTS " 0 0",
     {0}},
    {{"f64[2,3,4,3]"},
     "pool_avg_grad",
     POOL ", layout=\"nchw\", count_pad=true",
     "f64[2,3,4,6]",
     POOL_INTS " 0 1",
     {0}},
    {{"f64[2,4,3,3]", "u8[2,4,3,3]"},
     "pool_max_grad",
     POOL ", layout=\"nhwc\"",
     "f64[2,4,6,3]",
     POOL_INTS " 1 0",
     {0}},
    {{Q, K, V}, "attention", "causal=true, scale=0.5", Y, "1 0 0 0 0 0 0 0 0 value 0.5", {Y, LSE}},
    {{Q, K, V, "bool[2,1,3,3]"},
     "attention",
     "scale=0.5",
     Y,
     "0 0 0 0 0 0 0 0 0 value 0.5",
     {Y, LSE}},
    {{Q, K, V, "f64[1,4,3,3]"},
     "attention",
     "scale=0.5",
     Y,
     "0 0 0 0 0 0 0 0 0 value 0.5",
     {Y, LSE}},
    {{Q, K, V, "f64[1,4,3,3]"},
     "attention",
     "scale=0.5, softcap=2",
     Y,
     "0 0 0 0 0 0 0 0 0 " TWO " value 0.5",
     {Y, LSE}},
    {{Y, Q, K, V, Y, LSE},
     "attention_grad",
     "causal=true, scale=0.5, softcap=2",
     Q,
     "1 0 0 0 0 0 0 0 0 " TWO " value 0.5",
     {Q, K, V}},
    {{QB, KB, KB},
     "attention",
     BESIDE ", causal=true, scale=0.5",
     YB,
     "1 1 4 2 3 1 2 0 0 value 0.5",
     {YB, LSE}},
    {{Y, Q, K, V, Y, LSE},
     "attention_grad",
     "causal=true, scale=0.5",
     Q,
     "1 0 0 0 0 0 0 0 0 value 0.5",
     {Q, K, V}},
    {{Y, Q, K, V, Y, LSE, "bool[2,1,3,3]"},
     "attention_grad",
     "scale=0.5",
     Q,
     "0 0 0 0 0 0 0 0 0 value 0.5",
     {Q, K, V}},
    {{YB, QB, KB, KB, YB, LSE},
     "attention_grad",
     BESIDE ", causal=true, scale=0.5",
     YB,
     "1 1 4 2 3 1 2 0 0 value 0.5",
     {YB, KGB, KGB}},
    {{YB, QB, KB, KB, YB, LSE},
     "attention_grad",
     BESIDE ", joined=true, scale=0.5",
     JOINED,
     "0 1 4 2 3 1 2 0 1 value 0.5",
     {JOINED}},
    {{Q, K, V, DRAWS},
     "attention",
     "causal=true, scale=0.5, dropout=0.5",
     Y,
     "1 0 0 0 0 0 0 0 0 0 " HALF " value 0.5",
     {Y, LSE}},
    {{Y, Q, K, V, Y, LSE, "bool[2,1,3,3]", DRAWS},
     "attention_grad",
     "scale=0.5, softcap=2, dropout=0.5",
     Q,
     "0 0 0 0 0 0 0 0 0 " TWO " " HALF " value 0.5",
     {Q, K, V}},
    {{YB, QB, KB, KB, YB, LSE, DRAWS},
     "attention_grad",
     BESIDE ", joined=true, scale=0.5, dropout=0.5",
     JOINED,
     "0 1 4 2 3 1 2 0 1 0 " HALF " value 0.5",
     {JOINED}},
};

static void test_values(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&cases[i]);
}

static void test_refusals(void **state) {
  (void)state;
  static const Case bad[] = {
      {{"f64[2,4,5,6]", "f64[6,2,3,2]"}, "conv", "", "f64[2,6,5,4]", WINDOW_INTS " 0", {0}},
      {{"f64[2,4,5,6]", "f64[6,2,3,2]"}, "conv", "", "f64[2,6,5,3]", "0 2 1 0 1 1 1 2 2 0", {0}},
      {{"f64[2,4,5,6]", "f64[6,2,3,2]"}, "conv", "", "f64[2,6,5,3]", "1 2 -1 0 1 1 1 2 2 0", {0}},
      {{"f64[2,4,5,6]", "f64[6,2,3,2]"}, "conv", "", "f64[2,6,5,3]", "1 2 1 0 1 1 1 2 4 0", {0}},
      {{"f64[2,4,5,6]", "f64[6,2,3,2]"}, "conv", "", "f64[2,6,5,3]", WINDOW_INTS, {0}},
      {{"f64[2,4,5,6]", "f64[6,3,3,2]"}, "conv", "", "f64[2,6,5,3]", WINDOW_INTS " 0", {0}},
      {{"f64[2,3,4,6]"}, "pool_max", "", "f64[2,3,4,4]", POOL_INTS " 0 0", {0}},
      {{"f64[2,3,4,6]"}, "pool_max", "", "f64[2,4,4,3]", POOL_INTS " 0 0", {0}},
      {{"f64[2,3,4,6]"}, "pool_index", "", "f64[2,3,4,3]", POOL_INTS " 0 0", {0}},
      {{"f64[2,4,3,3]", "u8[2,4,3,2]"}, "pool_max_grad", "", "f64[2,4,6,3]", POOL_INTS " 1 0", {0}},
      {{Q, K, "f64[2,2,4,6]"}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 value 1", {Y, LSE}},
      {{Q, "f64[2,3,3,5]", "f64[2,3,3,6]"},
       "attention",
       "",
       Y,
       "0 0 0 0 0 0 0 0 0 value 1",
       {Y, LSE}},
      {{Q, K, V}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 value 1", {Y, "f64[2,4,3,2]"}},
      {{Q, K, V}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 value 1", {Y, LSE, LSE}},
      {{Q, K, V, "bool[2,1,3,4]"}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 value 1", {Y, LSE}},
      {{Q, K, V}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 0 value 1", {Y, LSE}},
      {{Q, K, V}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 -1 value 1", {Y, LSE}},
      {{Q, K, V}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 0 value 1", {Y, LSE}},
      {{Q, K, V}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 " TWO " 0 value 1", {Y, LSE}},
      {{Q, K, V, DRAWS}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 value 1", {Y, LSE}},
      {{Q, K, V, DRAWS}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 0 " TWO " value 1", {Y, LSE}},
      {{Q, K, V, DRAWS}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 0 " HALF " 7 value 1", {Y, LSE}},
      {{Q, K, V}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 0 " HALF " value 1", {Y, LSE}},
      {{Q, K, V, "i64[]", "i64[]", "i64[2,4,1,1]"}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 0 " HALF " value 1", {Y, LSE}},
      {{Q, K, V, "i64[]", "i64[]", "i64[2,4,3,1]", "i64[]"}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 0 " HALF " value 1", {Y, LSE}},
      {{Q, K, V, "i64[]", "i64[]", "i64[2,4,1,1]", "i64[1]"}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 0 " HALF " value 1", {Y, LSE}},
      {{Q, K, V, "i64[1]", "i64[]", "i64[2,4,1,1]", "i64[]"}, "attention", "", Y, "0 0 0 0 0 0 0 0 0 0 " HALF " value 1", {Y, LSE}},
      {{QB, KB, KB}, "attention", "", YB, "1 1 4 2 3 3 2 0 0 value 1", {YB, LSE}},
      {{QB, KB, KB}, "attention", "", YB, "1 1 4 2 3 1 -2 0 0 value 1", {YB, LSE}},
      {{QB, KB, KB}, "attention", "", YB, "1 1 4 0 3 1 2 0 0 value 1", {YB, LSE}},
      {{Y, Q, K, V, Y, Q}, "attention_grad", "", Q, "1 0 0 0 0 0 0 0 0 value 1", {Q, K, V}},
      {{Y, Q, K, V, Y, LSE}, "attention_grad", "", Q, "1 0 0 0 0 0 0 0 0 value 1", {Q, K, K}},
      {{Y, Q, K, V, Y, LSE}, "attention_grad", "", Q, "1 0 0 0 0 0 0 0 1 value 1", {Q}},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Arena *arena = arena_new();
    if (!read_case(arena, &bad[i], ARENA_NEW(arena, PlanGraph))) fail_msg("taken: %d", (int)i);
    arena_free(arena);
  }
}

/* A kernel like an earlier one, with layers of its own. */
static void test_same(void **state) {
  (void)state;
  Arena *arena = arena_new();
  PlanGraph *graph = ARENA_NEW(arena, PlanGraph);
  PlanStep step = {.kind = STEP_LAUNCH, .name = "k"};
  for (int i = 0; i < 8; i++) VEC_PUSH(arena, graph->steps, step);
  for (int i = 0; i < 2; i++) add_type(arena, graph, "f32[2,3]");
  add_type(arena, graph, "f32[3,2]");
  Words words = {.arena = arena, .line = 1, .at = "0 1 (0) -> (1)"};
  assert_true(body_read(&words, graph));
  words.at = "exp f32[2,3] of 0 line 7 layer \"a.0\"";
  assert_true(body_read_op(&words, graph));
  words.at = "log = of 1 layer none";
  assert_true(body_read_op(&words, graph));
  words.at = "2";
  assert_true(body_read_results(&words, graph));
  words.at = "1 2 (1) -> (0) same 0 \"a.1\" none";
  assert_true(body_read(&words, graph) && words_at_end(&words));
  const PlanBody *made = &graph->bodies.at[1];
  assert_string_equal(made->ops.at[0].layer, "a.1");
  assert_null(made->ops.at[1].layer);
  assert_int_equal(made->ops.at[1].line, 7);
  assert_int_equal(made->ops.at[1].type.shape.dim[1], 3);
  Text text = {0};
  int64_t copied = 0;
  for (int i = 0; i < 2; i++) body_print(&text, graph, &graph->bodies.at[i], &copied);
  assert_string_equal(text_cstr(&text),
                      "  does 0 1 (0) -> (1)\n  op exp f32[2,3] of 0 line 7 layer \"a.0\"\n"
                      "  op log = of 1 layer none\n  gives 2\n"
                      "  does 1 2 (1) -> (0) same 0 \"a.1\" none\n");
  assert_int_equal(copied, 2);
  text_free(&text);
  static const char *const bad[] = {"2 3 (1) -> (0) same 2 \"a\" none",
                                    "2 3 (1) -> (2) same 0 \"a\" none",
                                    "2 3 (1 0) -> (0) same 0 \"a\" none",
                                    "2 3 (1) -> (0) same 0 \"a\"",
                                    "2 3 (1) -> (0) same",
                                    "2 3 (1) -> (0) same -1 \"a\" none"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    words.why = NULL, words.at = bad[i];
    assert_false(body_read(&words, graph));
    assert_non_null(words.why);
  }
  words.why = NULL, words.copied_ops = (1 << 18) - 1, words.at = "2 3 (1) -> (0) same 0 \"a\" none";
  assert_false(body_read(&words, graph)); /* too many in all */
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_same)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
