/* runtime_body: the operations of a kernel, read from a plan's lines and done one element at a time:
 * values against numbers worked out by hand, the way from a bad number to its operation, and lines
 * that are refused. */
#include "runtime/execute/body.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Buffers 0: f32[2,3], 1: i32[2], 2: f32[3,2], 3: f32[2,2], 4: i64[], 5: f32[2,1]; one step. */
static const float matrix[6] = {1, 2, 3, 4, 5, 6}, other[6] = {1, 0, 2, 1, 0, 3};
static const int32_t rows[2] = {1, 5};
static const int64_t number = 7;

static void add_buffer(Arena *arena, PlanGraph *graph, DType dtype, int rank, int64_t a,
                       int64_t b) {
  PlanBuffer buffer = {.type = {dtype, {rank, {a, b}}}};
  VEC_PUSH(arena, graph->buffers, buffer);
}

static PlanGraph *new_graph(Arena *arena) {
  PlanGraph *graph = ARENA_NEW(arena, PlanGraph);
  PlanStep step = {.kind = STEP_LAUNCH, .line = 3, .label = "kernel"};
  add_buffer(arena, graph, DT_F32, 2, 2, 3);
  add_buffer(arena, graph, DT_I32, 1, 2, 0);
  add_buffer(arena, graph, DT_F32, 2, 3, 2);
  add_buffer(arena, graph, DT_F32, 2, 2, 2);
  add_buffer(arena, graph, DT_I64, 0, 0, 0);
  add_buffer(arena, graph, DT_F32, 2, 2, 1);
  VEC_PUSH(arena, graph->steps, step);
  return graph;
}

/* NULL, or why the lines are refused: the ops, of operands 0 to 4. */
static const char *read_ops(Arena *arena, PlanGraph *graph, const char *result, const char *ops) {
  Words words = {.arena = arena, .line = 1};
  words.at = arena_printf(arena, "0 1 (0 1 2 3 4) -> (%s)", result);
  if (!body_read(&words, graph)) return words.why;
  char *text = arena_strdup(arena, ops), *next;
  for (char *line = text; line; line = next) {
    if ((next = strchr(line, '\n'))) *next++ = 0;
    words.at = line;
    bool is_last = !strncmp(line, "gives ", 6);
    if (is_last) words.at = line + 6;
    if (!(is_last ? body_read_results : body_read_op)(&words, graph)) return words.why;
    if (!words_at_end(&words)) return "more at the end";
  }
  return bodies_are_whole(graph) ? NULL : "not whole";
}

static Body *open_ops(Arena *arena, const char *result, const char *ops) {
  PlanGraph *graph = new_graph(arena);
  const char *why = read_ops(arena, graph, result, ops);
  if (why) fail_msg("%s", why);
  const char *operand[] = {(const char *)matrix, (const char *)rows, (const char *)other,
                           (const char *)matrix, (const char *)&number};
  Body *body;
  assert_int_equal(body_new(graph, body_of_step(graph, 0, 0), operand, &body), STATUS_OK);
  return body;
}

/* The last op's elements. */
static void expect(const char *result, const char *ops, int value, int count, const double *want) {
  Arena *arena = arena_new();
  Body *body = open_ops(arena, result, ops);
  for (int round = 0; round < 2; round++) /* from memory, too */
    for (int k = 0; k < count; k++) {
      Scalar x;
      assert_true(body_value(body, value, k, &x));
      if (x.f != want[k]) fail_msg("%s: element %d is %g, not %g", ops, k, x.f, want[k]);
    }
  body_free(body);
  arena_free(arena);
}

