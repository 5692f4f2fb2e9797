/* narrow: with bf16 and fp16, products read rounded forms of the parameters. This pass has the
 * update write them, next to the parameters themselves and in the same kernel, so that no step
 * begins by reading all parameters again: a cast of a param becomes a param that is `narrow` (its
 * place is the same one in the place "narrow", plan/plan_place.h), and the state OWN_NARROW, the
 * whole of that arena, is assigned the rounded new parameters. Between steps the place "narrow"
 * always holds the rounded parameters: after parameters were written from outside, or where
 * evaluation reads an average in their place, the runtime has the device round them
 * (runtime/execute/exec_round.c).
 *
 * The step decides for the whole program: all graphs read the place or none does. None does where
 * products read less than half of the parameters. Weights that are read packed are rounded where they are packed (passes/sparse.c). */
#include "passes/narrow.h"
#include "passes/pass.h"
#include "passes/sparse.h"
#include <string.h>

enum { ALIGN = 32 }; /* elements: 64 bytes */

static bool is_cast_param(const Node *node, DType dtype) {
  if (node->op != OP_CAST || node->type.dtype != dtype) return false;
  const Node *param = node->input[0];
  return param->op == OP_PARAM && param->type.dtype == DT_F32 &&
         node_int(param, ATTR_OFFSET, -1) % ALIGN == 0;
}

static int64_t elements_copied(const Graph *graph, DType dtype) {
  int64_t elements = 0;
  for (int i = 0; i < graph->nodes.count; i++)
    if (is_cast_param(graph->nodes.at[i], dtype))
      elements += shape_elements(&graph->nodes.at[i]->type.shape);
  return elements;
}

typedef struct {
  DType dtype;
  const bool *is_packed; /* by node: products by sparse weights alone read it, packed */
} NarrowPass;

static Node *narrow_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  const NarrowPass *pass = context;
  if (!is_cast_param(old, pass->dtype) || pass->is_packed[old->id]) return NULL;
  const Node *param = inputs[0];
  const char *why = node_str(old, ATTR_WHY);
  fresh->origin = param->origin;
  Node *made = graph_node(fresh, OP_PARAM, NULL, 0, param->attr, param->attr_count, &old->type);
  made->role = ROLE_NARROW;
  if (why) node_set_attr(fresh, made, attr_str(ATTR_WHY, why));
  return made;
}

static bool *mark_packed(const Graph *graph, Arena *arena) {
  bool *is_packed = ARENA_ARRAY(arena, bool, graph->nodes.count + 1);
  for (int i = 0; i < graph->nodes.count; i++)
    if (sparse_has_kernel(graph->nodes.at[i])) is_packed[sparse_cast(graph->nodes.at[i]->input[1])->id] = true;
  return is_packed;
}

/* What is assigned to the parameters; NULL in the graph of a part that only adds to sums. */
static Node *find_update(const Graph *graph) {
  const Node *params = graph_find_role(graph, ROLE_PARAMS);
  const Node *assign =
      params ? graph_find_root(graph, ROOT_ASSIGN, node_str(params, ATTR_NAME)) : NULL;
  return assign ? assign->input[0] : NULL;
}

static void assign_rounded(Graph *graph, Node *update, DType dtype) {
  graph->origin = update->origin;
  Node *rounded = make_cast(graph, update, dtype);
  make_state(graph, ROLE_NARROW, OWN_NARROW, rounded->type, 0);
  make_assign(graph, OWN_NARROW, rounded);
}

/* All of them, with what lies between: the gradients have one flat place for each, too. */
static int64_t arena_elements(const Graph *graph) {
  int64_t end = 0;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (node->op != OP_PARAM) continue;
    int64_t last = node_int(node, ATTR_OFFSET, 0) + shape_elements(&node->type.shape);
    if (last > end) end = last;
  }
  return end;
}

/* The type of what a graph's products take of most parameters; F32: of less than half of them. */
static DType most_copied(const Graph *graph) {
  DType dtype =
      elements_copied(graph, DT_BF16) >= elements_copied(graph, DT_F16) ? DT_BF16 : DT_F16;
  int64_t copied = elements_copied(graph, dtype);
  return copied && copied * 2 >= arena_elements(graph) ? dtype : DT_F32;
}

static DType narrow_type(const Graph *graph) {
  for (int i = 0; i < graph->nodes.count; i++)
    if (is_narrow_param(graph->nodes.at[i])) return graph->nodes.at[i]->type.dtype;
  return DT_F32;
}

Graph *pass_narrow(PassContext *context, Graph *graph) {
  const Program *program = context->program;
  if (context->settings && setting_parts(context->settings) > 1) return graph; /* shard rounds */
  const Graph *step = program && program->train ? program->train : graph;
  DType dtype = graph == step ? most_copied(graph) : narrow_type(step);
  if (dtype == DT_F32) return graph;
  NarrowPass pass = {dtype, mark_packed(graph, context->scratch)};
  Graph *fresh = graph_rewrite(graph, narrow_visit, &pass);
  Node *update = find_update(fresh);
  if (update) assign_rounded(fresh, update, dtype);
  return fresh;
}
