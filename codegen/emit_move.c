/* emit_move: data movement as index arithmetic. Each op turns the index of its result into an index
 * of its input; nothing is copied. Reshape keeps the index as it is. */
#include "codegen/emit_private.h"

LLVMValueRef emit_both(Emitter *emitter, LLVMValueRef a, LLVMValueRef b) {
  if (!a || !b) return a ? a : b;
  if (LLVMIsAConstantInt(a)) return LLVMConstIntGetZExtValue(a) ? b : a;
  if (LLVMIsAConstantInt(b)) return LLVMConstIntGetZExtValue(b) ? a : b;
  return LLVMBuildAnd(emitter->builder, a, b, "");
}

LLVMValueRef emit_in_range(Emitter *emitter, LLVMValueRef value, int64_t extent, int64_t low,
                           int64_t high) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMValueRef limit = emit_index_const(emitter, extent), zero = emit_index_const(emitter, 0);
  if (low >= 0 && high < extent) return NULL;
  if (low >= extent || high < 0) return LLVMConstInt(emitter->module->i1, 0, false);
  if (low >= 0) return LLVMBuildICmp(builder, LLVMIntSLT, value, limit, "");
  if (high < extent) return LLVMBuildICmp(builder, LLVMIntSGE, value, zero, "");
  return LLVMBuildICmp(builder, LLVMIntULT, value, limit, "");
}

/* ── guards ─────────────────────────────────────────────────────────────────────────────────── */
Guard emit_guard_open(Emitter *emitter, LLVMValueRef condition, bool varies) {
  Guard guard = {.condition = condition};
  if (condition && LLVMIsAConstantInt(condition)) {
    guard.is_closed = !LLVMConstIntGetZExtValue(condition);
    guard.condition = NULL;
  }
  if (!guard.condition || !varies) return guard;
  guard.is_branch = true;
  guard.before = LLVMGetInsertBlock(emitter->builder);
  LLVMBasicBlockRef inside = emit_block(emitter, "inside");
  guard.after = emit_block(emitter, "after");
  LLVMBuildCondBr(emitter->builder, condition, inside, guard.after);
  LLVMPositionBuilderAtEnd(emitter->builder, inside);
  emit_scope_open(emitter);
  return guard;
}

LLVMValueRef emit_guard_close(Emitter *emitter, Guard *guard, LLVMValueRef value,
                              LLVMValueRef otherwise) {
  if (guard->is_closed) return otherwise;
  if (!guard->condition) return value;
  if (!guard->is_branch)
    return LLVMBuildSelect(emitter->builder, guard->condition, value, otherwise, "");
  emit_scope_close(emitter);
  LLVMBasicBlockRef from[2] = {LLVMGetInsertBlock(emitter->builder), guard->before};
  LLVMValueRef values[2] = {value, otherwise};
  LLVMBuildBr(emitter->builder, guard->after);
  LLVMPositionBuilderAtEnd(emitter->builder, guard->after);
  LLVMValueRef phi = LLVMBuildPhi(emitter->builder, LLVMTypeOf(value), "");
  LLVMAddIncoming(phi, values, from, 2);
  return phi;
}

/* ── the ops ────────────────────────────────────────────────────────────────────────────────── */
LLVMValueRef pull_reshape(Emitter *emitter, const Node *node, const Index *index) {
  return emit_value(emitter, node->input[0], index);
}

LLVMValueRef pull_transpose(Emitter *emitter, const Node *node, const Index *index) {
  const Shape *shape = &node->type.shape;
  const int64_t *perm = node_attr(node, ATTR_PERM)->ints;
  int source[MAX_RANK]; /* dimension of the result that is input dimension j */
  for (int i = 0; i < shape->rank; i++) source[perm[i]] = i;
  Index inner = {0};
  for (int j = 0; j < shape->rank;) {
    int end = j + 1;
    while (end < shape->rank && source[end] == source[end - 1] + 1) end++;
    emit_index_run(emitter, index, shape, source[j], source[j] + end - j, &inner);
    j = end;
  }
  return emit_value(emitter, node->input[0], &inner);
}

/* Appends the digits of dimensions from `d` on that are the same in the result and in its input.
 * Returns the first dimension that differs, or the rank. */
