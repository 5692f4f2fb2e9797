/* shard_random: the random numbers of stochastic rounding (passes/optimizer_rounding.c) where each
 * rank has a part of the parameters. An element draws by its place in the array that a single rank
 * would have, so any number of ranks rounds alike. */
#ifndef FT_PASSES_SHARD_RANDOM_H
#define FT_PASSES_SHARD_RANDOM_H
#include "plan/plan.h"
#include "ir/graph.h"

enum { ROUNDING_STREAM = 0x7fffffff }; /* dropout's streams count from 0 */

/* What goes to each element's number in a rank's arena: i64[elements / ranks]. ranks: those that have
 * parts of each param (distributed.zero), of what the ranks of the axis tensor have of it. */
Node *shard_random_first(Graph *fresh, const Graph *old, const SettingValue *settings,
                         int64_t ranks, int64_t elements, Arena *scratch);
/* The graph, where no rank has less of a param than those of the axis tensor have. */
Graph *shard_random_of_tensor(Graph *graph, const SettingValue *settings, Arena *scratch);
#endif
