/* optimizer_schedule: the learning rate of a step as a scalar of the graph, in f64, from the step
 * counter and the settings. docs/language.md states each formula; those that PyTorch has too
 * (StepLR, ExponentialLR, OneCycleLR, ReduceLROnPlateau) give its numbers. */
#include "passes/optimizer.h"
#include "plan/step_form.h"
#include <string.h>

static const double pi = 3.141592653589793;

static Node *least(Update *u, Node *a, Node *b) { return update_op(u, OP_MIN, a, b); }
static Node *most(Update *u, Node *a, Node *b) { return update_op(u, OP_MAX, a, b); }
static Node *at_least_one(Update *u, Node *a) { return most(u, a, update_number(u, 1)); }
static Node *of(Update *u, const char *key) {
  return update_setting(u, arena_printf(u->graph->arena, "train.schedule.%s", key));
}
static Node *total_steps(Update *u) { return update_setting(u, "train.total_steps"); }

/* from + (to - from) x */
static Node *between(Update *u, Node *from, Node *to, Node *x) {
  return update_add(u, from, update_mul(u, update_sub(u, to, from), x));
}
/* Half a cosine: 1 at 0, 0 at 1. */
static Node *half_cosine(Update *u, Node *x) {
  Node *angle = update_mul(u, update_number(u, pi), x);
  Node *cosine = make_unary(u->graph, OP_COS, angle);
  return update_mul(u, update_number(u, 0.5), update_add(u, update_number(u, 1), cosine));
}

/* The last step's number: steps count from 0. */
static Node *last_step(Update *u) { return update_sub(u, total_steps(u), update_number(u, 1)); }

/* How far the training after the warm-up has come: 0 in its first step, 1 in the last one, even if
 * that is the same. */
static Node *progress(Update *u, Node *after, Node *warmup) {
  Node *last = last_step(u), *one = update_number(u, 1);
  Node *share = update_div(u, after, at_least_one(u, update_sub(u, last, warmup)));
  return make_select(u->graph, update_op(u, OP_GE, u->step, last), one, least(u, share, one));
}

/* gamma to the power of the decays so far, or of their number as a real one. */
static Node *geometric(Update *u, Node *after, bool is_smooth) {
  Node *times = update_div(u, after, at_least_one(u, of(u, "every")));
  if (!is_smooth) times = make_unary(u->graph, OP_FLOOR, times);
  return update_op(u, OP_POW, of(u, "gamma"), times);
}

static Node *toward_final(Update *u, Node *remaining) {
  Node *last = of(u, "final");
  return update_add(u, last, update_mul(u, update_one_minus(u, last), remaining));
}

/* 1 until the last `decay` steps (0: a fifth of all), which go in a straight line to final. */
static Node *warmup_stable_decay(Update *u) {
  Node *asked = of(u, "decay"), *total = total_steps(u);
  Node *is_given = update_op(u, OP_GT, asked, update_number(u, 0));
  Node *fifth = update_mul(u, total, update_number(u, 0.2));
  Node *length = at_least_one(u, make_select(u->graph, is_given, asked, fifth));
  Node *left = update_div(u, update_sub(u, last_step(u), u->step), length);
  left = most(u, least(u, left, update_number(u, 1)), update_number(u, 0));
  return toward_final(u, left);
}

/* Smith and Topin, Super-Convergence (2018), in the form of PyTorch's OneCycleLR with cosines: up
 * from 1/div_factor over the first pct_start of the steps, down to 1/(div_factor
 * final_div_factor). Its own warm-up: `warmup` does not apply. */
static Node *one_cycle(Update *u) {
  Node *total = total_steps(u), *one = update_number(u, 1);
  Node *first = update_div(u, one, of(u, "div_factor"));
  Node *last = update_div(u, first, of(u, "final_div_factor"));
  Node *top = update_sub(u, update_mul(u, of(u, "pct_start"), total), one);
  Node *end = update_sub(u, total, one);
  Node *rise = least(u, update_div(u, u->step, most(u, top, update_number(u, 1e-9))), one);
  Node *span = most(u, update_sub(u, end, top), update_number(u, 1e-9));
  Node *fall = least(u, update_div(u, update_sub(u, u->step, top), span), one);
  Node *up = between(u, one, first, half_cosine(u, rise));
  Node *down = between(u, last, one, half_cosine(u, fall));
  return make_select(u->graph, update_op(u, OP_LE, u->step, top), up, down);
}

/* gamma to the number of reductions so far, which the runtime counts after each evaluation in the
 * first element of the state OWN_PLATEAU (runtime/command/plateau.c); not below final. */
