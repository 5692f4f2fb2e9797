/* loss_scale: see loss_scale.h. */
#include "passes/loss_scale.h"
#include <string.h>

/* A layer's own fp16 counts too: its gradients are as small as the others'. */
bool loss_scale_is_used(const SettingValue *settings, const Graph *graph) {
  if (!settings) return false;
  if (strcmp(setting_text(settings, "train.precision"), "fp16") == 0) return true;
  for (int i = 0; i < graph->nodes.count; i++) {
    const char *own = node_str(graph->nodes.at[i], ATTR_PRECISION);
    if (own && strcmp(own, "fp16") == 0) return true;
  }
  return false;
}

static Node *scale_state(Update *u) {
  double initial = setting_number(u->settings, "train.loss_scale");
  return make_state(u->graph, ROLE_LOSS_SCALE, OWN_LOSS_SCALE, (Type){DT_F32, shape_scalar()},
                    initial);
}
static Node *counter(Update *u, const char *name) {
  return update_counter(u, ROLE_LOSS_SCALE, name);
}

Node *loss_scale_apply(SettingValue *settings, Graph *graph, Node *loss) {
  if (!loss_scale_is_used(settings, graph)) return loss;
  Update u = {.graph = graph, .settings = settings};
  graph->origin = loss->origin;
  Node *scale = make_cast(graph, scale_state(&u), loss->type.dtype);
  return make_binary(graph, OP_MUL, loss, scale);
}

Node *loss_scale_inverse(Update *u) {
  if (!loss_scale_is_used(u->settings, u->graph)) return NULL;
  Node *scale = scale_state(u);
  return update_div(u, make_like(u->graph, scale, 1), scale);
}

/* bool[]: are all gradients finite? */
static Node *all_finite(Update *u, Node *grads) {
  Node *finite = make_unary(u->graph, OP_ISFINITE, grads);
  Node *faults =
      make_select(u->graph, finite, make_like(u->graph, grads, 0), make_like(u->graph, grads, 1));
  Node *sum = update_total(u, faults);
  return update_op(u, OP_EQ, sum, make_like(u->graph, sum, 0));
}

/* Gradients in memory are neither multiplied with the factor of their parts nor divided by the loss
 * scale: who reads them there (runtime/execute/layers.h) needs both. */
void update_show_factor(Update *u) {
  bool is_scaled = loss_scale_is_used(u->settings, u->graph);
  bool is_sum = setting_number(u->settings, "train.accumulate") > 1 || setting_ranks(u->settings) != 1;
  if (setting_number(u->settings, "train.log.layers") == 0 || (!is_scaled && !is_sum)) return;
  Node *factor = u->factor ? make_cast(u->graph, u->factor, DT_F64) : update_number(u, 1);
  if (is_scaled) factor = update_div(u, factor, make_cast(u->graph, scale_state(u), DT_F64));
  graph_add_root(u->graph, ROOT_GRAD_FACTOR, OWN_GRAD_FACTOR, factor);
}

void update_unscale(Update *u) {
  if (!loss_scale_is_used(u->settings, u->graph)) return;
  Node *skipped = counter(u, OWN_LOSS_SCALE ".skipped");
  Node *scale = make_cast(u->graph, scale_state(u), DT_F64);
  u->is_finite = all_finite(u, u->grads);
  u->grads = update_scaled(u, u->grads, update_div(u, update_number(u, 1), scale));
  u->step = update_sub(u, u->step, make_cast(u->graph, skipped, DT_F64));
}

Node *update_unless_skipped(Update *u, const char *target, Node *value) {
  if (!u->is_finite) return value;
  Node *old = graph_find_state(u->graph, target);
  return make_select(u->graph, u->is_finite, value, old);
}

void update_rescale(Update *u) {
  if (!u->is_finite) return;
  Node *is_finite = u->is_finite, *scale = scale_state(u);
  Node *good = counter(u, OWN_LOSS_SCALE ".good"), *skipped = counter(u, OWN_LOSS_SCALE ".skipped");
  u->is_finite = NULL; /* what follows is never skipped */
  Node *every = update_setting(u, "train.loss_scale.every");
  Node *growth = make_cast(u->graph, update_setting(u, "train.loss_scale.growth"), DT_F32);
  Node *backoff = make_cast(u->graph, update_setting(u, "train.loss_scale.backoff"), DT_F32);
  Node *more = update_add(u, good, make_like(u->graph, good, 1));
  Node *is_due = update_op(u, OP_GE, make_cast(u->graph, more, DT_F64), every);
  Node *grown = update_mul(u, scale, growth);
  grown = make_select(u->graph, make_unary(u->graph, OP_ISFINITE, grown), grown, scale);
  Node *next = make_select(u->graph, is_due, grown, scale), *fallen = update_mul(u, scale, backoff);
  fallen = make_select(u->graph,
                       update_op(u, OP_GE, fallen, make_like(u->graph, fallen, LOSS_SCALE_FLOOR)),
                       fallen, scale);
  update_assign(u, OWN_LOSS_SCALE, make_select(u->graph, is_finite, next, fallen));
  Node *row = make_select(u->graph, is_due, make_like(u->graph, good, 0), more);
  update_assign(u, OWN_LOSS_SCALE ".good",
                make_select(u->graph, is_finite, row, make_like(u->graph, good, 0)));
  Node *count = make_select(u->graph, is_finite, skipped,
                            update_add(u, skipped, make_like(u->graph, skipped, 1)));
  update_assign(u, OWN_LOSS_SCALE ".skipped", count);
  graph_add_root(u->graph, ROOT_LOSS_SCALE, OWN_LOSS_SCALE, scale);
  graph_add_root(u->graph, ROOT_SKIPPED, OWN_SKIPPED, count);
}
