/* host_loop: counted loops, and the skeleton of a kernel without reductions.
 * The domain's digits become a loop nest whose innermost loop is what LLVM vectorises. */
#include "codegen/emit_private.h"
#include "codegen/host_private.h"
#include "codegen/own_index.h"
#include <llvm-c/DebugInfo.h>
#include <string.h>

enum { TINY_LOOP = 8, LEAST_ROWS = 64 };

HostLoop host_loop_open(HostKernel *kernel, LLVMValueRef from, LLVMValueRef to, int64_t step,
                        LLVMValueRef *initial, int carried_count) {
  Emitter *e = &kernel->emitter;
  LLVMBasicBlockRef before = LLVMGetInsertBlock(e->builder);
  HostLoop loop = {.step = emit_index_const(e, step), .carried_count = carried_count};
  if (LLVMIsAConstantInt(from) && LLVMIsAConstantInt(to))
    loop.trips = (LLVMConstIntGetSExtValue(to) - LLVMConstIntGetSExtValue(from)) / step;
  loop.head = emit_block(e, "head");
  LLVMBasicBlockRef body = emit_block(e, "body");
  loop.exit = emit_block(e, "exit");
  LLVMBuildBr(e->builder, loop.head);
  LLVMPositionBuilderAtEnd(e->builder, loop.head);
  loop.counter = LLVMBuildPhi(e->builder, e->index_type, "i");
  LLVMAddIncoming(loop.counter, &from, &before, 1);
  for (int i = 0; i < carried_count; i++) {
    loop.carried[i] = LLVMBuildPhi(e->builder, LLVMTypeOf(initial[i]), "");
    LLVMAddIncoming(loop.carried[i], &initial[i], &before, 1);
  }
  LLVMValueRef more = LLVMBuildICmp(e->builder, LLVMIntSLT, loop.counter, to, "");
  LLVMBuildCondBr(e->builder, more, body, loop.exit);
  LLVMPositionBuilderAtEnd(e->builder, body);
  emit_scope_open(e);
  return loop;
}

HostLoop host_items_open(HostKernel *kernel) {
  HostLoop loop = host_loop_open(kernel, kernel->begin, kernel->end, 1, NULL, 0);
  loop.is_items = true;
  return loop;
}

static LLVMMetadataRef loop_property(LLVMContextRef context, const char *name, LLVMValueRef value) {
  LLVMMetadataRef parts[2] = {LLVMMDStringInContext2(context, name, strlen(name)), NULL};
  if (value) parts[1] = LLVMValueAsMetadata(value);
  return LLVMMDNodeInContext2(context, parts, value ? 2 : 1);
}

/* An elementary function is a long chain of operations, and what waits for its operands fills a processor's scheduler before a
 * second element begins; so LLVM does two vectors side by side. Not in loops of so few rounds that much would be left over. */
static bool is_side_by_side(const HostKernel *kernel, const HostLoop *loop) {
  enum { MANY = 128 };
  int pair = 2 * kernel->module->vector_bytes / (int)sizeof(float);
  if (loop->carried_count || !kernel->body) return false;
  if (loop->trips > 0 && loop->trips < MANY && loop->trips % pair) return false;
  return host_has_expensive(kernel->body);
}

/* Loops are not unrolled before LLVM vectorises them, since an unrolled loop cannot be vectorised.
 * But a tiny loop is, so that the loop around it can be vectorised. A loop's properties are
 * metadata of its back edge, a node whose first operand is the node itself. */
static void set_properties(HostKernel *kernel, const HostLoop *loop, LLVMValueRef back_edge) {
  LLVMContextRef context = kernel->module->context;
  if (loop->trips > 0 && loop->trips <= TINY_LOOP && !loop->is_items) return;
  LLVMMetadataRef itself = LLVMTemporaryMDNode(context, NULL, 0), parts[4] = {itself};
  LLVMValueRef off = LLVMConstInt(LLVMInt1TypeInContext(context), 0, false);
  LLVMValueRef two = LLVMConstInt(LLVMInt32TypeInContext(context), 2, false);
  int count = 1;
  parts[count++] = loop_property(context, "llvm.loop.unroll.disable", NULL);
  if (loop->is_items) parts[count++] = loop_property(context, "llvm.loop.vectorize.enable", off);
  if (is_side_by_side(kernel, loop))
    parts[count++] = loop_property(context, "llvm.loop.interleave.count", two);
  LLVMMetadataRef node = LLVMMDNodeInContext2(context, parts, (size_t)count);
  LLVMMetadataReplaceAllUsesWith(itself, node);
  unsigned kind = LLVMGetMDKindIDInContext(context, "llvm.loop", 9);
  LLVMSetMetadata(back_edge, kind, LLVMMetadataAsValue(context, node));
}