static void test_values(void **state) {
  (void)state;
  expect("0", "mul f32[2,3] of 0 0\ngives 5", 5, 6, (double[]){1, 4, 9, 16, 25, 36});
  expect("5", "sum f32[2,1] of 0 with 1\ngives 5", 5, 2, (double[]){6, 15});
  expect("5", "rmax f32[2,1] of 0 with 1\ngives 5", 5, 2, (double[]){3, 6});
  expect("5", "prod f32[2,1] of 0 with 1\ngives 5", 5, 2, (double[]){6, 120});
  expect("5", "mean f32[2,1] of 0 with 1\ngives 5", 5, 2, (double[]){2, 5});
  expect("5", "spread f32[2,1] of 0 with 1\ngives 5", 5, 2, (double[]){2, 2});
  expect("3", "dot f32[2,2] of 0 2 with 0 0\ngives 5", 5, 4, (double[]){5, 11, 14, 23});
  expect("3", "dot f32[2,2] of 0 0 with 0 1\ngives 5", 5, 4, (double[]){14, 32, 32, 77});
  expect("2", "transpose f32[3,2] of 0 with 1 0\ngives 5", 5, 6, (double[]){1, 4, 2, 5, 3, 6});
  expect("2", "reshape f32[3,2] of 0\ngives 5", 5, 6, (double[]){1, 2, 3, 4, 5, 6});
  expect("3", "slice f32[2,2] of 0 with 0 0 1 2\ngives 5", 5, 4, (double[]){1, 3, 4, 6});
  expect("0", "pad f32[2,3] of 3 with 0 1 value 9\ngives 5", 5, 6, (double[]){9, 1, 2, 9, 3, 4});
  expect("0", "slice f32[2,1] of 0 with 0 2 1 1\nconcat f32[2,3] of 5 3 with 1\ngives 6", 6, 6,
         (double[]){3, 1, 2, 6, 3, 4});
  expect("0", "gather f32[2,3] of 0 1\ngives 5", 5, 6, (double[]){4, 5, 6, 0, 0, 0});
  expect("0", "scatter_add f32[2,3] of 0 1\ngives 5", 5, 6, (double[]){0, 0, 0, 1, 2, 3});
  expect("0", "sum f32[2,1] of 0 with 1\nbroadcast f32[2,3] of 5\ngives 6", 6, 6,
         (double[]){6, 6, 6, 15, 15, 15});
  /* rounds to the type of each op: 2049 is no f16 */
  expect("0", "const f32[2,3] value 2049\ncast f16[2,3] of 5\ncast f32[2,3] of 6\ngives 7", 7, 6,
         (double[]){2048, 2048, 2048, 2048, 2048, 2048});
}

/* The branch that is not chosen may be what it will; random numbers are the interpreter's. */
static void test_choices(void **state) {
  (void)state;
  expect("0",
         "const f32[2,3] value 3\nlt bool[2,3] of 0 5\nconst f32[2,3] value nan\n"
         "select f32[2,3] of 6 0 7\nselect f32[2,3] of 6 8 0\ngives 9",
         9, 6, (double[]){1, 2, 3, 4, 5, 6});
  Arena *arena = arena_new();
  Body *body = open_ops(arena, "0", "random f32[2,3] of 4 4 with 3\ngives 5");
  Scalar a, b;
  assert_true(body_value(body, 5, 0, &a) && body_value(body, 5, 5, &b));
  assert_true(a.f >= 0 && a.f < 1 && b.f >= 0 && b.f < 1 && a.f != b.f);
  body_free(body);
  arena_free(arena);
}

static void expect_trace(const char *ops, BodyCause cause, int value, int64_t element,
                         int made_nan) {
  Arena *arena = arena_new();
  Body *body = open_ops(arena, "0", ops);
  BodyTrace trace;
  body_trace(body, (int)(strrchr(ops, ' ')[1] - '0'), 4, &trace);
  assert_int_equal(trace.cause, cause);
  assert_int_equal(trace.value, value);
  assert_int_equal(trace.element, element);
  assert_int_equal(trace.made_nan, made_nan);
  body_free(body);
  arena_free(arena);
}

