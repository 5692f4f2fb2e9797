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
  Value v = eval(b, ast);
  bool is_steps = v.kind == VALUE_DURATION && !strcmp(v.unit, "step");
  bool is_share = value_is_number(&v) && value_number(&v) >= 0 && value_number(&v) < 1;
  if (v.kind == VALUE_ERROR) return false;
  if (!is_steps && !is_share)
    return builder_fail(b, ast->loc, "%s takes a share of all steps below 1, such as 0.3, or a number of steps, such as 200 steps, not %s",
                        key == after_key ? "after" : "observe", value_describe(b->arena, &v));
  return recipe_set_text(b, key, is_steps ? arena_printf(b->arena, "%lld", (long long)v.i) : arena_printf(b->arena, "%.17g", value_number(&v)),
                         ast->loc);
}

/* A text; after(when), after(when, text), either with observe=when. */
bool recipe_quantize(Builder *b, const Ast *ast) {
  static const char *const names[] = {"observe"};
  bool is_after = ast->kind == AST_CALL && ast->kid[0]->kind == AST_NAME && !strcmp(ast->kid[0]->name, "after");
  if (ast->kind == AST_NONE) return recipe_set_text(b, "train.quantize", "", ast->loc);
  if (!is_after) return recipe_set_ast(b, "train.quantize", ast);
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

static Node *moment_has_come(Builder *b, Node *moment, Loc loc) {
  return tensor_binary(b, OP_GE, ">=", tensor_cast(b, tensor_step(b, loc), DT_F64, loc), moment, loc);
}

/* Whether a step is before the moment, which 0 never is. */
static Node *is_observing(Builder *b, Loc loc) {
  Node *moment = moment_of(b, observe_key, loc), *zero = tensor_const(b, DT_F64, 0, loc);
  Node *never = tensor_const(b, DT_F64, 1e300, loc), *step = tensor_cast(b, tensor_step(b, loc), DT_F64, loc);
  Node *end = tensor_select(b, tensor_binary(b, OP_GT, ">", moment, zero, loc), moment, never, loc);
  return tensor_binary(b, OP_LT, "<", step, end, loc);
}

static Value choose_by_step(Call *call, const char *key, bool *is_used) {
  Builder *b = call->b;
  bool is_plain = !builder_trains(b) || statistics_only(b) || !switch_is_given(b, key);
  if (is_plain) return call->arg[0];
  Node *first = builtin_tensor(call, 0), *second = builtin_tensor(call, 1);
  if (!first || !second) return value_error();
  *is_used = true;
  Node *is_first = key == after_key ? moment_has_come(b, moment_of(b, key, call->loc), call->loc) : is_observing(b, call->loc);
  is_first = tensor_broadcast(b, is_first, first->type.shape, call->loc);
  Node *chosen = tensor_select(b, is_first, first, second, call->loc);
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