void host_loop_close(HostKernel *kernel, HostLoop *loop, LLVMValueRef *next) {
  Emitter *e = &kernel->emitter;
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->builder);
  LLVMValueRef counter = LLVMBuildNSWAdd(e->builder, loop->counter, loop->step, "");
  LLVMAddIncoming(loop->counter, &counter, &latch, 1);
  for (int i = 0; i < loop->carried_count; i++)
    LLVMAddIncoming(loop->carried[i], &next[i], &latch, 1);
  LLVMValueRef back_edge = LLVMBuildBr(e->builder, loop->head);
  set_properties(kernel, loop, back_edge);
  emit_scope_close(e);
  LLVMPositionBuilderAtEnd(e->builder, loop->exit);
}

/* One digit: items are blocks of 16 elements, so that threads never share a cache line. */
static void emit_flat(HostKernel *kernel, const char *name, Kernel *out) {
  enum { BLOCK = 16 };
  Emitter *e = &kernel->emitter;
  int64_t work = (kernel->elements + BLOCK - 1) / BLOCK;
  LLVMValueRef from = emit_mul(e, kernel->begin, BLOCK), to = emit_mul(e, kernel->end, BLOCK);
  to = emit_min(e, to, emit_index_const(e, kernel->elements));
  HostLoop loop = host_loop_open(kernel, from, to, 1, NULL, 0);
  Index index = index_flat(kernel->elements, loop.counter, true);
  host_store_results(kernel, NULL, &index);
  host_loop_close(kernel, &loop, NULL);
  host_add_launch(kernel, out, name, work, host_grain(kernel, BLOCK));
}

/* Several: an item is one index of the outer digits; the last one or two are loops inside. */
static void emit_nest(HostKernel *kernel, const char *name, Kernel *out) {
  Emitter *e = &kernel->emitter;
  const Domain *domain = &kernel->domain;
  int outer = domain->count - 1;
  int64_t work = 1, inner = domain->extent[outer];
  for (int k = 0; k < outer; k++) work *= domain->extent[k];
  bool has_middle = outer >= 2 && work / domain->extent[outer - 1] >= 64;
  int64_t middle = has_middle ? domain->extent[outer - 1] : 1;
  if (has_middle) work /= domain->extent[--outer];
  HostLoop items = host_loop_open(kernel, kernel->begin, kernel->end, 1, NULL, 0), rows;
  LLVMValueRef value[MAX_RANK];
  host_unravel(kernel, items.counter, domain->extent, outer, value);
  Index index = {0};
  for (int k = 0; k < outer; k++) index_push(&index, domain->extent[k], value[k], false);
  LLVMValueRef zero = emit_index_const(e, 0);
  if (has_middle) {
    rows = host_loop_open(kernel, zero, emit_index_const(e, middle), 1, NULL, 0);
    index_push(&index, middle, rows.counter, false);
  }
  HostLoop loop = host_loop_open(kernel, zero, emit_index_const(e, inner), 1, NULL, 0);
  index_push(&index, inner, loop.counter, true);
  host_store_results(kernel, NULL, &index);
  host_loop_close(kernel, &loop, NULL);
  if (has_middle) host_loop_close(kernel, &rows, NULL);
  host_loop_close(kernel, &items, NULL);
  host_add_launch(kernel, out, name, work, host_grain(kernel, inner * middle));
}

/* Are rows too short for a vector, and their elements too much work to be made one by one? Three channels with
 * noise, in another order than the input's. */
static bool has_short_rows(const HostKernel *kernel) {
  const Domain *domain = &kernel->domain;
  if (domain->count < 2 || domain->extent[domain->count - 1] > TINY_LOOP ||
      domain->extent[domain->count - 2] < LEAST_ROWS || !kernel->body)
    return false;
  return host_has_expensive(kernel->body);
}

