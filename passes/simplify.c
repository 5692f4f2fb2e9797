/* simplify: algebra, constant folding and the canonical form, by a table of rules run to a
 * fixpoint. The rules are in simplify_math.c (pointwise), simplify_move.c (shapes, reductions,
 * products) and simplify_fold.c (constants).
 *
 * Invariant: no value changes by more than the rounding of constants taken together (x*a*b =
 * x*(ab)), NaN stays NaN, infinity stays infinity; of zeros the sign alone may change. Sums may be
 * taken in another order; one that is not finite stays not finite. */
#include "passes/simplify.h"
#include "passes/pass.h"
#include <assert.h>

enum {
  ROUND_LIMIT = 16, /* rules make progress, so this bounds a fault, not a graph */
  CHAIN_LIMIT = 64  /* rules in a row on one node */
};

typedef struct {
  const int *uses; /* of the graph that is read */
  int fired;
  bool keeps_values; /* no gradient will be taken any more: values are all that counts */
  bool keeps_orders; /* products of 8-bit floats have their operands as they need them */
} Round;

static Node *apply_table(const SimplifyRule *rule, Graph *graph, Node *node) {
  for (; rule->run; rule++)
    if (rule->op == node->op) {
      Node *better = rule->run(graph, node);
      if (better) return better;
    }
  return NULL;
}

static bool is_float8_dot(const Node *node) {
  return node->op == OP_DOT && dtype_is_float8(node->input[0]->type.dtype);
}

static Node *improve(Graph *graph, Node *node, bool is_single, const Round *round) {
  Node *better = simplify_fold(graph, node);
  if (!better) better = simplify_sink(graph, node);
  if (!better) better = apply_table(simplify_math_rules, graph, node);
  bool is_left = round->keeps_orders && is_float8_dot(node);
  if (!better && !is_left) better = apply_table(simplify_move_rules, graph, node);
  if (!better) better = apply_table(simplify_sum_rules, graph, node);
  if (!better && is_single) better = apply_table(simplify_single_rules, graph, node);
  if (!better && is_single && round->keeps_values)
    better = apply_table(simplify_value_rules, graph, node);
  assert(!better || type_equal(&better->type, &node->type));
  return better;
}

static Node *simplify_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  Round *round = context;
  bool is_single = old->input_count > 0 && round->uses[old->input[0]->id] == 1;
  Node *node = graph_copy_node(fresh, old, inputs);
  for (int i = 0; i < CHAIN_LIMIT; i++) {
    Node *better = improve(fresh, node, is_single && i == 0, round);
    if (!better || better == node) break;
    node = better;
    round->fired++;
  }
  return node;
}

/* dce between the rounds, so that no rule goes on firing for a node without users. */
Graph *pass_simplify(PassContext *context, Graph *graph) {
  for (int i = 0; i < ROUND_LIMIT; i++) {
    Round round = {.uses = graph_use_counts(graph, context->scratch),
                   .keeps_values = !pass_trains(context) || graph_find_gradients(graph),
                   .keeps_orders = context->multiplies_float8 == FLOAT8_ALONG_K};
    Graph *fresh = graph_rewrite(graph, simplify_visit, &round);
    if (round.fired == 0) break;
    graph = pass_dce(context, fresh);
  }
  return graph;
}
