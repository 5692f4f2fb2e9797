/* min_cut against all cuts of small random graphs: it is as cheap as the cheapest, and of those the
 * one nearest to the sink. */
#include "passes/min_cut.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { VERTICES = 8, SOURCE = 0, SINK = 1, GRAPHS = 2000 };

typedef struct {
  int count, from[64], to[64];
  int64_t capacity[64];
} Edges;

static Edges random_edges(void) {
  Edges edges = {.count = 4 + rand() % 24};
  for (int i = 0; i < edges.count; i++) {
    edges.from[i] = rand() % VERTICES;
    edges.to[i] = rand() % VERTICES;
    edges.capacity[i] = rand() % 8 ? rand() % 5 : MIN_CUT_INFINITE;
  }
  return edges;
}

/* What leads to the sink's side; more than infinite stays infinite. */
static int64_t cost(const Edges *edges, unsigned sink_side) {
  int64_t sum = 0;
  for (int i = 0; i < edges->count; i++)
    if (!(sink_side >> edges->from[i] & 1) && sink_side >> edges->to[i] & 1)
      sum += sum < MIN_CUT_INFINITE ? edges->capacity[i] : 0;
  return sum < MIN_CUT_INFINITE ? sum : MIN_CUT_INFINITE;
}

static void every_cut(void **state) {
  (void)state;
  int endless = 0;
  srand(1);
  for (int graph = 0; graph < GRAPHS; graph++) {
    Arena *arena = arena_new();
    Edges edges = random_edges();
    MinCut *cut = min_cut_new(arena, VERTICES);
    for (int i = 0; i < edges.count; i++)
      min_cut_edge(cut, edges.from[i], edges.to[i], edges.capacity[i]);
    int64_t least = MIN_CUT_INFINITE;
    unsigned nearest = 0;
    for (unsigned side = 0; side < 1u << VERTICES; side++) {
      if (side >> SOURCE & 1 || !(side >> SINK & 1)) continue;
      int64_t own = cost(&edges, side);
      nearest = own < least ? side : own == least ? nearest & side : nearest;
      least = own < least ? own : least;
    }
    const bool *found = min_cut_solve(cut, SOURCE, SINK);
    endless += !found;
    assert_int_equal(!found, least == MIN_CUT_INFINITE);
    for (int i = 0; found && i < VERTICES; i++) assert_int_equal(found[i], nearest >> i & 1);
    arena_free(arena);
  }
  assert_in_range(endless, 10, GRAPHS / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_cut)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
