/* optimizer_muon: the matrix work of Muon. Jordan et al., Muon: An optimizer for hidden layers in
 * neural networks (2024, kellerjordan.github.io/posts/muon): the direction of a matrix is replaced
 * by one with the same singular vectors whose singular values are near 1, by a few steps of
 *     X <- a X + (b A + c A A) X,  A = X X',
 * with the coefficients given there. torch.optim.Muon does the same; its two ways of scaling the
 * result with the shape of the matrix are here too, match_rms_adamw from Liu et al., Muon is
 * Scalable for LLM Training (2025).
 *
 * Autodiff places matrices of one shape side by side, so those of one shape are one batch of
 * products. The norm and all sums are f32.
 *
 * Ranks that have the same matrices share the batch out (distributed.data = R): each takes as many
 * as the next, with zeros where there are no more, and an all_gather puts the directions together.
 * Of c matrices of a shape a rank makes q = ceil(c / R) orthogonal, and receives (R - 1) q: half as
 * many bytes as by the gradients' all_reduce. Where R divides c it is spared 5 m to 7.5 m operations
 * for each of these bytes, m being the shorter side. A shape of one matrix is done by all ranks, which
 * takes no more time. With distributed.zero each rank has a part of every matrix, and sharing the
 * batch out costs two all_to_all instead (passes/shard_matrices.c).
 *
 * Of matrices that are cut (distributed.tensor) each of T ranks has a part. They share them out too, as
 * they are: by an all_to_all each gets the others' parts of its share of the matrices, and by another
 * one all get the parts of the directions that are theirs. */
#include "passes/autodiff.h"
#include "passes/optimizer.h"
#include "passes/tensor_cut.h"
#include <math.h>
#include <string.h>

static const double coefficient_a = 3.4445, coefficient_b = -4.7750, coefficient_c = 2.0315;
static const double smallest_norm = 1e-7;

/* Matrices of one shape, one behind the other: `stride` elements from each to the next. A rank of
 * `ranks` does `share` of them, those from rank * share on; ranks 1: it does all. `tensor` ranks have a
 * part of `used` elements of each, cut so, and each of them does `whole` of the share; tensor 1: they
 * are not cut. */
typedef struct {
  int64_t begin, count, rows, columns, stride, ranks, share, used, tensor, whole;
  Cut cut;
  const char *name; /* of the first */
} MatrixRun;
typedef VEC(MatrixRun) MatrixRuns;

static Node *muon_times(Update *u, Node *x, double factor) {
  return update_mul(u, x, make_like(u->graph, x, factor));
}

static Node *muon_param(const Update *u, int64_t offset) {
  for (int i = 0; i < u->graph->nodes.count; i++) {
    Node *node = u->graph->nodes.at[i];
    if (node->op == OP_PARAM && node_int(node, ATTR_OFFSET, -1) == offset &&
        shape_elements(&node->type.shape) > 0)
      return node;
  }
  return NULL;
}

/* Not of ranks whose number the run decides. */
static void share_out(const Update *u, MatrixRun *run) {
  int64_t ranks = setting_ranks(u->settings), share = ranks ? (run->count + ranks - 1) / ranks : 0;
  bool has_parts = setting_parts(u->settings) > 1;
  bool is_shared = ranks > 1 && (has_parts || share < run->count);
  run->ranks = is_shared ? ranks : 1;
  run->share = is_shared ? share : run->count;
  run->whole = (run->share + run->tensor - 1) / run->tensor;
}

static MatrixRun muon_run_of(const Update *u, const Node *param, int64_t begin) {
  const int64_t *dim = param->type.shape.dim;
  MatrixRun run = {.begin = begin,
                   .count = 1,
                   .rows = dim[0],
                   .columns = dim[1],
                   .used = dim[0] * dim[1],
                   .stride = autodiff_param_room(u->settings, dim[0] * dim[1]),
                   .tensor = 1,
                   .cut = tensor_cut_of_param(param),
                   .name = node_str(param, ATTR_NAME)};
  if (!run.cut.run) return run;
  run.tensor = node_int(param, ATTR_TENSOR, 1);
  *(run.cut.dim == 0 ? &run.rows : &run.columns) *= run.tensor;
  return run;
}

