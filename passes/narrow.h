/* narrow: what the pass of this name and those that place and order its values agree on. */
#ifndef FT_PASSES_NARROW_H
#define FT_PASSES_NARROW_H
#include "ir/graph.h"

/* The whole arena of narrow parameters, as OWN_PARAMS is that of the parameters. */
#define NARROW_STATE "@params.narrow"

static inline bool is_narrow_param(const Node *node) {
  return node->op == OP_PARAM && node_int(node, ATTR_NARROW, 0);
}
#endif
