/* stages: the part of the graph that the ranks of one stage of a pipeline run (context->stage). Stage
 * s of n has chunks s, s + n, ... (chunks.c). What it needs of another stage it receives, what
 * others need of its values it sends; autodiff lets the gradients of what was received go back.
 *
 * All stages have the loss and metrics, from the stage that makes them, and all inputs. What
 * depends on no param (counts of targets, masks) each makes for itself. */
#include "passes/chunks.h"
#include "passes/messages.h"
#include <string.h>

typedef struct {
  Chunks c;
  int ranks, rank;
  int *need; /* by node, ranks of them: 1 + the first chunk on that rank that reads it; 0: none */
  bool *has_gradient; /* by node */
  Graph *fresh;
  Node **made; /* by node */
} Stages;

static bool stages_is_leaf(const Stages *s, const Node *node) {
  return s->c.kind[node->id] == VALUE_WEIGHT && node->input_count == 0;
}

static int stages_chunk(const Stages *s, const Node *node) {
  return stages_is_leaf(s, node) ? chunks_home(node) : s->c.chunk[node->id];
}

static int stages_rank(const Stages *s, const Node *node) {
  return stages_chunk(s, node) % s->ranks;
}

static bool is_data(const Stages *s, const Node *node) { return s->c.kind[node->id] == VALUE_DATA; }

/* ── what goes from stage to stage ──────────────────────────────────────────────────────────── */
static void need_at(Stages *s, const Node *value, int chunk) {
  int rank = chunk % s->ranks, *need = &s->need[value->id * s->ranks + rank];
  bool is_made_anew = s->c.kind[value->id] == VALUE_WEIGHT && value->input_count;
  for (int k = 0; is_made_anew && k < value->input_count; k++) need_at(s, value->input[k], chunk);
  if (is_made_anew || s->c.kind[value->id] == VALUE_FREE || stages_rank(s, value) == rank) return;
  if (!*need || chunk + 1 < *need) *need = chunk + 1;
}

/* The leaf lies on this rank. */
static bool stages_has(const Stages *s, const Node *leaf, int rank) {
  return s->c.kind[leaf->id] == VALUE_FREE || stages_rank(s, leaf) == rank;
}

static const Node *stages_target_of(const Stages *s, const Node *assign) {
  return graph_find_state(s->c.graph, node_str(assign, ATTR_TARGET));
}

static void stages_find_needs(Stages *s) {
  const Graph *old = s->c.graph;
  for (int i = 0; i < old->nodes.count; i++) {
    const Node *node = old->nodes.at[i];
    if (!is_data(s, node) || node->op == OP_ASSIGN) continue;
    for (int k = 0; k < node->input_count; k++) need_at(s, node->input[k], s->c.chunk[i]);
  }
  for (int i = 0; i < old->roots.count; i++) {
    const Node *assign = old->roots.at[i].node;
    bool is_told = old->roots.at[i].kind != ROOT_ASSIGN && !is_data(s, assign);
    for (int r = 0; is_told && r < s->ranks; r++) need_at(s, assign, r); /* by all stages */
    if (old->roots.at[i].kind != ROOT_ASSIGN) continue;
    const Node *state = stages_target_of(s, assign);
    for (int r = 0; state && r < s->ranks; r++)
      if (stages_has(s, state, r)) need_at(s, assign->input[0], r);
  }
}

/* What is differentiated; NULL: nothing. */
static const Node *find_objective(const Graph *graph) {
  const Node *objective = graph_find_root(graph, ROOT_OBJECTIVE, NULL);
  return objective ? objective : graph_find_root(graph, ROOT_LOSS, NULL);
}

