/* make: short hands for the nodes that the front end and the passes make most. They broadcast,
 * reshape and cast as NumPy would and leave out what changes nothing. Arguments must be legal. */
#include "ir/graph.h"
#include <assert.h>

Node *make_unary(Graph *graph, Op op, Node *x) {
  return graph_node(graph, op, &x, 1, NULL, 0, NULL);
}

Node *make_binary(Graph *graph, Op op, Node *a, Node *b) {
  Shape shape;
  bool agree = shape_broadcast(&a->type.shape, &b->type.shape, &shape);
  assert(agree && "shapes that do not broadcast must be diagnosed before");
  (void)agree;
  Node *inputs[] = {make_broadcast(graph, a, shape), make_broadcast(graph, b, shape)};
  return graph_node(graph, op, inputs, 2, NULL, 0, NULL);
}

Node *make_select(Graph *graph, Node *cond, Node *a, Node *b) {
  Shape shape;
  bool agree = shape_broadcast(&a->type.shape, &b->type.shape, &shape) &&
               shape_broadcast(&cond->type.shape, &shape, &shape);
  assert(agree && "shapes that do not broadcast must be diagnosed before");
  (void)agree;
  Node *inputs[] = {make_broadcast(graph, cond, shape), make_broadcast(graph, a, shape),
                    make_broadcast(graph, b, shape)};
  return graph_node(graph, OP_SELECT, inputs, 3, NULL, 0, NULL);
}

Node *make_const(Graph *graph, DType dtype, Shape shape, double value) {
  Type type = {dtype, shape};
  Attr attr = attr_float(ATTR_VALUE, value);
  return graph_node(graph, OP_CONST, NULL, 0, &attr, 1, &type);
}

Node *make_like(Graph *graph, Node *x, double value) {
  return make_const(graph, x->type.dtype, x->type.shape, value);
}

Node *make_cast(Graph *graph, Node *x, DType dtype) {
  if (x->type.dtype == dtype) return x;
  Type type = {dtype, x->type.shape};
  return graph_node(graph, OP_CAST, &x, 1, NULL, 0, &type);
}

Node *make_reduce(Graph *graph, Op op, Node *x, const int64_t *axes, int count) {
  Attr attr = attr_ints(ATTR_AXES, axes, count);
  return graph_node(graph, op, &x, 1, &attr, 1, NULL);
}

Node *make_reshape(Graph *graph, Node *x, Shape shape) {
  if (shape_equal(&x->type.shape, &shape)) return x;
  Type type = {x->type.dtype, shape};
  return graph_node(graph, OP_RESHAPE, &x, 1, NULL, 0, &type);
}

Node *make_broadcast(Graph *graph, Node *x, Shape shape) {
  const Shape *have = &x->type.shape;
  assert(have->rank <= shape.rank);
  if (have->rank < shape.rank) {
    Shape grown = {.rank = shape.rank};
    int more = shape.rank - have->rank;
    for (int i = 0; i < shape.rank; i++) grown.dim[i] = i < more ? 1 : have->dim[i - more];
    x = make_reshape(graph, x, grown);
  }
  if (shape_equal(&x->type.shape, &shape)) return x;
  Type type = {x->type.dtype, shape};
  return graph_node(graph, OP_BROADCAST, &x, 1, NULL, 0, &type);
}

Node *make_transpose(Graph *graph, Node *x, const int64_t *perm) {
  bool identity = true;
  for (int i = 0; i < x->type.shape.rank; i++) identity &= perm[i] == i;
  if (identity) return x;
  Attr attr = attr_ints(ATTR_PERM, perm, x->type.shape.rank);
  return graph_node(graph, OP_TRANSPOSE, &x, 1, &attr, 1, NULL);
}

