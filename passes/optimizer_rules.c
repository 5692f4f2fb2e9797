/* optimizer_rules: the update rules of the single optimisers, with the arithmetic of torch.optim
 * (SGD, Adam, AdamW, Adagrad, RMSprop) and of Lion's paper. What does not depend on an element is
 * computed in f64, once, and then cast to f32. */
#include "passes/prune.h"
#include <string.h>

/* flat times the learning rate of each segment */
static Node *by_rate(Update *u, Node *flat) { return update_piecewise_scaled(u, flat, u->rates); }

/* Decay as part of the gradient: g + weight_decay p. */
static Node *decayed_grads(Update *u) {
  return update_add(u, u->grads, update_piecewise_scaled(u, u->params, u->decays));
}

/* Decoupled decay: p (1 - lr weight_decay). */
static Node *decayed_params(Update *u) {
  Node **keep = ARENA_ARRAY(u->graph->arena, Node *, u->segments.count);
  for (int s = 0; s < u->segments.count; s++) {
    for (int k = 0; k < s && !keep[s]; k++)
      if (u->rates[k] == u->rates[s] && u->decays[k] == u->decays[s]) keep[s] = keep[k];
    if (!keep[s]) keep[s] = update_one_minus(u, update_mul(u, u->rates[s], u->decays[s]));
  }
  return update_piecewise_scaled(u, u->params, keep);
}

/* old + (new - old) share */
static Node *blend(Update *u, Node *old, Node *fresh, Node *share) {
  return update_add(u, old, update_scaled(u, update_sub(u, fresh, old), share));
}

/* old beta + new (1 - beta) */
static Node *average(Update *u, Node *old, Node *fresh, Node *beta) {
  return update_add(u, update_scaled(u, old, beta),
                    update_scaled(u, fresh, update_one_minus(u, beta)));
}

static Node *is_first_step(Update *u) { return update_op(u, OP_EQ, u->step, update_number(u, 0)); }

static Node *sgd(Update *u) {
  Node *direction = decayed_grads(u);
  if (setting_number(u->settings, "train.momentum") != 0) {
    /* The first step takes the gradient whole: buf = g, with no dampening. */
    Node *momentum = update_setting(u, "train.momentum"), *is_first = is_first_step(u);
    Node *kept = make_select(u->graph, is_first, update_number(u, 0), momentum);
    Node *fresh = make_select(u->graph, is_first, update_number(u, 1),
                              update_one_minus(u, update_setting(u, "train.dampening")));
    Node *buffer = update_add(u, update_scaled(u, update_moment(u, "@sgd.momentum"), kept),
                              update_scaled(u, direction, fresh));
    update_assign(u, "@sgd.momentum", buffer);
    direction = setting_number(u->settings, "train.nesterov") != 0
                    ? update_add(u, direction, update_scaled(u, buffer, momentum))
                    : buffer;
  }
  return update_sub(u, u->params, by_rate(u, direction));
}

/* name is the prefix of the states: "adam" or "adamw". The two differ in how weights decay. */
static Node *either_adam(Update *u, const char *name, bool is_decoupled) {
  Arena *arena = u->graph->arena;
  const char *m_name = arena_printf(arena, OWN_MARK "%s.m", name),
             *v_name = arena_printf(arena, OWN_MARK "%s.v", name);
  Node *beta1 = update_setting(u, "train.beta1"), *beta2 = update_setting(u, "train.beta2");
  Node *params = is_decoupled ? decayed_params(u) : u->params;
  Node *grads = is_decoupled ? u->grads : decayed_grads(u);
  Node *m = blend(u, update_moment(u, m_name), grads, update_one_minus(u, beta1));
  Node *v = average(u, update_moment(u, v_name), update_mul(u, grads, grads), beta2);
  update_assign(u, m_name, m);
  update_assign(u, v_name, v);
  Node *count = update_add(u, u->step, update_number(u, 1));
  Node *correction1 = update_one_minus(u, update_op(u, OP_POW, beta1, count));
  Node *correction2 = update_one_minus(u, update_op(u, OP_POW, beta2, count));
  Node *root = update_div(u, update_sqrt(u, v), update_fill(u, update_sqrt(u, correction2)));
  Node **sizes = ARENA_ARRAY(arena, Node *, u->segments.count);
  for (int s = 0; s < u->segments.count; s++) {
    for (int k = 0; k < s && !sizes[s]; k++)
      if (u->rates[k] == u->rates[s]) sizes[s] = sizes[k];
    if (!sizes[s]) sizes[s] = update_div(u, u->rates[s], correction1);
  }
  Node *quotient =
      update_quotient(u, m, update_add(u, root, update_fill(u, update_setting(u, "train.eps"))));
  return update_sub(u, params, update_piecewise_scaled(u, quotient, sizes));
}

static Node *adam(Update *u) { return either_adam(u, "adam", false); }
static Node *adamw(Update *u) { return either_adam(u, "adamw", true); }

/* Chen et al., Symbolic Discovery of Optimization Algorithms (2023), algorithm 2. */
static Node *lion(Update *u) {
  Node *m = update_moment(u, "@lion.m");
  Node *mix = blend(u, m, u->grads, update_one_minus(u, update_setting(u, "train.beta1")));
  Node *direction = make_unary(u->graph, OP_SIGN, mix);
  Node *next = blend(u, m, u->grads, update_one_minus(u, update_setting(u, "train.beta2")));
  update_assign(u, "@lion.m", next);
  return update_sub(u, decayed_params(u), by_rate(u, direction));
}

