/* probe: evaluates a graph on made-up leaf values, to see whether a pass kept its meaning.
 * Values depend on the leaf's name, its type and the seed only, so that two forms of one graph get
 * the same: floats of params and inputs in [-1, 1), of states in [0, 1); integers that index
 * something are in range; settings have their defaults. The state OWN_PARAMS is made of the params
 * it stands for. They are made up and printed in row-major order, whatever the order in memory. */
#ifndef FT_PASSES_PROBE_H
#define FT_PASSES_PROBE_H
#include "ir/graph.h"
#include "plan/plan.h"

typedef struct {
  Arena *arena;
  const Graph *graph;
  SettingValue *settings; /* NULL: defaults */
  uint64_t seed;
  Tensor **values; /* of the step before, NULL in the first: states go on from its assigns */
  bool one_batch;  /* an evaluation is of this batch alone: the numbers it is told are 0 */
} Probe;

/* An InterpLeaf; `context` is the Probe. */
const Tensor *probe_leaf(const Node *leaf, void *context);
/* Interprets one step without rounding, the next after probe->values. values[id] for every node;
 * NULL with errors in diag. */
Tensor **probe_run(Probe *probe, Diag *diag);
/* A value of this leaf or root that is in row-major order, as params lie in this graph (storage.c):
 * of a param, or with an element for each of theirs. In the graph's arena, or the tensor itself. */
const Tensor *probe_as_it_lies(const Graph *graph, const Node *node, const Tensor *tensor);
/* One line per root: kind, name, type and values; long ones are cut and summed up. */
void probe_print(const Graph *graph, Tensor *const *values, FILE *out);
/* One line per named leaf and per root, every value with all its digits: for other programs. */
void probe_print_all(Probe *probe, Tensor *const *values, FILE *out);
#endif
