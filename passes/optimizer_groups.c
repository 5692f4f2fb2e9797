/* optimizer_groups: parameters whose learning rate or weight decay differs. Autodiff places the
 * parameters of a group side by side in the arena, so that a coefficient is constant over a few
 * long runs. The one kernel of the update chooses it by comparing the element's index with the
 * runs' ends: that takes no memory, and one comparison for each further group. */
#include "passes/messages.h"
#include "passes/optimizer.h"
#include "plan/step_form.h"
#include <stdlib.h>
#include <string.h>

static int by_begin(const void *a, const void *b) {
  const Segment *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static bool groups_is_alike(const Segment *a, const Segment *b) {
  return a->lr_factor == b->lr_factor && a->decay_factor == b->decay_factor && a->rest == b->rest &&
         a->is_matrix == b->is_matrix && a->is_cut == b->is_cut;
}

/* Runs of neighbouring params that are alike; what lies between params belongs to the run before.
 */
static void find_segments(Update *u) {
  Arena *arena = u->graph->arena;
  bool has_rates = strcmp(setting_text(u->settings, rest_rate_key), "constant") != 0;
  VEC(Segment) all = {0};
  for (int i = 0; i < u->graph->nodes.count; i++) {
    const Node *param = u->graph->nodes.at[i];
    if (param->op != OP_PARAM || node_is_frozen(param)) continue;
    if (node_int(param, ATTR_OFFSET, 0) >= shape_elements(&u->flat.shape)) continue; /* it rests */
    Segment one = {.begin = node_int(param, ATTR_OFFSET, 0),
                   .lr_factor = node_float(param, ATTR_LR_FACTOR, 1),
                   .decay_factor = node_float(param, ATTR_DECAY_FACTOR, 1),
                   .rest = has_rates ? (int)node_int(param, ATTR_REST, 0) : 0,
                   .is_matrix = node_int(param, ATTR_AS_MATRIX, 0) != 0,
                   .is_cut = node_attr(param, ATTR_CUT) != NULL};
    u->has_padding |= one.is_cut && node_attr(param, ATTR_CUT)->count == 3;
    VEC_PUSH(arena, all, one);
  }
  if (!all.count) VEC_PUSH(arena, all, ((Segment){.lr_factor = 1, .decay_factor = 1}));
  qsort(all.at, (size_t)all.count, sizeof *all.at, by_begin);
  for (int i = 0; i < all.count; i++)
    if (!u->segments.count || !groups_is_alike(&u->segments.at[u->segments.count - 1], &all.at[i]))
      VEC_PUSH(arena, u->segments, all.at[i]);
  for (int i = 0; i < u->segments.count; i++)
    u->segments.at[i].end =
        i + 1 < u->segments.count ? u->segments.at[i + 1].begin : shape_elements(&u->flat.shape);
}

/* base times the factor of each segment; segments of one factor share one node. Of a rate the base may be that of a group
 * that comes to rest. */
static Node **by_segment(Update *u, Node *base, bool is_rate) {
  Node **out = ARENA_ARRAY(u->graph->arena, Node *, u->segments.count);
  for (int i = 0; i < u->segments.count; i++) {
    const Segment *s = &u->segments.at[i];
    double factor = is_rate ? s->lr_factor : s->decay_factor;
    int rest = is_rate ? s->rest : 0;
    for (int k = 0; k < i && !out[i]; k++) {
      const Segment *other = &u->segments.at[k];
      if ((is_rate ? other->lr_factor : other->decay_factor) == factor && (is_rate ? other->rest : 0) == rest) out[i] = out[k];
    }
    if (out[i]) continue;
    Node *whole = rest ? update_rest_rate(u, rest) : base;
    out[i] = factor == 1 ? whole : update_mul(u, whole, update_number(u, factor));
  }
  return out;
}

void update_find_groups(Update *u) {
  find_segments(u);
  u->rates = by_segment(u, u->rate, true);
  u->decays = by_segment(u, update_setting(u, "train.weight_decay"), false);
}

/* The index of each element. */
static Node *index_of(Update *u) {
  bool is_short = shape_elements(&u->flat.shape) <= INT32_MAX;
  return make_iota(u->graph, is_short ? DT_I32 : DT_I64, u->flat.shape, 0);
}

static Node *is_before(Update *u, Node *index, int64_t end) {
  Node *limit = make_const(u->graph, index->type.dtype, shape_scalar(), (double)end);
  return update_op(u, OP_LT, index, limit);
}

Node *update_piecewise(Update *u, Node *const *scalars) {
  int last = u->segments.count - 1;
  Node *value = update_fill(u, scalars[last]), *index = NULL;
  for (int i = last - 1; i >= 0; i--) {
    if (scalars[i] == scalars[i + 1]) continue;
    if (!index) index = index_of(u);
    value = make_select(u->graph, is_before(u, index, u->segments.at[i].end),
                        update_fill(u, scalars[i]), value);
  }
  return value;
}

Node *update_piecewise_scaled(Update *u, Node *flat, Node *const *scalars) {
  return update_mul(u, flat, update_piecewise(u, scalars));
}

Node *update_total(Update *u, Node *flat) {
  int64_t axis = 0, ranks = setting_tensor(u->settings), stages = setting_pipeline(u->settings);
  Node **shares = ARENA_ARRAY(u->graph->arena, Node *, u->segments.count);
  Node *one = update_number(u, 1), *share = update_number(u, 1.0 / (double)ranks);
  for (int i = 0; i < u->segments.count; i++) shares[i] = u->segments.at[i].is_cut ? one : share;
  if (ranks > 1) flat = update_piecewise_scaled(u, flat, shares);
  Node *sum = make_reduce(u->graph, OP_SUM, flat, &axis, 1);
  sum = make_reshape(u->graph, sum, shape_scalar());
  if (ranks > 1) {
    sum = make_all_reduce(u->graph, OP_SUM, sum);
    node_set_attr(u->graph, sum->input[0], attr_str(ATTR_OVER, mesh_axis_text(MESH_TENSOR)));
  }
  if (stages > 1) {
    sum = make_all_reduce(u->graph, OP_SUM, sum);
    message_join(u->graph, sum->input[0], MESSAGE_TOTALS + u->totals++);
  }
  return sum;
}

/* Autodiff places what is trained as matrices behind everything else. */
Node *update_is_matrix(Update *u) {
  int64_t begin = -1;
  for (int i = 0; i < u->segments.count && begin < 0; i++)
    if (u->segments.at[i].is_matrix) begin = u->segments.at[i].begin;
  if (begin < 0) return NULL;
  Node *index = index_of(u);
  Node *limit = make_const(u->graph, index->type.dtype, shape_scalar(), (double)begin);
  return update_op(u, OP_GE, index, limit);
}
