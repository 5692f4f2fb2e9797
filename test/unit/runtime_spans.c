/* Spans up to their limit, noted by several threads; and as Perfetto's packets, which
 * test/e2e/trace.py reads as a whole. */
#include "base/text.h"
#include "runtime/command/perfetto.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { THREADS = 4, EACH = 1000, MOST = 3500 };

static void *note(void *spans) {
  for (int i = 0; i < EACH; i++)
    spans_add(spans, &(TraceSpan){SPAN_LOADER, 0, i, i + 1, i + 1, NULL});
  return NULL;
}

static void is_bounded(void **state) {
  (void)state;
  Spans *spans;
  int64_t count;
  pthread_t thread[THREADS];
  assert_int_equal(spans_new(MOST, &spans), STATUS_OK);
  assert_false(spans_is_open(NULL));
  assert_false(spans_is_open(spans));
  spans_open(spans, true);
  assert_true(spans_is_open(spans));
  spans_add(NULL, &(TraceSpan){0});
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&thread[i], NULL, note, spans), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  assert_true(spans_is_full(spans));
  TraceSpan *copy = spans_copy(spans, &count);
  assert_int_equal(count, MOST);
  free(copy);
  spans_free(spans);
}

/* What touches or takes no time at all is moved apart by nanoseconds. */
static void follow_each_other(void **state) {
  (void)state;
  Text out = {0};
  const PlanStep step = {.label = "fc1: dot", .layer = "fc1", .name = "k0", .line = 3};
  TraceSpan span[] = {{SPAN_COMPUTE, 0, 20, 20, 1, &step},
                      {SPAN_COMPUTE, 0, 10, 25, 1, &step},
                      {SPAN_COMPUTE, 0, 20, 21, 1, NULL},
                      {SPAN_LOADER, 1, 5, 6, 1, NULL},
                      {SPAN_STEP, 0, 0, 100, 1, NULL}};
  const int count = sizeof span / sizeof *span;
  const PerfettoProcess process = {.rank = 0, .process = "rank 0"};
  assert_int_equal(perfetto_append(&out, &process, span, count), STATUS_OK);
  for (int i = 0; i < count; i++) {
    assert_true(span[i].end > span[i].start);
    bool is_same = i && span[i].track == span[i - 1].track && span[i].lane == span[i - 1].lane;
    if (is_same) assert_true(span[i].start >= span[i - 1].end);
  }
  assert_int_equal(out.at[0], 1 << 3 | 2); /* a packet */
  text_free(&out);
}

static void nothing_at_all(void **state) {
  (void)state;
  Text out = {0};
  const PerfettoProcess process = {.rank = 3, .process = "rank 3"};
  assert_int_equal(perfetto_append(&out, &process, NULL, 0), STATUS_OK);
  assert_true(out.count > 0);
  text_free(&out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(is_bounded),
      cmocka_unit_test(follow_each_other),
      cmocka_unit_test(nothing_at_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
