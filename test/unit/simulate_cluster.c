/* simulate_cluster: what a cluster's words mean, which are refused with which sentence, and that no
 * text at all brings the parser down: random ones, and good ones with letters changed. */
#include "simulate/cluster.h"
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void refuses(const char *text, const char *sentence) {
  Arena *arena = arena_new();
  Cluster cluster;
  const char *why = cluster_parse(arena, text, &cluster);
  if (!why || !strstr(why, sentence))
    fail_msg("%s: '%s', expected '%s'", text, why ? why : "taken", sentence);
  arena_free(arena);
}

static Cluster taken(const char *text) {
  Arena *arena = arena_new();
  Cluster cluster;
  const char *why = cluster_parse(arena, text, &cluster);
  if (why) fail_msg("%s: %s", text, why);
  arena_free(arena);
  return cluster;
}

static bool is_near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

static void test_words(void **state) {
  (void)state;
  Cluster c = taken("nodes=128 gpus=8 gpu=h100 net=400Gb");
  assert_int_equal(cluster_ranks(&c), 1024);
  assert_string_equal(c.machine->name, "h100");
  assert_true(is_near(c.fabric.network, 46e9) && is_near(c.fabric.link, 370e9));
  assert_true(c.memory == 80 * 0x1p30 && c.cores == 0 && cluster_slowness(&c) == 1);
  c = taken("gpu=a100 nodes=2 gpus=4 nics=1 net=25GB latency=7.5us link=150GB link-latency=1us "
            "memory=40GiB memory-rate=1.5TB products=0.5 copies=1 launch=3us");
  assert_true(is_near(c.fabric.network, 25e9 * .92 / 4));
  assert_true(is_near(c.fabric.link, 117.5e9));
  assert_true(is_near(c.fabric.network_latency, 7.5e-6) && is_near(c.fabric.link_latency, 1e-6));
  assert_true(c.memory == 40 * 0x1p30 && is_near(c.memory_rate, 1.5e12));
  assert_true(c.products == 0.5 && c.copies == 1 && is_near(c.launch, 3e-6));
  c = taken("gpu=cpu,gpus=4,cores=2");
  assert_true(cluster_slowness(&c) == 2);
  Cluster big = taken("gpu=h100 nodes=4 gpus=8");
  Fabric part = cluster_fabric(&big, 4);
  assert_true(part.nodes == 1 && part.local == 4);
  Mesh mesh = {16, 1, 2}; /* ranks 0 and 1 share layers; 0, 2, 4 … 14 of each node a batch */
  part = cluster_group(&big, &mesh, MESH_TENSOR);
  assert_true(part.nodes == 1 && part.local == 2);
  part = cluster_group(&big, &mesh, MESH_DATA);
  assert_true(part.nodes == 4 && part.local == 4);
  mesh = (Mesh){2, 1, 16}; /* a group of layers fills two nodes */
  part = cluster_group(&big, &mesh, MESH_TENSOR);
  assert_true(part.nodes == 2 && part.local == 8);
  part = cluster_group(&big, &mesh, MESH_DATA);
  assert_true(part.nodes == 2 && part.local == 1);
  part = cluster_group(&big, &mesh, MESH_ALL);
  assert_true(part.nodes == 4 && part.local == 8);
  part = cluster_fabric(&big, 16);
  assert_true(part.nodes == 2 && part.local == 8);
}

static void test_refused(void **state) {
  (void)state;
  refuses("", "gpu= is missing");
  refuses("gpu=h101", "gpu=h101 is not known; did you mean h100?; known are a100, h100");
  refuses("gpu=h100 nodes=0", "nodes=0: it takes a whole number from 1 to 65536");
  refuses("gpu=h100 nodes=", "nodes=: it takes");
  refuses("gpu=h100 nodes=2.5", "nodes=2.5: it takes");
  refuses("gpu=h100 gpus=65537", "gpus=65537: it takes");
  refuses("gpu=h100 net=400", "net=400: it takes a number of Mb, Gb, Tb (bits) or MB, GB, TB");
  refuses("gpu=h100 net=Gb", "net=Gb: it takes");
  refuses("gpu=h100 net=.Gb", "net=.Gb: it takes");
  refuses("gpu=h100 net=-4Gb", "net=-4Gb: it takes");
  refuses("gpu=h100 net=0Gb", "net=0Gb: it takes");
  refuses("gpu=h100 net=1e999Gb", "net=1e999Gb: it takes");
  refuses("gpu=h100 net=nanGb", "net=nanGb: it takes");
  refuses("gpu=h100 latency=5", "latency=5: it takes a number of ns, us or ms");
  refuses("gpu=h100 products=1.5", "products=1.5: it takes a share");
  refuses("gpu=h100 memory=80", "memory=80: it takes a number of MiB");
  refuses("gpu=h100 node=4", "'node' is no word of a cluster; did you mean nodes?");
  refuses("gpu=h100 nodes", "'nodes' needs a value");
  refuses("gpu=h100 gpu=a100", "gpu= is given twice");
  refuses("gpu=h100 cores=4", "cores= is for gpu=cpu");
  refuses("gpu=h100 nodes=65536 gpus=65536", "at most 1048576 ranks");
}

/* Either a sentence, or a cluster whose figures are such. */
static void check_any(const char *text) {
  Arena *arena = arena_new();
  Cluster c;
  const char *why = cluster_parse(arena, text, &c);
  if (why) {
    assert_true(strlen(why) > 10);
  } else {
    assert_true(cluster_ranks(&c) >= 1 && cluster_ranks(&c) <= 1 << 20);
    double seconds = comm_cost(&c.fabric, COST_ALL_REDUCE, 1 << 20).seconds;
    assert_true(isfinite(seconds) && seconds >= 0);
    assert_true(c.memory > 0 && c.memory_rate > 0 && c.products > 0 && c.launch > 0);
  }
  arena_free(arena);
}

static void test_random(void **state) {
  (void)state;
  static const char good[] = "nodes=12 gpus=8 gpu=h100 net=400Gb latency=5us memory=80GiB nics=3 "
                             "products=0.75 link=1e2GB cores=2";
  static const char letters[] = "=abgGnuU 0123456789.eE-+,\t%\\\"\x01\xff";
  char text[sizeof good + 8];
  srand(2);
  for (int round = 0; round < 50000; round++) {
    size_t length = sizeof good - 1;
    memcpy(text, good, sizeof good);
    if (rand() % 2) length = (size_t)rand() % length;
    text[length] = 0;
    for (int k = rand() % 4; k > 0 && length; k--)
      text[(size_t)rand() % length] = letters[(size_t)rand() % (sizeof letters - 1)];
    check_any(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_words),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_random),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