static void test_traces(void **state) {
  (void)state;
  /* log of 5 - 5 */
  expect_trace("const f32[2,3] value 5\nsub f32[2,3] of 0 5\nlog f32[2,3] of 6\n"
               "tanh f32[2,3] of 7\nadd f32[2,3] of 7 8\ngives 9",
               BODY_OP, 7, 4, -1);
  /* 0 * Inf: the infinity is the cause, and the product what made a NaN of it */
  expect_trace("const f32[2,3] value 5\nsub f32[2,3] of 0 5\nlog f32[2,3] of 6\n"
               "mul f32[2,3] of 6 7\nmul f32[2,3] of 8 8\ngives 9",
               BODY_OP, 7, 4, 8);
  /* an infinity of the program's own: what is made of it is the cause */
  expect_trace("const f32[2,3] value least\nsub f32[2,3] of 5 5\nexp f32[2,3] of 6\ngives 7",
               BODY_OP, 6, 4, 6);
  /* through a sum to the first NaN of its row, log -1 */
  expect_trace("const f32[2,3] value 5\nsub f32[2,3] of 0 5\nlog f32[2,3] of 6\n"
               "sum f32[2,1] of 7 with 1\nbroadcast f32[2,3] of 8\ngives 9",
               BODY_OP, 7, 3, -1);
  /* finite */
  expect_trace("exp f32[2,3] of 0\ngives 5", BODY_UNKNOWN, 5, 4, -1);
}

static void test_stats(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Body *body = open_ops(arena, "0",
                        "const f32[2,3] value 5\nsub f32[2,3] of 0 5\nlog f32[2,3] of 6\ngives 7");
  BodyStats stats;
  body_stats(body, 7, &stats);
  assert_true(stats.is_known && stats.looked_at == 6 && stats.nan == 4 && stats.infinite == 1);
  assert_true(stats.least == 0 && stats.most == 0 && stats.mean == 0); /* log 1 */
  body_stats(body, 0, &stats);
  assert_true(stats.least == 1 && stats.most == 6 && fabs(stats.mean - 3.5) < 1e-12);
  body_free(body);
  arena_free(arena);
}

static void test_refusals(void **state) {
  (void)state;
  static const char *const bad[] = {
      "wrong f32[2,3] of 0\ngives 5",      /* no op */
      "exp f32[2,3] of 5\ngives 5",        /* a value that is not there yet */
      "exp f32[2,2] of 0\ngives 5",        /* another shape */
      "add f32[2,3] of 0\ngives 5",        /* too few operands */
      "add f32[2,3] of 0 2\ngives 5",      /* that do not agree */
      "sum f32[2,1] of 0 with 2\ngives 5", /* no such axis */
      "sum f32[2,3] of 0 with 1\ngives 5", /* another shape */
      "dot f32[2,2] of 0 0 with 0 0\ngives 5",
      "transpose f32[3,2] of 0 with 1 1\ngives 5",
      "slice f32[2,3] of 0 with 0 1 1 1\ngives 5",
      "reshape f32[2,2] of 0\ngives 5",
      "gather f32[2,3] of 0 2\ngives 5", /* indices that are no integers */
      "random f32[2,3] of 0 4 with 1\ngives 5",
      "iota f32[2,3] with 0\ngives 5",
      "concat f32[2,3] of 0 3 with 1\ngives 5",
      "exp f32[2,3] of 0\ngives 6",   /* no such value */
      "exp f32[2,3] of 0\ngives 5 5", /* more results than buffers */
      "exp f32[2,3] of 0\ngives 3",   /* of another type than the buffer */
      "exp f32[2,3] of 0 phase never\ngives 5",
      "exp f32[2,3] of 0 layer \"a\x01\"\ngives 5",
      "exp f32[2,3] of 0 with 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\ngives 5",
      "exp f32[2,3] of 0",          /* nothing is given */
      "gives 0\nexp f32[2,3] of 0", /* behind the end */
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    Arena *arena = arena_new();
    if (!read_ops(arena, new_graph(arena), "0", bad[i])) fail_msg("taken: %s", bad[i]);
    arena_free(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_choices),
                                     cmocka_unit_test(test_traces), cmocka_unit_test(test_stats),
                                     cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
