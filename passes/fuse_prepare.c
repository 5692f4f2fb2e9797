/* fuse_prepare: brings a graph into the form that grouping expects.
 *
 * Every reduction becomes a row reduction (its axes are the last dimensions) or a column reduction
 * (the last dimension of more than one element is kept), with axes of more than one element. What
 * is neither, such as the sums of a batch norm over N, H and W of NCHW, is done in two stages: the
 * trailing axes first. A reduction of many elements to few is split in two, so that there is work
 * for every thread, by a view of its input as [.., parts, part, ..]. */
#include "passes/fuse_plan.h"
#include <string.h>

enum {
  ROW_SPLIT_LENGTH = 16384, /* longer rows than this are split ... */
  ROW_SPLIT_ROWS = 32,      /* ... if there are fewer rows than this */
  COLUMN_SPLIT_LENGTH = 4096,
  COLUMN_SPLIT_WIDTH = 16384,
  PART_LEAST = 64,
  PART_MOST = 2048
};

Shape fuse_squeeze(const Shape *shape) {
  Shape out = {0};
  for (int i = 0; i < shape->rank; i++)
    if (shape->dim[i] != 1) out.dim[out.rank++] = shape->dim[i];
  return out;
}

Shape fuse_reduce_domain(const Node *reduce, int64_t axes[MAX_RANK], int *axis_count) {
  const Shape *shape = &reduce->input[0]->type.shape;
  const Attr *attr = node_attr(reduce, ATTR_AXES);
  Shape out = {0};
  *axis_count = 0;
  for (int i = 0; i < shape->rank; i++) {
    if (shape->dim[i] == 1) continue;
    for (int k = 0; k < attr->count; k++)
      if (attr->ints[k] == i) axes[(*axis_count)++] = out.rank;
    out.dim[out.rank++] = shape->dim[i];
  }
  return out;
}

static bool has_axis(const int64_t *axes, int count, int axis) {
  for (int i = 0; i < count; i++)
    if (axes[i] == axis) return true;
  return false;
}

/* How many of the last dimensions are all reduced. */
static int trailing_axes(const Shape *domain, const int64_t *axes, int count) {
  int trailing = 0;
  while (trailing < domain->rank && has_axis(axes, count, domain->rank - 1 - trailing)) trailing++;
  return trailing;
}

bool fuse_is_row(const Node *reduce) {
  int64_t axes[MAX_RANK];
  int count;
  Shape domain = fuse_reduce_domain(reduce, axes, &count);
  return trailing_axes(&domain, axes, count) > 0;
}

static bool is_arg(Op op) { return op == OP_ARGMAX || op == OP_ARGMIN; }

static Node *mark(Node *node, const Node *old) {
  node->is_backward = old->is_backward;
  return node;
}

static Node *view(Graph *graph, Node *x, Shape shape, const Node *old) {
  return mark(make_reshape(graph, x, shape, old->loc), x);
}

static Node *reduce(Graph *graph, const Node *old, Node *x, const int64_t *axes, int count) {
  return mark(make_reduce(graph, old->op, x, axes, count, old->loc), old);
}

/* The longest part between PART_LEAST and PART_MOST that divides `length`; 0 if there is none. */
static int64_t part_of(int64_t length) {
  for (int64_t part = PART_MOST; part >= PART_LEAST; part--)
    if (length % part == 0) return part;
  return 0;
}

/* x is [rows, length]; its rows are reduced in two stages if that gives more work at a time. */
static Node *reduce_rows(Graph *graph, const Node *old, Node *x) {
  int64_t rows = x->type.shape.dim[0], length = x->type.shape.dim[1], axis = 1;
  int64_t part = !is_arg(old->op) && length > ROW_SPLIT_LENGTH && rows < ROW_SPLIT_ROWS
                     ? part_of(length) : 0;
  if (!part) return NULL;
  int64_t last = 2, split[3] = {rows, length / part, part};
  Node *parts = reduce(graph, old, view(graph, x, shape_of(3, split), old), &last, 1);
  return reduce(graph, old, view(graph, parts, shape_of(2, split), old), &axis, 1);
}