static MatrixRuns find_runs(Update *u, int64_t begin) {
  MatrixRuns runs = {0};
  int64_t end = shape_elements(&u->flat.shape);
  while (begin < end) {
    const Node *param = muon_param(u, begin);
    if (!param) break;
    MatrixRun *last = runs.count ? &runs.at[runs.count - 1] : NULL, run = muon_run_of(u, param, begin);
    begin += run.stride;
    if (last && last->rows == run.rows && last->columns == run.columns &&
        tensor_cut_equal(last->cut, run.cut))
      last->count++;
    else
      VEC_PUSH(u->graph->arena, runs, run);
  }
  for (int i = 0; i < runs.count; i++) share_out(u, &runs.at[i]);
  return runs;
}

/* Rows of which this rank takes its share; zeros behind the last. */
static Node *own_matrices(Update *u, Node *rows, const MatrixRun *run) {
  if (run->ranks == 1) return rows;
  Node *first = make_cast(u->graph, make_rank(u->graph, MESH_DATA), DT_I32);
  first = update_mul(u, first, make_like(u->graph, first, (double)run->share));
  Node *index = make_iota(u->graph, DT_I32, shape_of(1, &run->share), 0);
  return make_take(u->graph, rows, update_add(u, index, first), 0);
}

static Node *all_matrices(Update *u, Node *rows, const MatrixRun *run) {
  Arena *arena = u->graph->arena;
  if (run->ranks == 1) return rows;
  const char *why = run->count == 1 ? arena_printf(arena, "direction of %s", run->name)
                                    : arena_printf(arena, "directions of %s and %lld more",
                                                   run->name, (long long)run->count - 1);
  rows = make_all_gather(u->graph, rows, run->ranks);
  node_set_attr(u->graph, rows, attr_str(ATTR_OVER, mesh_axis_text(MESH_DATA)));
  node_set_attr(u->graph, rows, attr_str(ATTR_WHY, why));
  int64_t start[] = {0, 0}, there[] = {run->count, run->stride};
  return make_slice(u->graph, rows, start, shape_of(2, there));
}

static Node *muon_exchanged(Update *u, Node *x, const MatrixRun *run, const char *why) {
  Attr attrs[] = {attr_str(ATTR_WHY, why), attr_int(ATTR_RANKS, run->tensor),
                  attr_str(ATTR_OVER, mesh_axis_text(MESH_TENSOR))};
  return graph_node(u->graph, OP_ALL_TO_ALL, &x, 1, attrs, 3, NULL);
}

/* A whole matrix's elements are [groups, ranks, run] of them, a part's [groups, run]. */
static Node *ranks_inside(Update *u, Node *x, const MatrixRun *run, bool is_inside) {
  Shape whole = shape_of(2, (int64_t[]){run->rows, run->columns});
  int64_t inner = tensor_inner(&whole, run->cut), groups = run->used / inner;
  int64_t ranks_first[] = {run->tensor, run->whole, groups, inner}, there[] = {1, 2, 0, 3};
  int64_t groups_first[] = {run->whole, groups, run->tensor, inner}, back[] = {2, 0, 1, 3};
  x = make_reshape(u->graph, x, shape_of(4, is_inside ? ranks_first : groups_first));
  return make_transpose(u->graph, x, is_inside ? there : back);
}

/* [share, elements of a part] as [whole, rows, columns]: the matrices that this rank does. */
static Node *whole_matrices(Update *u, Node *x, const MatrixRun *run) {
  int64_t shape[] = {run->whole, run->rows, run->columns}, low[] = {0, 0};
  int64_t high[] = {run->tensor * run->whole - run->share, 0};
  if (run->tensor > 1) {
    x = make_pad(u->graph, x, low, high);
    x = ranks_inside(u, muon_exchanged(u, x, run, "parts of cut matrices, for muon"), run, true);
  }
  return make_reshape(u->graph, x, shape_of(3, shape));
}

/* And back. */
static Node *part_matrices(Update *u, Node *x, const MatrixRun *run) {
  int64_t rows[] = {run->share, run->used}, start[] = {0, 0};
  int64_t all[] = {run->tensor * run->whole, run->used};
  if (run->tensor > 1) {
    x = make_reshape(u->graph, ranks_inside(u, x, run, false), shape_of(2, all));
    x = muon_exchanged(u, x, run, "parts of directions of cut matrices");
    x = make_slice(u->graph, x, start, shape_of(2, rows));
  }
  return make_reshape(u->graph, x, shape_of(2, rows));
}

