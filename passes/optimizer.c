/* optimizer: turns the gradients into the update. Consumes the root gradients that autodiff left,
 * and leaves assigns to the states "params", "step" and the optimiser's own, all flat f32 of the
 * size of what is trained, plus the roots rate, what this step used, and grad_norm, where the norm of the
 * gradients is wanted or clipped.
 *
 * Every number a user may change between runs is a `setting` leaf, so that a new learning rate
 * needs no new compilation. Order of what happens to the gradients: they are summed over
 * micro-batches, clipped (torch.nn.utils.clip_grad_norm_, clip_grad_value_), then given to the rule
 * of the optimiser; the average of the weights follows the new parameters. */
#include "passes/autodiff.h"
#include "passes/loss_scale.h"
#include "passes/prune.h"
#include <string.h>

/* ── clipping ───────────────────────────────────────────────────────────────────────────────── */
/* For the log: what clip_grad_norm_ returns. */
static Node *norm_of(Update *u, Node *grads) {
  Node *norm = update_sqrt(u, update_total(u, update_mul(u, grads, grads)));
  graph_add_root(u->graph, ROOT_GRAD_NORM, OWN_GRAD_NORM, norm);
  return norm;
}

static Node *clipped_by_norm(Update *u, Node *grads, double limit) {
  update_at(u, "train.clip");
  Node *norm = norm_of(u, grads);
  Node *ratio = update_div(u, make_like(u->graph, norm, limit),
                           update_add(u, norm, make_like(u->graph, norm, 1e-6)));
  Node *scale = update_op(u, OP_MIN, ratio, make_like(u->graph, ratio, 1));
  grads = update_mul(u, grads, make_broadcast(u->graph, scale, u->flat.shape));
  update_at(u, "train.optimizer");
  return grads;
}

static Node *clipped_by_value(Update *u, Node *grads, double limit) {
  update_at(u, "train.clip_value");
  grads = update_op(u, OP_MIN, grads, make_like(u->graph, grads, limit));
  grads = update_op(u, OP_MAX, grads, make_like(u->graph, grads, -limit));
  update_at(u, "train.optimizer");
  return grads;
}

static Node *clipped(Update *u, Node *grads) {
  double norm = setting_number(u->settings, "train.clip");
  double value = setting_number(u->settings, "train.clip_value");
  if (norm == 0 && setting_number(u->settings, "train.log.grad_norm") != 0) norm_of(u, grads);
  if (value > 0) grads = clipped_by_value(u, grads, value);
  return norm > 0 ? clipped_by_norm(u, grads, norm) : grads;
}

/* ── the average of the weights ─────────────────────────────────────────────────────────────── */
/* The parameters behind those of the update, which rest, with them. */
static Node *with_resting(Update *u, Node *params) {
  const int64_t *begin = u->flat.shape.dim;
  if (!u->all) return params;
  Node *both[] = {params, make_slice(u->graph, u->all, begin, shape_of(1, &u->rest_elements))};
  Attr axis = attr_int(ATTR_AXIS, 0);
  return graph_node(u->graph, OP_CONCAT, both, 2, &axis, 1, NULL);
}

/* How many elements there are behind the update's, if they have an average. */
static int64_t find_resting(const PassContext *context, const Graph *graph, int64_t trained) {
  int64_t end = trained;
  if (!setting_averages(context->settings)) return 0;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *param = graph->nodes.at[i];
    if (param->op != OP_PARAM || !pass_rests(context, param)) continue;
    int64_t room = autodiff_param_room(context->settings, shape_elements(&param->type.shape));
    int64_t last = node_int(param, ATTR_OFFSET, 0) + room;
    end = last > end ? last : end;
  }
  return end - trained;
}

/* swa: is every = N given? Then steps that fp16 skips are none; else the ends of epochs count, which such steps do not move. */
static Node *swa_every_is_given(Update *u) { return update_op(u, OP_GT, update_setting(u, "train.average.every"), update_number(u, 0)); }

/* The plain mean of the weights behind every `every`-th step from the share `start` of all on (Izmailov et al. 2018). The share of the
 * average before in the one after: n / (n + 1) where weights join n others, 0 before the first ones, so that the average is the weights
 * until then, and 1 in between. */
