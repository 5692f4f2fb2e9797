/* optimizer_muon: the matrix work of Muon. Jordan et al., Muon: An optimizer for hidden layers in
 * neural networks (2024, kellerjordan.github.io/posts/muon): the direction of a matrix is replaced
 * by one with the same singular vectors whose singular values are near 1, by a few steps of
 *     X <- a X + (b A + c A A) X,  A = X X',
 * with the coefficients given there. torch.optim.Muon does the same; its two ways of scaling the
 * result with the shape of the matrix are here too, match_rms_adamw from Liu et al., Muon is
 * Scalable for LLM Training (2025).
 *
 * Autodiff places matrices of one shape side by side, so those of one shape are one batch of
 * products. The norm and all sums are f32. */
#include "passes/autodiff.h"
#include "passes/optimizer.h"
#include <math.h>
#include <string.h>

static const double coefficient_a = 3.4445, coefficient_b = -4.7750, coefficient_c = 2.0315;
static const double smallest_norm = 1e-7;

/* Matrices of one shape, one behind the other: `stride` elements from each to the next. */
typedef struct {
  int64_t begin, count, rows, columns, stride;
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

static MatrixRuns find_runs(Update *u, int64_t begin) {
  MatrixRuns runs = {0};
  int64_t end = shape_elements(&u->flat.shape), align = autodiff_param_align(u->settings);
  while (begin < end) {
    const Node *param = muon_param(u, begin);
    if (!param) break;
    const int64_t *dim = param->type.shape.dim;
    MatrixRun *last = runs.count ? &runs.at[runs.count - 1] : NULL;
    int64_t stride = (dim[0] * dim[1] + align - 1) / align * align;
    if (last && last->rows == dim[0] && last->columns == dim[1])
      last->count++;
    else
      VEC_PUSH(u->graph->arena, runs, ((MatrixRun){begin, 1, dim[0], dim[1], stride}));
    begin += stride;
  }
  return runs;
}

/* The run's part of a flat value as [count, rows, columns]. */
static Node *matrices_of(Update *u, Node *flat, const MatrixRun *run) {
  int64_t all = run->count * run->stride, used = run->rows * run->columns;
  Node *x = make_slice(u->graph, flat, &run->begin, shape_of(1, &all));
  int64_t rows[] = {run->count, run->stride}, cut[] = {run->count, used}, start[] = {0, 0};
  x = make_slice(u->graph, make_reshape(u->graph, x, shape_of(2, rows)), start, shape_of(2, cut));
  int64_t shape[] = {run->count, run->rows, run->columns};
  return make_reshape(u->graph, x, shape_of(3, shape));
}

static Node *flat_of(Update *u, Node *x, const MatrixRun *run) {
  int64_t used = run->rows * run->columns, all = run->count * run->stride;
  int64_t rows[] = {run->count, used}, low[] = {0, 0}, high[] = {0, run->stride - used};
  x = make_pad(u->graph, make_reshape(u->graph, x, shape_of(2, rows)), low, high);
  return make_reshape(u->graph, x, shape_of(1, &all));
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
