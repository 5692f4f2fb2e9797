/* recompute: backward computes forward values again in place of keeping them (Chen et al. 2016,
 * arXiv:1604.06174). Which ones is decided region by region (ir/region.h) as a minimum cut: every
 * candidate can be kept, which costs its bytes, or be recomputed from what is kept, which costs
 * nothing here, if the policy allows its operation:
 *
 *   pointwise  (also `gelu`) pointwise work, moves, random numbers; no product, no sum over rows
 *   block      all operations: then only what goes from region to region is kept
 *   auto       a level for each region: see recompute_auto.c
 *
 * A recomputed node is a copy, marked in its origin (is_recomputed), and stands in front of the
 * first backward node that reads it. cse merges no marked node with an unmarked one; fuse and
 * schedule see a backward node. The copy has the same operation, types and streams of random
 * numbers, so that no value changes. */
#include "passes/recompute.h"
#include "passes/min_cut.h"
#include "passes/recompute_plan.h"
#include <string.h>

static bool is_leaf(const Node *node) { return node->input_count == 0; }

/* Made for the gradient, but by forward: the index of a pooling, which is small, and attention's
 * log-sum-exp. */
static bool is_side_product(const Node *node) {
  return node->op == OP_POOL_INDEX ||
         (node->op == OP_RESULT && !node->input[0]->origin.is_backward);
}
static bool is_backward(const Node *node) {
  return node->origin.is_backward && !is_side_product(node);
}

/* ── what an operation costs ────────────────────────────────────────────────────────────────── */
static int64_t elements(const Node *node) { return shape_elements(&node->type.shape); }

static double contraction_work(const Node *node) {
  const Shape *w = &node->input[1]->type.shape;
  double count = (double)elements(node);
  switch (node->op) {
  case OP_DOT:
    return 2 * count * (double)dot_form(node).k;
  case OP_CONV:
    return 2 * count * (double)(w->dim[1] * w->dim[2] * w->dim[3]);
  case OP_ATTENTION: { /* scores and their product with v; a causal one makes half of them */
    AttentionForm f = attention_form(node);
    double keys = (double)f.keys * (node_int(node, ATTR_CAUSAL, 0) ? 0.5 : 1);
    return 2 * keys * (double)(f.batch * f.heads * f.rows * (f.features + f.values));
  }
  default:
    return 2 * (double)elements(node->input[0]) * (double)elements(node->input[1]) / (count + 1);
  }
}

double recompute_work(const Node *node) {
  enum { ELEMENTARY = 12, RANDOM = 20 };
  switch (op_info[node->op].op_class) {
  case CLASS_CONTRACT:
    return contraction_work(node);
  case CLASS_REDUCE:
    return (double)elements(node->input[0]);
  case CLASS_WINDOW: {
    const Attr *kernel = node_attr(node, ATTR_KERNEL);
    return (double)elements(node) * (kernel ? (double)(kernel->ints[0] * kernel->ints[1]) : 1);
  }
  case CLASS_POINTWISE:
    return (double)elements(node) * (op_has(node->op, TRAIT_ELEMENTARY) ? ELEMENTARY : 1);
  default:
    return node->op == OP_RANDOM ? (double)elements(node) * RANDOM : 0;
  }
}

/* ── what was done ──────────────────────────────────────────────────────────────────────────── */
typedef struct {
  double once, again;   /* work: of all but the recomputed nodes; of these */
  VEC(uint32_t) blocks; /* regions of which something is recomputed */
  bool *has_products;   /* by region */
} Account;

static void add_account(Account *account, const Graph *graph, Arena *arena, uint32_t most) {
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    uint32_t region = node->origin.region.number;
    if (node->body) add_account(account, node->body, arena, most);
    if (node->body || node->input_count == 0) continue;
    bool is_recomputed = node->origin.is_recomputed, is_new = is_recomputed;
    *(is_recomputed ? &account->again : &account->once) += recompute_work(node);
    for (int k = 0; k < account->blocks.count; k++) is_new &= account->blocks.at[k] != region;
    if (is_new) VEC_PUSH(arena, account->blocks, region);
    if (is_recomputed && region <= most)
      account->has_products[region] |= op_info[node->op].op_class == CLASS_CONTRACT;
  }
}

