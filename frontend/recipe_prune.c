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
  if (setting_parts(settings) > 1 || setting_tensor(settings) > 1 || setting_pipeline(settings) > 1)
    return builder_fail(b, prune->loc,
                        "prune chooses among all elements of a parameter, and with distributed.%s a rank has some: "
                        "leave out one of the two; distributed.data alone goes with it",
                        setting_tensor(settings) > 1     ? "tensor"
                        : setting_pipeline(settings) > 1 ? "pipeline"
                                                         : "zero");
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
