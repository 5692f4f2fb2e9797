/* emit_window: pooling and its gradients, element by element. The taps of a window are unrolled up
 * to a limit, else they are a loop; taps that lie in the padding are guarded, and only those. A
 * gradient is pulled: an input element sums over the windows that hold it. */
#include "codegen/emit_private.h"
#include <math.h>

enum { UNROLLED_TAPS = 32 };

typedef struct {
  const Shape *image, *pooled;          /* x (dx) and y (dy) */
  int height, width;                    /* which dimensions these are; the others pass through */
  int64_t kernel[2], stride[2], pad[4]; /* top, left, bottom, right */
} Window;

static Window window_of(const Node *node, const Shape *image, const Shape *pooled) {
  Window window = {.image = image, .pooled = pooled};
  bool is_nhwc = node_str(node, ATTR_LAYOUT)[1] == 'h';
  window.height = is_nhwc ? 1 : 2;
  window.width = window.height + 1;
  for (int i = 0; i < 2; i++) {
    window.kernel[i] = node_attr(node, ATTR_KERNEL)->ints[i];
    window.stride[i] = node_attr(node, ATTR_STRIDE)->ints[i];
  }
  for (int i = 0; i < 4; i++) window.pad[i] = node_attr(node, ATTR_PADDING)->ints[i];
  return window;
}

static bool is_flat(const Window *window) {
  return window->height == 1 && window->kernel[0] * window->kernel[1] <= UNROLLED_TAPS;
}

bool emit_window_is_flat(const Node *node) {
  const Shape *image = &node->input[0]->type.shape;
  Window window = window_of(node, image, image);
  return is_flat(&window);
}

/* On a GPU, where lanes have neighbouring channels: there are no branches. A tap outside of the
 * image reads some other place, and the value is not used, so that neighbours stay one access. */
static bool reads_outside(const Emitter *emitter, const Window *window) {
  return emitter->module->target == TARGET_PTX && is_flat(window);
}

/* An index into `to` that is `index` (into `from`) but for height and width. */
static Index with_place(Emitter *emitter, const Window *window, const Index *index,
                        const Shape *from, const Shape *to, const Digit place[2]) {
  Index out = {0};
  emit_index_run(emitter, index, from, 0, window->height, &out);
  index_push(&out, to->dim[window->height], place[0].value, place[0].varies);
  index_push(&out, to->dim[window->width], place[1].value, place[1].varies);
  emit_index_run(emitter, index, from, window->width + 1, from->rank, &out);
  return out;
}

/* What a walk over the taps does at each: `value` at the tap is folded into the state. */
typedef struct {
  const Node *node;
  const Index *index;
  Window window;
  Digit
      start[2]; /* forward: top left corner of the window, padding included; backward: see below */
  Digit phase[2];
  int state_count;
} Walk;
typedef void Tap(Emitter *emitter, Walk *walk, LLVMValueRef row, LLVMValueRef column,
                 LLVMValueRef *state);

/* Calls `tap` for every (row, column) of rows × columns; state[] is carried along. */
static void for_taps(Emitter *emitter, Walk *walk, int64_t rows, int64_t columns, Tap *tap,
                     LLVMValueRef *state) {
  if (rows * columns <= UNROLLED_TAPS) {
    for (int64_t row = 0; row < rows; row++)
      for (int64_t column = 0; column < columns; column++)
        tap(emitter, walk, emit_index_const(emitter, row), emit_index_const(emitter, column),
            state);
    return;
  }
  LLVMBuilderRef builder = emitter->builder;
  LLVMBasicBlockRef before = LLVMGetInsertBlock(builder);
  LLVMBasicBlockRef loop = emit_block(emitter, "taps"), after = emit_block(emitter, "tapped");
  LLVMBuildBr(builder, loop);
  LLVMPositionBuilderAtEnd(builder, loop);
  LLVMValueRef counter = LLVMBuildPhi(builder, emitter->index_type, "tap");
  LLVMValueRef phi[2] = {NULL, NULL};
  for (int i = 0; i < walk->state_count; i++)
    phi[i] = LLVMBuildPhi(builder, LLVMTypeOf(state[i]), "");
  LLVMValueRef next[2] = {phi[0], phi[1]};
  emit_scope_open(emitter);
  tap(emitter, walk, emit_div(emitter, counter, columns), emit_rem(emitter, counter, columns),
      next);
  emit_scope_close(emitter);
  LLVMValueRef step = LLVMBuildNSWAdd(builder, counter, emit_index_const(emitter, 1), "");
  LLVMValueRef more =
      LLVMBuildICmp(builder, LLVMIntSLT, step, emit_index_const(emitter, rows * columns), "");
  LLVMBasicBlockRef from[2] = {before, LLVMGetInsertBlock(builder)};
  LLVMBuildCondBr(builder, more, loop, after);
  LLVMAddIncoming(counter, (LLVMValueRef[]){emit_index_const(emitter, 0), step}, from, 2);
  for (int i = 0; i < walk->state_count; i++) {
    LLVMAddIncoming(phi[i], (LLVMValueRef[]){state[i], next[i]}, from, 2);
    state[i] = next[i];
  }
  LLVMPositionBuilderAtEnd(builder, after);
}

