/* lower_body: what a kernel computes, op by op, for the plan (plan/plan_body.h). */
#include "codegen/lower_private.h"
#include "plan/plan_body.h"
#include "plan/plan_window.h"
#include <stdlib.h>
#include <string.h>

/* Numbers of values by the id of a body's node. */
typedef struct {
  Arena *arena; /* of the plan */
  const Program *program;
  int *value;
} Values;

/* Two lists one behind the other. */
static void set_ints(Values *values, PlanOp *op, const Attr *a, const Attr *b) {
  int first = a ? a->count : 0, second = b ? b->count : 0;
  int64_t *ints = ARENA_ARRAY(values->arena, int64_t, first + second + 1);
  if (first) memcpy(ints, a->ints, sizeof *ints * (size_t)first);
  if (second) memcpy(ints + first, b->ints, sizeof *ints * (size_t)second);
  op->ints = ints, op->int_count = first + second;
}

static void set_int(Values *values, PlanOp *op, const Node *node, AttrId id) {
  int64_t one = node_int(node, id, 0);
  const Attr attr = {.count = 1, .ints = &one};
  set_ints(values, op, &attr, NULL);
}

static void take_ints(const Node *node, AttrId id, int count, int64_t otherwise, int64_t *out) {
  const Attr *attr = node_attr(node, id);
  for (int i = 0; i < count; i++) out[i] = attr ? attr->ints[i] : otherwise;
}

static void set_window_ints(Values *values, PlanOp *op, const Node *node) {
  int64_t ints[CONV_INTS];
  const Attr all = {.count = CONV_INTS, .ints = ints};
  const char *layout = node_str(node, ATTR_LAYOUT);
  int64_t is_nhwc = layout && strcmp(layout, "nhwc") == 0;
  if (op_is_pool(node->op)) {
    take_ints(node, ATTR_KERNEL, 2, 1, ints);
    memcpy(ints + 2, ints, 2 * sizeof *ints); /* a stride that is not there is the kernel's size */
    if (node_attr(node, ATTR_STRIDE)) take_ints(node, ATTR_STRIDE, 2, 1, ints + 2);
    take_ints(node, ATTR_PADDING, 4, 0, ints + 4);
    ints[8] = is_nhwc, ints[9] = node_int(node, ATTR_COUNT_PAD, 0);
  } else {
    take_ints(node, ATTR_STRIDE, 2, 1, ints);
    take_ints(node, ATTR_PADDING, 4, 0, ints + 2);
    take_ints(node, ATTR_DILATION, 2, 1, ints + 6);
    ints[8] = node_int(node, ATTR_GROUPS, 1), ints[9] = is_nhwc;
  }
  set_ints(values, op, &all, NULL);
}

static void set_attention(Values *values, PlanOp *op, const Node *node) {
  int64_t ints[ATTENTION_INTS + 2] = {node_int(node, ATTR_CAUSAL, 0),
                                      node_attr(node, ATTR_HEADS) != NULL};
  double cap = node_float(node, ATTR_SOFTCAP, 0), share = node_float(node, ATTR_DROPOUT, 0);
  int more = ATTENTION_INTS;
  take_ints(node, ATTR_HEADS, 3, 0, ints + 2);
  take_ints(node, ATTR_START, 3, 0, ints + 5);
  ints[8] = node_int(node, ATTR_JOINED, 0);
  if (cap > 0 || share > 0) memcpy(&ints[more++], &cap, sizeof cap);
  if (share > 0) memcpy(&ints[more++], &share, sizeof share);
  op->value = node_float(node, ATTR_SCALE, 1);
  set_ints(values, op, &(Attr){.count = more, .ints = ints}, NULL);
}