void perm_of_matrices(int rank, int64_t *perm) {
  for (int i = 0; i < rank; i++) perm[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
}

Node *make_slice(Graph *graph, Node *x, const int64_t *start, Shape size) {
  if (shape_equal(&x->type.shape, &size)) return x;
  Attr attr = attr_ints(ATTR_START, start, size.rank);
  return graph_node(graph, OP_SLICE, &x, 1, &attr, 1, &(Type){x->type.dtype, size});
}

Node *make_pad(Graph *graph, Node *x, const int64_t *low, const int64_t *high) {
  int rank = x->type.shape.rank;
  Attr attrs[] = {attr_ints(ATTR_LOW, low, rank), attr_ints(ATTR_HIGH, high, rank)};
  Node *padded = NULL;
  for (int i = 0; i < rank && !padded; i++)
    if (low[i] || high[i]) padded = graph_node(graph, OP_PAD, &x, 1, attrs, 2, NULL);
  return padded ? padded : x;
}

Node *make_take(Graph *graph, Node *x, Node *index, int axis) {
  int64_t there[MAX_RANK], back[MAX_RANK];
  int rank = x->type.shape.rank;
  for (int i = 0; i < rank; i++) there[i] = i == 0 ? axis : i <= axis ? i - 1 : i;
  for (int i = 0; i < rank; i++) back[there[i]] = i;
  Node *inputs[] = {make_transpose(graph, x, there), index};
  Node *rows = graph_node(graph, OP_GATHER, inputs, 2, NULL, 0, NULL);
  return make_transpose(graph, rows, back);
}

Node *make_dot(Graph *graph, Node *a, Node *b, bool ta, bool tb) {
  Node *inputs[] = {a, b};
  Attr attrs[] = {attr_bool(ATTR_TRANS_A, ta), attr_bool(ATTR_TRANS_B, tb)};
  return graph_node(graph, OP_DOT, inputs, 2, attrs, 2, NULL);
}

Node *make_all_reduce(Graph *graph, Op reduction, Node *x) {
  Attr by = attr_str(ATTR_REDUCTION, op_info[reduction].text);
  return make_result(graph, graph_node(graph, OP_ALL_REDUCE, &x, 1, &by, 1, NULL), 0);
}

Node *make_all_gather(Graph *graph, Node *x, int64_t ranks) {
  if (ranks == 1) return x;
  Attr attr = attr_int(ATTR_RANKS, ranks);
  return graph_node(graph, OP_ALL_GATHER, &x, 1, &attr, 1, NULL);
}

Node *make_rank(Graph *graph, MeshAxis axis) {
  static const char *const keys[] = {"distributed.rank", "distributed.data_rank",
                                     "distributed.pipeline_rank", "distributed.tensor_rank",
                                     "distributed.rank"};
  return make_setting(graph, keys[axis]);
}

Node *make_reduce_scatter(Graph *graph, Op reduction, Node *x, int64_t ranks) {
  if (ranks == 1) return x;
  Attr attrs[] = {attr_str(ATTR_REDUCTION, op_info[reduction].text), attr_int(ATTR_RANKS, ranks)};
  return graph_node(graph, OP_REDUCE_SCATTER, &x, 1, attrs, 2, NULL);
}

Node *make_result(Graph *graph, Node *node, int index) {
  Attr attr = attr_int(ATTR_INDEX, index);
  Type type = node_result_type(node, index);
  return graph_node(graph, OP_RESULT, &node, 1, &attr, 1, &type);
}

Node *make_dot_like(Graph *graph, const Node *like, Node *a, Node *b, bool ta, bool tb) {
  Attr attrs[] = {attr_bool(ATTR_TRANS_A, ta), attr_bool(ATTR_TRANS_B, tb)};
  return graph_copy_with(graph, like, (Node *[]){a, b}, NULL, attrs, 2);
}

Node *make_iota(Graph *graph, DType dtype, Shape shape, int axis) {
  Type type = {dtype, shape};
  Attr attr = attr_int(ATTR_AXIS, axis);
  return graph_node(graph, OP_IOTA, NULL, 0, &attr, 1, &type);
}

Node *make_setting(Graph *graph, const char *key) {
  Node *known = graph_find_leaf(graph, OP_SETTING, key);
  if (known) return known;
  Attr name = attr_str(ATTR_NAME, key);
  return graph_node(graph, OP_SETTING, NULL, 0, &name, 1, &(Type){DT_F64, shape_scalar()});
}

Node *make_state(Graph *graph, LeafRole role, const char *name, Type type, double initial) {
  Node *state = graph_find_state(graph, name);
  if (state) return state;
  bool has_init = role != ROLE_PARAMS && role != ROLE_NARROW; /* made of the parameters' */
  Attr attrs[] = {attr_str(ATTR_NAME, name), attr_str(ATTR_INIT, initial ? "const" : "zeros"),
                  attr_floats(ATTR_INIT_ARGS, &initial, 1)};
  state = graph_node(graph, OP_STATE, NULL, 0, attrs, !has_init ? 1 : initial ? 3 : 2, &type);
  state->role = role;
  return state;
}

void make_assign(Graph *graph, const char *state, Node *value) {
  Attr target = attr_str(ATTR_TARGET, state);
  Node *assign = graph_node(graph, OP_ASSIGN, &value, 1, &target, 1, NULL);
  graph_add_root(graph, ROOT_ASSIGN, state, assign);
}

Node *make_unbroadcast(Graph *graph, Node *x, Shape shape) {
  const Shape *have = &x->type.shape;
  int more = have->rank - shape.rank, count = 0;
  assert(more >= 0);
  int64_t axes[MAX_RANK];
  for (int i = 0; i < have->rank; i++)
    if (have->dim[i] != 1 && (i < more || shape.dim[i - more] == 1)) axes[count++] = i;
  if (count) x = make_reduce(graph, OP_SUM, x, axes, count);
  return make_reshape(graph, x, shape);
}
