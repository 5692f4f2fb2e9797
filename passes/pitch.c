/* pitch: rows of odd lengths, such as the scores of 50257 words, begin at multiples of 16 bytes where a
 * product reads or writes them: only such rows go by tensor maps, by wgmma and by copies and stores
 * of several elements. The values, their types and shapes are the same; Type.pitch says how far rows
 * are apart, memplan counts it, and what lies between rows is never read (kernels/gemm_panel.h,
 * codegen/nvptx_long.c).
 *
 * A value has a pitch only if all that touches it knows pitches: products, and kernels of loops, rows
 * and columns. What is shown, kept or sent to other ranks has none. A row kernel takes several
 * neighbours of all its rows at once, so these have one pitch, or none. */
#include "passes/fuse.h"
#include "passes/lifetime.h"
#include "passes/pass.h"
#include "passes/pitch.h"

enum {
  UNIT = 8,          /* elements: 16 bytes of two bytes each; of one byte twice as many */
  LARGEST_UNIT = 64, /* 128 bytes of these: a line of the second-level cache */
  MOST_PADDING = 8,  /* a row's padding is at most this part of it, */
  FREE_PADDING = 16, /* … and where a larger unit asks for it, this part */
};

typedef struct {
  const Graph *graph;
  int *joined; /* by value: another one that has a pitch if this one has; or itself. Of the last one: */
  bool *may;   /* all that touches them knows pitches */
  bool *wants; /* a product reads or writes one of them that needs it */
} Pitches;

static int64_t pitch_padded(int64_t length, int64_t unit) { return (length + unit - 1) / unit * unit; }

static int64_t pitch_unit(DType dtype) { return dtype_bytes(dtype) == 1 ? 2 * UNIT : UNIT; }

int64_t pitch_for(const Type *type) {
  int64_t length = shape_last(&type->shape), least = pitch_unit(type->dtype), unit = least / UNIT * LARGEST_UNIT;
  while (unit > least && (pitch_padded(length, unit) - length) * FREE_PADDING > length) unit /= 2;
  int64_t pitch = pitch_padded(length, unit);
  return (pitch - length) * MOST_PADDING > length ? 0 : pitch;
}

static bool makes_rows(const Node *value) {
  const Node *maker = value->op == OP_RESULT ? value->input[0] : value;
  return maker->op == OP_DOT || (maker->op == OP_FUSED && kernel_kind(maker) != KERNEL_CONV);
}

static bool is_candidate(const Node *value) {
  const Type *type = &value->type;
  int64_t length = shape_last(&type->shape);
  bool is_product_type = dtype_is_narrow(type->dtype) || dtype_is_float8(type->dtype) || type->dtype == DT_F32;
  return is_product_type && type->shape.rank >= 2 && length % pitch_unit(type->dtype) && pitch_for(type) &&
         shape_elements(&type->shape) > length && makes_rows(value);
}

static int pitch_head(const Pitches *p, int id) {
  while (p->joined[id] != id) id = p->joined[id] = p->joined[p->joined[id]];
  return id;
}

static void join_values(Pitches *p, int a, int b) {
  int x = pitch_head(p, a), y = pitch_head(p, b);
  p->joined[y] = x;
  p->may[x] &= p->may[y];
  p->wants[x] |= p->wants[y];
}

/* A product reads or writes the value, whose rows are no whole pieces of 16 bytes. */
static void want(Pitches *p, const Node *value) {
  int64_t bytes = shape_last(&value->type.shape) * dtype_bytes(value->type.dtype);
  if (bytes % PITCH_UNIT) p->wants[pitch_head(p, value->id)] = true;
}

static void forbid(Pitches *p, const Node *value) { p->may[pitch_head(p, value->id)] = false; }

/* ── readers and writers ────────────────────────────────────────────────────────────────────── */
/* Does the body read the operand's rows as rows, side by side? A loop may also transpose them: it finds each element by
 * its row and its place there (codegen/emit.c, emit_place). */
static bool reads_rows(const Node *fused, int operand, int64_t length) {
  const Graph *body = fused->body;
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i], *from = node->input_count ? node->input[0] : NULL;
    if (!from || from->op != OP_ARG || node_int(from, ATTR_INDEX, 0) != operand) continue;
    if (node->op == OP_TRANSPOSE && kernel_kind(fused) != KERNEL_LOOP) return false;
    if (node->op == OP_RESHAPE && shape_last(&node->type.shape) != length) return false;
  }
  return true;
}

