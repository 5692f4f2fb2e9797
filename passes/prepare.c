/* prepare: see prepare.h. What a product of integers, or by rounded or sparse weights, reads that is made of weights alone, its
 * packed operand above all, and the scales behind it, is marked, with all that it is made of.
 *
 * Only kernels are marked, no collectives, and none with random numbers; no result of theirs is a root or is
 * assigned. What else is made of weights alone (a table of positions, a transposed weight of f32) stays
 * as it is: keeping it would cost memory. */
#include "passes/prepare.h"
#include "passes/fuse.h"
#include "passes/integers.h"
#include "passes/lifetime.h"
#include "passes/pass.h"
#include "passes/sparse.h"
#include <string.h>

bool prepare_has(const Node *step) { return node_int(step, ATTR_PREPARED, 0) != 0; }

bool prepare_is_any(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (prepare_has(graph->nodes.at[i])) return true;
  return false;
}

bool prepare_makes(const Node *base) {
  return base->op == OP_RESULT && prepare_has(base->input[0]);
}

bool prepare_reads(const Node *step, int index, bool for_gpu) {
  return index != integers_packed_operand(step, for_gpu) ||
         !prepare_makes(lifetime_base(step->input[index]));
}

typedef struct {
  const Graph *graph;
  bool *is_fixed;  /* by node: it is the same for all batches as long as weights are */
  bool *is_wanted; /* by step: such a product is made of it */
  bool for_gpu;
} Prepare;

bool prepare_is_weight(const Graph *graph, const Node *leaf) {
  if (leaf->op == OP_PARAM) return true;
  if (leaf->op != OP_STATE || (leaf->role != ROLE_MODEL && leaf->role != ROLE_GIVEN)) return false;
  const char *name = node_str(leaf, ATTR_NAME);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (node->op == OP_ASSIGN && !strcmp(node_str(node, ATTR_TARGET), name)) return false;
  }
  return true;
}

static bool draws(const Node *fused) {
  for (int i = 0; i < fused->body->nodes.count; i++)
    if (fused->body->nodes.at[i]->op == OP_RANDOM) return true;
  return false;
}

static void find_fixed(Prepare *p, const bool *is_shown) {
  for (int i = 0; i < p->graph->nodes.count; i++) {
    const Node *node = p->graph->nodes.at[i];
    if (node_is_leaf(node)) {
      p->is_fixed[i] = prepare_is_weight(p->graph, node);
      continue;
    }
    bool may = node->op == OP_RESHAPE || node->op == OP_RESULT ||
               (node->op == OP_FUSED && !is_shown[i] && !draws(node));
    for (int k = 0; k < node->input_count && may; k++) may = p->is_fixed[node->input[k]->id];
    p->is_fixed[i] = may;
  }
}

/* By step: is a result of it a root, or assigned? */
static bool *find_shown(const Graph *graph, Arena *arena) {
  bool *is_shown = ARENA_ARRAY(arena, bool, graph->nodes.count + 1);
  for (int i = 0; i < graph->roots.count; i++) {
    const Node *node = graph->roots.at[i].node;
    const Node *base = lifetime_base(node->op == OP_ASSIGN ? node->input[0] : node);
    is_shown[base->op == OP_RESULT ? base->input[0]->id : base->id] = true;
  }
  return is_shown;
}

static void prepare_find_wanted(Prepare *p) {
  for (int i = p->graph->nodes.count - 1; i >= 0; i--) {
    const Node *node = p->graph->nodes.at[i];
    const Node *product = lifetime_is_step(node) ? kernel_contraction(node) : NULL;
    bool packs = product && (integers_have_kernel(product, p->for_gpu) || rounded_has_kernel(product) || sparse_has_kernel(product)) &&
                 !p->is_fixed[i];
    if (!packs && !p->is_wanted[i]) continue;
    for (int k = 0; k < node->input_count; k++)
      if (p->is_fixed[node->input[k]->id]) p->is_wanted[node->input[k]->id] = true;
  }
}

static bool has_packed(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    const Node *product = lifetime_is_step(node) ? kernel_contraction(node) : NULL;
    if (product && (node_attr(product, ATTR_INTEGERS) || node_attr(product, ATTR_ROUNDED) || sparse_has_kernel(product)))
      return true;
  }
  return false;
}

Graph *pass_prepare_weights(PassContext *context, Graph *old) {
  if (!has_packed(old)) return old;
  Prepare p = {.graph = old,
               .for_gpu = context->for_gpu,
               .is_fixed = ARENA_ARRAY(context->scratch, bool, old->nodes.count + 1),
               .is_wanted = ARENA_ARRAY(context->scratch, bool, old->nodes.count + 1)};
  find_fixed(&p, find_shown(old, context->scratch));
  prepare_find_wanted(&p);
  Graph *graph = graph_rewrite(old, NULL, NULL);
  for (int i = 0; i < graph->nodes.count; i++) {
    Node *node = graph->nodes.at[i];
    if (node->op == OP_FUSED && p.is_fixed[i] && p.is_wanted[i])
      node_set_attr(graph, node, attr_int(ATTR_PREPARED, 1));
  }
  return graph;
}