static Node *adagrad(Update *u) {
  Node *grads = decayed_grads(u);
  double initial = setting_number(u->settings, "train.initial_accumulator");
  Node *before = update_state(u, ROLE_MOMENT, "@adagrad.sum", initial);
  Node *sum = update_add(u, before, update_mul(u, grads, grads));
  update_assign(u, "@adagrad.sum", sum);
  Node *eps = update_fill(u, update_setting(u, "train.eps"));
  Node *direction = update_quotient(u, grads, update_add(u, update_sqrt(u, sum), eps));
  Node *wear = update_add(u, update_number(u, 1),
                          update_mul(u, u->step, update_setting(u, "train.lr_decay")));
  return update_sub(u, u->params, by_rate(u, update_div(u, direction, update_fill(u, wear))));
}

static Node *rmsprop(Update *u) {
  Node *grads = decayed_grads(u), *alpha = update_setting(u, "train.alpha");
  Node *v = average(u, update_moment(u, "@rmsprop.v"), update_mul(u, grads, grads), alpha);
  update_assign(u, "@rmsprop.v", v);
  Node *spread = v;
  if (setting_number(u->settings, "train.centered") != 0) {
    Node *mean = blend(u, update_moment(u, "@rmsprop.g"), grads, update_one_minus(u, alpha));
    update_assign(u, "@rmsprop.g", mean);
    /* a variance; rounding must not make it negative */
    spread = update_sub(u, v, update_mul(u, mean, mean));
    spread = update_op(u, OP_MAX, spread, make_like(u->graph, spread, 0));
  }
  Node *eps = update_fill(u, update_setting(u, "train.eps"));
  Node *direction = update_quotient(u, grads, update_add(u, update_sqrt(u, spread), eps));
  if (setting_number(u->settings, "train.momentum") != 0) {
    Node *buffer = update_moment(u, "@rmsprop.momentum");
    direction =
        update_add(u, update_scaled(u, buffer, update_setting(u, "train.momentum")), direction);
    update_assign(u, "@rmsprop.momentum", direction);
  }
  return update_sub(u, u->params, by_rate(u, direction));
}

/* ── muon, and adamw for the rest ───────────────────────────────────────────────────────────── */
/* adamw's direction for what Muon does not train: the front of the arena, which its v covers. */
static Node *rest_direction(Update *u, Node *m, int64_t rest, Node *count) {
  Type part = {DT_F32, shape_of(1, &rest)};
  Node *grads = make_slice(u->graph, u->grads, (int64_t[]){0}, part.shape);
  m = make_slice(u->graph, m, (int64_t[]){0}, part.shape);
  Node *beta1 = update_setting(u, "train.beta1"), *beta2 = update_setting(u, "train.beta2");
  Node *correction1 = update_one_minus(u, update_op(u, OP_POW, beta1, count));
  Node *correction2 = update_sqrt(u, update_one_minus(u, update_op(u, OP_POW, beta2, count)));
  Node *v = prune_masked(u, make_state(u->graph, ROLE_MOMENT, "@muon.v", part, 0));
  Node *share = make_cast(u->graph, update_one_minus(u, beta2), DT_F32);
  beta2 = make_cast(u->graph, beta2, DT_F32);
  v = update_add(u, update_mul(u, v, beta2), update_mul(u, update_mul(u, grads, grads), share));
  update_assign(u, "@muon.v", v);
  Node *root = update_div(u, update_sqrt(u, v), make_cast(u->graph, correction2, DT_F32));
  Node *eps = make_cast(u->graph, update_setting(u, "train.eps"), DT_F32);
  Node *direction = update_quotient(u, m, update_add(u, root, eps));
  return update_div(u, direction, make_cast(u->graph, correction1, DT_F32));
}

static Node *muon(Update *u) {
  Node *is_matrix = update_is_matrix(u), *m = update_moment(u, "@muon.m");
  int64_t rest = shape_elements(&u->flat.shape);
  for (int s = u->segments.count - 1; s >= 0; s--)
    if (u->segments.at[s].is_matrix) rest = u->segments.at[s].begin;
  Node *share = update_fill(u, update_one_minus(u, update_setting(u, "train.beta1"))),
       *momentum = NULL;
  if (is_matrix) {
    momentum = update_setting(u, "train.momentum");
    share = make_select(u->graph, is_matrix, update_fill(u, update_one_minus(u, momentum)), share);
  }
  m = update_add(u, m, update_mul(u, update_sub(u, u->grads, m), share));
  update_assign(u, "@muon.m", m);
  Node *count = update_add(u, u->step, update_number(u, 1)), *direction = m;
  Node *front = rest ? rest_direction(u, m, rest, count) : NULL;
  if (is_matrix && setting_number(u->settings, "train.nesterov") != 0)
    direction = blend(u, u->grads, m, momentum);
  direction = is_matrix ? update_muon(u, front, direction, rest) : front;
  return update_sub(u, decayed_params(u), by_rate(u, direction));
}

Node *update_by_rule(Update *u, const char *kind) {
  static const struct {
    const char *name;
    Node *(*rule)(Update *u);
  } rules[] = {
#define OPTIMIZER(name, arguments, defaults, buffers, rest) {#name, name},
#include "plan/optimizers.def"
#undef OPTIMIZER
  };
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (strcmp(kind, rules[i].name) == 0) return rules[i].rule(u);
  return NULL;
}