static uint32_t last_region(const Graph *graph) {
  uint32_t most = 0;
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->origin.region.number > most)
      most = graph->nodes.at[i]->origin.region.number;
  return most;
}

const char *recompute_describe(const Graph *graph, Arena *arena) {
  uint32_t most = last_region(graph);
  Account account = {.has_products = ARENA_ARRAY(arena, bool, most + 1)};
  add_account(&account, graph, arena, most);
  int with_products = 0;
  for (uint32_t i = 0; i <= most; i++) with_products += account.has_products[i];
  if (account.blocks.count == 0) return NULL;
  return arena_printf(arena,
                      "recompute: backward recomputes values of %d block%s, products of %d; "
                      "%.3f GFLOP a step more, on %.3f (%.1f %%)",
                      account.blocks.count, account.blocks.count == 1 ? "" : "s", with_products,
                      account.again * 1e-9, account.once * 1e-9,
                      100 * account.again / account.once);
}

/* ── candidates and groups ──────────────────────────────────────────────────────────────────── */
static void recompute_find_early(RecomputePlan *plan) {
  plan->is_early = graph_find_early(plan->graph, plan->is_live, plan->arena);
  for (int i = 0; i < plan->count; i++) {
    const Node *node = plan->graph->nodes.at[i];
    if (is_side_product(node)) plan->is_early[i] = plan->is_early[node->input[0]->id];
  }
}

static RegionPolicy setting_policy(const PassContext *context) {
  const char *text =
      context->settings ? setting_text(context->settings, "train.recompute") : "none";
  return strcmp(text, "pointwise") == 0 ? REGION_POINTWISE
         : strcmp(text, "block") == 0   ? REGION_BLOCK
         : strcmp(text, "auto") == 0    ? REGION_SETTING
                                        : REGION_NONE;
}

static int level_of(RegionPolicy policy) {
  return policy == REGION_BLOCK ? LEVEL_ALL : policy == REGION_POINTWISE ? LEVEL_POINTWISE : 0;
}

/* Outside of all regions only pointwise work is recomputed: nothing is kept there to begin with. */
static int find_group(RecomputePlan *plan, const Node *node, RegionPolicy setting) {
  RegionPolicy own = node->origin.region.policy, policy = own == REGION_SETTING ? setting : own;
  uint32_t region = node->origin.region.number;
  if (policy == REGION_NONE || (region == 0 && policy == REGION_BLOCK)) return -1;
  for (int i = plan->groups.count - 1; i >= 0; i--)
    if (plan->groups.at[i].region == region) return i;
  RecomputeGroup group = {.region = region,
                          .level = level_of(policy),
                          .is_settled = policy != REGION_SETTING,
                          .most = region == 0 ? LEVEL_POINTWISE : LEVEL_ALL};
  VEC_PUSH(plan->arena, plan->groups, group);
  return plan->groups.count - 1;
}

static double work_by_byte(const Node *node) {
  int64_t bytes = type_bytes(&node->type);
  return recompute_work(node) / (double)(bytes > 0 ? bytes : 1);
}

static void add_product(RecomputePlan *plan, RecomputeGroup *group, int id) {
  const Graph *graph = plan->graph;
  VEC_PUSH(plan->arena, group->products, id);
  for (int i = group->products.count - 1; i > 0; i--) {
    int *at = &group->products.at[i];
    if (work_by_byte(graph->nodes.at[at[-1]]) <= work_by_byte(graph->nodes.at[id])) break;
    at[0] = at[-1];
    at[-1] = id;
  }
}

static void recompute_make_groups(RecomputePlan *plan, RegionPolicy setting) {
  for (int i = 0; i < plan->count; i++) {
    const Node *node = plan->graph->nodes.at[i];
    plan->group_of[i] = -1;
    if (is_leaf(node) || is_backward(node) || !plan->is_live[i] || !plan->is_early[i]) continue;
    int found = find_group(plan, node, setting);
    if (found < 0) continue;
    RecomputeGroup *group = &plan->groups.at[found];
    plan->group_of[i] = found;
    plan->place[i] = group->members.count;
    VEC_PUSH(plan->arena, group->members, i);
    if (op_info[node->op].op_class == CLASS_CONTRACT) add_product(plan, group, i);
  }
}