/* Values on a differentiable way from a param to what is differentiated. */
static void stages_find_gradients(Stages *s, PassContext *context) {
  const Graph *old = s->c.graph;
  int nodes = old->nodes.count;
  const Node *loss = find_objective(old);
  if (!loss || !pass_trains(context)) return;
  bool *on_param = ARENA_ARRAY(s->c.arena, bool, nodes);
  for (int i = 0; i < nodes; i++) {
    const Node *node = old->nodes.at[i];
    bool passes = dtype_is_float(node->type.dtype) && node->op != OP_STOP_GRADIENT;
    on_param[i] = node->op == OP_PARAM && node_float(node, ATTR_LR_FACTOR, 1) != 0;
    for (int k = 0; passes && k < node->input_count; k++)
      on_param[i] |= on_param[node->input[k]->id];
  }
  s->has_gradient[loss->id] = on_param[loss->id];
  for (int i = loss->id; i >= 0; i--)
    for (int k = 0; s->has_gradient[i] && k < old->nodes.at[i]->input_count; k++) {
      int of = old->nodes.at[i]->input[k]->id;
      s->has_gradient[of] |= on_param[of];
    }
}

static Message message_for(const Stages *s, const Node *value, int to_chunk) {
  if (stages_is_leaf(s, value) && value->op == OP_STATE)
    return (Message){
        .from = stages_chunk(s, value), .to = to_chunk, .kind = MESSAGE_STATE, .number = value->id};
  return (Message){.micro = stages_is_leaf(s, value) ? MESSAGE_ONCE : 0,
                   .from = stages_chunk(s, value),
                   .to = to_chunk,
                   .kind = s->has_gradient[value->id] ? MESSAGE_ACTIVATION : MESSAGE_VALUE,
                   .number = value->id};
}

/* ── the graph of the stage ─────────────────────────────────────────────────────────────────── */
static Node *stages_get(Stages *s, const Node *old) {
  Node **made = &s->made[old->id];
  if (*made) return *made;
  Node **inputs = ARENA_ARRAY(s->fresh->arena, Node *, old->input_count);
  for (int k = 0; k < old->input_count; k++) inputs[k] = stages_get(s, old->input[k]);
  s->fresh->origin = old->origin;
  return *made = graph_copy_node(s->fresh, old, inputs);
}

/* A value or leaf of this stage, and what of it goes to others; or one that comes from another. */
static void stages_place(Stages *s, const Node *node) {
  const int *need = &s->need[node->id * s->ranks];
  s->fresh->origin = node->origin;
  if (stages_rank(s, node) != s->rank) {
    if (!need[s->rank]) return;
    Message message = message_for(s, node, need[s->rank] - 1);
    s->made[node->id] = message_receive(s->fresh, node->type, stages_rank(s, node), &message);
    return;
  }
  if (node->op == OP_ASSIGN) return;
  Node *made = stages_get(s, node);
  for (int r = 0; r < s->ranks; r++) {
    if (!need[r]) continue;
    Message message = message_for(s, node, need[r] - 1);
    s->fresh->origin = node->origin;
    message_send(s->fresh, made, r, &message);
  }
}

/* On all stages what one of them has. */
static Node *of_all_stages(Stages *s, const Node *value, int number) {
  if (!is_data(s, value)) return stages_get(s, value);
  int owner = stages_rank(s, value);
  s->fresh->origin = value->origin;
  Node *own = owner == s->rank ? s->made[value->id]
                               : make_const(s->fresh, value->type.dtype, value->type.shape, 0);
  Attr root = attr_int(ATTR_ROOT, owner);
  Node *all = graph_node(s->fresh, OP_BROADCAST_FROM, &own, 1, &root, 1, NULL);
  message_join(s->fresh, all, number);
  node_set_attr(s->fresh, all, attr_str(ATTR_WHY, "loss and metrics"));
  return all;
}

static void add_assign(Stages *s, const Root *root) {
  const Node *state = stages_target_of(s, root->node);
  if (!state || !stages_has(s, state, s->rank)) return;
  Node *value = stages_get(s, root->node->input[0]);
  s->fresh->origin = root->node->origin;
  Attr target = attr_str(ATTR_TARGET, root->name);
  Node *assign = graph_node(s->fresh, OP_ASSIGN, &value, 1, &target, 1, NULL);
  graph_add_root(s->fresh, ROOT_ASSIGN, root->name, assign);
}

/* What is differentiated is there, or nothing. */
static void add_objective_of_stage(Stages *s, const Node *objective) {
  bool is_here = is_data(s, objective) ? stages_rank(s, objective) == s->rank : s->rank == 0;
  s->fresh->origin = objective->origin;
  Node *own = is_here ? stages_get(s, objective)
                      : make_const(s->fresh, objective->type.dtype, objective->type.shape, 0);
  graph_add_root(s->fresh, ROOT_OBJECTIVE, "loss", own);
}

