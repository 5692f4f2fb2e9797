/* prune_ranks: see prune_ranks.h. A param that is cut is [outer, groups, tensor, run] elements, and a rank of the axis tensor has
 * [outer, groups, run] of them (passes/tensor_cut.h); of these, padded to R equal parts, a rank of the axis data has one. */
#include "passes/prune_ranks.h"
#include "passes/messages.h"

static Shape prune_flat(int64_t count) { return shape_of(1, &count); }

PruneShare prune_share(const Update *u, const Node *param) {
  PruneShare share = {.begin = node_int(param, ATTR_OFFSET, 0),
                      .shape = param->type.shape,
                      .part = param->type.shape,
                      .local = shape_elements(&param->type.shape),
                      .ranks = setting_parts(u->settings),
                      .tensor = node_int(param, ATTR_TENSOR, 1),
                      .cut = tensor_cut_of_param(param)};
  if (share.cut.run) share.shape.dim[share.cut.dim] = tensor_length_of_param(param);
  share.whole = shape_elements(&share.shape);
  share.own = share.ranks > 1 ? part_elements(share.local, share.ranks) : share.local;
  share.is_spread = share.ranks > 1 || share.cut.run;
  return share;
}

/* ── rows of ranks ──────────────────────────────────────────────────────────────────────────── */
static Node *rank_number(Update *u, MeshAxis axis) { return make_cast(u->graph, make_rank(u->graph, axis), DT_I32); }

/* x: [ranks * n], n for each rank of the axis. */
static Node *row_of_rank(Update *u, Node *x, int64_t ranks, MeshAxis axis) {
  int64_t rows[] = {ranks, shape_elements(&x->type.shape) / ranks};
  Node *inputs[] = {make_reshape(u->graph, x, shape_of(2, rows)), rank_number(u, axis)};
  return graph_node(u->graph, OP_GATHER, inputs, 2, NULL, 0, NULL);
}

static Node *rows_of_ranks(Update *u, Node *x, int64_t ranks, MeshAxis axis, const char *why) {
  x = make_all_gather(u->graph, x, ranks);
  node_set_attr(u->graph, x, attr_str(ATTR_OVER, mesh_axis_text(axis)));
  node_set_attr(u->graph, x, attr_str(ATTR_WHY, why));
  return x;
}

static Node *first_elements(Update *u, Node *x, int64_t count) { return make_slice(u->graph, x, (int64_t[]){0}, prune_flat(count)); }

static Node *padded_to(Update *u, Node *x, int64_t count) {
  int64_t low = 0, high = count - shape_elements(&x->type.shape);
  return make_pad(u->graph, x, &low, &high);
}

Node *prune_own(Update *u, Node *flat, const PruneShare *share) {
  Node *x = make_slice(u->graph, flat, &share->begin, prune_flat(share->ranks * share->own));
  return share->ranks > 1 ? row_of_rank(u, x, share->ranks, MESH_DATA) : x;
}

Node *prune_place(Update *u, Node *own, const PruneShare *share, int64_t room) {
  if (share->ranks > 1) own = rows_of_ranks(u, own, share->ranks, MESH_DATA, "which weights are alive");
  return padded_to(u, own, room);
}

/* ── whole params ───────────────────────────────────────────────────────────────────────────── */
/* [tensor, outer, groups, run]: the ranks' parts behind each other; padded where they are uneven. */
static void cut_dims(const PruneShare *share, int64_t *dim) {
  dim[0] = share->tensor;
  dim[3] = tensor_inner(&share->part, share->cut);
  dim[2] = share->part.dim[share->cut.dim] / share->cut.run;
  dim[1] = share->local / dim[2] / dim[3];
}

static Node *padded_whole(Update *u, Node *whole, const PruneShare *share) {
  int64_t low[MAX_RANK] = {0}, high[MAX_RANK] = {0};
  int d = share->cut.dim;
  high[d] = share->part.dim[d] * share->tensor - share->shape.dim[d];
  return make_pad(u->graph, make_reshape(u->graph, whole, share->shape), low, high);
}

static Node *join_cut(Update *u, Node *local, const PruneShare *share, const char *why) {
  const int64_t turn[] = {1, 2, 0, 3}, start[MAX_RANK] = {0};
  int64_t dim[4];
  Shape padded = share->part;
  cut_dims(share, dim);
  padded.dim[share->cut.dim] *= share->tensor;
  Node *x = rows_of_ranks(u, local, share->tensor, MESH_TENSOR, why);
  x = make_transpose(u->graph, make_reshape(u->graph, x, shape_of(4, dim)), turn);
  x = make_slice(u->graph, make_reshape(u->graph, x, padded), start, share->shape);
  return make_reshape(u->graph, x, prune_flat(share->whole));
}

static Node *take_cut(Update *u, Node *whole, const PruneShare *share) {
  const int64_t turn[] = {2, 0, 1, 3};
  int64_t dim[4];
  cut_dims(share, dim);
  int64_t turned[] = {dim[1], dim[2], dim[0], dim[3]};
  Node *x = make_reshape(u->graph, padded_whole(u, whole, share), shape_of(4, turned));
  x = make_reshape(u->graph, make_transpose(u->graph, x, turn), prune_flat(share->tensor * share->local));
  return row_of_rank(u, x, share->tensor, MESH_TENSOR);
}

Node *prune_whole(Update *u, Node *own, const PruneShare *share, const char *name) {
  const char *why = arena_printf(u->graph->arena, "scores of %s, for prune", name);
  if (share->ranks > 1) own = first_elements(u, rows_of_ranks(u, own, share->ranks, MESH_DATA, why), share->local);
  return share->cut.run ? join_cut(u, own, share, why) : own;
}

