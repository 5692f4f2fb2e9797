/* narrow: the parameters' rounded copies (bf16, f16), as the passes that make, place and order them
 * see them. */
#ifndef FT_PASSES_NARROW_H
#define FT_PASSES_NARROW_H
#include "ir/graph.h"

static inline bool is_narrow_param(const Node *node) {
  return node->op == OP_PARAM && node->role == ROLE_NARROW;
}
#endif
