/* fuse_kernel: questions about fused nodes: kind, domain, and the equality under which two of them
 * share one kernel. Names, locations and the order in which attributes were set do not count. */
#include "passes/fuse.h"
#include <string.h>

int kernel_accumulators(const Node *reduce) {
  int words = dtype_bytes(reduce->input[0]->type.dtype) > 4 ? 2 : 1;
  if (op_is_arg(reduce->op)) return words + 1;
  return op_has(reduce->op, TRAIT_MOMENT) ? 2 * words : words;
}

KernelKind kernel_kind(const Node *fused) {
  static const char *const text[] = {
      [KERNEL_LOOP] = "loop", [KERNEL_ROW] = "row",   [KERNEL_COLUMN] = "column",
      [KERNEL_DOT] = "dot",   [KERNEL_CONV] = "conv",
  };
  const char *kind = node_str(fused, ATTR_KIND);
  for (size_t i = 0; kind && i < sizeof text / sizeof text[0]; i++)
    if (strcmp(kind, text[i]) == 0) return (KernelKind)i;
  return KERNEL_LOOP;
}

Shape kernel_domain(const Node *fused) {
  KernelKind kind = kernel_kind(fused);
  const Graph *body = fused->body;
  const Node *node = NULL;
  if (kind == KERNEL_ROW || kind == KERNEL_COLUMN)
    return graph_find_class(body, CLASS_REDUCE)->input[0]->type.shape;
  if (kind == KERNEL_DOT || kind == KERNEL_CONV) node = kernel_product(fused);
  return (node ? node : body->roots.at[0].node)->type.shape;
}

const Node *kernel_contraction(const Node *node) {
  if (node->op == OP_FUSED) return graph_find_class(node->body, CLASS_CONTRACT);
  return op_info[node->op].op_class == CLASS_CONTRACT ? node : NULL;
}

const Node *kernel_product(const Node *fused) {
  const Node *contraction = kernel_contraction(fused);
  const Node *pool = graph_find_class(fused->body, CLASS_WINDOW);
  return pool && pool->input[0] == contraction ? pool : contraction;
}

bool kernel_is_whole(const Node *fused, const Node *value) {
  Shape domain = kernel_domain(fused);
  return shape_equal(&value->type.shape, &domain);
}

bool kernel_is_beside(const Node *fused, const Node *value) {
  return kernel_kind(fused) == KERNEL_ROW && op_info[value->op].op_class == CLASS_REDUCE &&
         !attr_equal(node_attr(value, ATTR_AXES), node_attr(fused, ATTR_AXES));
}

int kernel_operand(const Node *node, int i) {
  const Node *operand = kernel_contraction(node)->input[i];
  return node->op == OP_FUSED ? (int)node_int(operand, ATTR_INDEX, 0) : i;
}

/* ── hash ───────────────────────────────────────────────────────────────────────────────────── */
/* Free text for readers, which is no part of what a kernel computes. */
static bool is_decoration(AttrId id) {
  return id == ATTR_NAME || id == ATTR_WHY || id == ATTR_PLACE || id == ATTR_AT ||
         id == ATTR_PRECISION || id == ATTR_PREPARED;
}

uint64_t kernel_hash(const Node *fused) {
  uint64_t hash = node_hash(fused, is_decoration);
  for (int i = 0; i < fused->input_count; i++) hash = hash_type(hash, &fused->input[i]->type);
  for (int i = 0; i < fused->body->nodes.count; i++) {
    const Node *node = fused->body->nodes.at[i];
    hash = hash_mix(hash, node_hash(node, is_decoration));
    for (int k = 0; k < node->input_count; k++) hash = hash_mix(hash, (uint64_t)node->input[k]->id);
  }
  for (int i = 0; i < fused->body->roots.count; i++)
    hash = hash_mix(hash, (uint64_t)fused->body->roots.at[i].node->id);
  return hash;
}

/* ── equality ───────────────────────────────────────────────────────────────────────────────── */
static bool same_node(const Node *a, const Node *b) {
  if (a->op != b->op || !type_equal(&a->type, &b->type) || a->input_count != b->input_count)
    return false;
  for (int i = 0; i < a->input_count; i++)
    if (a->input[i]->id != b->input[i]->id) return false;
  return node_attrs_equal(a, b, is_decoration);
}

bool kernel_equal(const Node *a, const Node *b) {
  const Graph *x = a->body, *y = b->body;
  if (a->input_count != b->input_count || x->nodes.count != y->nodes.count ||
      x->roots.count != y->roots.count || !node_attrs_equal(a, b, is_decoration))
    return false;
  for (int i = 0; i < a->input_count; i++)
    if (!type_lies_alike(&a->input[i]->type, &b->input[i]->type)) return false;
  for (int i = 0; i < x->nodes.count; i++)
    if (!same_node(x->nodes.at[i], y->nodes.at[i])) return false;
  for (int i = 0; i < x->roots.count; i++)
    if (x->roots.at[i].node->id != y->roots.at[i].node->id) return false;
  return true;
}