/* x is [length, width], reduced to [1, width]. */
static Node *reduce_columns(Graph *graph, const Node *old, Node *x) {
  int64_t length = x->type.shape.dim[0], width = x->type.shape.dim[1];
  if (is_arg(old->op) || length <= COLUMN_SPLIT_LENGTH || width > COLUMN_SPLIT_WIDTH) return NULL;
  int64_t part = part_of(length), middle = 1, first = 0;
  if (!part) return NULL;
  int64_t split[3] = {length / part, part, width}, joined[2] = {length / part, width};
  Node *parts = reduce(graph, old, view(graph, x, shape_of(3, split), old), &middle, 1);
  return reduce(graph, old, view(graph, parts, shape_of(2, joined), old), &first, 1);
}

static bool is_one_block(const Shape *domain, int from, int to, const int64_t *axes, int count) {
  for (int i = from; i < to; i++)
    if (has_axis(axes, count, i)) return false;
  return domain->rank >= to;
}

static int64_t product(const Shape *shape, int from, int to) {
  int64_t result = 1;
  for (int i = from; i < to; i++) result *= shape->dim[i];
  return result;
}

static Node *prepare_reduce(Graph *graph, const Node *old, Node *x) {
  int64_t axes[MAX_RANK];
  int count;
  const Shape *want = &old->type.shape;
  Shape domain = fuse_reduce_domain(old, axes, &count);
  if (count == 0) { /* nothing but dimensions of 1 */
    if (is_arg(old->op)) return make_const(graph, old->type.dtype, *want, 0, old->loc);
    return view(graph, x, *want, old);
  }
  int trailing = trailing_axes(&domain, axes, count), rank = domain.rank, kept = rank - trailing;
  Node *result = NULL;
  if (trailing == count) {
    int64_t flat[2] = {product(&domain, 0, kept), product(&domain, kept, rank)};
    if (shape_elements(&domain) > 0)
      result = reduce_rows(graph, old, view(graph, x, shape_of(2, flat), old));
  } else if (trailing > 0) {
    Node *first = reduce(graph, old, view(graph, x, domain, old), axes + count - trailing, trailing);
    first = view(graph, first, shape_of(kept, domain.dim), old);
    result = reduce(graph, old, first, axes, count - trailing);
    Node *again = prepare_reduce(graph, result, first);
    if (again) result = again;
  } else if (is_one_block(&domain, count, rank, axes, count) && shape_elements(&domain) > 0) {
    int64_t flat[2] = {product(&domain, 0, count), product(&domain, count, rank)};
    result = reduce_columns(graph, old, view(graph, x, shape_of(2, flat), old));
  }
  return result ? view(graph, result, *want, old) : NULL;
}

/* dot(transpose of the last two dimensions of a, b) is dot(a, b) with `ta` turned over. */
static bool is_matrix_transpose(const Node *node) {
  if (node->op != OP_TRANSPOSE || node->type.shape.rank < 2) return false;
  const Attr *perm = node_attr(node, ATTR_PERM);
  int rank = perm->count;
  for (int i = 0; i < rank - 2; i++)
    if (perm->ints[i] != i) return false;
  return perm->ints[rank - 1] == rank - 2;
}

static Node *prepare_dot(Graph *graph, const Node *old, Node **inputs) {
  bool turned[2] = {node_int(old, ATTR_TRANS_A, 0), node_int(old, ATTR_TRANS_B, 0)};
  bool changed = false;
  Node *operand[2];
  for (int i = 0; i < 2; i++) {
    operand[i] = inputs[i];
    if (!is_matrix_transpose(operand[i])) continue;
    operand[i] = operand[i]->input[0];
    turned[i] = !turned[i];
    changed = true;
  }
  if (!changed) return NULL;
  return mark(make_dot(graph, operand[0], operand[1], turned[0], turned[1], old->loc), old);
}

static Node *prepare_node(Graph *graph, const Node *old, Node **inputs, void *context) {
  (void)context;
  if (old->op == OP_STOP_GRADIENT) return inputs[0];
  if (old->op == OP_DOT) return prepare_dot(graph, old, inputs);
  if (op_info[old->op].op_class == CLASS_REDUCE) return prepare_reduce(graph, old, inputs[0]);
  return NULL;
}

Graph *fuse_prepare(const Graph *graph) { return graph_rewrite(graph, prepare_node, NULL); }
