/* recipe_prune: `prune = magnitude(sparsity=0.8, every=100 steps) on "*.weight"`: which parameters become 0 in the course of a training, as
 * the settings train.prune.* and an attribute of each parameter; passes/prune.h does it. */
#include "frontend/recipe.h"
#include "plan/prune_structure.h"
#include <string.h>

const char recipe_prune_key[] = "train.prune";

static PruneStructure chosen_structure(const Builder *b) {
  PruneStructure structure = {.kind = PRUNE_ELEMENT};
  prune_structure_read(setting_text(b->program->settings, "train.prune.structure"), &structure);
  return structure;
}

bool recipe_prune(Builder *b, const Ast *ast) {
  if (ast->kind == AST_NONE) return recipe_set_text(b, recipe_prune_key, "none", ast->loc);
  bool is_on = ast->kind == AST_ON;
  if (!recipe_choice(b, "prune", is_on ? ast->kid[0] : ast)) return false;
  return !is_on || recipe_prune_on(b, ast->kid[1]);
}

/* What prunes nothing by itself and is set all the same: a mistake that would go unnoticed. */
static bool check_structure_use(Builder *b, Loc loc, PruneStructure structure) {
  const SettingValue *settings = b->program->settings;
  bool has_share = settings[setting_find("train.prune.sparsity")].is_set ||
                   settings[setting_find("train.prune.initial")].is_set;
  bool is_global = strcmp(setting_text(settings, "train.prune.scope"), "global") == 0;
  if (structure.kind == PRUNE_N_OF_M && has_share)
    return builder_fail(b, loc, "structure=\"%lld:%lld\" says how much is kept; leave out sparsity and initial",
                        (long long)structure.first, (long long)structure.second);
  if (structure.kind == PRUNE_N_OF_M && is_global)
    return builder_fail(b, loc, "structure=\"%lld:%lld\" keeps as much of each layer; leave out scope=global",
                        (long long)structure.first, (long long)structure.second);
  return true;
}

bool recipe_check_prune(Builder *b) {
  const SettingValue *settings = b->program->settings;
  const SettingValue *prune = &settings[setting_find(recipe_prune_key)];
  PruneStructure structure;
  const char *text = setting_text(settings, "train.prune.structure");
  if (strcmp(prune->text, "none") == 0) return true;
  if (!prune_structure_read(text, &structure))
    return builder_fail(b, prune->loc, "structure of prune is %s, not '%s'", prune_structure_usage, text);
  return check_structure_use(b, prune->loc, structure);
}

/* What belongs to the channels of the parameter before: its bias, a batch norm's vectors. */
static bool is_companion(const Builder *b, const Node *param) {
  const Shape *shape = &param->type.shape;
  const Node *before = b->prune_before;
  return chosen_structure(b).kind == PRUNE_CHANNEL && before && b->prune_graph == b->graph &&
         shape->rank == 1 && shape->dim[0] == before->type.shape.dim[0];
}

static void mark_pruned(Builder *b, Node *param, const Node *by) {
  node_set_attr(b->graph, param, attr_str(ATTR_PRUNED, node_str(by, ATTR_NAME)));
}

void recipe_apply_prune(Builder *b, Node *param, bool is_named, bool is_frozen) {
  const SettingValue *prune = &b->program->settings[setting_find(recipe_prune_key)];
  int rank = param->type.shape.rank;
  if (strcmp(prune->text, "none") == 0) return;
  bool is_pruned = (b->prune_has_rule ? is_named : rank >= 2) && !is_frozen;
  if (is_pruned && rank < 2 && chosen_structure(b).kind == PRUNE_N_OF_M) {
    char text[TYPE_TEXT];
    builder_fail(b, prune->loc, "structure=\"%s\" is for parameters with inputs, and '%s' is %s; add `and rank >= 2`",
                 setting_text(b->program->settings, "train.prune.structure"), node_str(param, ATTR_NAME),
                 type_text(&param->type, text));
    return;
  }
  if (is_pruned) {
    mark_pruned(b, param, param);
  } else if (!is_frozen && is_companion(b, param)) {
    mark_pruned(b, param, b->prune_before);
    return;
  }
  if (!is_pruned && rank < 2) return;
  b->prune_before = is_pruned && rank >= 2 ? param : NULL;
  b->prune_graph = b->graph;
}

/* ── the last layers ────────────────────────────────────────────────────────────────────────── */
/* By node: the trained matrix that it is, by moves and arithmetic with other weights, such as rounding; NULL: it is none. */
static const Node **find_matrices(Arena *arena, const Graph *graph) {
  const Node **matrix = ARENA_ARRAY(arena, const Node *, graph->nodes.count);
  bool *is_weight = ARENA_ARRAY(arena, bool, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    OpClass class = op_info[node->op].op_class;
    is_weight[i] = node_is_leaf(node) ? node->op != OP_INPUT : node->op != OP_RANDOM;
    for (int k = 0; k < node->input_count; k++) is_weight[i] &= is_weight[node->input[k]->id];
    if (node->op == OP_PARAM && node->type.shape.rank >= 2 && !node_is_frozen(node)) matrix[i] = node;
    for (int k = 0; k < node->input_count && is_weight[i] && (class == CLASS_POINTWISE || class == CLASS_MOVE); k++)
      if (!matrix[i]) matrix[i] = matrix[node->input[k]->id];
  }
  return matrix;
}

