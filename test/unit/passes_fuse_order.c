/* fuse_order against a search of the whole: groups of random plans are merged in random order, and
 * before each merge both must agree on whether it would close a cycle. */
#include "passes/fuse_order.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { UNITS = 60, PLANS = 400, TRIES = 200, LONG = 20000 };

static void add_read(FusePlan *plan, int reader, int used) {
  VEC_PUSH(plan->arena, plan->unit[reader].reads, ((FuseRead){used, 1}));
  VEC_PUSH(plan->arena, plan->readers[used], reader);
}

static FusePlan *plan_of(Arena *arena, int count) {
  FusePlan *plan = ARENA_NEW(arena, FusePlan);
  *plan = (FusePlan){.arena = arena,
                     .count = count,
                     .group = ARENA_ARRAY(arena, int, count),
                     .unit = ARENA_ARRAY(arena, FuseUnit, count),
                     .readers = ARENA_ARRAY(arena, FuseReaders, count)};
  for (int i = 0; i < count; i++) {
    FuseGroup group = {0};
    plan->group[i] = i;
    VEC_PUSH(arena, group.members, i);
    VEC_PUSH(arena, plan->groups, group);
  }
  return plan;
}

static void merge(FusePlan *plan, FuseOrder *order, int kept, int gone) {
  FuseGroup *x = &plan->groups.at[kept], *y = &plan->groups.at[gone];
  fuse_order_merge(order, kept, gone);
  for (int i = 0; i < y->members.count; i++) {
    plan->group[y->members.at[i]] = kept;
    VEC_PUSH(plan->arena, x->members, y->members.at[i]);
  }
  y->members.count = 0;
}

/* Does a path of reads lead from group `from` over another to group `to`? */
static bool is_path(const FusePlan *plan, int from, int to) {
  bool seen[UNITS] = {false};
  int stack[UNITS], count = 0;
  for (stack[count++] = from; count;) {
    int at = stack[--count];
    for (int i = 0; i < plan->groups.at[at].members.count; i++) {
      const FuseUnit *unit = &plan->unit[plan->groups.at[at].members.at[i]];
      for (int k = 0; k < unit->reads.count; k++) {
        int next = plan->group[unit->reads.at[k].node];
        if (next == to && at != from) return true;
        if (next == to || next == from || seen[next]) continue;
        seen[next] = true;
        stack[count++] = next;
      }
    }
  }
  return false;
}

static void random_plans(void **state) {
  (void)state;
  int cycles = 0, merges = 0;
  srand(1);
  for (int p = 0; p < PLANS; p++) {
    Arena *arena = arena_new();
    FusePlan *plan = plan_of(arena, UNITS);
    int near = 1 + rand() % UNITS;
    for (int i = 1; i < UNITS; i++)
      for (int k = rand() % 3; k > 0; k--) add_read(plan, i, i - 1 - rand() % (i < near ? i : near));
    FuseOrder *order = fuse_order_new(plan);
    for (int t = 0; t < TRIES; t++) {
      int a = plan->group[rand() % UNITS], b = plan->group[rand() % UNITS];
      if (a == b) continue;
      bool is_cycle = is_path(plan, a, b) || is_path(plan, b, a);
      assert_int_equal(fuse_order_makes_cycle(order, a, b), is_cycle);
      cycles += is_cycle;
      merges += !is_cycle;
      if (!is_cycle) merge(plan, order, a, b);
    }
    arena_free(arena);
  }
  assert_true(cycles > PLANS && merges > PLANS);
}

/* Group after group moves in front of the first, more than there are labels between two. */
static void many_at_one_place(void **state) {
  (void)state;
  Arena *arena = arena_new();
  FusePlan *plan = plan_of(arena, LONG);
  for (int i = 2; i < LONG; i += 2) add_read(plan, i, i - 1); /* what must stand before the whole */
  FuseOrder *order = fuse_order_new(plan);
  for (int i = 2; i < LONG; i += 2) {
    assert_false(fuse_order_makes_cycle(order, 0, i));
    merge(plan, order, 0, i);
    assert_false(fuse_order_makes_cycle(order, 0, i - 1));
  }
  int last = LONG - 1; /* reads the whole, and is read by what the whole reads: no order is left */
  add_read(plan, last, 2);
  add_read(plan, last, 1);
  assert_true(fuse_order_makes_cycle(order, last, 1));
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_plans),
                                     cmocka_unit_test(many_at_one_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
