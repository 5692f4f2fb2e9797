/* prune: parameters that become 0 in the course of a training and stay so (train.prune), for the optimizer pass.
 *
 * The mask is a moment of the update, f32[N] in the order of the parameters: 1 for what is alive. In the steps that the schedule says it
 * is chosen anew, from the new parameters, among what is alive. What is dead has no gradient and no moment, counts in no norm, and is 0
 * in the parameters and in their average. */
#ifndef FT_PASSES_PRUNE_H
#define FT_PASSES_PRUNE_H
#include "passes/optimizer.h"

/* Before the rule: u->alive, and the gradients of what is dead are 0. Does nothing where nothing is pruned. */
void prune_gradients(Update *u);
/* Behind it: the new parameters with what is dead at 0; u->alive is the mask behind this step. */
Node *prune_params(Update *u, Node *params);
/* distributed.pipeline, before the graph is cut: notes on its params where the units of each stand among those of all stages, if they are
 * chosen together. */
void prune_note_order(Graph *graph, const SettingValue *settings);
/* x where u->alive, else 0, of all elements or the first ones; x itself if nothing is pruned. */
Node *prune_masked(Update *u, Node *x);
#endif