/* ── forward ────────────────────────────────────────────────────────────────────────────────── */
/* The input element under a tap; *inside NULL when it surely is one. */
static Index forward_place(Emitter *emitter, const Walk *walk, const LLVMValueRef tap[2],
                           LLVMValueRef *inside, bool *varies) {
  const Window *window = &walk->window;
  Digit place[2];
  LLVMValueRef within[2];
  *inside = NULL;
  *varies = false;
  for (int i = 0; i < 2; i++) {
    int d = window->height + i;
    bool is_fixed = LLVMIsAConstantInt(tap[i]);
    int64_t low = is_fixed ? LLVMConstIntGetSExtValue(tap[i]) : 0;
    int64_t high = is_fixed ? low : window->kernel[i] - 1;
    int64_t first = emit_least(walk->start[i].value) + low - window->pad[i];
    place[i] = walk->start[i];
    place[i].value = emit_add(emitter, walk->start[i].value, tap[i]);
    place[i].value = emit_sub(emitter, place[i].value, emit_index_const(emitter, window->pad[i]));
    within[i] =
        emit_in_range(emitter, place[i].value, window->image->dim[d], first,
                      (window->pooled->dim[d] - 1) * window->stride[i] + high - window->pad[i]);
    *inside = emit_both(emitter, *inside, within[i]);
    *varies |= within[i] && place[i].varies && !reads_outside(emitter, window);
  }
  for (int i = 0; i < 2 && !*varies; i++)
    place[i].value = emit_keep_inside(emitter, within[i], place[i].value);
  return with_place(emitter, window, walk->index, window->pooled, window->image, place);
}

static Walk forward_walk(Emitter *emitter, const Node *node, const Index *index, int state_count) {
  Walk walk = {.node = node,
               .index = index,
               .window = window_of(node, &node->input[0]->type.shape, &node->type.shape),
               .state_count = state_count};
  for (int i = 0; i < 2; i++) {
    walk.start[i] = emit_index_digit(emitter, index, walk.window.pooled, walk.window.height + i);
    walk.start[i].value = emit_mul(emitter, walk.start[i].value, walk.window.stride[i]);
  }
  return walk;
}

static LLVMValueRef tap_value(Emitter *emitter, Walk *walk, LLVMValueRef row, LLVMValueRef column,
                              LLVMValueRef otherwise) {
  LLVMValueRef inside;
  bool varies;
  Index place = forward_place(emitter, walk, (LLVMValueRef[]){row, column}, &inside, &varies);
  Guard guard = emit_guard_open(emitter, inside, varies);
  if (guard.is_closed) return otherwise;
  LLVMValueRef value = emit_value(emitter, walk->node->input[0], &place);
  return emit_guard_close(emitter, &guard, value, otherwise);
}

/* The maximum, or the sum. */
static void tap_reduce(Emitter *emitter, Walk *walk, LLVMValueRef row, LLVMValueRef column,
                       LLVMValueRef *state) {
  DType dtype = walk->node->type.dtype;
  Op op = walk->node->op == OP_POOL_MAX ? OP_RMAX : OP_SUM;
  LLVMValueRef otherwise = emit_reduce_identity(emitter, op, dtype);
  LLVMValueRef value = tap_value(emitter, walk, row, column, otherwise);
  state[0] = emit_reduce_step(emitter, op, dtype, state[0], value);
}

/* state: the maximum so far and its position; the first of equals wins, a NaN wins over numbers. */
static void tap_index(Emitter *emitter, Walk *walk, LLVMValueRef row, LLVMValueRef column,
                      LLVMValueRef *state) {
  LLVMBuilderRef builder = emitter->builder;
  DType dtype = walk->node->input[0]->type.dtype;
  LLVMValueRef lowest = emit_reduce_identity(emitter, OP_RMAX, dtype);
  LLVMValueRef value = tap_value(emitter, walk, row, column, lowest), better;
  if (dtype_is_float(dtype)) {
    LLVMValueRef more = LLVMBuildFCmp(builder, LLVMRealUGT, value, state[0], "");
    better = LLVMBuildAnd(builder, more,
                          LLVMBuildFCmp(builder, LLVMRealORD, state[0], state[0], ""), "");
  } else {
    better = LLVMBuildICmp(builder, dtype == DT_I32 || dtype == DT_I64 ? LLVMIntSGT : LLVMIntUGT,
                           value, state[0], "");
  }
  LLVMValueRef position = emit_add(emitter, emit_mul(emitter, row, walk->window.kernel[1]), column);
  position = LLVMBuildIntCast2(builder, position, LLVMTypeOf(state[1]), false, "");
  state[0] = emit_reduce_step(emitter, OP_RMAX, dtype, state[0], value);
  state[1] = LLVMBuildSelect(builder, better, position, state[1], "");
}

