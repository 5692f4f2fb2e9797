/* sharpness: the gradient of a step is that of weights moved to where the loss rises most nearby, so that the
 * training ends where the loss is flat. Foret et al., Sharpness-Aware Minimization (2021): w + rho g / |g|; Kwon et
 * al., ASAM (2021): w + rho t² g / |t g| with t = |w| + eta, so that the size of the weights does not matter.
 *
 * Autodiff has made the gradients g once. Forward and backward stand here a second time, as a copy of all that
 * depends on a trained parameter, with the moved weights in its place, and its gradients are the step's. What
 * depends on no parameter, the batch, a dropout's mask, is there once, and so are copies and averages of
 * parameters, the roots STAYS; loss, metrics, outputs and states (the statistics of a batch norm) are those of
 * the first time.
 *
 * Of a part of a batch (accumulate, several ranks) g is the gradient of that part's own loss, the root DIRECTION, and each
 * part moves the weights for itself: the paper's m-sharpness, which costs no further collective. */
#include "passes/loss_scale.h"
#include <string.h>

typedef struct {
  Update u;          /* what the notation of updates needs */
  Node **moved;      /* by old node: its copy, or itself where it depends on no trained param */
  bool is_adaptive;  /* ASAM */
  Node *unscale;     /* f32[]: one over fp16's loss scale; NULL: 1 */
} Sharpness;

static Node *sharpness_times(Sharpness *s, Node *x, Node *scalar) {
  return update_mul(&s->u, x, make_broadcast(s->u.graph, scalar, x->type.shape));
}

/* t; NULL: 1 */
static Node *sharpness_size(Sharpness *s, Node *param) {
  if (!s->is_adaptive) return NULL;
  Node *size = make_unary(s->u.graph, OP_ABS, make_cast(s->u.graph, param, DT_F32));
  Node *eta = make_cast(s->u.graph, update_setting(&s->u, "train.sharpness.eta"), DT_F32);
  return update_add(&s->u, size, make_broadcast(s->u.graph, eta, size->type.shape));
}

/* t g, as it would be without a loss scale */
static Node *sized_gradient(Sharpness *s, Node *param, Node *gradient) {
  Node *size = sharpness_size(s, param);
  if (s->unscale) gradient = sharpness_times(s, gradient, s->unscale);
  return size ? update_mul(&s->u, gradient, size) : gradient;
}

/* f64[] */
static Node *sum_of_squares(Sharpness *s, Node *x) {
  int64_t axes[MAX_RANK];
  Node *sum = update_mul(&s->u, x, x);
  for (int i = 0; i < MAX_RANK; i++) axes[i] = i;
  if (x->type.shape.rank) sum = make_reduce(s->u.graph, OP_SUM, sum, axes, x->type.shape.rank);
  return make_cast(s->u.graph, make_reshape(s->u.graph, sum, shape_scalar()), DT_F64);
}

/* w + e, of the param's type. Where the norm is not finite the weights stay: g is NaN where nothing counts in a part of a
 * batch, and where fp16 overflows, which the second gradient shows as well. */
static Node *moved_param(Sharpness *s, Node *param, Node *gradient, Node *ratio, Node *is_finite) {
  Graph *graph = s->u.graph;
  Node *size = sharpness_size(s, param), *wide = make_cast(graph, param, DT_F32);
  Node *move = sharpness_times(s, sized_gradient(s, param, gradient), ratio);
  if (size) move = update_mul(&s->u, move, size);
  is_finite = make_broadcast(graph, is_finite, wide->type.shape);
  Node *moved = make_select(graph, is_finite, update_add(&s->u, wide, move), wide);
  return make_cast(graph, moved, param->type.dtype);
}