static int pass_on(Emitter *emitter, const Node *node, const Index *index, int d, Index *inner) {
  const Shape *out = &node->type.shape, *in = &node->input[0]->type.shape;
  int end = d;
  while (end < out->rank && in->dim[end] == out->dim[end]) end++;
  emit_index_run(emitter, index, out, d, end, inner);
  return end;
}

LLVMValueRef pull_broadcast(Emitter *emitter, const Node *node, const Index *index) {
  Index inner = {0};
  for (int d = 0; d < node->type.shape.rank; d++) d = pass_on(emitter, node, index, d, &inner);
  return emit_value(emitter, node->input[0], &inner);
}

LLVMValueRef pull_slice(Emitter *emitter, const Node *node, const Index *index) {
  const Shape *out = &node->type.shape, *in = &node->input[0]->type.shape;
  const int64_t *start = node_attr(node, ATTR_START)->ints,
                *step = node_attr(node, ATTR_STEP)->ints;
  Index inner = {0};
  for (int d = 0; (d = pass_on(emitter, node, index, d, &inner)) < out->rank; d++) {
    Digit digit = emit_index_digit(emitter, index, out, d);
    LLVMValueRef value = emit_mul(emitter, digit.value, step[d]);
    value = emit_add(emitter, value, emit_index_const(emitter, start[d]));
    index_push(&inner, in->dim[d], value, digit.varies);
  }
  return emit_value(emitter, node->input[0], &inner);
}

LLVMValueRef emit_keep_inside(Emitter *emitter, LLVMValueRef inside, LLVMValueRef value) {
  return inside ? LLVMBuildSelect(emitter->builder, inside, value, emit_index_const(emitter, 0), "")
                : value;
}

LLVMValueRef pull_pad(Emitter *emitter, const Node *node, const Index *index) {
  const Shape *out = &node->type.shape, *in = &node->input[0]->type.shape;
  const int64_t *low = node_attr(node, ATTR_LOW)->ints;
  LLVMValueRef otherwise =
      emit_constant(emitter, node->type.dtype, node_float(node, ATTR_VALUE, 0));
  if (!shape_elements(in)) return otherwise;
  Index inner = {0};
  LLVMValueRef condition = NULL;
  bool varies = false;
  LLVMValueRef inside[MAX_DIGITS] = {0};
  for (int d = 0; (d = pass_on(emitter, node, index, d, &inner)) < out->rank; d++) {
    Digit digit = emit_index_digit(emitter, index, out, d);
    LLVMValueRef value = emit_sub(emitter, digit.value, emit_index_const(emitter, low[d]));
    LLVMValueRef within =
        emit_in_range(emitter, value, in->dim[d], -low[d], out->dim[d] - 1 - low[d]);
    condition = emit_both(emitter, condition, within);
    varies |= within && digit.varies;
    if (in->dim[d] != 1) inside[inner.count] = within;
    index_push(&inner, in->dim[d], value, digit.varies);
  }
  Guard guard = emit_guard_open(emitter, condition, varies);
  if (guard.is_closed) return otherwise;
  if (!guard.is_branch)
    for (int k = 0; k < inner.count; k++)
      inner.digit[k].value = emit_keep_inside(emitter, inside[k], inner.digit[k].value);
  LLVMValueRef value = emit_value(emitter, node->input[0], &inner);
  return emit_guard_close(emitter, &guard, value, otherwise);
}

/* ── concat ─────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  const Node *node;
  const Index *index;
  int axis, count; /* operands that are not empty, */
  int *operand;    /* in order, */
  int64_t *offset; /* and where each begins along the axis */
  Digit digit;     /* along the axis */
} Concat;

static LLVMValueRef concat_operand(Emitter *emitter, const Concat *c, int which) {
  const Node *input = c->node->input[c->operand[which]];
  const Shape *out = &c->node->type.shape;
  LLVMValueRef local =
      emit_sub(emitter, c->digit.value, emit_index_const(emitter, c->offset[which]));
  Index inner = {0};
  emit_index_run(emitter, c->index, out, 0, c->axis, &inner);
  index_push(&inner, input->type.shape.dim[c->axis], local, c->digit.varies);
  emit_index_run(emitter, c->index, out, c->axis + 1, out->rank, &inner);
  return emit_value(emitter, input, &inner);
}