/* How many taps of the window along one side lie in the image. */
static LLVMValueRef taps_inside(Emitter *emitter, const Window *window, int i,
                                LLVMValueRef corner) {
  LLVMTypeRef type = emitter->index_type;
  LLVMValueRef start = emit_sub(emitter, corner, emit_index_const(emitter, window->pad[i]));
  LLVMValueRef end = emit_add(emitter, start, emit_index_const(emitter, window->kernel[i]));
  LLVMValueRef size = emit_index_const(emitter, window->image->dim[window->height + i]);
  start = emit_intrinsic(emitter, "llvm.smax", type,
                         (LLVMValueRef[]){start, emit_index_const(emitter, 0)}, 2);
  end = emit_intrinsic(emitter, "llvm.smin", type, (LLVMValueRef[]){end, size}, 2);
  return LLVMBuildSub(emitter->builder, end, start, "");
}

/* The divisor of the average over the window whose corner (padding included) is given. */
static LLVMValueRef divisor(Emitter *emitter, const Node *node, const Window *window,
                            const Digit corner[2]) {
  DType dtype = node->type.dtype;
  bool is_whole = node_int(node, ATTR_COUNT_PAD, 0) != 0;
  bool has_padding = window->pad[0] || window->pad[1] || window->pad[2] || window->pad[3];
  if (is_whole || !has_padding)
    return emit_constant(emitter, dtype, (double)(window->kernel[0] * window->kernel[1]));
  LLVMValueRef count =
      LLVMBuildMul(emitter->builder, taps_inside(emitter, window, 0, corner[0].value),
                   taps_inside(emitter, window, 1, corner[1].value), "");
  DType from = LLVMGetIntTypeWidth(emitter->index_type) == 64 ? DT_I64 : DT_I32;
  return emit_cast(emitter, from, dtype, count);
}

static LLVMValueRef pool_forward(Emitter *emitter, const Node *node, const Index *index) {
  DType dtype = node->input[0]->type.dtype;
  Walk walk = forward_walk(emitter, node, index, node->op == OP_POOL_INDEX ? 2 : 1);
  bool is_index = node->op == OP_POOL_INDEX, is_sum = node->op == OP_POOL_AVG;
  LLVMValueRef state[2] = {emit_reduce_identity(emitter, is_sum ? OP_SUM : OP_RMAX, dtype),
                           LLVMConstNull(emitter->module->i8)};
  for_taps(emitter, &walk, walk.window.kernel[0], walk.window.kernel[1],
           is_index ? tap_index : tap_reduce, state);
  if (!is_sum) return state[is_index];
  LLVMValueRef count = divisor(emitter, node, &walk.window, walk.start);
  return emit_flagged(emitter, LLVMBuildFDiv(emitter->builder, state[0], count, ""), 0);
}

/* ── backward ───────────────────────────────────────────────────────────────────────────────── */
/* Element h of the image lies in the windows o = (h + pad) / stride - t, t = 0, 1, …, at the
 * position (h + pad) % stride + t * stride in them, as far as that is < kernel and o is a window.
 * walk.start is (h + pad) / stride, walk.phase is (h + pad) % stride, the tap is t. */
static Walk backward_walk(Emitter *emitter, const Node *node, const Index *index) {
  Walk walk = {.node = node,
               .index = index,
               .window = window_of(node, &node->type.shape, &node->input[0]->type.shape),
               .state_count = 1};
  for (int i = 0; i < 2; i++) {
    Digit digit = emit_index_digit(emitter, index, walk.window.image, walk.window.height + i);
    LLVMValueRef moved =
        emit_add(emitter, digit.value, emit_index_const(emitter, walk.window.pad[i]));
    walk.start[i] = walk.phase[i] = digit;
    walk.start[i].value = emit_div(emitter, moved, walk.window.stride[i]);
    walk.phase[i].value = emit_rem(emitter, moved, walk.window.stride[i]);
  }
  return walk;
}

