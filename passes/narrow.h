/* narrow: what the pass of this name and those that place and order its values agree on. */
#ifndef FT_PASSES_NARROW_H
#define FT_PASSES_NARROW_H
#include "ir/graph.h"

static inline bool is_narrow_param(const Node *node) {
  return node->op == OP_PARAM && node->role == ROLE_NARROW;
}
#endif