/* Reads the operand among [from, to) that has the element, by bisection, so that the code nests
 * only as deep as the logarithm of their number. By branches, so that only that operand is read. */
static LLVMValueRef concat_among(Emitter *emitter, const Concat *c, int from, int to) {
  if (to - from == 1) return concat_operand(emitter, c, from);
  int middle = (from + to) / 2, half[2][2] = {{from, middle}, {middle, to}};
  LLVMValueRef is_first = LLVMBuildICmp(emitter->builder, LLVMIntSLT, c->digit.value,
                                        emit_index_const(emitter, c->offset[middle]), "");
  if (LLVMIsAConstantInt(is_first)) {
    const int *only = half[!LLVMConstIntGetZExtValue(is_first)];
    return concat_among(emitter, c, only[0], only[1]);
  }
  LLVMBasicBlockRef side[2], end[2];
  LLVMValueRef value[2];
  for (int i = 0; i < 2; i++) side[i] = emit_block(emitter, i ? "second" : "first");
  LLVMBasicBlockRef after = emit_block(emitter, "after");
  LLVMBuildCondBr(emitter->builder, is_first, side[0], side[1]);
  for (int i = 0; i < 2; i++) {
    LLVMPositionBuilderAtEnd(emitter->builder, side[i]);
    emit_scope_open(emitter);
    value[i] = concat_among(emitter, c, half[i][0], half[i][1]);
    emit_scope_close(emitter);
    end[i] = LLVMGetInsertBlock(emitter->builder);
    LLVMBuildBr(emitter->builder, after);
  }
  LLVMPositionBuilderAtEnd(emitter->builder, after);
  LLVMValueRef phi = LLVMBuildPhi(emitter->builder, LLVMTypeOf(value[0]), "");
  LLVMAddIncoming(phi, value, end, 2);
  return phi;
}

LLVMValueRef pull_concat(Emitter *emitter, const Node *node, const Index *index) {
  Concat c = {.node = node, .index = index, .axis = (int)node_int(node, ATTR_AXIS, 0)};
  c.operand = ARENA_ARRAY(emitter->arena, int, node->input_count);
  c.offset = ARENA_ARRAY(emitter->arena, int64_t, node->input_count);
  int64_t offset = 0;
  for (int i = 0; i < node->input_count; i++) {
    int64_t extent = node->input[i]->type.shape.dim[c.axis];
    bool is_last_hope = i == node->input_count - 1 && !c.count;
    if (!extent && !is_last_hope) continue;
    c.operand[c.count] = i;
    c.offset[c.count++] = offset;
    offset += extent;
  }
  c.digit = emit_index_digit(emitter, index, &node->type.shape, c.axis);
  return concat_among(emitter, &c, 0, c.count);
}

LLVMValueRef pull_gather(Emitter *emitter, const Node *node, const Index *index) {
  const Node *table = node->input[0], *row = node->input[1];
  const Shape *out = &node->type.shape;
  LLVMBuilderRef builder = emitter->builder;
  int64_t rows = table->type.shape.dim[0];
  LLVMValueRef zero = LLVMConstNull(emit_register_type(emitter, node->type.dtype));
  if (!rows) return zero;
  Index at = {0}, inner = {0};
  emit_index_run(emitter, index, out, 0, row->type.shape.rank, &at);
  bool varies = false;
  for (int k = 0; k < at.count; k++) varies |= at.digit[k].varies;
  LLVMValueRef which = emit_value(emitter, row, &at);
  LLVMTypeRef type = LLVMTypeOf(which);
  LLVMValueRef inside =
      LLVMBuildICmp(builder, LLVMIntULT, which, LLVMConstInt(type, (uint64_t)rows, false), "");
  which = LLVMBuildSelect(builder, inside, which, LLVMConstNull(type), "");
  index_push(&inner, rows, LLVMBuildIntCast2(builder, which, emitter->index_type, true, ""),
             varies);
  emit_index_run(emitter, index, out, row->type.shape.rank, out->rank, &inner);
  return LLVMBuildSelect(builder, inside, emit_value(emitter, table, &inner), zero, "");
}