/* What the tap adds to the sum; in a window that does not exist or does not reach: 0. */
static void tap_backward(Emitter *emitter, Walk *walk, LLVMValueRef row, LLVMValueRef column,
                         LLVMValueRef *state) {
  const Window *window = &walk->window;
  LLVMBuilderRef builder = emitter->builder;
  LLVMValueRef tap[2] = {row, column}, inside = NULL, position[2], within[2];
  Digit place[2], corner[2];
  bool varies = false;
  for (int i = 0; i < 2; i++) {
    int d = window->height + i;
    bool is_fixed = LLVMIsAConstantInt(tap[i]);
    int64_t windows = (window->kernel[i] + window->stride[i] - 1) / window->stride[i];
    int64_t least = is_fixed ? LLVMConstIntGetSExtValue(tap[i]) : 0;
    int64_t most = is_fixed ? least : windows - 1;
    int64_t low = 0, high = window->stride[i] - 1; /* of the phase */
    if (LLVMIsAConstantInt(walk->phase[i].value))
      low = high = LLVMConstIntGetSExtValue(walk->phase[i].value);
    int64_t first = (window->pad[i] - high + window->stride[i] - 1) / window->stride[i];
    int64_t last = (window->image->dim[d] - 1 + window->pad[i] - low) / window->stride[i];
    place[i] = walk->start[i];
    place[i].value = emit_sub(emitter, walk->start[i].value, tap[i]);
    within[i] = emit_in_range(emitter, place[i].value, window->pooled->dim[d],
                              first - most, last - least);
    LLVMValueRef further = emit_mul(emitter, tap[i], window->stride[i]);
    position[i] = emit_add(emitter, walk->phase[i].value, further);
    LLVMValueRef reaches =
        emit_in_range(emitter, position[i], window->kernel[i], low + least * window->stride[i],
                      high + most * window->stride[i]);
    within[i] = emit_both(emitter, within[i], reaches);
    inside = emit_both(emitter, inside, within[i]);
    varies |= within[i] && place[i].varies && !reads_outside(emitter, window);
  }
  for (int i = 0; i < 2 && !varies; i++)
    place[i].value = emit_keep_inside(emitter, within[i], place[i].value);
  DType dtype = walk->node->type.dtype;
  LLVMValueRef zero = LLVMConstNull(emit_register_type(emitter, dtype));
  Guard guard = emit_guard_open(emitter, inside, varies);
  if (guard.is_closed) return;
  Index at = with_place(emitter, window, walk->index, window->image, window->pooled, place);
  LLVMValueRef value = emit_value(emitter, walk->node->input[0], &at);
  if (walk->node->op == OP_POOL_MAX_GRAD) {
    LLVMValueRef winner = emit_value(emitter, walk->node->input[1], &at);
    LLVMValueRef here =
        emit_add(emitter, emit_mul(emitter, position[0], window->kernel[1]), position[1]);
    if (reads_outside(emitter, window)) { /* one select serves all channels: no value is below 0 */
      winner = LLVMBuildIntCast2(builder, winner, emitter->index_type, false, "");
      if (guard.condition)
        here = LLVMBuildSelect(builder, guard.condition, here, emit_index_const(emitter, -1), "");
      guard.condition = NULL;
    } else { /* as narrow as the others of a vector */
      here = LLVMBuildIntCast2(builder, here, LLVMTypeOf(winner), false, "");
    }
    value = LLVMBuildSelect(builder, LLVMBuildICmp(builder, LLVMIntEQ, winner, here, ""), value,
                            zero, "");
  } else {
    for (int i = 0; i < 2; i++) {
      corner[i] = place[i];
      corner[i].value = emit_mul(emitter, place[i].value, window->stride[i]);
    }
    LLVMValueRef count = divisor(emitter, walk->node, window, corner);
    value = emit_flagged(emitter, LLVMBuildFDiv(builder, value, count, ""), 0);
  }
  value = emit_guard_close(emitter, &guard, value, zero);
  state[0] =
      LLVMIsNull(state[0]) ? value : emit_reduce_step(emitter, OP_SUM, dtype, state[0], value);
}

static LLVMValueRef pool_backward(Emitter *emitter, const Node *node, const Index *index) {
  Walk walk = backward_walk(emitter, node, index);
  LLVMValueRef zero = LLVMConstNull(emit_register_type(emitter, node->type.dtype));
  if (!shape_elements(&node->input[0]->type.shape)) return zero;
  int64_t windows[2];
  for (int i = 0; i < 2; i++)
    windows[i] = (walk.window.kernel[i] + walk.window.stride[i] - 1) / walk.window.stride[i];
  LLVMValueRef state[2] = {zero, NULL};
  for_taps(emitter, &walk, windows[0], windows[1], tap_backward, state);
  return state[0];
}

LLVMValueRef pull_window(Emitter *emitter, const Node *node, const Index *index) {
  bool is_backward = node->op == OP_POOL_MAX_GRAD || node->op == OP_POOL_AVG_GRAD;
  bool was = emitter->is_ordered;
  emitter->is_ordered = true;
  LLVMValueRef value =
      is_backward ? pool_backward(emitter, node, index) : pool_forward(emitter, node, index);
  emitter->is_ordered = was;
  return value;
}
