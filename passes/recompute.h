/* recompute: what the pass did, as a sentence for --memory and --summary. */
#ifndef FT_PASSES_RECOMPUTE_H
#define FT_PASSES_RECOMPUTE_H
#include "ir/graph.h"

/* "recompute: backward recomputes values of 12 blocks ..." of a graph behind the pass; NULL if it
 * recomputes nothing. The operations are those that the graph has now. */
const char *recompute_describe(const Graph *graph, Arena *arena);
#endif
