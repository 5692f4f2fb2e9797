/* plan_comm_cost: the cost of collectives against values computed by hand from the formulas of
 * comm_cost.h, and what must hold of any of them. */
#include "plan/comm_cost.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void near(double got, double expected) {
  if (fabs(got - expected) > 1e-9 * fabs(expected))
    fail_msg("%.12g, expected %.12g", got, expected);
}

static Fabric h100(int nodes, int local) { return fabric_of(machine_find("h100"), nodes, local); }

static void test_by_hand(void **state) {
  (void)state;
  Fabric node = h100(1, 8), two = h100(2, 8), far = h100(128, 1), rank = h100(1, 1);
  /* large: ring, Simple: 8.4 + 14 hops of 3.4 us, 2·7/8 of the bytes at 370 GB/s */
  CommCost cost = comm_cost(&node, COST_ALL_REDUCE, 1 << 30);
  near(cost.seconds, 8.4e-6 + 14 * 3.4e-6 + 1.75 * 0x1p30 / 370e9);
  assert_string_equal(cost.algorithm, "ring");
  assert_string_equal(cost.protocol, "Simple");
  /* few bytes: ring, LL: 3.6 + 14 hops of 0.47 us; a tree would take 4.4 + 14 · 0.52 */
  cost = comm_cost(&node, COST_ALL_REDUCE, 8);
  near(cost.seconds, 3.6e-6 + 14 * 0.47e-6 + 1.75 * 8 / (370e9 / 4));
  /* two nodes: 30 hops, of them 2 between nodes; 8 cards of 46 GB/s are 368 GB/s, less than a link */
  cost = comm_cost(&two, COST_REDUCE_SCATTER, (int64_t)1 << 32);
  near(cost.seconds, 8.4e-6 + 14 * 3.4e-6 + 9.6e-6 + 0x1p32 * 15 / 16 / 368e9);
  cost = comm_cost(&two, COST_ALL_REDUCE, (int64_t)1 << 32);
  near(cost.seconds, 8.4e-6 + 28 * 3.4e-6 + 2 * 9.6e-6 + 0x1p32 * 30 / 16 / 368e9);
  /* one GPU in each of 128 nodes, few bytes: the tree's seven levels */
  cost = comm_cost(&far, COST_ALL_REDUCE, 1024);
  assert_string_equal(cost.algorithm, "tree");
  near(cost.seconds, 4.4e-6 + 14 * 5e-6 + 2048 / (46e9 * .25 * .9));
  cost = comm_cost(&far, COST_BROADCAST, (int64_t)1 << 33);
  near(cost.seconds, 8.4e-6 + 127 * 9.6e-6 + 0x1p33 / 46e9);
  cost = comm_cost(&node, COST_SEND, 1 << 30);
  near(cost.seconds, 8.4e-6 + 3.4e-6 + 0x1p30 / 370e9);
  /* of 16 ranks 8 are in the other node: half of the bytes leave by each rank's own card */
  cost = comm_cost(&two, COST_ALL_TO_ALL, (int64_t)1 << 32);
  near(cost.seconds, 8.4e-6 + 7 * 3.4e-6 + 8 * 9.6e-6 + 0x1p31 / 46e9);
  near(comm_cost(&rank, COST_ALL_REDUCE, 1 << 20).seconds, 0);
  near(comm_cost(&node, COST_ALL_REDUCE, 0).seconds, 0);
}

static void test_levels(void **state) {
  (void)state;
  /* a slow network of many nodes with hops that cost much: fewer hops between nodes cannot be had by
   * levels, but fewer inside; both terms of the two rings */
  Fabric fabric = h100(4, 8);
  fabric.link_latency = 1e-3;
  CommCost cost = comm_cost(&fabric, COST_ALL_GATHER, 1 << 26);
  assert_string_equal(cost.algorithm, "by levels");
  double inside = 8.4e-6 + 7 * 1e-3 + 0x1p26 * 7 / 8 / 370e9;
  near(cost.seconds, inside + 8.4e-6 + 3 * 9.6e-6 + 0x1p23 * 3 / 4 / 46e9);
}

static void test_holds_always(void **state) {
  (void)state;
  srand(3);
  for (int i = 0; i < 20000; i++) {
    const Machine *machine = &machine_table[rand() % machine_count];
    Fabric fabric = fabric_of(machine, 1 + rand() % 64, 1 + rand() % 8);
    int64_t bytes = 1 + rand() % (1 << 28);
    CostKind kind = (CostKind)(rand() % COST_KINDS);
    double seconds = comm_cost(&fabric, kind, bytes).seconds;
    Fabric faster = fabric;
    faster.link *= 2;
    faster.network *= 2;
    assert_true(isfinite(seconds) && seconds >= 0);
    assert_true(comm_cost(&fabric, kind, bytes + 1000).seconds >= seconds);
    assert_true(comm_cost(&faster, kind, bytes).seconds <= seconds);
    if (fabric.nodes * fabric.local < 2) continue;
    /* no faster than the bytes that must leave a rank of a node with the faster of its links */
    double most = fabric.network > fabric.link ? fabric.network : fabric.link;
    if (kind == COST_ALL_REDUCE) assert_true(seconds > (double)bytes / most / fabric.local);
    double parts = comm_cost(&fabric, COST_REDUCE_SCATTER, bytes).seconds +
                   comm_cost(&fabric, COST_ALL_GATHER, bytes).seconds;
    if (kind == COST_ALL_REDUCE) assert_true(seconds < parts);
  }
}

static void test_names(void **state) {
  (void)state;
  assert_int_equal(comm_cost_kind("all_reduce"), COST_ALL_REDUCE);
  assert_int_equal(comm_cost_kind("receive"), COST_SEND);
  assert_int_equal(comm_cost_kind("broadcast"), COST_BROADCAST);
  assert_int_equal(comm_cost_kind("scatter"), COST_KINDS);
}

/* Seconds that a cut into buckets of `size` adds: a start for each, and the last one whole. */
static double added(const Fabric *fabric, int64_t total, double size) {
  double start = comm_cost(fabric, COST_ALL_REDUCE, 1).seconds;
  double slope = (comm_cost(fabric, COST_ALL_REDUCE, (int64_t)2 << 30).seconds -
                  comm_cost(fabric, COST_ALL_REDUCE, (int64_t)1 << 30).seconds) /
                 0x1p30;
  return start * (double)total / size + size * slope;
}

static void test_buckets(void **state) {
  (void)state;
  const int64_t total = (int64_t)500 << 20;
  for (int i = 0; i < machine_count; i++)
    for (int nodes = 1; nodes <= 64; nodes *= 4) {
      Fabric fabric = fabric_of(&machine_table[i], nodes, 8);
      BucketSize size = comm_bucket_size(&fabric, total);
      double best = added(&fabric, total, (double)size.bytes);
      assert_true(best <= added(&fabric, total, (double)size.bytes * 1.1));
      assert_true(best <= added(&fabric, total, (double)size.bytes / 1.1));
      assert_true(size.last > 0 && size.last < size.bytes);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_by_hand),      cmocka_unit_test(test_levels),
      cmocka_unit_test(test_holds_always), cmocka_unit_test(test_names),
      cmocka_unit_test(test_buckets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