Node *prune_part(Update *u, Node *whole, const PruneShare *share) {
  if (share->cut.run) whole = take_cut(u, whole, share);
  return share->ranks > 1 ? row_of_rank(u, padded_to(u, whole, share->ranks * share->own), share->ranks, MESH_DATA) : whole;
}

/* ── numbers and counts ─────────────────────────────────────────────────────────────────────── */
static Node *times_number(Update *u, Node *x, int64_t factor) { return update_mul(u, x, make_like(u->graph, x, (double)factor)); }

/* Of a / b, b > 0: the whole part, and in *rest what is left. */
static Node *divided(Update *u, Node *a, int64_t b, Node **rest) {
  Node *whole = update_div(u, a, make_like(u->graph, a, (double)b));
  *rest = update_sub(u, a, times_number(u, whole, b));
  return whole;
}

static Node *all_of_rank(Update *u, MeshAxis axis, const Node *like) { return make_broadcast(u->graph, rank_number(u, axis), like->type.shape); }

/* The number in the whole of element `local` of a part; *is_here: there is one. */
static Node *number_in_whole(Update *u, Node *local, const PruneShare *share, Node **is_here) {
  int64_t dim[4], inner = tensor_inner(&share->part, share->cut) / share->cut.run;
  cut_dims(share, dim);
  Node *in_row, *in_run;
  Node *outer = divided(u, local, dim[2] * dim[3], &in_row), *group = divided(u, in_row, dim[3], &in_run);
  Node *run = update_add(u, times_number(u, group, share->tensor), all_of_rank(u, MESH_TENSOR, local));
  Node *at = update_add(u, times_number(u, run, dim[3]), in_run);
  int64_t row = share->shape.dim[share->cut.dim] * inner;
  *is_here = update_op(u, OP_LT, at, make_like(u->graph, at, (double)row));
  return update_add(u, times_number(u, outer, row), at);
}

/* All ranks of the axis have it. */
static Node *counted_by_first(Update *u, Node *is_here, MeshAxis axis, int64_t ranks) {
  if (ranks == 1) return is_here;
  Node *is_first = update_op(u, OP_EQ, rank_number(u, axis), make_const(u->graph, DT_I32, shape_scalar(), 0));
  return update_op(u, OP_AND, is_here, make_broadcast(u->graph, is_first, is_here->type.shape));
}

PruneNumbers prune_numbers(Update *u, const PruneShare *share) {
  Node *is_whole = NULL, *number = make_iota(u->graph, DT_I32, prune_flat(share->own), 0);
  if (share->ranks > 1) number = update_add(u, number, times_number(u, all_of_rank(u, MESH_DATA, number), share->own));
  Node *is_here = update_op(u, OP_LT, number, make_like(u->graph, number, (double)share->local));
  if (share->cut.run) {
    number = number_in_whole(u, number, share, &is_whole);
    is_here = update_op(u, OP_AND, is_here, is_whole);
  } else {
    is_here = counted_by_first(u, is_here, MESH_TENSOR, setting_tensor(u->settings));
  }
  return (PruneNumbers){number, is_here};
}

PruneNumbers prune_numbers_of_units(Update *u, int64_t units) {
  Node *number = make_iota(u->graph, DT_I32, prune_flat(units), 0);
  Node *is_here = update_op(u, OP_GE, number, make_like(u->graph, number, 0));
  is_here = counted_by_first(u, is_here, MESH_TENSOR, setting_tensor(u->settings));
  return (PruneNumbers){number, counted_by_first(u, is_here, MESH_DATA, setting_parts(u->settings))};
}

Node *prune_counts(Update *u, Node *counts, bool of_stages) {
  const Attr why = attr_str(ATTR_WHY, "counts of weights, for prune");
  bool has_parts = setting_parts(u->settings) > 1;
  if (has_parts || setting_tensor(u->settings) > 1) {
    counts = make_all_reduce(u->graph, OP_SUM, counts);
    node_set_attr(u->graph, counts->input[0], why);
    if (!has_parts) node_set_attr(u->graph, counts->input[0], attr_str(ATTR_OVER, mesh_axis_text(MESH_TENSOR)));
  }
  if (of_stages) {
    counts = make_all_reduce(u->graph, OP_SUM, counts);
    node_set_attr(u->graph, counts->input[0], why);
    message_join(u->graph, counts->input[0], MESSAGE_TOTALS + u->totals++);
  }
  return counts;
}

/* ── as the pass shard sees it ──────────────────────────────────────────────────────────────── */
const Node *prune_part_source(const Node *gather, int64_t *begin) {
  if (gather->op != OP_GATHER || gather->input[1]->type.shape.rank != 0 || gather->type.shape.rank != 1) return NULL;
  const Node *flat = gather->input[0];
  if (flat->op != OP_RESHAPE) return NULL;
  flat = flat->input[0];
  bool is_cut = flat->op == OP_SLICE && flat->type.shape.rank == 1 && node_attr(flat, ATTR_STEP)->ints[0] == 1;
  *begin = is_cut ? node_attr(flat, ATTR_START)->ints[0] : 0;
  flat = is_cut ? flat->input[0] : flat;
  return flat->type.shape.rank == 1 ? flat : NULL;
}

const Node *prune_part_placed(const Node *place) {
  return place->op == OP_ALL_GATHER && place->type.shape.rank == 1 ? place->input[0] : NULL;
}