/* The params of a pack, in its order. */
static Node **sharpness_params(const Graph *graph, const Node *pack, Arena *arena) {
  const Attr *offsets = node_attr(pack, ATTR_OFFSETS);
  Node **params = ARENA_ARRAY(arena, Node *, pack->input_count);
  Lookup at = {.arena = arena};
  for (int i = 0; i < pack->input_count; i++) lookup_add(&at, &offsets->ints[i], sizeof offsets->ints[i], i);
  for (int i = 0; i < graph->nodes.count; i++) {
    Node *param = graph->nodes.at[i];
    if (param->op != OP_PARAM || node_is_frozen(param)) continue;
    int64_t offset = node_int(param, ATTR_OFFSET, -1);
    int found = lookup_find(&at, &offset, sizeof offset);
    if (found >= 0) params[found] = param;
  }
  return params;
}

static void move_params(Sharpness *s, Node *const *params, const Node *direction) {
  Graph *graph = s->u.graph;
  int count = direction->input_count;
  Node *total = update_number(&s->u, 0);
  for (int i = 0; i < count; i++)
    total = update_add(&s->u, total, sum_of_squares(s, sized_gradient(s, params[i], direction->input[i])));
  Node *norm = update_sqrt(&s->u, total);
  Node *least = update_number(&s->u, 1e-12);
  Node *ratio = update_div(&s->u, update_setting(&s->u, "train.sharpness.rho"), update_add(&s->u, norm, least));
  Node *is_finite = make_unary(graph, OP_ISFINITE, norm);
  ratio = make_cast(graph, ratio, DT_F32);
  for (int i = 0; i < count; i++)
    s->moved[params[i]->id] = moved_param(s, params[i], direction->input[i], ratio, is_finite);
}

/* What leads to the gradients and depends on a moved param. */
static void copy_with_moved(Sharpness *s, const Node *pack, int count) {
  Graph *graph = s->u.graph;
  bool *wanted = ARENA_ARRAY(graph->arena, bool, graph->nodes.count);
  wanted[pack->id] = true;
  graph_mark_inputs(graph, wanted);
  for (int i = 0; i < count; i++) {
    Node *node = graph->nodes.at[i];
    bool is_changed = false;
    if (s->moved[i] || !wanted[i]) continue;
    Node **inputs = ARENA_ARRAY(graph->arena, Node *, node->input_count);
    for (int k = 0; k < node->input_count; k++) {
      inputs[k] = s->moved[node->input[k]->id];
      is_changed |= inputs[k] != node->input[k];
    }
    graph->origin = node->origin;
    s->moved[i] = is_changed ? graph_copy_node(graph, node, inputs) : node;
  }
}

Graph *pass_sharpness(PassContext *context, Graph *old) {
  const char *kind = context->settings ? setting_text(context->settings, "train.sharpness") : "none";
  bool moves = strcmp(kind, "none") && graph_find_root(old, ROOT_GRADIENTS, NULL);
  if (!moves && !graph_find_root(old, ROOT_STAYS, NULL)) return old;
  Graph *graph = graph_rewrite(old, NULL, NULL);
  VEC(Node *) stays = {0};
  for (Node *node; (node = graph_take_root(graph, ROOT_STAYS)) != NULL;) VEC_PUSH(context->scratch, stays, node);
  if (!moves) return graph;
  Node *grads = graph_take_root(graph, ROOT_GRADIENTS), *direction = graph_take_root(graph, ROOT_DIRECTION);
  int count = graph->nodes.count;
  Sharpness s = {.u = {.graph = graph, .settings = context->settings},
                 .moved = ARENA_ARRAY(context->scratch, Node *, count),
                 .is_adaptive = !strcmp(kind, "asam")};
  Node **params = sharpness_params(graph, grads, context->scratch);
  graph->origin = (Origin){.is_backward = true, .function = kind};
  update_at(&s.u, "train.sharpness");
  s.unscale = loss_scale_inverse(&s.u);
  move_params(&s, params, direction ? direction : grads);
  for (int i = 0; i < stays.count; i++) s.moved[stays.at[i]->id] = stays.at[i];
  copy_with_moved(&s, grads, count);
  graph->origin = (Origin){0};
  graph_add_root(graph, ROOT_GRADIENTS, OWN_GRADS, s.moved[grads->id]);
  return pass_dce(context, graph); /* the first pack of a graph is that of its gradients */
}