static bool is_product(const Node *node) {
  return node->op == OP_DOT || node->op == OP_CONV || node->op == OP_CONV_GRAD_INPUT;
}

/* By node: is there a product with another weight between it and what the graph is for? Nodes stand behind their operands. */
static bool *find_inner(Arena *arena, const Graph *graph, const Node *const *matrix) {
  const bool *live = graph_find_live(graph, arena);
  bool *inner = ARENA_ARRAY(arena, bool, graph->nodes.count);
  for (int i = graph->nodes.count - 1; i >= 0; i--) {
    const Node *node = graph->nodes.at[i];
    for (int k = 0; k < node->input_count && live[i]; k++)
      inner[node->input[k]->id] |= inner[i] || (is_product(node) && matrix[node->input[1 - k]->id]);
  }
  return inner;
}

/* By node: a weight whose outputs are, through no other weight, those of the model: classes, pixels, words. */
static bool *find_outputs(Arena *arena, const Graph *graph) {
  const Node **matrix = find_matrices(arena, graph);
  const bool *inner = find_inner(arena, graph, matrix), *live = graph_find_live(graph, arena);
  bool *outputs = ARENA_ARRAY(arena, bool, graph->nodes.count);
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    for (int k = 0; k < 2 && live[i] && is_product(node) && !inner[i]; k++) {
      const Node *weight = matrix[node->input[k]->id];
      if (weight) outputs[weight->id] = true;
    }
  }
  return outputs;
}

void recipe_note_outputs(Builder *b, const Graph *graph) {
  const bool *outputs = find_outputs(b->arena, graph);
  for (int i = 0; i < graph->nodes.count; i++)
    if (outputs[i]) VEC_PUSH(b->arena, b->program->outputs, node_str(graph->nodes.at[i], ATTR_NAME));
}

/* Those that are pruned by the units of `leader`: itself, its bias. */
static void drop_pruned(Graph *graph, const Node *leader) {
  const char *name = node_str(leader, ATTR_NAME);
  for (int i = 0; i < graph->nodes.count; i++) {
    const char *by = node_str(graph->nodes.at[i], ATTR_PRUNED);
    if (by && graph->nodes.at[i] != leader && strcmp(by, name) == 0) node_drop_attr(graph->nodes.at[i], ATTR_PRUNED);
  }
  node_drop_attr(graph->nodes.at[leader->id], ATTR_PRUNED);
}

static void tell_outputs(Builder *b, const char *names, int count) {
  Loc loc = b->program->settings[setting_find(recipe_prune_key)].loc;
  const char *them = count > 1 ? "them" : "it";
  if (b->prune_has_rule)
    diag_warning(b->diag, loc, "outputs of the model are pruned: the channels of %s are its classes, pixels or words; leave %s out behind `on`",
                 names, them);
  else
    diag_note(b->diag, loc, "prune leaves %s alone, whose channels are the outputs of the model; `on` says which parameters are pruned",
              names);
}

bool recipe_prune_outputs(Builder *b, Graph *graph) {
  bool is_told = b->training && !b->program->train && !b->is_again && !b->diag->is_quiet;
  const SettingValue *prune = &b->program->settings[setting_find(recipe_prune_key)];
  if (strcmp(prune->text, "none") == 0 || strcmp(prune->text, "zeros") == 0 || chosen_structure(b).kind != PRUNE_CHANNEL) return true;
  const bool *outputs = find_outputs(b->arena, graph);
  const char *names = "";
  int count = 0, left = 0;
  for (int i = 0; i < graph->nodes.count; i++) {
    Node *node = graph->nodes.at[i];
    const char *by = node_str(node, ATTR_PRUNED);
    if (!by || strcmp(by, node_str(node, ATTR_NAME)) != 0) continue;
    left += !outputs[i];
    if (!outputs[i]) continue;
    if (count++ < 3) names = arena_printf(b->arena, "%s%s'%s'", names, *names ? ", " : "", by);
    if (!b->prune_has_rule) drop_pruned(graph, node);
  }
  if (count > 3) names = arena_printf(b->arena, "%s and %d more", names, count - 3);
  if (count && is_told) tell_outputs(b, names, count);
  if (left || b->prune_has_rule) return true;
  return builder_fail(b, prune->loc,
                      "structure=channel prunes nothing: no layer's channels are read by another layer%s%s%s; `on` says which parameters are "
                      "pruned",
                      count ? ", those of " : "", names, count ? " are outputs of the model" : "");
}