static void recompute_find_readers(RecomputePlan *plan) {
  const Graph *graph = plan->graph;
  for (int i = 0; i < graph->roots.count; i++) plan->is_fixed[graph->roots.at[i].node->id] = true;
  for (int i = 0; i < plan->count; i++) {
    const Node *node = graph->nodes.at[i];
    for (int k = 0; plan->is_live[i] && k < node->input_count; k++) {
      int used = node->input[k]->id;
      if (is_backward(node))
        plan->is_read[used] = true;
      else if (plan->group_of[i] < 0 || plan->group_of[i] != plan->group_of[used])
        plan->is_fixed[used] = true;
    }
  }
}

/* ── the cut ────────────────────────────────────────────────────────────────────────────────── */
/* Outside of regions a sum of two large values is never recomputed, or else a whole chain of
 * residual sums would be for the last of them. */
static bool is_residual(const Node *node) {
  if (node->op != OP_ADD && node->op != OP_SUB) return false;
  return node->input[0]->op != OP_BROADCAST && node->input[1]->op != OP_BROADCAST;
}

static bool recompute_is_allowed(const RecomputePlan *plan, const RecomputeGroup *group, int level,
                                 const Node *node) {
  if (op_has(node->op, TRAIT_SCATTERS) || op_has(node->op, TRAIT_RANKS) || level == LEVEL_NONE)
    return false;
  switch (op_info[node->op].op_class) {
  case CLASS_REDUCE:
  case CLASS_WINDOW:
    return level >= LEVEL_SMALL;
  case CLASS_CONTRACT:
    for (int i = 0; i < group->products.count; i++)
      if (group->products.at[i] == node->id) return i < level - LEVEL_SMALL;
    return false;
  default:
    return group->region != 0 || !is_residual(plan->graph->nodes.at[node->id]);
  }
}

/* Two vertices a member, its making and its value, joined by what keeping the value costs. */
void recompute_choose(RecomputePlan *plan, RecomputeGroup *group, int level) {
  int count = group->members.count, source = 2 * count, sink = source + 1;
  MinCut *cut = min_cut_new(plan->arena, 2 * count + 2);
  for (int i = 0; i < count; i++) {
    int id = group->members.at[i];
    const Node *node = plan->graph->nodes.at[id];
    bool is_fixed = plan->is_fixed[id];
    int64_t bytes = node_has_results(node) ? MIN_CUT_INFINITE : type_bytes(&node->type);
    min_cut_edge(cut, 2 * i, 2 * i + 1, is_fixed ? 0 : bytes);
    if (is_fixed || !recompute_is_allowed(plan, group, level, node))
      min_cut_edge(cut, source, 2 * i, MIN_CUT_INFINITE);
    if (plan->is_read[id]) min_cut_edge(cut, 2 * i + 1, sink, MIN_CUT_INFINITE);
    for (int k = 0; k < node->input_count; k++) {
      int used = node->input[k]->id;
      if (plan->group_of[used] == plan->group_of[id])
        min_cut_edge(cut, 2 * plan->place[used] + 1, 2 * i, MIN_CUT_INFINITE);
    }
  }
  bool *is_after = level == LEVEL_NONE ? NULL : min_cut_solve(cut, source, sink);
  for (int i = 0; i < count; i++)
    plan->is_recomputed[group->members.at[i]] = is_after && is_after[2 * i];
  group->level = level;
}

/* ── the new graph ──────────────────────────────────────────────────────────────────────────── */
/* A node to be recomputed once its operands are, of which this is the next. */
typedef struct {
  const Node *node;
  int operand;
} Pending;

typedef struct {
  const RecomputePlan *plan;
  Graph *fresh;
  VEC(Pending) pending;
  Node **map, **twin; /* by old node: its copy; the recomputed one, which backward reads */
} Apply;

static const char *recompute_reason(const Apply *apply, const Node *node) {
  const RecomputeGroup *group = &apply->plan->groups.at[apply->plan->group_of[node->id]];
  const char *why = node_str(node, ATTR_WHY);
  return arena_printf(apply->fresh->arena, "recomputed%s%s%s",
                      group->level == LEVEL_POINTWISE ? ": pointwise" : "", why ? "; " : "",
                      why ? why : "");
}

