/* passes_memplan: on random steps, every byte is followed through the schedule: a step finds in
 * each operand's place the value it wants, states hold the right values at the end, and a kernel
 * overwrites an operand only element by element. Also: no plan is below the lower bound, and how
 * far above it they are on average. */
#include "passes/fuse.h"
#include "passes/memplan.h"
#include "passes_help.h"

enum { GRAPHS = 200 };
static const char after_fuse[] = "layout,fuse,schedule,memplan";

/* Who wrote each byte of each arena last: the id of a base value or leaf, -1: nobody. */
typedef struct {
  Arena *arena;
  const Graph *graph;
  int *owner[ARENA_COUNT];
  int64_t size[ARENA_COUNT];
} Memory;

static ArenaId arena_of(const Node *node) {
  ArenaId id = ARENA_COUNT;
  assert_non_null(node_str(node, ATTR_ARENA));
  assert_true(arena_parse(node_str(node, ATTR_ARENA), &id));
  return id;
}

static int64_t at_of(const Node *node) { return node_int(node, ATTR_AT, -1); }

static Memory memory_new(const Graph *graph, Arena *arena) {
  Memory memory = {.arena = arena, .graph = graph};
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (node_has_results(node)) continue;
    int64_t end = at_of(node) + type_bytes(&node->type);
    ArenaId id = arena_of(node);
    assert_true(at_of(node) >= 0);
    assert_int_equal(
        at_of(node) % (shape_elements(&node->type.shape) == 1 ? dtype_bytes(node->type.dtype) : 64),
        0);
    if (end > memory.size[id]) memory.size[id] = end;
  }
  for (int id = 0; id < ARENA_COUNT; id++) {
    memory.owner[id] = ARENA_ARRAY(arena, int, memory.size[id]);
    for (int64_t i = 0; i < memory.size[id]; i++) memory.owner[id][i] = -1;
  }
  return memory;
}

static void write_value(Memory *memory, const Node *value) {
  for (int64_t i = 0; i < type_bytes(&value->type); i++)
    memory->owner[arena_of(value)][at_of(value) + i] = value->id;
}

/* A param and the state "params" are the same bytes. */
static bool is_same_leaf(const Memory *memory, int owner, const Node *base) {
  if (owner < 0) return false;
  const Node *other = memory->graph->nodes.at[owner];
  return other == base ||
         (lifetime_is_leaf(other) && arena_of(base) == ARENA_PARAMS && lifetime_is_leaf(base));
}

static void read_value(const Memory *memory, const Node *value, const char *what) {
  const Node *base = lifetime_base(value);
  assert_int_equal(arena_of(value), arena_of(base));
  assert_int_equal(at_of(value), at_of(base));
  if (base->op == OP_PACK) return; /* its operands are its bytes; pack itself has checked them */
  if (base->op == OP_STATE && arena_of(base) == ARENA_PARAMS) return; /* gaps between params */
  for (int64_t i = 0; i < type_bytes(&base->type); i++)
    if (!is_same_leaf(memory, memory->owner[arena_of(base)][at_of(base) + i], base))
      fail_msg("%s: step %d (%s) does not find %%%d in %s at %lld, but %%%d", what, value->id,
               op_info[value->op].text, base->id, arena_text(arena_of(base)),
               (long long)(at_of(base) + i), memory->owner[arena_of(base)][at_of(base) + i]);
}

static bool overlap(const Node *a, const Node *b) {
  return arena_of(a) == arena_of(b) && at_of(a) < at_of(b) + type_bytes(&b->type) &&
         at_of(b) < at_of(a) + type_bytes(&a->type) && type_bytes(&a->type) && type_bytes(&b->type);
}

/* A kernel's results may lie on an operand only if they are that operand, element for element. */
static void check_overwriting(const Node *step, const Node *result) {
  for (int k = 0; k < step->input_count; k++) {
    const Node *base = lifetime_base(step->input[k]);
    if (!overlap(base, result) || step->op == OP_PACK) continue;
    assert_true(step->op == OP_FUSED || step->op == OP_PUT);
    assert_int_equal(at_of(base), at_of(result));
    assert_int_equal(dtype_bytes(base->type.dtype), dtype_bytes(result->type.dtype));
    assert_true(lifetime_may_overwrite(step, (int)node_int(result, ATTR_INDEX, 0), base));
    if (step->op == OP_PUT) continue;
    Shape domain = kernel_domain(step);
    if (kernel_kind(step) == KERNEL_COLUMN) assert_false(shape_equal(&result->type.shape, &domain));
  }
}