/* The innermost loop goes from row to row, at one place in them: an unrolled row would be too large a body for LLVM to
 * vectorise the loop around it. An item is a stretch of rows. */
static void emit_short_rows(HostKernel *kernel, const char *name, Kernel *out) {
  enum { ITEMS = 64 };
  Emitter *e = &kernel->emitter;
  const Domain *domain = &kernel->domain;
  int outer = domain->count - 2;
  int64_t rows = domain->extent[outer], row = domain->extent[outer + 1], work = 1;
  int64_t extent[MAX_RANK];
  for (int k = 0; k < outer; k++) work *= extent[k] = domain->extent[k];
  int64_t stretch = rows * work / ITEMS;
  if (stretch < LEAST_ROWS) stretch = LEAST_ROWS;
  if (stretch > rows) stretch = rows;
  extent[outer] = (rows + stretch - 1) / stretch;
  work *= extent[outer];
  HostLoop items = host_loop_open(kernel, kernel->begin, kernel->end, 1, NULL, 0);
  LLVMValueRef value[MAX_RANK], zero = emit_index_const(e, 0);
  host_unravel(kernel, items.counter, extent, outer + 1, value);
  LLVMValueRef from = emit_mul(e, value[outer], stretch);
  LLVMValueRef to =
      emit_min(e, emit_add(e, from, emit_index_const(e, stretch)), emit_index_const(e, rows));
  HostLoop place = host_loop_open(kernel, zero, emit_index_const(e, row), 1, NULL, 0);
  HostLoop loop = host_loop_open(kernel, from, to, 1, NULL, 0);
  Index index = {0};
  for (int k = 0; k < outer; k++) index_push(&index, domain->extent[k], value[k], false);
  index_push(&index, rows, loop.counter, true);
  index_push(&index, row, place.counter, false);
  host_store_results(kernel, NULL, &index);
  host_loop_close(kernel, &loop, NULL);
  host_loop_close(kernel, &place, NULL);
  host_loop_close(kernel, &items, NULL);
  host_add_launch(kernel, out, name, work, host_grain(kernel, row * stretch));
}

void host_loop_nest(HostKernel *kernel, const char *name, Kernel *out) {
  if (kernel->domain.count <= 1)
    emit_flat(kernel, name, out);
  else if (has_short_rows(kernel))
    emit_short_rows(kernel, name, out);
  else
    emit_nest(kernel, name, out);
}

/* ── tensors side by side ─────────────────────────────────────────────────────────────────── */
/* The concat that is the kernel's only result, if the rows of its parts are long enough for loops
 * of their own, so that no element has to ask which part it belongs to. NULL: there is none. */
static const Node *concat_of_rows(const HostKernel *kernel) {
  enum { MANY = 512, SHORTEST = 8 };
  const Node *concat = node_base(kernel->body->roots.at[0].node);
  if (kernel->body->roots.count != 1 || concat->op != OP_CONCAT || kernel->elements < MANY ||
      module_leaves_out(kernel->module, "concat_parts"))
    return NULL;
  for (int k = 0; k < concat->input_count; k++) {
    const Shape *shape = &node_base(concat->input[k])->type.shape;
    if (!shape->rank || shape->dim[shape->rank - 1] < SHORTEST) return NULL;
  }
  return concat;
}

/* The index in the concat of the element of part `k` at `index`; `offset`: of the part along the
 * axis. */
static Index index_in_concat(Emitter *e, const Node *concat, int k, int64_t offset,
                             const Index *index) {
  const Shape *part = &concat->input[k]->type.shape, *all = &concat->type.shape;
  int axis = (int)node_int(concat, ATTR_AXIS, 0);
  Index at = {0};
  emit_index_run(e, index, part, 0, axis, &at);
  Digit digit = emit_index_digit(e, index, part, axis);
  LLVMValueRef place = emit_add(e, digit.value, emit_index_const(e, offset));
  index_push(&at, all->dim[axis], place, true);
  emit_index_run(e, index, part, axis + 1, part->rank, &at);
  return at;
}

typedef struct {
  const Node *concat;
  int part;
  int64_t offset; /* along the axis */
} Part;

static void store_part(HostKernel *kernel, const Index *index, void *user) {
  const Part *part = user;
  Emitter *e = &kernel->emitter;
  const Node *node = node_base(part->concat->input[part->part]);
  Index at = index_in_concat(e, part->concat, part->part, part->offset, index);
  emit_store_at(e, e->pointer[e->input_count], node->type.dtype, index_linear(e, &at), emit_value(e, node, index));
}

