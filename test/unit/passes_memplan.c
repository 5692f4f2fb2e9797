/* passes_memplan: on random steps, plans that the verifier of planned graphs accepts
 * (ir/verify_places.c), which refuses them with any value in a wrong place. Also: no plan is below
 * the lower bound, and how far above it they are on average. */
#include "passes/memplan.h"
#include "passes_help.h"
#include "test/random/graph.h"

enum { GRAPHS = 200 };
static const char after_fuse[] = "layout,fuse,schedule,memplan";

static const char *arena_of(const Node *node) { return node_str(node, ATTR_PLACE); }

static void move(Graph *graph, const Node *base, int64_t at) {
  for (int i = base->id; i < graph->nodes.count; i++)
    if (lifetime_base(graph->nodes.at[i]) == base)
      node_set_attr(graph, graph->nodes.at[i], attr_int(ATTR_AT, at));
}

static bool is_fine(const Graph *graph, Arena *arena) {
  Diag diag;
  diag_init(&diag, arena, help_quiet);
  return graph_verify(graph, STAGE_PLANNED, &diag);
}

/* Every value in turn is laid over another that is read later: the verifier must refuse each of
 * these plans. Returns how many there were. */
static int misplace_values(Graph *graph, Arena *arena, int seed) {
  Lifetimes times = lifetimes_of(graph, arena);
  int tried = 0;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *moved = graph->nodes.at[i];
    if (!lifetime_is_value(moved) || strcmp(arena_of(moved), "work") != 0) continue;
    int64_t at = node_int(moved, ATTR_AT, 0);
    for (int k = 0; k < graph->nodes.count; k++) {
      const Node *under = graph->nodes.at[k];
      int step = times.step[i];
      if (k == i || !lifetime_is_value(under) || strcmp(arena_of(under), "work") != 0 ||
          times.first[k] >= step || times.last[k] <= step || !type_bytes(&under->type) ||
          !type_bytes(&moved->type))
        continue;
      move(graph, moved, node_int(under, ATTR_AT, 0) + (type_bytes(&under->type) - 1) / 8 * 8);
      tried++;
      if (is_fine(graph, arena))
        fail_msg("seed %d: %%%d may lie over %%%d, which is read later", seed, i, k);
      move(graph, moved, at);
    }
  }
  return tried;
}

static void check_alignment(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (node_has_results(node)) continue;
    bool is_one = shape_elements(&node->type.shape) == 1;
    assert_int_equal(node_int(node, ATTR_AT, -1) % (is_one ? dtype_bytes(node->type.dtype) : 64),
                     0);
  }
  for (int i = 0; i < graph->roots.count; i++)
    if (graph->roots.at[i].kind != ROOT_ASSIGN &&
        shape_elements(&graph->roots.at[i].node->type.shape) == 1)
      assert_string_equal(arena_of(graph->roots.at[i].node), "output");
}

typedef struct {
  double sum, worst;
  int count;
} Ratio;

static void compare_bound(const Graph *graph, Arena *arena, Ratio *ratio) {
  int count;
  MemSlot *slots = memplan_slots(graph, arena, &count, NULL);
  int64_t peak = 0, bound = memplan_lower_bound(slots, count, arena);
  for (int i = 0; i < count; i++)
    if (slots[i].at + slots[i].bytes > peak) peak = slots[i].at + slots[i].bytes;
  assert_true(peak >= bound);
  if (bound == 0) return;
  double r = (double)peak / (double)bound;
  ratio->sum += r;
  ratio->count++;
  if (r > ratio->worst) ratio->worst = r;
}

static void random_steps(void **state) {
  (void)state;
  Ratio ratio = {0};
  int misplaced = 0;
  for (int seed = 0; seed < help_random_count(GRAPHS); seed++) {
    Arena *arena = arena_new();
    Diag diag;
    PassContext context = help_context(arena, &diag, seed);
    Graph *forward = graph_random(arena, (uint64_t)seed + 1000, 6 + seed % 70);
    Graph *step = help_pass(&context, forward, to_step);
    Graph *planned = help_pass(&context, step, after_fuse);
    check_alignment(planned);
    if (seed % 40 == 0) misplaced += misplace_values(planned, arena, seed);
    compare_bound(planned, arena, &ratio);
    help_same_roots(&context, step, planned, arena_printf(arena, "seed %d", seed));
    arena_free(arena);
  }
  print_message("work arena over its lower bound: %.4f on average, %.3f at worst, %d steps\n",
                ratio.sum / ratio.count, ratio.worst, ratio.count);
  print_message("%d plans with a value in a wrong place, all refused\n", misplaced);
  assert_true(misplaced > 1000);
  assert_true(ratio.sum / ratio.count < 1.05);
}

/* The packing by itself, on lifetimes no graph would have. */
static void slots_do_not_overlap(void **state) {
  (void)state;
  Arena *arena = arena_new();
  uint64_t random = 7;
  for (int round = 0; round < 200; round++) {
    enum { SLOTS = 60 };
    MemSlot slots[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      int first = (int)(random >> 33) % 40, length = (int)(random >> 45) % 12;
      slots[i] = (MemSlot){first, first + length, 64 * (int64_t)(1 + (random >> 50) % 50), -1};
    }
    int64_t peak = memplan_pack(slots, SLOTS, arena), end = 0;
    for (int i = 0; i < SLOTS; i++) {
      assert_true(slots[i].at >= 0 && slots[i].at % MEMPLAN_ALIGN == 0);
      if (slots[i].at + slots[i].bytes > end) end = slots[i].at + slots[i].bytes;
      for (int k = 0; k < i; k++) {
        bool together = slots[i].first <= slots[k].last && slots[k].first <= slots[i].last;
        if (together)
          assert_true(slots[i].at >= slots[k].at + slots[k].bytes ||
                      slots[k].at >= slots[i].at + slots[i].bytes);
      }
    }
    assert_int_equal(peak, end);
    assert_true(peak >= memplan_lower_bound(slots, SLOTS, arena));
  }
  arena_free(arena);
}

/* Of lifetimes so mixed that hardly a subtree can be passed as a whole, the search places some slots
 * only; those placed without it do not overlap either, nor take much more than they must. */
static void search_ends(void **state) {
  (void)state;
  enum { SLOTS = 12000 };
  Arena *arena = arena_new();
  MemSlot *slots = ARENA_ARRAY(arena, MemSlot, SLOTS);
  uint64_t random = 3;
  for (int i = 0; i < SLOTS; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    int first = (int)((random >> 33) % SLOTS), length = (int)((random >> 13) % (SLOTS / 3));
    slots[i] = (MemSlot){first, first + length, 64 * (int64_t)(1 + (random >> 50) % 5000), -1};
  }
  int64_t peak = memplan_pack(slots, SLOTS, arena), least = memplan_lower_bound(slots, SLOTS, arena);
  for (int i = 0; i < SLOTS; i++) {
    assert_in_range(slots[i].at, 0, peak - slots[i].bytes);
    for (int k = 0; k < i; k++)
      if (slots[i].first <= slots[k].last && slots[k].first <= slots[i].last &&
          slots[i].at < slots[k].at + slots[k].bytes && slots[k].at < slots[i].at + slots[i].bytes)
        fail_msg("slots %d and %d overlap", i, k);
  }
  print_message("%.3f of the lower bound\n", (double)peak / (double)least);
  assert_true((double)peak < 1.5 * (double)least);
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_steps),
                                     cmocka_unit_test(slots_do_not_overlap),
                                     cmocka_unit_test(search_ends)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
