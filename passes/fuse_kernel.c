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
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    if ((kind == KERNEL_ROW || kind == KERNEL_COLUMN) && op_info[node->op].op_class == CLASS_REDUCE)
      return node->input[0]->type.shape;
    bool is_product = kind == KERNEL_DOT || kind == KERNEL_CONV;
    if (is_product && op_info[node->op].op_class == CLASS_CONTRACT) return node->type.shape;
  }
  return body->roots.at[0].node->type.shape;
}

bool kernel_is_whole(const Node *fused, const Node *value) {
  Shape domain = kernel_domain(fused);
  return shape_equal(&value->type.shape, &domain);
}

/* ── hash ───────────────────────────────────────────────────────────────────────────────────── */
static void fuse_kernel_mix(uint64_t *hash, uint64_t value) {
  *hash ^= value + 0x9e3779b97f4a7c15u + (*hash << 6) + (*hash >> 2);
  *hash *= 0xff51afd7ed558ccdu;
  *hash ^= *hash >> 32;
}

static void mix_double(uint64_t *hash, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  fuse_kernel_mix(hash, bits);
}

static void mix_type(uint64_t *hash, const Type *type) {
  fuse_kernel_mix(hash, (uint64_t)type->dtype);
  fuse_kernel_mix(hash, (uint64_t)type->shape.rank);
  for (int i = 0; i < type->shape.rank; i++) fuse_kernel_mix(hash, (uint64_t)type->shape.dim[i]);
}

/* Free text for readers, which is no part of what a kernel computes. */
static bool is_decoration(AttrId id) {
  return id == ATTR_NAME || id == ATTR_WHY || id == ATTR_PLACE || id == ATTR_AT ||
         id == ATTR_PRECISION;
}

static void fuse_kernel_mix_attr(uint64_t *hash, const Attr *attr) {
  fuse_kernel_mix(hash, (uint64_t)attr->id);
  switch (attr_info[attr->id].kind) {
  case ATTR_KIND_FLOAT:
    mix_double(hash, attr->f);
    break;
  case ATTR_KIND_STR:
    for (const char *at = attr->s; *at; at++) fuse_kernel_mix(hash, (unsigned char)*at);
    break;
  case ATTR_KIND_INTS:
    for (int i = 0; i < attr->count; i++) fuse_kernel_mix(hash, (uint64_t)attr->ints[i]);
    break;
  case ATTR_KIND_FLOATS:
    for (int i = 0; i < attr->count; i++) mix_double(hash, attr->floats[i]);
    break;
  default:
    fuse_kernel_mix(hash, (uint64_t)attr->i);
  }
}

static void mix_node(uint64_t *hash, const Node *node) {
  fuse_kernel_mix(hash, (uint64_t)node->op);
  mix_type(hash, &node->type);
  for (int i = 0; i < node->attr_count; i++)
    if (!is_decoration(node->attr[i].id)) fuse_kernel_mix_attr(hash, &node->attr[i]);
  for (int i = 0; i < node->input_count; i++) fuse_kernel_mix(hash, (uint64_t)node->input[i]->id);
}

uint64_t kernel_hash(const Node *fused) {
  uint64_t hash = (uint64_t)kernel_kind(fused);
  const Attr *axes = node_attr(fused, ATTR_AXES);
  if (axes) fuse_kernel_mix_attr(&hash, axes);
  for (int i = 0; i < fused->input_count; i++) mix_type(&hash, &fused->input[i]->type);
  for (int i = 0; i < fused->body->nodes.count; i++) mix_node(&hash, fused->body->nodes.at[i]);
  for (int i = 0; i < fused->body->roots.count; i++)
    fuse_kernel_mix(&hash, (uint64_t)fused->body->roots.at[i].node->id);
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
    if (!type_equal(&a->input[i]->type, &b->input[i]->type)) return false;
  for (int i = 0; i < x->nodes.count; i++)
    if (!same_node(x->nodes.at[i], y->nodes.at[i])) return false;
  for (int i = 0; i < x->roots.count; i++)
    if (x->roots.at[i].node->id != y->roots.at[i].node->id) return false;
  return true;
}