/* Of the run's part of a flat value, the matrices that this rank does. */
static Node *matrices_of(Update *u, Node *flat, const MatrixRun *run) {
  int64_t all = run->count * run->stride;
  Node *x = make_slice(u->graph, flat, &run->begin, shape_of(1, &all));
  int64_t rows[] = {run->count, run->stride}, cut[] = {run->share, run->used}, start[] = {0, 0};
  x = own_matrices(u, make_reshape(u->graph, x, shape_of(2, rows)), run);
  return whole_matrices(u, make_slice(u->graph, x, start, shape_of(2, cut)), run);
}

static Node *flat_of(Update *u, Node *x, const MatrixRun *run) {
  int64_t all = run->count * run->stride;
  int64_t low[] = {0, 0}, high[] = {0, run->stride - run->used};
  x = make_pad(u->graph, part_matrices(u, x, run), low, high);
  return make_reshape(u->graph, all_matrices(u, x, run), shape_of(1, &all));
}

/* Newton and Schulz's iteration on the smaller side: A is X X' or, for tall matrices, X' X. */
static Node *orthogonalise(Update *u, Node *x, const MatrixRun *run) {
  Graph *graph = u->graph;
  int64_t axes[] = {1, 2};
  bool is_tall = run->rows > run->columns;
  Node *norm = update_sqrt(u, make_reduce(graph, OP_SUM, update_mul(u, x, x), axes, 2));
  norm = update_op(u, OP_MAX, norm, make_like(graph, norm, smallest_norm));
  x = update_div(u, x, norm);
  int steps = (int)setting_number(u->settings, "train.muon.steps");
  for (int i = 0; i < steps; i++) {
    Node *a = make_dot(graph, x, x, is_tall, !is_tall);
    Node *square = make_dot(graph, a, a, false, false);
    Node *b = update_add(u, muon_times(u, a, coefficient_b), muon_times(u, square, coefficient_c));
    Node *product =
        is_tall ? make_dot(graph, x, b, false, false) : make_dot(graph, b, x, false, false);
    x = update_add(u, muon_times(u, x, coefficient_a), product);
  }
  return x;
}

static double shape_factor(const Update *u, const MatrixRun *run) {
  double rows = (double)run->rows, columns = (double)run->columns;
  if (strcmp(setting_text(u->settings, "train.muon.adjust"), "original") == 0)
    return sqrt(fmax(1, rows / columns));
  return 0.2 * sqrt(fmax(rows, columns));
}

/* Parts that lie behind each other as one flat value. A GPU's update chooses among them as it
 * reads; on a CPU that choice for each element cost more than all products, so they are laid side
 * by side. */
static Node *muon_join(Update *u, Node **parts, int count) {
  Graph *graph = u->graph;
  if (count == 1) return parts[0];
  Attr axis = attr_int(ATTR_AXIS, 0);
  if (u->for_gpu) return graph_node(graph, OP_CONCAT, parts, count, &axis, 1, NULL);
  int64_t *offsets = ARENA_ARRAY(graph->arena, int64_t, count), at = 0;
  for (int i = 0; i < count; i++) {
    offsets[i] = at;
    at += shape_elements(&parts[i]->type.shape);
  }
  Attr places = attr_ints(ATTR_OFFSETS, offsets, count);
  return graph_node(graph, OP_PACK, parts, count, &places, 1, &u->flat);
}

/* See optimizer.h. */
Node *update_muon(Update *u, Node *rest, Node *direction, int64_t begin) {
  Graph *graph = u->graph;
  MatrixRuns runs = find_runs(u, begin);
  Node **parts = ARENA_ARRAY(graph->arena, Node *, runs.count + 1);
  int count = 0;
  if (rest) parts[count++] = rest;
  for (int i = 0; i < runs.count; i++) {
    const MatrixRun *run = &runs.at[i];
    Node *x = orthogonalise(u, matrices_of(u, direction, run), run);
    parts[count++] = flat_of(u, muon_times(u, x, shape_factor(u, run)), run);
  }
  return muon_join(u, parts, count);
}