/* What of the items [begin, end) is this part's, of `items` with so many before it; several of them are one of its own. */
static void own_items(HostKernel *kernel, int64_t before, int64_t items, int64_t each, LLVMValueRef bound[2]) {
  Emitter *e = &kernel->emitter;
  bound[0] = kernel->begin, bound[1] = kernel->end;
  for (int i = 0; i < 2; i++) {
    bound[i] = LLVMBuildSub(e->builder, bound[i], emit_index_const(e, before), "");
    LLVMValueRef zero = emit_index_const(e, 0), is_low = LLVMBuildICmp(e->builder, LLVMIntSLT, bound[i], zero, "");
    bound[i] = LLVMBuildSelect(e->builder, is_low, zero, bound[i], "");
    bound[i] = emit_min(e, bound[i], emit_index_const(e, items));
    bound[i] = emit_div(e, bound[i], each);
  }
}

/* Emits a part, which has `before` items in front of it; returns their number. An item is a row, or, where rows are made in tiles,
 * as many elements of one: so items of all parts are of one size. */
static int64_t host_loop_emit_part(HostKernel *kernel, Part *part, int64_t before) {
  Emitter *e = &kernel->emitter;
  const Node *node = node_base(part->concat->input[part->part]);
  const Shape *shape = &node->type.shape;
  int outer = shape->rank - 1;
  int64_t length = shape->dim[outer], rows = shape_elements(shape) / length;
  LLVMValueRef bound[2];
  HostTurn turn;
  if (host_turn_find(kernel, shape->dim, shape->rank, own_index_reads_of(kernel->scratch, kernel->body, node), &turn)) {
    int64_t each = (turn.rows.size * turn.columns.size + length - 1) / length, items = turn.items * each;
    own_items(kernel, before, items, each, bound);
    host_turn_loops(&turn, bound[0], bound[1], store_part, part);
    return items;
  }
  own_items(kernel, before, rows, 1, bound);
  HostLoop items = host_loop_open(kernel, bound[0], bound[1], 1, NULL, 0);
  LLVMValueRef value[MAX_RANK];
  host_unravel(kernel, items.counter, shape->dim, outer, value);
  Index index = {0};
  for (int d = 0; d < outer; d++) index_push(&index, shape->dim[d], value[d], false);
  HostLoop row = host_loop_open(kernel, emit_index_const(e, 0), emit_index_const(e, length), 1, NULL, 0);
  index_push(&index, length, row.counter, true);
  store_part(kernel, &index, part);
  host_loop_close(kernel, &row, NULL);
  host_loop_close(kernel, &items, NULL);
  return rows;
}

static void emit_parts(HostKernel *kernel, const Node *concat, Kernel *out) {
  int axis = (int)node_int(concat, ATTR_AXIS, 0);
  int64_t items = 0;
  Part part = {.concat = concat};
  host_start(kernel, kernel->name, false);
  for (; part.part < concat->input_count; part.part++) {
    items += host_loop_emit_part(kernel, &part, items);
    part.offset += concat->input[part.part]->type.shape.dim[axis];
  }
  host_finish(kernel);
  host_add_launch(kernel, out, kernel->name, items, host_grain(kernel, (kernel->elements + items - 1) / items));
}

static void store_all(HostKernel *kernel, const Index *index, void *user) {
  (void)user;
  host_store_results(kernel, NULL, index);
}

void host_emit_loop(HostKernel *kernel, Kernel *out) {
  const Node *concat = concat_of_rows(kernel);
  if (concat) {
    emit_parts(kernel, concat, out);
    return;
  }
  host_start(kernel, kernel->name, false);
  const bool *is_own = own_index_reads(kernel->scratch, kernel->node);
  HostTurn turn;
  if (host_turn_find(kernel, kernel->domain.extent, kernel->domain.count, is_own, &turn)) {
    host_turn_loops(&turn, kernel->begin, kernel->end, store_all, NULL);
    host_add_launch(kernel, out, kernel->name, turn.items, host_grain(kernel, turn.rows.size * turn.columns.size));
  } else {
    host_loop_nest(kernel, kernel->name, out);
  }
  host_finish(kernel);
}
