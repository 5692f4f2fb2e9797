/* verify_overwrite: may a kernel store a result over one of its operands? Found from the index maps
 * of the body: from each result downwards, which elements of a node are read while one element of
 * the result is made. passes/lifetime.c answers the same question for memplan, which asks before it
 * places; this is written apart from it, and asked of every plan. */
#include "base/memory.h"
#include "ir/verify.h"
#include <stdlib.h>
#include <string.h>

/* What one work item reads of a node: nothing; the element that it will store; elements of its own
 * row, before the first of the row is stored; others. The larger of two covers both. */
typedef enum { READS_NOTHING, READS_OWN, READS_ROW, READS_ANY } Reads;

/* What it then reads of the node's inputs. */
static Reads reads_of_inputs(const Node *node, Reads reads, bool is_row) {
  OpClass op_class = op_info[node->op].op_class;
  if (op_class == CLASS_POINTWISE) return reads;
  /* every reduction of a row kernel is over the row, and done before the row's results are
   * stored */
  if (op_class == CLASS_REDUCE && is_row) return READS_ROW;
  return READS_ANY;
}

bool verify_overwrite(const Node *step, int index, const Node *base) {
  if (step->op == OP_PUT) /* it writes only the rows that it replaces */
    return node_base(step->input[0]) == base && node_base(step->input[1]) != base;
  if (step->op == OP_ALL_REDUCE ||
      step->op == OP_BROADCAST_FROM) { /* element by element, each operand its own result */
    bool others = false;
    for (int k = 0; k < step->input_count; k++)
      others |= k != index && node_base(step->input[k]) == base;
    return node_base(step->input[index]) == base && !others;
  }
  if (step->op != OP_FUSED || index >= step->body->roots.count) return false;
  const Graph *body = step->body;
  const char *kind = node_str(step, ATTR_KIND);
  const Type *stored = &body->roots.at[index].node->type;
  if (dtype_bytes(stored->dtype) != dtype_bytes(base->type.dtype)) return false;
  const Node *reduce = graph_find_class(body, CLASS_REDUCE);
  bool is_full = !reduce || shape_equal(&stored->shape, &reduce->input[0]->type.shape);
  bool is_row = is_full && !strcmp(kind, "row");
  /* a column's or a convolution's elements of the domain are stored while others are still read */
  if (is_full && (!strcmp(kind, "column") || !strcmp(kind, "conv"))) return false;
  Reads *reads = calloc((size_t)body->nodes.count, sizeof *reads);
  if (!reads) memory_none();
  for (int i = 0; i < body->roots.count; i++) reads[body->roots.at[i].node->id] = READS_OWN;
  bool may = true;
  for (int i = body->nodes.count - 1; i >= 0; i--) {
    const Node *node = body->nodes.at[i];
    Reads below =
        reads[i] == READS_NOTHING ? READS_NOTHING : reads_of_inputs(node, reads[i], is_row);
    for (int k = 0; k < node->input_count; k++)
      if (reads[node->input[k]->id] < below) reads[node->input[k]->id] = below;
    if (node->op != OP_ARG) continue;
    if (node_base(step->input[node_int(node, ATTR_INDEX, 0)]) == base &&
        (reads[i] == READS_ANY || !shape_equal(&node->type.shape, &stored->shape)))
      may = false;
  }
  free(reads);
  return may;
}
