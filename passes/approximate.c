/* approximate: marks the elementary functions that may be computed with less exactness than f32 has, in fewer
 * instructions (kernels/approximate.h): where numbers of 16 bits come in or go out, the errors are
 * below those of the rounding. Two kinds are marked:
 *
 * - those of which only bf16 and f16 are made (by arithmetic of f32 and casts);
 * - those that are made of bf16 or f16, of which only bf16, f16 and sums are made: the softmax of
 *   logits of 16 bits, and the loss that its sum goes into; gradients of biases.
 *
 * And attention of bf16 and f16 whose scores are capped: their tanh, on a GPU (that of the CPU's kernels is exact).
 *
 * What is compared, taken the maximum of or given out as f32 stays exact; only the largest number by which fp8 scales
 * what it rounds (float8.h) may be one of such, as it is with an error below that of the rounding. The mark is made before
 * any value is computed twice, so that all copies of a value are equal. ftc --exact-math leaves the
 * pass out. The interpreter does not look at the mark. */
#include "passes/pass.h"

static bool has_approximate_form(const Node *node) {
  bool is_one = node->op == OP_EXP || node->op == OP_TANH || node->op == OP_SIGMOID ||
                node->op == OP_ERF;
  return is_one && (node->type.dtype == DT_F32 || dtype_is_narrow(node->type.dtype));
}

/* The tanh of capped scores, of which weights of 16 bits are made. */
static bool is_narrow_attention(const Node *node) {
  bool is_attention = node->op == OP_ATTENTION || node->op == OP_ATTENTION_GRAD;
  return is_attention && node_attr(node, ATTR_SOFTCAP) && dtype_is_narrow(node->type.dtype);
}

typedef struct {
  bool *is_of_narrow; /* by node: numbers of 16 bits go into it */
  bool *has_sum;      /* a sum of f32 is made of it, */
  bool *has_other;    /* or something else that is not narrow */
} Ends;

static void approximate_find_ends(const Graph *graph, Ends *ends) {
  for (int i = 0; i < graph->nodes.count; i++) {
    const Node *node = graph->nodes.at[i];
    bool is_of_narrow = dtype_is_narrow(node->type.dtype) && node->op != OP_CONST;
    for (int k = 0; k < node->input_count; k++)
      is_of_narrow |= ends->is_of_narrow[node->input[k]->id];
    ends->is_of_narrow[i] = is_of_narrow;
  }
  for (int i = 0; i < graph->roots.count; i++)
    ends->has_other[graph->roots.at[i].node->id] = true;
  for (int i = graph->nodes.count - 1; i >= 0; i--) {
    const Node *node = graph->nodes.at[i];
    OpClass op_class = op_info[node->op].op_class;
    bool hands_on = (op_class == CLASS_POINTWISE || op_class == CLASS_MOVE) &&
                    node->type.dtype == DT_F32;
    bool is_narrow = dtype_is_narrow(node->type.dtype);
    bool is_sum = node->op == OP_SUM && node->type.dtype == DT_F32, is_scale = node->op == OP_ABS && node_attr(node, ATTR_KIND);
    ends->has_sum[i] &= !is_narrow;
    ends->has_other[i] &= !is_narrow;
    for (int k = 0; k < node->input_count; k++) {
      int input = node->input[k]->id;
      if (is_scale) continue;
      ends->has_sum[input] |= is_sum || (hands_on && ends->has_sum[i]);
      ends->has_other[input] |=
          !is_sum && (hands_on ? ends->has_other[i] : !is_narrow || op_class == CLASS_REDUCE);
    }
  }
}

Graph *pass_approximate(PassContext *context, Graph *old) {
  size_t count = (size_t)old->nodes.count + 1;
  Ends ends = {ARENA_ARRAY(context->scratch, bool, count),
               ARENA_ARRAY(context->scratch, bool, count),
               ARENA_ARRAY(context->scratch, bool, count)};
  approximate_find_ends(old, &ends);
  Graph *graph = graph_rewrite(old, NULL, NULL);
  for (int i = 0; i < graph->nodes.count; i++) {
    Node *node = graph->nodes.at[i];
    bool may_be = has_approximate_form(node) && !ends.has_other[i] &&
                  (!ends.has_sum[i] || ends.is_of_narrow[i]);
    if (may_be || is_narrow_attention(node))
      node_set_attr(graph, node, attr_str(ATTR_KIND, "approximate"));
  }
  return graph;
}
