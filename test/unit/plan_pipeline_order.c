/* plan_pipeline_order: what must hold of the order of a pipeline's tasks, and the closed forms of
 * its time: (micro-batches + ranks - 1) tasks forward and back where a rank has one chunk, and
 * (chunks · micro-batches + ranks - 1) of a chunk where it has several. */
#include "plan/pipeline_order.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct {
  int64_t end;  /* of all */
  int most[64]; /* by rank: forwards that are kept at a time */
} Found;

static int64_t *end_of(int64_t *ends, const Pipeline *p, int kind, int chunk, int micro) {
  return &ends[(kind * p->ranks * p->chunks + chunk) * p->micros + micro];
}

/* Every task once, behind those that it waits for, and one of a rank at a time. */
static Found check(const Pipeline *p) {
  Arena *arena = arena_new();
  int count, last = p->ranks * p->chunks - 1, kinds = p->is_forward ? 1 : 2;
  const PipelineTask *tasks = pipeline_order(arena, p, &count);
  int64_t *ends = ARENA_ARRAY(arena, int64_t, 2 * (last + 1) * p->micros);
  int64_t *busy = ARENA_ARRAY(arena, int64_t, p->ranks), before = 0;
  int *kept = ARENA_ARRAY(arena, int, p->ranks);
  Found found = {0};
  assert_int_equal(count, kinds * (last + 1) * p->micros);
  for (int i = 0; i < count; i++) {
    const PipelineTask *task = &tasks[i];
    int step = task->is_backward ? 1 : -1, next = task->chunk + step;
    int64_t transfer = p->ranks > 1 ? p->transfer : 0;
    assert_int_equal(task->rank, task->chunk % p->ranks);
    assert_true(task->start >= before && task->start >= busy[task->rank]);
    before = task->start;
    busy[task->rank] = task->end;
    int64_t *own = end_of(ends, p, task->is_backward, task->chunk, task->micro);
    assert_int_equal(*own, 0);
    *own = task->end;
    if (task->is_backward) {
      int64_t forward = *end_of(ends, p, 0, task->chunk, task->micro);
      assert_true(forward > 0 && forward <= task->start);
    }
    if (next >= 0 && next <= last) {
      int64_t made = *end_of(ends, p, task->is_backward, next, task->micro);
      assert_true(made > 0 && made + transfer <= task->start);
    }
    kept[task->rank] += task->is_backward ? -1 : 1;
    if (kept[task->rank] > found.most[task->rank]) found.most[task->rank] = kept[task->rank];
    if (task->end > found.end) found.end = task->end;
  }
  arena_free(arena);
  return found;
}

static void test_one_chunk(void **state) {
  (void)state;
  for (int ranks = 1; ranks <= 8; ranks++)
    for (int micros = 1; micros <= 20; micros++) {
      Found found = check(&(Pipeline){.ranks = ranks, .chunks = 1, .micros = micros});
      assert_int_equal(found.end, 3 * (micros + ranks - 1));
      for (int r = 0; r < ranks; r++)
        assert_int_equal(found.most[r], micros < ranks - r ? micros : ranks - r);
    }
}

static void test_interleaved(void **state) {
  (void)state;
  for (int ranks = 2; ranks <= 6; ranks++)
    for (int chunks = 2; chunks <= 4; chunks++)
      for (int groups = 1; groups <= 4; groups++) {
        int micros = groups * ranks;
        Found found = check(&(Pipeline){.ranks = ranks, .chunks = chunks, .micros = micros});
        assert_int_equal(found.end, 3 * (chunks * micros + ranks - 1));
      }
}

/* Groups that are not full, chunks of any length, slow transfers: no rank waits for ever. */
static void test_any(void **state) {
  (void)state;
  srand(1);
  for (int trial = 0; trial < 400; trial++) {
    int64_t forward[64], backward[64];
    Pipeline p = {.ranks = 1 + rand() % 6,
                  .chunks = 1 + rand() % 4,
                  .micros = 1 + rand() % 13,
                  .is_forward = trial % 4 == 0,
                  .forward = forward,
                  .backward = backward,
                  .transfer = rand() % 4};
    for (int i = 0; i < 64; i++) forward[i] = 1 + rand() % 9, backward[i] = 1 + rand() % 9;
    check(&p);
  }
}

static void test_evaluation(void **state) {
  (void)state;
  Found found = check(&(Pipeline){.ranks = 4, .chunks = 1, .micros = 10, .is_forward = true});
  assert_int_equal(found.end, 13);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_chunk),
                                     cmocka_unit_test(test_interleaved), cmocka_unit_test(test_any),
                                     cmocka_unit_test(test_evaluation)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
