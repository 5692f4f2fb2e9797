/* min_cut: the cheapest set of edges that separates a source from a sink, by maximum flow (Dinic
 * 1970). For graphs of some hundreds of vertices. */
#ifndef FT_PASSES_MIN_CUT_H
#define FT_PASSES_MIN_CUT_H
#include "base/arena.h"
#include <stdbool.h>

#define MIN_CUT_INFINITE ((int64_t)1 << 60) /* never cut; all others together must stay below */

typedef struct MinCut MinCut;
MinCut *min_cut_new(Arena *arena, int vertices);
void min_cut_edge(MinCut *cut, int from, int to, int64_t capacity);
/* By vertex: does it lie on the sink's side? Of several cheapest cuts it is the one nearest to the
 * sink. NULL if only infinite edges separate the two. */
bool *min_cut_solve(MinCut *cut, int source, int sink);
#endif
