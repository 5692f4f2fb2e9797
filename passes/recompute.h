/* recompute: what the pass of this name did, for people. */
#ifndef FT_PASSES_RECOMPUTE_H
#define FT_PASSES_RECOMPUTE_H
#include "ir/graph.h"

/* "recompute: backward makes values of 12 blocks again ..." of a graph behind the pass; NULL if
 * nothing is made again. The operations are those that the graph has now. */
const char *recompute_describe(const Graph *graph, Arena *arena);
#endif