/* What the plan tells of the op's attributes: see PlanOp. */
static void set_attributes(Values *values, PlanOp *op, const Node *node) {
  int64_t flags[2], ones[MAX_RANK];
  Attr both = {.count = 2, .ints = flags}, steps = {.count = node->type.shape.rank, .ints = ones};
  if (op_info[node->op].op_class == CLASS_REDUCE)
    set_ints(values, op, node_attr(node, ATTR_AXES), NULL);
  if (op_is_conv(node->op) || op_is_pool(node->op)) set_window_ints(values, op, node);
  if (op_is_attention(node->op)) set_attention(values, op, node);
  switch (node->op) {
  case OP_TRANSPOSE:
    set_ints(values, op, node_attr(node, ATTR_PERM), NULL);
    return;
  case OP_SLICE:
    for (int i = 0; i < MAX_RANK; i++) ones[i] = 1;
    set_ints(values, op, node_attr(node, ATTR_START),
             node_attr(node, ATTR_STEP) ? node_attr(node, ATTR_STEP) : &steps);
    return;
  case OP_PAD:
    set_ints(values, op, node_attr(node, ATTR_LOW), NULL);
    op->value = node_float(node, ATTR_VALUE, 0);
    return;
  case OP_CONST:
    op->value = node_float(node, ATTR_VALUE, 0);
    return;
  case OP_DOT:
    flags[0] = node_int(node, ATTR_TRANS_A, 0), flags[1] = node_int(node, ATTR_TRANS_B, 0);
    set_ints(values, op, &both, NULL);
    return;
  case OP_CONCAT:
  case OP_IOTA:
  case OP_PUT:
    set_int(values, op, node, ATTR_AXIS);
    return;
  case OP_RANDOM:
    set_int(values, op, node, ATTR_STREAM);
    return;
  default:
    return;
  }
}

static const char *keep_body_text(Values *values, const char *text) {
  return text ? arena_strdup(values->arena, text) : NULL;
}

/* NULL: the program's own. */
static const char *file_of_node(Values *values, const Node *node) {
  const Program *program = values->program;
  int file = node->origin.loc.file;
  if (file < 1 || file > program->files.count) return NULL;
  const char *path = program->files.at[file - 1];
  return strcmp(path, program->path) == 0 ? NULL : keep_body_text(values, path);
}

static PlanOp make_op(Values *values, const Node *node) {
  int *inputs = ARENA_ARRAY(values->arena, int, node->input_count + 1);
  for (int i = 0; i < node->input_count; i++)
    inputs[i] = values->value ? values->value[node->input[i]->id] : i;
  PlanOp op = {.op = node->op,
               .type = node->type,
               .inputs = inputs,
               .input_count = node->input_count,
               .line = node->origin.loc.line,
               .file = file_of_node(values, node),
               .layer = keep_body_text(values, node->origin.layer),
               .function = keep_body_text(values, node->origin.function),
               .phase = lower_phase(node)};
  op.type.pitch = 0;
  set_attributes(values, &op, node);
  return op;
}

void lower_body(Lowering *lowering, NodeSteps *steps, const int *buffers, int input_count,
                int count) {
  const Node *node = steps->node;
  const Graph *inside = node->op == OP_FUSED ? node->body : NULL;
  Values values = {.arena = lowering->plan->arena, .program = lowering->program};
  PlanBody body = {
      .first = steps->first, .end = steps->end, .input_count = input_count, .arg_count = count};
  steps->body = -1;
  if (body.end == body.first || (inside && inside->nodes.count > BODY_MOST_OPS)) return;
  int *args = ARENA_ARRAY(values.arena, int, count), results = count - input_count;
  int *gives = ARENA_ARRAY(values.arena, int, results);
  memcpy(args, buffers, sizeof *args * (size_t)count);
  if (inside) values.value = ARENA_ARRAY(lowering->arena, int, inside->nodes.count);
  for (int i = 0; inside && i < inside->nodes.count; i++) {
    const Node *inner = inside->nodes.at[i];
    values.value[i] = input_count + body.ops.count;
    if (inner->op == OP_ARG) {
      values.value[i] = (int)node_int(inner, ATTR_INDEX, 0);
      continue;
    }
    PlanOp op = make_op(&values, inner);
    VEC_PUSH(values.arena, body.ops, op);
  }
  if (!inside) {
    PlanOp op = make_op(&values, node);
    VEC_PUSH(values.arena, body.ops, op);
  }
  for (int i = 0; i < results; i++)
    gives[i] = inside ? values.value[inside->roots.at[i].node->id] : input_count;
  body.args = args, body.results = gives;
  steps->body = lowering->out->bodies.count;
  VEC_PUSH(values.arena, lowering->out->bodies, body);
}

static int compare_bodies(const void *a, const void *b) {
  const PlanBody *x = a, *y = b;
  return (x->first > y->first) - (x->first < y->first);
}

void lower_body_order(PlanGraph *graph, const NodeSteps *steps, int count) {
  for (int i = 0; i < count; i++)
    if (steps[i].body >= 0) {
      graph->bodies.at[steps[i].body].first = steps[i].first;
      graph->bodies.at[steps[i].body].end = steps[i].end;
    }
  if (graph->bodies.count)
    qsort(graph->bodies.at, (size_t)graph->bodies.count, sizeof *graph->bodies.at, compare_bodies);
}
