/* match: see match.h. */
#include "ir/match.h"
#include <math.h>

bool match_const(const Node *node, double *value) {
  while (node->op == OP_BROADCAST || node->op == OP_RESHAPE) node = node->input[0];
  if (node->op != OP_CONST) return false;
  *value = node_float(node, ATTR_VALUE, 0);
  return true;
}

bool match_value(const Node *node, double value) {
  double is;
  return match_const(node, &is) && is == value;
}

bool match_with_const(const Node *node, Op op, Node **x, double *c) {
  if (node->op != op || !match_const(node->input[1], c)) return false;
  *x = node->input[0];
  return true;
}

Node *match_relu(const Node *node) {
  if (node->op == OP_MAX)
    for (int i = 0; i < 2; i++)
      if (match_value(node->input[1 - i], 0)) return node->input[i];
  if (node->op != OP_SELECT || !match_value(node->input[1], 0)) return NULL;
  const Node *test = node->input[0];
  Node *x = node->input[2];
  return test->op == OP_LE && test->input[0] == x && match_value(test->input[1], 0) ? x : NULL;
}

Node *match_mean(const Node *node) {
  Node *sum;
  double share;
  if (!match_with_const(node, OP_MUL, &sum, &share) || sum->op != OP_SUM) return NULL;
  double count =
      (double)shape_elements(&sum->input[0]->type.shape) / (double)shape_elements(&sum->type.shape);
  return fabs(share * count - 1) < 1e-6 ? sum : NULL;
}

bool match_swap_of_last_two(const Node *node) {
  int rank = node->type.shape.rank;
  if (node->op != OP_TRANSPOSE || rank < 2) return false;
  const Attr *perm = node_attr(node, ATTR_PERM);
  for (int i = 0; i < rank - 2; i++)
    if (perm->ints[i] != i) return false;
  return perm->ints[rank - 1] == rank - 2;
}

bool match_neighbours(const Node *node) {
  Node *row;
  double one;
  if (node->op != OP_GATHER || node->type.shape.dim[0] % 2) return false;
  const Shape *index = &node->input[1]->type.shape, *table = &node->input[0]->type.shape;
  return index->rank == 1 && index->dim[0] == table->dim[0] &&
         match_with_const(node->input[1], OP_XOR, &row, &one) && one == 1 && row->op == OP_IOTA;
}

bool match_column_sum(const Node *node) {
  if (node->op != OP_SUM) return false;
  const Shape *in = &node->input[0]->type.shape, *out = &node->type.shape;
  for (int d = 0; d < out->rank; d++)
    if (out->dim[d] != (d == out->rank - 1 ? in->dim[d] : 1)) return false;
  return out->rank > 0;
}
