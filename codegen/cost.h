/* cost: what a node or a kernel of a graph computes, for the plan and bench and for the page of --emit=html. */
#ifndef FT_CODEGEN_COST_H
#define FT_CODEGEN_COST_H
#include "ir/graph.h"

/* Operations on floats; a multiplication with an addition counts two. */
int64_t cost_flops(const Node *node);
#endif