static void run_pack(Memory *memory, const Node *pack) {
  const Attr *offsets = node_attr(pack, ATTR_OFFSETS);
  for (int k = 0; k < pack->input_count; k++) {
    const Node *base = lifetime_base(pack->input[k]);
    assert_int_equal(arena_of(base), ARENA_GRADS);
    assert_int_equal(at_of(base), at_of(pack) + offsets->ints[k] * 4);
  }
  (void)memory;
}

static void run_assign(Memory *memory, const Node *assign) {
  const Node *base = lifetime_base(assign->input[0]);
  if (arena_of(base) == arena_of(assign) && at_of(base) == at_of(assign)) return; /* in place */
  for (int64_t i = 0; i < type_bytes(&assign->type);
       i++) /* a copy: the state now holds the value */
    memory->owner[arena_of(assign)][at_of(assign) + i] = base->id;
}

static void check_states(const Memory *memory) {
  for (int i = 0; i < memory->graph->nodes.count; i++) {
    const Node *assign = memory->graph->nodes.at[i];
    if (assign->op != OP_ASSIGN) continue;
    for (int64_t k = 0; k < type_bytes(&assign->type); k++)
      assert_int_equal(memory->owner[arena_of(assign)][at_of(assign) + k],
                       lifetime_base(assign->input[0])->id);
  }
}

static void follow_bytes(const Graph *graph, Arena *arena, const char *what) {
  Memory memory = memory_new(graph, arena);
  Lifetimes times = lifetimes_of(graph, arena);
  for (int i = 0; i < graph->nodes.count; i++)
    if (lifetime_is_leaf(graph->nodes.at[i])) write_value(&memory, graph->nodes.at[i]);
  for (int s = 0; s < times.count; s++) {
    const Node *step = times.node[s];
    for (int k = 0; k < step->input_count; k++) read_value(&memory, step->input[k], what);
    for (int i = 0; i < graph->nodes.count; i++) {
      const Node *value = graph->nodes.at[i];
      if (!lifetime_is_value(value) || times.step[i] != s || value->op == OP_PACK) continue;
      check_overwriting(step, value);
      for (int m = 0; m < i; m++) /* two results of one kernel */
        if (lifetime_is_value(graph->nodes.at[m]) && times.step[m] == s)
          assert_false(overlap(value, graph->nodes.at[m]));
      write_value(&memory, value);
    }
    if (step->op == OP_PACK) run_pack(&memory, step);
    if (step->op == OP_ASSIGN) run_assign(&memory, step);
  }
  for (int i = 0; i < graph->roots.count; i++) {
    const Root *root = &graph->roots.at[i];
    if (root->kind == ROOT_ASSIGN) continue;
    if (shape_elements(&root->node->type.shape) == 1)
      assert_int_equal(arena_of(root->node), ARENA_OUTPUT);
    read_value(&memory, root->node, what);
  }
  check_states(&memory);
}

typedef struct {
  double sum, worst;
  int count;
} Ratio;

static void compare_bound(const Graph *graph, Arena *arena, Ratio *ratio) {
  int count;
  MemSlot *slots = memplan_slots(graph, arena, &count, NULL);
  int64_t peak = 0, bound = memplan_lower_bound(slots, count);
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
  for (int seed = 0; seed < help_random_count(GRAPHS); seed++) {
    Arena *arena = arena_new();
    Diag diag;
    PassContext context = help_context(arena, &diag);
    Graph *forward = graph_random(arena, (uint64_t)seed + 1000, 6 + seed % 70);
    Graph *step = help_pass(&context, forward, to_step);
    Graph *planned = help_pass(&context, step, after_fuse);
    follow_bytes(planned, arena, arena_printf(arena, "seed %d", seed));
    compare_bound(planned, arena, &ratio);
    help_same_roots(&context, step, planned, arena_printf(arena, "seed %d", seed));
    arena_free(arena);
  }
  print_message("work arena over its lower bound: %.4f on average, %.3f at worst, %d steps\n",
                ratio.sum / ratio.count, ratio.worst, ratio.count);
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
    assert_true(peak >= memplan_lower_bound(slots, SLOTS));
  }
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_steps),
                                     cmocka_unit_test(slots_do_not_overlap)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
