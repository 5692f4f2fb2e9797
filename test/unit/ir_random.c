/* ir_random: random graphs verify, print and parse back, depend on the seed alone, stay within
 * their bounds when evaluated, and cover every op that the front end can produce. A seed that
 * somebody reports draws the same graph here, whatever compiled either ft. */
#include "ir_help.h"
#include "test/random/graph.h"
#include <inttypes.h>
#include <math.h>

enum { GRAPHS = 300 };
static const uint64_t seeds_mean =
    0xed5c8e90360200e; /* after a change of recipes, what the failure says */

static const Tensor *leaf(const Node *node, void *context) {
  Tensor *tensor = tensor_new(context, node->type);
  for (int64_t k = 0; k < shape_elements(&node->type.shape); k++) {
    double value = sin(12.9898 * (double)k + node->id);
    if (tensor->f)
      tensor->f[k] = value;
    else
      tensor->i[k] = (int64_t)(value * 1000);
  }
  return tensor;
}

static void check_values(const Graph *graph, Arena *arena, Diag *diag, int seed) {
  Tensor **values = ARENA_ARRAY(arena, Tensor *, graph->nodes.count);
  assert_true(graph_interpret(graph, arena, leaf, arena, false, values, diag));
  for (int i = 0; i < graph->nodes.count; i++)
    for (int64_t k = 0; values[i]->f && k < shape_elements(&values[i]->type.shape); k++)
      if (!(fabs(values[i]->f[k]) < 1e5))
        fail_msg("seed %d: %%%d = %s is %g", seed, i, op_info[graph->nodes.at[i]->op].text,
                 values[i]->f[k]);
  for (int i = 0; i < graph->roots.count; i++) {
    const Tensor *value = values[graph->roots.at[i].node->id];
    for (int64_t k = 0; k < shape_elements(&value->type.shape); k++)
      if (!(fabs(value->f[k]) <= 4.001))
        fail_msg("seed %d: root %s is %g", seed, graph->roots.at[i].name, value->f[k]);
  }
}

static void random_graphs(void **state) {
  (void)state;
  bool seen[OP_COUNT] = {false};
  uint64_t sum = 14695981039346656037u; /* FNV-1a of all texts */
  for (int seed = 0; seed < GRAPHS; seed++) {
    Arena *arena = arena_new();
    Diag diag;
    diag_init(&diag, arena, stderr);
    Graph *graph = graph_random(arena, (uint64_t)seed, 5 + seed % 40);
    if (!graph_verify(graph, STAGE_FORWARD, &diag)) fail_msg("seed %d", seed);
    char *text = graph_to_text(graph, arena);
    assert_string_equal(graph_to_text(help_parse(arena, text), arena), text);
    Graph *again = graph_random(arena, (uint64_t)seed, 5 + seed % 40);
    assert_string_equal(graph_to_text(again, arena), text);
    for (const char *at = text; *at; at++) sum = (sum ^ (unsigned char)*at) * 1099511628211u;
    check_values(graph, arena, &diag, seed);
    for (int i = 0; i < graph->nodes.count; i++) seen[graph->nodes.at[i]->op] = true;
    arena_free(arena);
  }
  if (sum != seeds_mean) fail_msg("seeds mean 0x%" PRIx64 " here", sum);
  static const Op later[] = {OP_CONV_GRAD_INPUT, OP_CONV_GRAD_WEIGHT, OP_POOL_INDEX, OP_FUSED,
                             OP_POOL_MAX_GRAD,   OP_POOL_AVG_GRAD,    OP_PACK,       OP_ARG,
                             OP_RESULT,          OP_ATTENTION_GRAD,   OP_MEAN,       OP_SPREAD};
  for (size_t i = 0; i < sizeof later / sizeof *later; i++) seen[later[i]] = true;
  for (int i = 0; i < OP_COUNT; i++)
    if (!seen[i] && !op_has((Op)i, TRAIT_RANKS))
      fail_msg("no random graph has %s", op_info[i].text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