static void pitch_read(Pitches *p, const Node *reader, int k) {
  const Node *value = lifetime_base(reader->input[k]);
  bool is_product = reader->op == OP_DOT;
  if (reader->op == OP_FUSED && kernel_kind(reader) == KERNEL_DOT)
    is_product = k == kernel_operand(reader, 0) || k == kernel_operand(reader, 1);
  if (reader->op != OP_DOT && reader->op != OP_FUSED)
    forbid(p, value);
  else if (reader->op == OP_FUSED &&
           (kernel_kind(reader) == KERNEL_CONV || !reads_rows(reader, k, shape_last(&value->type.shape))))
    forbid(p, value);
  if (is_product) want(p, value);
}

static bool is_of_domain(const Node *value, const Shape *domain) {
  return shape_elements(&value->type.shape) == shape_elements(domain);
}

/* All rows of the kernel's own have one pitch, if they are the rows that it sums up. */
static void join_rows(Pitches *p, const Node *fused, int *first_of) {
  const Shape domain = kernel_domain(fused);
  const Node *reduce = graph_find_class(fused->body, CLASS_REDUCE);
  int64_t sums = shape_elements(&reduce->type.shape), length = shape_elements(&domain);
  if (sums) length /= sums;
  int *first = &first_of[fused->id];
  for (int k = 0; k < fused->input_count; k++) {
    const Node *value = lifetime_base(fused->input[k]);
    if (!is_of_domain(fused->input[k], &domain)) continue;
    if (shape_last(&value->type.shape) != length) forbid(p, value);
    if (*first < 0) *first = value->id;
    join_values(p, *first, value->id);
  }
}

static void visit_node(Pitches *p, const Node *node, int *first_of) {
  if (node->op == OP_RESHAPE) {
    if (shape_last(&node->type.shape) != shape_last(&node->input[0]->type.shape))
      forbid(p, lifetime_base(node));
    return;
  }
  if (node->op == OP_RESULT) {
    const Node *fused = node->input[0];
    if (fused->op != OP_FUSED) return;
    if (kernel_kind(fused) == KERNEL_DOT) want(p, node);
    const Shape domain = kernel_domain(fused);
    if (kernel_kind(fused) != KERNEL_ROW || !is_of_domain(node, &domain)) return;
    if (first_of[fused->id] < 0) first_of[fused->id] = node->id;
    join_values(p, first_of[fused->id], node->id);
    return;
  }
  for (int k = 0; k < node->input_count; k++) pitch_read(p, node, k);
  if (node->op == OP_DOT) want(p, node);
  if (node->op == OP_FUSED && kernel_kind(node) == KERNEL_ROW) join_rows(p, node, first_of);
}

static void find_pitches_of(PassContext *context, Pitches *p) {
  const Graph *graph = p->graph;
  int count = graph->nodes.count, *first_of = ARENA_ARRAY(context->scratch, int, count);
  p->joined = ARENA_ARRAY(context->scratch, int, count);
  p->may = ARENA_ARRAY(context->scratch, bool, count);
  p->wants = ARENA_ARRAY(context->scratch, bool, count);
  for (int i = 0; i < count; i++) {
    const Node *node = graph->nodes.at[i];
    p->joined[i] = i;
    first_of[i] = -1;
    p->may[i] = lifetime_is_value(node) && is_candidate(node);
  }
  for (int i = 0; i < count; i++) visit_node(p, graph->nodes.at[i], first_of);
  for (int i = 0; i < graph->roots.count; i++) forbid(p, lifetime_base(graph->roots.at[i].node));
}

/* ── the pass ───────────────────────────────────────────────────────────────────────────────── */
static Node *pitch_visit(Graph *fresh, const Node *old, Node **inputs, void *context) {
  const Pitches *p = context;
  int first = pitch_head(p, lifetime_base(old)->id);
  if (!p->may[first] || !p->wants[first]) return NULL;
  Type type = old->type;
  type.pitch = pitch_for(&type);
  return graph_copy_as(fresh, old, inputs, &type);
}

Graph *pass_pitch(PassContext *context, Graph *graph) {
  Pitches p = {.graph = graph};
  find_pitches_of(context, &p);
  bool found = false;
  for (int i = 0; i < graph->nodes.count; i++) found |= p.joined[i] == i && p.may[i] && p.wants[i];
  return found ? graph_rewrite(graph, pitch_visit, &p) : graph;
}
