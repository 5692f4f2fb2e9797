/* simplify: algebra on the graph. (rules follow) */
#include "passes/pass.h"

Graph *pass_simplify(PassContext *context, Graph *graph) {
  (void)context;
  return graph;
}
Graph *pass_simplify2(PassContext *context, Graph *graph) { return pass_simplify(context, graph); }
