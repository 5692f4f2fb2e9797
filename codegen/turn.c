/* turn: see turn.h. */
#include "codegen/turn.h"

bool turn_describe(const Node *node, TurnShape *turn) {
  const Shape *shape = &node->type.shape;
  const int64_t *perm = node_attr(node, ATTR_PERM)->ints;
  int64_t place[MAX_RANK], last = -2;
  turn->rank = 0;
  for (int i = 0; i < shape->rank; i++) {
    if (shape->dim[i] == 1) continue;
    int64_t from = 0; /* among those that are not 1 */
    for (int64_t j = 0; j < perm[i]; j++) from += node->input[0]->type.shape.dim[j] != 1;
    if (from != last + 1) {
      place[turn->rank] = from;
      turn->extent[turn->rank++] = 1;
    }
    turn->extent[turn->rank - 1] *= shape->dim[i];
    last = from;
  }
  for (int i = 0; i < turn->rank; i++) {
    turn->source[i] = 0;
    for (int j = 0; j < turn->rank; j++) turn->source[i] += place[j] < place[i];
    if (turn->source[i] == turn->rank - 1) turn->row = i;
  }
  turn->column = turn->rank - 1;
  return turn->rank > 1 && turn->row != turn->column;
}
