/* widen: on the CPU, products of narrow operands are made in f32. A product of two bf16 or f16
 * values is exact in f32, so nothing changes but that the operands lie in memory as f32, rounded:
 * CPUs have fast f32 products, and few have any other. Kernels that make an operand round it on the
 * way (the casts are pointwise and fuse), and what only pointwise kernels read stays narrow. */
#include "passes/pass.h"

static Node *visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  (void)context;
  if (op_info[old->op].op_class != CLASS_CONTRACT || old->input_count != 2) return NULL;
  DType narrow = inputs[0]->type.dtype;
  if (narrow != DT_F16 && narrow != DT_BF16) return NULL;
  int first = fresh->nodes.count;
  Node *wide[] = {make_cast(fresh, inputs[0], DT_F32, old->loc),
                  make_cast(fresh, inputs[1], DT_F32, old->loc)};
  Attr *attrs = ARENA_ARRAY(fresh->arena, Attr, old->attr_count);
  int count = 0;
  for (int i = 0; i < old->attr_count; i++)
    if (old->attr[i].id != ATTR_RESULT) attrs[count++] = old->attr[i];
  Type type = {DT_F32, old->type.shape};
  Node *made = graph_node(fresh, old->op, wide, 2, attrs, count, &type, old->loc);
  made = make_cast(fresh, made, old->type.dtype, old->loc);
  for (int i = first; i < fresh->nodes.count; i++)
    fresh->nodes.at[i]->is_backward = old->is_backward;
  return made;
}

Graph *pass_widen(PassContext *context, Graph *graph) {
  if (context->for_gpu) return graph;
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    if (op_info[node->op].op_class == CLASS_CONTRACT && node->input[0]->type.dtype != DT_F32 &&
        node->input[0]->type.dtype != DT_F64)
      return graph_rewrite(graph, visit, NULL);
  }
  return graph;
}