/* The value that backward reads; NULL: it is to be recomputed, and is not yet. */
static Node *value_for_backward(const Apply *apply, const Node *old) {
  return apply->plan->is_recomputed[old->id] ? apply->twin[old->id] : apply->map[old->id];
}

static void make_twin(Apply *apply, const Node *old) {
  Node **inputs = ARENA_ARRAY(apply->fresh->arena, Node *, old->input_count);
  for (int k = 0; k < old->input_count; k++) inputs[k] = value_for_backward(apply, old->input[k]);
  Node *made = graph_copy_node(apply->fresh, old, inputs);
  made->origin.is_recomputed = made->origin.is_backward = true;
  node_set_attr(apply->fresh, made, attr_str(ATTR_WHY, recompute_reason(apply, old)));
  apply->twin[old->id] = made;
}

/* Its recomputed operands first. No recursion: they may be a long chain. */
static Node *recompute_for_backward(Apply *apply, const Node *old) {
  Arena *arena = apply->fresh->arena;
  if (!value_for_backward(apply, old)) VEC_PUSH(arena, apply->pending, ((Pending){old, 0}));
  while (apply->pending.count) {
    Pending *now = &apply->pending.at[apply->pending.count - 1];
    if (now->operand == now->node->input_count) {
      make_twin(apply, now->node);
      apply->pending.count--;
      continue;
    }
    const Node *input = now->node->input[now->operand++];
    if (!value_for_backward(apply, input)) VEC_PUSH(arena, apply->pending, ((Pending){input, 0}));
  }
  return value_for_backward(apply, old);
}

Graph *recompute_apply(const RecomputePlan *plan, Arena *arena) {
  const Graph *old = plan->graph;
  Apply apply = {.plan = plan,
                 .fresh = graph_new(arena, old->name),
                 .map = ARENA_ARRAY(arena, Node *, plan->count),
                 .twin = ARENA_ARRAY(arena, Node *, plan->count)};
  for (int i = 0; i < plan->count; i++) {
    const Node *node = old->nodes.at[i];
    Node **inputs = ARENA_ARRAY(arena, Node *, node->input_count);
    for (int k = 0; k < node->input_count; k++)
      inputs[k] = is_backward(node) ? recompute_for_backward(&apply, node->input[k])
                                    : apply.map[node->input[k]->id];
    apply.map[i] = graph_copy_node(apply.fresh, node, inputs);
  }
  graph_copy_roots(apply.fresh, old, apply.map);
  return apply.fresh;
}

/* ── the pass ───────────────────────────────────────────────────────────────────────────────── */
static bool has_own_policy(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.at[i]->origin.region.policy > REGION_NONE) return true;
  return false;
}

Graph *pass_recompute(PassContext *context, Graph *graph) {
  RegionPolicy setting = setting_policy(context);
  if (setting == REGION_NONE && !has_own_policy(graph)) return graph;
  int count = graph->nodes.count;
  Arena *arena = context->scratch;
  RecomputePlan plan = {.arena = arena,
                        .graph = graph,
                        .count = count,
                        .is_live = graph_find_live(graph, arena),
                        .is_read = ARENA_ARRAY(arena, bool, count),
                        .is_fixed = ARENA_ARRAY(arena, bool, count),
                        .group_of = ARENA_ARRAY(arena, int, count),
                        .place = ARENA_ARRAY(arena, int, count),
                        .is_recomputed = ARENA_ARRAY(arena, bool, count)};
  recompute_find_early(&plan);
  recompute_make_groups(&plan, setting);
  recompute_find_readers(&plan);
  for (int i = 0; i < plan.groups.count; i++) {
    RecomputeGroup *group = &plan.groups.at[i];
    if (group->is_settled)
      recompute_choose(&plan, group, group->level < group->most ? group->level : group->most);
  }
  if (setting == REGION_SETTING &&
      !recompute_search(context, &plan,
                        (int64_t)setting_number(context->settings, "train.recompute.budget")))
    return NULL;
  return recompute_apply(&plan, graph->arena);
}
