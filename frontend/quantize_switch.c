/* quantize_switch: `quantize = after(0.3, "fc*=w8a8", observe=0.8)`: rounding that begins while a training runs, and ranges of inputs that
 * stay from a step on (Krishnamoorthi, Quantizing deep convolutional networks for efficient inference, 2018, section 3.2; torch.ao's
 * disable_fake_quant and disable_observer). The settings train.quantize.after and train.quantize.observe are read by the graph of the step,
 * if the recipe or ftc's --set gives them; evaluation rounds always. A number below 1 is a share of all steps, else one of steps. */
#include "frontend/builder.h"
#include "frontend/recipe.h"
#include <string.h>

static const char after_key[] = "train.quantize.after", observe_key[] = "train.quantize.observe";

/* ── the recipe ─────────────────────────────────────────────────────────────────────────────── */
static bool set_moment(Builder *b, const char *key, const Ast *ast) {
  Moment moment;
  return recipe_moment(b, key == after_key ? "after" : "observe", ast, &moment) && recipe_set_text(b, key, moment.text, ast->loc);
}

/* A text; after(when), after(when, text), either with observe=when. */
bool recipe_quantize(Builder *b, const Ast *ast) {
  static const char *const names[] = {"observe"};
  if (ast->kind == AST_NONE) return recipe_set_text(b, "train.quantize", "", ast->loc);
  if (!ast_is_call_of(ast, "after")) return recipe_set_ast(b, "train.quantize", ast);
  bool fine = true;
  int count = 0;
  for (int i = 1; i < ast->count; i++) {
    const Ast *argument = ast->kid[i];
    if (argument->kind == AST_KEYWORD && strcmp(argument->name, "observe") != 0)
      fine = builder_fail(b, argument->loc, "after has no argument '%s'%s", argument->name, builder_hint(b, argument->name, names, 1));
    else if (argument->kind == AST_KEYWORD)
      fine = set_moment(b, observe_key, argument->kid[0]) && fine;
    else if (++count <= 2)
      fine = (count == 1 ? set_moment(b, after_key, argument) : recipe_set_ast(b, "train.quantize", argument)) && fine;
  }
  if (count >= 1 && count <= 2) return fine;
  return builder_fail(b, ast->loc, "after says when rounding begins, and of which layers: after(0.3, \"fc*=w8a8\"), after(200 steps, \"fc*=w8a8\"); "
                      "where the model says itself what is rounded, after(0.3)");
}

/* ── the graph ──────────────────────────────────────────────────────────────────────────────── */
static bool switch_is_given(const Builder *b, const char *key) { return b->program->settings[setting_find(key)].is_set; }

/* The number of the first step behind the moment that a setting says; 0 too where it is a share, and nobody knows of how many steps. */
static Node *moment_of(Builder *b, const char *key, Loc loc) {
  Type scalar = {DT_F64, shape_scalar()};
  Attr name = attr_str(ATTR_NAME, key), total = attr_str(ATTR_NAME, "train.total_steps");
  Node *said = tensor_node(b, OP_SETTING, NULL, 0, &name, 1, &scalar, loc), *one = tensor_const(b, DT_F64, 1, loc);
  Node *steps = tensor_node(b, OP_SETTING, NULL, 0, &total, 1, &scalar, loc);
  Node *share = tensor_binary(b, OP_ADD, "+", tensor_binary(b, OP_MUL, "*", said, steps, loc), tensor_const(b, DT_F64, 0.5, loc), loc);
  share = share ? tensor_unary(b, OP_FLOOR, share, loc) : NULL;
  return tensor_select(b, tensor_binary(b, OP_LT, "<", said, one, loc), share, said, loc);
}

/* Rounding begins at a moment 0 with the first step; ranges are observed to the end. */
static Node *moment_has_come(Builder *b, const char *key, Loc loc) {
  Node *moment = moment_of(b, key, loc), *step = tensor_cast(b, tensor_step(b, loc), DT_F64, loc);
  if (key == observe_key) {
    Node *is_some = tensor_binary(b, OP_GT, ">", moment, tensor_const(b, DT_F64, 0, loc), loc);
    moment = tensor_select(b, is_some, moment, tensor_const(b, DT_F64, 1e300, loc), loc);
  }
  return tensor_binary(b, OP_GE, ">=", step, moment, loc);
}

/* The two are of one type whatever the recipe says, so that it can say something else. */
static bool are_alike(Call *call, Node **first, Node **second) {
  char is[TYPE_TEXT], was[TYPE_TEXT];
  *first = builtin_tensor(call, 0), *second = *first ? builtin_tensor(call, 1) : NULL;
  if (!*second || type_equal(&(*first)->type, &(*second)->type)) return *second != NULL;
  return builder_fail(call->b, call->loc, "%s() takes two tensors of one type and shape, not %s and %s", call->builtin->name,
                      type_text(&(*first)->type, is), type_text(&(*second)->type, was));
}

static Value choose_by_step(Call *call, const char *key, bool *is_used) {
  Builder *b = call->b;
  Node *first, *second;
  if (!are_alike(call, &first, &second)) return value_error();
  if (!builder_trains(b) || statistics_only(b) || !switch_is_given(b, key)) return call->arg[0];
  *is_used = true;
  Node *has_come = tensor_broadcast(b, moment_has_come(b, key, call->loc), first->type.shape, call->loc);
  bool is_first_behind = key == after_key;
  Node *chosen = tensor_select(b, has_come, is_first_behind ? first : second, is_first_behind ? second : first, call->loc);
  return chosen ? value_tensor(chosen) : value_error();
}

Value quantize_switched(Call *call) { return choose_by_step(call, after_key, &call->b->quantize_begins); }
Value quantize_observed(Call *call) { return choose_by_step(call, observe_key, &call->b->quantize_observes); }

bool quantize_check_switches(Builder *b) {
  const SettingValue *settings = b->program->settings;
  if (statistics_only(b)) return true;
  if (switch_is_given(b, after_key) && !b->quantize_begins)
    return builder_fail(b, setting_loc(settings, after_key), "%s says when rounding begins, and nothing in this model is rounded", after_key);
  if (switch_is_given(b, observe_key) && !b->quantize_observes)
    return builder_fail(b, setting_loc(settings, observe_key), "%s says until when ranges of inputs are observed, and nothing in this model observes any",
                        observe_key);
  return true;
}
