/* verify_kernel: does the body of a fused node keep the contract of its kind? passes/fuse.h has the
 * contract; code generation relies on it and checks nothing. */
#include "ir/verify.h"
#include <string.h>

typedef struct {
  const Node *fused;
  int reduces, contracts; /* how many stand in the body */
  const Node *reduce;     /* the first */
} Kernel;

/* A kernel over rows may sum its columns, too: over all dimensions that it keeps. */
static bool verify_is_beside(const Kernel *kernel, const Node *node) {
  const Attr *axes = node_attr(node, ATTR_AXES), *own = node_attr(kernel->fused, ATTR_AXES);
  const Shape *domain = &node->input[0]->type.shape;
  uint32_t all = 0, reduced = 0;
  if (strcmp(node_str(kernel->fused, ATTR_KIND), "row") || node->op != OP_SUM ||
      node->type.dtype != DT_F32)
    return false;
  for (int i = 0; i < axes->count; i++) all |= 1u << axes->ints[i];
  for (int i = 0; i < own->count; i++) reduced |= 1u << own->ints[i];
  for (int i = 0; i < domain->rank; i++)
    if ((all >> i & 1) == (reduced >> i & 1)) return false;
  return true;
}

static const char *check_reduce(const Kernel *kernel, const Node *node) {
  const Attr *axes = node_attr(node, ATTR_AXES), *own = node_attr(kernel->fused, ATTR_AXES);
  if (!own || !kernel->reduce || (!attr_equal(axes, own) && !verify_is_beside(kernel, node)))
    return "it reduces other axes than its kernel";
  if (!shape_equal(&node->input[0]->type.shape, &kernel->reduce->input[0]->type.shape))
    return "it reduces another shape than the first reduction of its kernel";
  return NULL;
}

static const char *check_contract(const Node *node, bool is_dot) {
  bool is_conv = node->op == OP_CONV || node->op == OP_CONV_GRAD_INPUT;
  if (is_dot ? node->op != OP_DOT : !is_conv)
    return "it is not the contraction of its kernel's kind";
  for (int i = 0; i < node->input_count; i++)
    if (node->input[i]->op != OP_ARG) return "an operand of it is not an arg";
  return NULL;
}

/* The shape of a result: all of the domain's, or also the reduced one. */
static bool result_fits(const Kernel *kernel, const Node *root, const Shape *first) {
  const Shape *shape = &root->type.shape;
  if (!kernel->reduce) return shape_equal(shape, first);
  if (op_info[root->op].op_class == CLASS_REDUCE) return true; /* checked by its axes */
  return shape_equal(shape, &kernel->reduce->type.shape) ||
         shape_equal(shape, &kernel->reduce->input[0]->type.shape);
}

static const char *check_counts(const Kernel *kernel, const char *kind) {
  bool reduces = !strcmp(kind, "row") || !strcmp(kind, "column");
  bool contracts = !strcmp(kind, "dot") || !strcmp(kind, "conv");
  if (!reduces && !contracts && strcmp(kind, "loop"))
    return "its kind must be loop, row, column, dot or conv";
  if (kernel->reduces ? !reduces && !contracts : reduces)
    return reduces ? "a kernel of this kind needs a reduction" : "a kernel of this kind has none";
  if (contracts ? kernel->contracts != 1 : kernel->contracts > 0)
    return contracts ? "a kernel of this kind has exactly one contraction"
                     : "a kernel of this kind has no contraction";
  return NULL;
}

const char *verify_kernel(const Node *fused, const Node **where) {
  const char *kind = node_str(fused, ATTR_KIND), *why;
  const Graph *body = fused->body;
  Kernel kernel = {.fused = fused};
  *where = NULL;
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    OpClass op_class = op_info[node->op].op_class;
    kernel.reduces += op_class == CLASS_REDUCE;
    const Attr *own = node_attr(fused, ATTR_AXES);
    if (op_class == CLASS_REDUCE && !kernel.reduce && own &&
        attr_equal(node_attr(node, ATTR_AXES), own))
      kernel.reduce = node;
    kernel.contracts += op_class == CLASS_CONTRACT;
  }
  if ((why = check_counts(&kernel, kind))) return why;
  for (int i = 0; i < body->nodes.count; i++) {
    OpClass op_class = op_info[body->nodes.at[i]->op].op_class;
    *where = body->nodes.at[i];
    if (op_class == CLASS_REDUCE && (why = check_reduce(&kernel, *where))) return why;
    if (op_class == CLASS_CONTRACT && (why = check_contract(*where, *kind == 'd'))) return why;
  }
  for (int i = 0; i < body->roots.count; i++) {
    *where = body->roots.at[i].node;
    if (!result_fits(&kernel, *where, &body->roots.at[0].node->type.shape))
      return "as a result it has neither the shape of the kernel's domain nor the reduced one";
  }
  return NULL;
}
