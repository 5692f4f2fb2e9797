/* statistics: `statistics = true`, a training of nothing but running statistics, as torch.optim.swa_utils.update_bn makes
 * them of averaged weights (Izmailov et al., Averaging weights leads to wider optima and better generalization, 2018):
 * parameters stay as --init gives them, and a state that `update s = running_average(s, x, momentum)` changes becomes the
 * mean of x over the batches, (1 - 1/n) s + x/n at batch n. Other states stay. The step number is the number of batches,
 * so a resumed pass goes on. What belongs to updates, checkpoints and logs of the training is left out of the recipe. */
#include "frontend/builder.h"
#include <string.h>

static const char statistics_key[] = "train.statistics";

bool statistics_only(const Builder *b) { return setting_number(b->program->settings, statistics_key) != 0; }

/* What the pass has instead of what the recipe says; of settings of ftrun only if the command line says nothing. */
void statistics_settle(Builder *b) {
  static const char *const off[] = {
      "train.accumulate", "train.prune", "train.sharpness", "train.freeze", "train.freeze.rate", "train.grow", "train.ema", "train.average", "train.recompute", "train.schedule",
      "train.clip", "train.clip_value", "train.log.grad_norm", "distributed.zero", "train.epochs", "train.steps", "train.checkpoint.dir",
      "train.checkpoint.best", "train.stop.metric", "train.stop.reached", "train.log.jsonl", "train.log.csv", "train.log.tensorboard",
      "train.log.samples", "train.log.prompt", "train.log.layers"};
  const char *why;
  if (!statistics_only(b)) return;
  for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
    int index = setting_find(off[i]);
    SettingValue *setting = &b->program->settings[index];
    bool is_of_command_line = setting->is_set && !setting->loc.line;
    if (setting_info[index].when == WHEN_RUNTIME && is_of_command_line) continue;
    if (setting_set(b->arena, b->program->settings, index, setting_info[index].otherwise, &why)) setting->is_set = false;
  }
  b->rest_count = 0;
  memset(b->rule_loc, 0, sizeof b->rule_loc);
}

bool statistics_check(Builder *b) {
  if (!statistics_only(b)) return true;
  for (int i = 0; i < b->graph->roots.count; i++)
    if (b->graph->roots.at[i].kind == ROOT_ASSIGN) return true;
  return builder_fail(b, setting_loc(b->program->settings, statistics_key),
                      "statistics = true computes the running statistics of batch norms anew, and the model has none");
}

static const Running *running_of(const Builder *b, const Node *made) {
  for (int i = 0; i < b->running.count; i++)
    if (b->running.at[i].made == made) return &b->running.at[i];
  return NULL;
}

bool statistics_takes(const Builder *b, const Value *value) {
  return !statistics_only(b) || (value->kind == VALUE_TENSOR && running_of(b, value->node));
}

/* What the state was before the step, and with x what all applications of the layer in this step have seen so far. */
static bool seen_in_step(Builder *b, Node *old, Value x, Running *seen, Loc loc) {
  const Running *before = running_of(b, old->op == OP_STOP_GRADIENT ? old->input[0] : old);
  *seen = before ? *before : (Running){.old = old};
  seen->sum = before ? arith_binary(b, "+", before->sum, x, loc) : x;
  seen->count++;
  return seen->sum.kind != VALUE_ERROR;
}

/* old + (x - old) / n, and x itself at first: what has been there before is not read, whatever it is. Of a layer that is
 * applied several times x is the mean over its applications. */
static Value mean_of_batches(Call *call, Value x) {
  Builder *b = call->b;
  Running seen;
  Node *read = builtin_float_tensor(call, 0), *step = tensor_step(b, call->loc);
  if (!read || !step || !seen_in_step(b, read, x, &seen, call->loc)) return value_error();
  if (seen.count > 1) x = arith_binary(b, "/", seen.sum, value_int(seen.count), call->loc);
  Node *old = seen.old, *value = tensor_of(b, &x, old->type.dtype, call->loc);
  if (!value) return value_error();
  value = tensor_broadcast(b, value, old->type.shape, call->loc);
  Node *count = tensor_cast(b, step, old->type.dtype, call->loc), *zero = tensor_const(b, DT_I64, 0, call->loc);
  Node *is_first = zero ? tensor_binary(b, OP_EQ, "==", step, zero, call->loc) : NULL;
  if (!value || !count || !is_first) return value_error();
  Value now = value_tensor(value), before = value_tensor(old);
  Value n = arith_binary(b, "+", value_tensor(count), value_int(1), call->loc);
  Value change = arith_binary(b, "/", arith_binary(b, "-", now, before, call->loc), n, call->loc);
  Value next = arith_binary(b, "+", before, change, call->loc);
  is_first = tensor_broadcast(b, is_first, old->type.shape, call->loc);
  if (next.kind != VALUE_TENSOR || !is_first) return value_error();
  seen.made = tensor_select(b, is_first, value, next.node, call->loc);
  if (!seen.made) return value_error();
  VEC_PUSH(b->arena, b->running, seen);
  return value_tensor((Node *)seen.made);
}

/* running_average(old, x, momentum, scale=1): (1 - momentum) old + momentum scale x. */
Value statistics_average(Call *call) {
  Builder *b = call->b;
  Value old = call->arg[0], x = call->arg[1], share = call->arg[2], scale = call->arg[3];
  bool is_scaled = scale.kind != VALUE_ABSENT;
  if (statistics_only(b) && builder_trains(b))
    return mean_of_batches(call, is_scaled ? arith_binary(b, "*", scale, x, call->loc) : x);
  Value kept = arith_binary(b, "*", arith_binary(b, "-", value_int(1), share, call->loc), old, call->loc);
  if (is_scaled) share = arith_binary(b, "*", share, scale, call->loc);
  return arith_binary(b, "+", kept, arith_binary(b, "*", share, x, call->loc), call->loc);
}