static Node *plateau(Update *u) {
  Type type = {DT_F64, shape_of(1, (int64_t[]){5})};
  Node *state = make_state(u->graph, ROLE_PLATEAU, OWN_PLATEAU, type, 0);
  Node *times = make_slice(u->graph, state, (int64_t[]){0}, shape_of(1, (int64_t[]){1}));
  times = make_reshape(u->graph, times, shape_scalar());
  return most(u, update_op(u, OP_POW, of(u, "gamma"), times), of(u, "final"));
}

/* The factor on the learning rate after the warm-up; NULL: 1. */
static Node *decay(Update *u, const char *kind, Node *after, Node *warmup) {
  if (strcmp(kind, "step") == 0) return geometric(u, after, false);
  if (strcmp(kind, "exponential") == 0) return geometric(u, after, true);
  if (strcmp(kind, "linear") == 0)
    return toward_final(u, update_one_minus(u, progress(u, after, warmup)));
  if (strcmp(kind, "cosine") == 0)
    return toward_final(u, half_cosine(u, progress(u, after, warmup)));
  if (strcmp(kind, "wsd") == 0) return warmup_stable_decay(u);
  if (strcmp(kind, "plateau") == 0) return plateau(u);
  return NULL;
}

/* `lr = 0.1 per 256`: linear in the samples of an update (Goyal et al. 2017). */
static Node *for_batch(Update *u, Node *lr) {
  double per = setting_number(u->settings, "train.lr_per");
  double samples =
      setting_number(u->settings, "train.batch") * setting_number(u->settings, "train.accumulate");
  if (per <= 0) return lr;
  Node *factor = update_number(u, samples / per);
  if (setting_ranks(u->settings) != 1)
    factor = update_mul(u, factor, update_setting(u, "distributed.ranks"));
  return update_mul(u, lr, factor);
}

/* lr (t+1)/warmup for the first `warmup` steps, then lr times the factor; NULL: 1. */
static Node *warmed_up(Update *u, Node *lr, Node *warmup, Node *factor) {
  Node *one = update_number(u, 1);
  Node *rise = update_div(u, update_add(u, u->step, one), at_least_one(u, warmup));
  Node *is_warm = update_op(u, OP_GE, u->step, warmup);
  return update_mul(u, lr, make_select(u->graph, is_warm, factor ? factor : one, rise));
}

static Node *after_warmup(Update *u, Node *warmup) { return most(u, update_sub(u, u->step, warmup), update_number(u, 0)); }

Node *update_rate(Update *u) {
  const char *kind = setting_text(u->settings, "train.schedule");
  Node *lr = for_batch(u, update_setting(u, "train.lr"));
  if (strcmp(kind, "onecycle") == 0) return update_mul(u, lr, one_cycle(u));
  Node *warmup = of(u, "warmup");
  return warmed_up(u, lr, warmup, decay(u, kind, after_warmup(u, warmup), warmup));
}

/* Brock et al., FreezeOut (2017): half a cosine from the warm-up, or the first step, to 0 (here: final) at the step t_i at which the
 * group comes to rest, in place of the schedule's. scaled_cosine: times T / t_i, so that the area below the rates of all groups is the
 * same. Of a share of all steps, where nobody has said how many there are, there is no such step, and the rate is the schedule's. */
Node *update_rest_rate(Update *u, int rest) {
  RestRule rule;
  Node *one = update_number(u, 1), *zero = update_number(u, 0), *total = total_steps(u);
  if (!rest_read(setting_text(u->settings, rest_key), &rule) || rest > rule.count) return u->rate;
  update_at(u, rest_rate_key);
  Node *end = update_number(u, rule.at[rest - 1]);
  if (rule.is_share) end = make_unary(u->graph, OP_FLOOR, update_add(u, update_mul(u, end, total), update_number(u, 0.5)));
  Node *warmup = of(u, "warmup"), *last = update_setting(u, "train.freeze.rate.final");
  Node *share = update_div(u, after_warmup(u, warmup), at_least_one(u, update_sub(u, end, warmup)));
  Node *factor = between(u, last, one, half_cosine(u, least(u, share, one)));
  Node *lr = for_batch(u, update_setting(u, "train.lr"));
  if (!strcmp(setting_text(u->settings, rest_rate_key), "scaled_cosine"))
    lr = update_mul(u, lr, at_least_one(u, update_div(u, total, at_least_one(u, end))));
  Node *rate = warmed_up(u, lr, warmup, factor);
  if (rule.is_share) rate = make_select(u->graph, update_op(u, OP_GT, total, zero), rate, u->rate);
  update_at(u, "train.optimizer");
  return rate;
}