static Node *swa_decay(Update *u) {
  Graph *graph = u->graph;
  Node *zero = update_number(u, 0), *one = update_number(u, 1);
  Node *asked = update_setting(u, "train.average.every"), *is_given = swa_every_is_given(u), *step = u->step;
  if (u->is_finite) step = make_select(graph, is_given, step, make_cast(graph, update_counter(u, ROLE_STEP, OWN_STEP), DT_F64));
  Node *epoch = update_op(u, OP_MAX, update_setting(u, "train.steps_per_epoch"), one);
  Node *every = make_select(graph, is_given, asked, epoch);
  Node *share = update_setting(u, "train.average.start");
  Node *start = update_mul(u, share, update_setting(u, "train.total_steps"));
  Node *first = update_div(u, start, every);
  first = update_sub(u, first, update_number(u, 1e-9)); /* 0.07 x 100 is more than 7 */
  first = update_op(u, OP_MAX, make_unary(graph, OP_CEIL, first), one);
  Node *done = update_add(u, step, one);
  Node *nth = make_unary(graph, OP_FLOOR, update_div(u, done, every));
  Node *others = update_op(u, OP_MAX, update_sub(u, nth, first), zero);
  Node *share_of_others = update_div(u, others, update_add(u, others, one));
  Node *is_part = update_op(u, OP_EQ, update_mul(u, nth, every), done);
  Node *joins = make_select(graph, is_part, share_of_others, one);
  return make_select(graph, update_op(u, OP_GE, nth, first), joins, zero);
}

/* average = d average + (1 - d) p after each step, with ema's d or swa's; it starts as the initial weights. */
static void average_weights(Update *u, Node *params) {
  bool is_swa = !strcmp(setting_text(u->settings, "train.average"), "swa");
  if (!setting_averages(u->settings)) return;
  update_at(u, is_swa ? "train.average" : "train.ema");
  Node *decay = is_swa ? swa_decay(u) : update_setting(u, "train.ema"), *zero = update_number(u, 0);
  Node *is_first = update_op(u, OP_EQ, u->step, zero), *old = u->all ? u->all : u->params;
  Node *counts = u->is_finite;
  Type trained = u->flat;
  if (is_swa && counts) { /* of an epoch whose last step is skipped, the weights as they are */
    params = make_select(u->graph, counts, params, u->params);
    counts = make_select(u->graph, swa_every_is_given(u), counts, make_like(u->graph, counts, 1));
  }
  params = with_resting(u, params);
  u->flat = params->type;
  Node *average = update_state(u, ROLE_AVERAGE, OWN_EMA, 0);
  Node *before = make_select(u->graph, is_first, old, average);
  Node *after = update_add(u, update_scaled(u, before, decay),
                           update_scaled(u, params, update_one_minus(u, decay)));
  u->flat = trained;
  after = prune_masked(u, after);
  /* of a step that is skipped, too, so that it has begun where the first steps are */
  make_assign(u->graph, OWN_EMA, counts ? make_select(u->graph, counts, after, before) : after);
  update_at(u, "train.optimizer");
}

/* ── the pass ───────────────────────────────────────────────────────────────────────────────── */
/* All that happens once a batch: the update, and its rate. */
static bool update_all(Update *u, Diag *diag, Node *counter) {
  const char *kind = setting_text(u->settings, "train.optimizer");
  u->graph->origin = (Origin){.is_update = true, .function = kind};
  update_at(u, "train.schedule");
  u->rate = update_rate(u);
  update_at(u, "train.optimizer");
  u->params = update_params(u);
  update_find_groups(u);
  update_show_factor(u);
  update_unscale(u);
  prune_gradients(u);
  u->grads = clipped(u, u->grads);
  Node *params = update_by_rule(u, kind);
  if (!params) {
    diag_error(diag, (Loc){0}, "unknown optimizer '%s'", kind);
    return false;
  }
  params = prune_params(u, params);
  average_weights(u, params);
  update_assign(u, OWN_PARAMS, with_resting(u, update_kept(u, params, counter)));
  update_rescale(u);
  update_assign(u, OWN_STEP, update_add(u, counter, make_like(u->graph, counter, 1)));
  graph_add_root(u->graph, ROOT_RATE, OWN_LR, u->rate);
  return true;
}

/* A model without parameters: states and the step counter go on, which a training needs. */
static Graph *count_steps(Update *u, Node *counter) {
  update_assign(u, OWN_STEP, update_add(u, counter, make_like(u->graph, counter, 1)));
  return u->graph;
}

Graph *pass_optimizer(PassContext *context, Graph *old) {
  double parts = setting_number(context->settings, "train.accumulate");
  bool is_micro = context->of == PASS_OF_MICRO;
  Graph *graph = parts > 1 ? update_part(old, parts, is_micro) : graph_rewrite(old, NULL, NULL);
  Node *grads = graph_take_root(graph, ROOT_GRADIENTS);
  Update u = {.graph = graph, .settings = context->settings, .for_gpu = context->for_gpu};
  if (grads) u.flat = grads->type, u.grads = grads;
  if (grads) u.rest_elements = find_resting(context, graph, shape_elements(&u.flat.shape));
  Node *counter = update_counter(&u, ROLE_STEP, OWN_STEP);
  u.step = make_cast(graph, counter, DT_F64);
  if (grads) u.grads = update_accumulate(&u, parts, context->of == PASS_OF_MICRO, grads);
  if (parts > 1) update_count_part(&u, context->of == PASS_OF_MICRO);
  if (context->of == PASS_OF_MICRO) return graph;
  if (!grads) return count_steps(&u, counter);
  return update_all(&u, context->diag, counter) ? graph : NULL;
}
