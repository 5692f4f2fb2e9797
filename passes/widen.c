/* widen: on the CPU, products of narrow operands are made in f32. A product of two bf16 or f16
 * values is exact in f32, so nothing changes: CPUs have fast f32 products, and few have any other.
 * Matrix products and attention take narrow operands and widen them while they copy them. Those of
 * convolutions lie in memory as f32, rounded: kernels that make an operand round it on the way (the
 * casts are pointwise and fuse). */
#include "passes/pass.h"

static bool is_concerned(const Node *node) {
  if (op_info[node->op].op_class != CLASS_CONTRACT || node_has_results(node)) return false;
  for (int i = 0; i < node->input_count; i++)
    if (dtype_is_narrow(node->input[i]->type.dtype)) return true;
  return false;
}

/* Products copy their operands anyway, and widen them on the way; no kernel computes empty ones. */
static bool reads_narrow(const Node *node) {
  return node->op == OP_DOT && shape_elements(&node->type.shape) &&
         shape_elements(&node->input[0]->type.shape);
}

static Node *widen_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  (void)context;
  static const Attr result = {.id = ATTR_RESULT, .i = DT_F32};
  if (!is_concerned(old)) return NULL;
  Node **wide = ARENA_ARRAY(fresh->arena, Node *, old->input_count);
  for (int i = 0; i < old->input_count; i++)
    wide[i] = dtype_is_narrow(inputs[i]->type.dtype) && !reads_narrow(old)
                  ? make_cast(fresh, inputs[i], DT_F32)
                  : inputs[i];
  Attr *attrs = ARENA_ARRAY(fresh->arena, Attr, old->attr_count + 1);
  int count = 0;
  for (int i = 0; i < old->attr_count; i++)
    if (old->attr[i].id != ATTR_RESULT) attrs[count++] = old->attr[i];
  if (reads_narrow(old)) attrs[count++] = result;
  Type type = {DT_F32, old->type.shape};
  Node *made = graph_node(fresh, old->op, wide, old->input_count, attrs, count, &type);
  return make_cast(fresh, made, old->type.dtype);
}

Graph *pass_widen(PassContext *context, Graph *graph) {
  (void)context;
  for (int i = 0; i < graph->nodes.count; i++)
    if (is_concerned(graph->nodes.at[i])) return graph_rewrite(graph, widen_visit, NULL);
  return graph;
}