static void stages_add_roots(Stages *s, bool trains) {
  const Graph *old = s->c.graph;
  const Node *objective = find_objective(old);
  if (objective && trains) add_objective_of_stage(s, objective);
  for (int i = 0; i < old->roots.count; i++) {
    const Root *root = &old->roots.at[i];
    bool is_here = !is_data(s, root->node) || stages_rank(s, root->node) == s->rank;
    if (root->kind == ROOT_ASSIGN)
      add_assign(s, root);
    else if (root->kind == ROOT_OUTPUT && is_here)
      graph_add_root(s->fresh, root->kind, root->name, stages_get(s, root->node));
    else if (root->kind != ROOT_OBJECTIVE && root->kind != ROOT_OUTPUT)
      graph_add_root(s->fresh, root->kind, root->name, of_all_stages(s, root->node, i));
  }
}

/* What a micro-batch computes of a state must not wait for what comes later of the one before it. */
static bool states_go_forward(const Stages *s, PassContext *context) {
  bool is_fine = true;
  if (!pass_trains(context) || setting_number(context->settings, "train.accumulate") <= 1)
    return true;
  for (int i = 0; i < s->c.graph->nodes.count; i++) {
    const Node *leaf = s->c.graph->nodes.at[i];
    bool is_state = leaf->op == OP_STATE && stages_is_leaf(s, leaf);
    for (int r = 0; is_state && is_fine && r < s->ranks; r++) {
      int chunk = s->need[i * s->ranks + r] - 1;
      is_fine = chunk < 0 || chunk > chunks_home(leaf);
    }
    if (is_fine) continue;
    diag_error(context->diag, leaf->origin.loc,
               "state '%s' is read in part %d of a pipeline and updated in part %d: each "
               "micro-batch would wait for the one before it; cut the model elsewhere "
               "(distributed.stages), or take accumulate = 1",
               node_str(leaf, ATTR_NAME), chunks_pick(leaf, 0), chunks_home(leaf));
    return false;
  }
  return true;
}

/* What is pruned together is on one rank (chunks.c). */
static bool has_leaders(const Stages *s, PassContext *context) {
  for (int i = 0; i < s->fresh->nodes.count && pass_trains(context); i++) {
    const Node *param = s->fresh->nodes.at[i];
    const char *by = node_str(param, ATTR_PRUNED);
    if (param->op != OP_PARAM || !by || graph_find_leaf(s->fresh, OP_PARAM, by)) continue;
    diag_error(context->diag, param->origin.loc, "'%s' is pruned with '%s', which is in another stage: name the stages' blocks (distributed.stages)",
               node_str(param, ATTR_NAME), by);
    return false;
  }
  return true;
}

Graph *pass_stages(PassContext *context, Graph *old) {
  int ranks = context->settings ? (int)setting_pipeline(context->settings) : 1;
  if (ranks == 1) return old;
  int chunks = ranks * (int)setting_number(context->settings, "distributed.interleave");
  Arena *arena = context->scratch;
  int nodes = old->nodes.count;
  Stages s = {.c = chunks_assign(old, chunks, arena),
              .ranks = ranks,
              .rank = context->stage,
              .need = ARENA_ARRAY(arena, int, nodes *ranks),
              .has_gradient = ARENA_ARRAY(arena, bool, nodes),
              .fresh = graph_new(old->arena, old->name),
              .made = ARENA_ARRAY(arena, Node *, nodes)};
  stages_find_needs(&s);
  stages_find_gradients(&s, context);
  if (!states_go_forward(&s, context)) return NULL;
  for (int i = 0; i < nodes; i++) {
    const Node *node = old->nodes.at[i];
    bool is_kept = node->op == OP_INPUT || node->op == OP_STATE;
    if (is_data(&s, node) || stages_is_leaf(&s, node))
      stages_place(&s, node);
    else if (is_kept)
      stages_get(&s, node);
  }
  stages_add_roots(&s, pass_trains(context));
  s.fresh->origin = (Origin){0};
  return has_leaders(&s, context) ? s.fresh : NULL;
}
