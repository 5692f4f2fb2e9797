/* shard_random: the numbers that parameters are rounded with (passes/optimizer_rounding.c), where a
 * rank has a part of each. An element's number is that of its place in the arena that one rank by
 * itself has, so any number of ranks rounds alike. */
#ifndef FT_PASSES_SHARD_RANDOM_H
#define FT_PASSES_SHARD_RANDOM_H
#include "plan/plan.h"
#include "ir/graph.h"

/* What goes to each element's number in a rank's arena: i64[elements / ranks]. */
Node *shard_random_first(Graph *fresh, const Graph *old, const SettingValue *settings,
                         int64_t ranks, int64_t elements, Arena *scratch);
#endif
