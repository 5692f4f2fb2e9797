/* prepare: which steps of a planned graph run once for all batches, as long as weights are the same: those
 * with the attribute `prepared`, which read parameters, states of the model that the graph does not write,
 * and each other's results. What other steps read of these is kept in the place prepared; the rest is
 * temporary like all else. The plan gives them a graph of their own (plan/plan_prepare.h). */
#ifndef FT_PASSES_PREPARE_H
#define FT_PASSES_PREPARE_H
#include "ir/graph.h"

bool prepare_has(const Node *step); /* has it the attribute? */
bool prepare_is_any(const Graph *graph);
/* Is this leaf a parameter, or a state of the model, that no run of the graph changes? */
bool prepare_is_weight(const Graph *graph, const Node *leaf);
/* Is this value, a view's base, made by such a step? */
bool prepare_makes(const Node *base);
/* Does the step read its operand `index` in every run? It does not where it only packs it, and that is
 * prepared. */
bool prepare_reads(const Node *step, int index, bool for_gpu);
#endif
