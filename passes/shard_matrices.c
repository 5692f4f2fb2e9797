/* shard_matrices: see shard_matrices.h. With R ranks, q matrices for each and P elements in a rank's
 * part of a matrix, what goes to all ranks is [R, q, P]: the parts that this rank has of the matrices
 * of each; what comes from all of them is [R, q, P], too: the parts of this rank's matrices that each
 * of them has. */
#include "passes/shard_matrices.h"

const Node *shard_matrices_source(const Node *gather, int64_t *begin) {
  if (gather->op != OP_GATHER || gather->type.shape.rank != 2) return NULL;
  const Node *flat = gather->input[0];
  if (flat->op != OP_RESHAPE || flat->type.shape.rank != 2) return NULL;
  flat = flat->input[0];
  bool is_cut = flat->op == OP_SLICE && node_attr(flat, ATTR_STEP)->ints[0] == 1;
  *begin = is_cut ? node_attr(flat, ATTR_START)->ints[0] : 0;
  flat = is_cut ? flat->input[0] : flat;
  return flat->type.shape.rank == 1 ? flat : NULL;
}

/* Does it take the first elements, in the order of memory? */
static bool is_beginning(const Node *slice) {
  const Attr *start = node_attr(slice, ATTR_START), *step = node_attr(slice, ATTR_STEP);
  for (int i = 0; i < slice->type.shape.rank; i++) {
    bool is_whole = slice->type.shape.dim[i] == slice->input[0]->type.shape.dim[i];
    if (start->ints[i] || step->ints[i] != 1 || (i && !is_whole)) return false;
  }
  return true;
}

const Node *shard_matrices_directions(const Node *flat) {
  if (flat->type.shape.rank != 1) return NULL;
  while (flat->op == OP_RESHAPE || (flat->op == OP_SLICE && is_beginning(flat)))
    flat = flat->input[0];
  return flat->op == OP_ALL_GATHER && flat->type.shape.rank == 2 ? flat : NULL;
}

static Node *exchanged(Graph *fresh, Node *x, int64_t ranks, const char *why) {
  Attr attrs[] = {attr_str(ATTR_WHY, why), attr_int(ATTR_RANKS, ranks),
                  attr_str(ATTR_OVER, mesh_axis_text(MESH_DATA))};
  return graph_node(fresh, OP_ALL_TO_ALL, &x, 1, attrs, 3, NULL);
}

static const int64_t exchange_two[] = {1, 0, 2};

Node *shard_matrices_own(Graph *fresh, const Node *gather, Node *part, int64_t begin,
                         int64_t ranks) {
  int64_t count = gather->input[0]->type.shape.dim[0], share = gather->type.shape.dim[0];
  int64_t size = gather->type.shape.dim[1] / ranks, all = count * size;
  int64_t start = begin / ranks, low[] = {0, 0}, high[] = {ranks * share - count, 0};
  fresh->origin = gather->origin;
  Node *x = make_slice(fresh, part, &start, shape_of(1, &all));
  x = make_reshape(fresh, x, shape_of(2, (int64_t[]){count, size}));
  x = exchanged(fresh, make_pad(fresh, x, low, high), ranks, "parts of matrices, for muon");
  x = make_reshape(fresh, x, shape_of(3, (int64_t[]){ranks, share, size}));
  return make_reshape(fresh, make_transpose(fresh, x, exchange_two), gather->type.shape);
}

Node *shard_matrices_part(Graph *fresh, const Node *flat, Node *own) {
  const Node *gather = shard_matrices_directions(flat);
  int64_t ranks = node_int(gather, ATTR_RANKS, 1), share = own->type.shape.dim[0];
  int64_t size = own->type.shape.dim[1] / ranks;
  fresh->origin = flat->origin;
  Node *x = make_reshape(fresh, own, shape_of(3, (int64_t[]){share, ranks, size}));
  x = make_transpose(fresh, x, exchange_two);
  x = make_reshape(fresh, x, shape_of(2, (int64_t[]){ranks * share, size}));
  x = exchanged(fresh, x, ranks, node_str(gather, ATTR_WHY));
  int64_t start = 0, all = ranks * share * size, there = shape_elements(&flat->type.shape) / ranks;
  x = make_reshape(fresh, x, shape_of(1, &all));
  return make_slice(fresh, x, &start, shape_of(1, &there));
}
