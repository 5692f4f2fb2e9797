/* reductions: see reductions.h. */
#include "codegen/reductions.h"

static void reductions_add(Reductions *all, Reduction one) {
  if (one.stage > all->stages) all->stages = one.stage;
  all->level[one.node->id] = one.stage;
  all->at[all->count++] = one;
}

/* Mean and spread of one input share their sums. */
static void add_moments(Reductions *all, const Node *node, int stage) {
  DType dtype = node->type.dtype;
  for (int i = 0; i < all->count; i++)
    if (all->at[i].moment && all->at[i].node->input[0] == node->input[0]) {
      all->level[node->id] = all->at[i].stage;
      return;
    }
  for (Moment moment = MOMENT_SUM; moment <= MOMENT_SQUARES; moment++)
    reductions_add(all, (Reduction){node, OP_SUM, dtype, stage, -1, false, moment, NULL});
}

static void add_node(Reductions *all, const Node *node, int stage) {
  DType dtype = node->input[0]->type.dtype;
  if (dtype_is_narrow(dtype)) dtype = DT_F32;
  if (op_has(node->op, TRAIT_MOMENT)) {
    add_moments(all, node, stage);
  } else if (op_is_arg(node->op)) {
    Op op = node->op == OP_ARGMAX ? OP_RMAX : OP_RMIN;
    int extreme = all->count;
    reductions_add(all, (Reduction){node, op, dtype, stage, -1, false, MOMENT_NONE, NULL});
    reductions_add(all,
                   (Reduction){node, OP_RMIN, DT_I32, stage + 1, extreme, true, MOMENT_NONE, NULL});
  } else {
    reductions_add(all, (Reduction){node, node->op, dtype, stage, -1, true, MOMENT_NONE, NULL});
  }
}

void reductions_find(Arena *scratch, const Node *fused, Reductions *out) {
  const Graph *body = fused->body;
  *out = (Reductions){.level = ARENA_ARRAY(scratch, int, body->nodes.count)};
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    int level = 0;
    for (int k = 0; k < node->input_count; k++)
      if (out->level[node->input[k]->id] > level) level = out->level[node->input[k]->id];
    out->level[i] = level;
    if (op_info[node->op].op_class == CLASS_REDUCE && !kernel_is_beside(fused, node))
      add_node(out, node, level + 1);
  }
}

/* Does it hold each element's place along `axis`? */
static bool counts_along(const Node *node, int axis) {
  while (node->op == OP_BROADCAST) node = node->input[0];
  bool is_integer = node->type.dtype == DT_I32 || node->type.dtype == DT_I64;
  return node->op == OP_IOTA && is_integer && node_int(node, ATTR_AXIS, 0) == axis;
}

bool reduction_is_pick(const Reduction *one, Pick *out) {
  const Node *chosen = one->node->input[0];
  if (one->op != OP_SUM || one->moment || !one->is_final || chosen->op != OP_SELECT) return false;
  const Node *equal = chosen->input[0], *none = chosen->input[2];
  while (none->op == OP_BROADCAST) none = none->input[0];
  if (equal->op != OP_EQ || none->op != OP_CONST || node_float(none, ATTR_VALUE, 1) != 0)
    return false;
  const Shape *in = &chosen->type.shape, *sum = &one->node->type.shape;
  int axis = -1;
  for (int d = 0; d < in->rank; d++) {
    if (in->dim[d] == sum->dim[d]) continue;
    if (axis >= 0) return false;
    axis = d;
  }
  for (int i = 0; i < 2 && axis >= 0; i++) {
    const Node *place = equal->input[i];
    if (!counts_along(equal->input[1 - i], axis) || place->op != OP_BROADCAST) continue;
    *out = (Pick){place->input[0], chosen->input[1]};
    return shape_equal(&out->place->type.shape, sum);
  }
  return false;
}

LLVMValueRef reduction_identity(Emitter *emitter, const Reduction *one) {
  return emit_reduce_identity(emitter, one->op, one->dtype);
}

LLVMValueRef reduction_step(Emitter *emitter, const Reduction *one, LLVMValueRef a,
                            LLVMValueRef b) {
  return emit_reduce_step(emitter, one->op, one->dtype, a, b);
}

LLVMValueRef reduction_element(Emitter *emitter, const Reductions *all, const Reduction *one,
                               const Index *index, LLVMValueRef shift, LLVMValueRef valid) {
  LLVMBuilderRef b = emitter->builder;
  const Node *input = one->node->input[0];
  LLVMValueRef value = emit_value(emitter, input, index);
  if (one->extreme >= 0) {
    int axis = (int)node_attr(one->node, ATTR_AXES)->ints[0];
    LLVMValueRef position = index_dim(emitter, index, &input->type.shape, axis);
    value = emit_arg_candidate(emitter, input->type.dtype, value, all->at[one->extreme].value,
                               position);
  }
  if (one->moment) value = LLVMBuildFSub(b, value, shift, "");
  if (one->moment == MOMENT_SQUARES) value = LLVMBuildFMul(b, value, value, "");
  return valid ? LLVMBuildSelect(b, valid, value, reduction_identity(emitter, one), "") : value;
}

/* mean = shift + sum / n, spread = squares - sum^2 / n: not below 0, whatever rounding does, but
 * NaN stays, and exactly 0 where all are the same. */
static void finish_moments(Emitter *emitter, const Reduction *both, LLVMValueRef shift) {
  LLVMBuilderRef b = emitter->builder;
  const Node *x = both->node->input[0];
  DType dtype = both->dtype;
  double count =
      (double)shape_elements(&x->type.shape) / (double)shape_elements(&both->node->type.shape);
  LLVMValueRef sum = both[0].value, zero = emit_constant(emitter, dtype, 0);
  LLVMValueRef part = LLVMBuildFMul(b, sum, emit_constant(emitter, dtype, 1 / count), "");
  LLVMValueRef spread = LLVMBuildFSub(b, both[1].value, LLVMBuildFMul(b, sum, part, ""), "");
  LLVMValueRef is_none = LLVMBuildFCmp(b, LLVMRealOLE, spread, zero, "");
  LLVMValueRef value[] = {LLVMBuildFAdd(b, shift, part, ""),
                          LLVMBuildSelect(b, is_none, zero, spread, "")};
  for (int i = 0; i < emitter->body->nodes.count; i++) {
    const Node *node = emitter->body->nodes.at[i];
    if (op_has(node->op, TRAIT_MOMENT) && node->input[0] == x)
      emit_bind_value(emitter, node, value[node->op == OP_SPREAD]);
  }
}

void reduction_finish(Emitter *emitter, Reduction *one, LLVMValueRef shift, LLVMValueRef value) {
  one->value = value;
  if (one->moment == MOMENT_SQUARES) finish_moments(emitter, one - 1, shift);
  if (one->is_final) emit_bind_value(emitter, one->node, value);
}
