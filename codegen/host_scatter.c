/* host_scatter: kernels that write at indices that they read.
 *
 * scatter_add, the gradient of gather: a work item owns a block of columns of the whole table. It
 * clears them and adds the updates in order, so no two threads write one element and the order of
 * the sums is always the same.
 *
 * put: the part that is new; all else is in the result already, where memplan has placed it over
 * the base, or lowering has copied it. A work item is a row of the part. */
#include "codegen/host_private.h"

void host_emit_scatter(HostKernel *kernel, Kernel *out) {
  enum { COLUMNS = 64 };
  const Node *node = kernel->node, *index = node->input[1];
  const Shape *table = &node->type.shape;
  DType dtype = node->type.dtype;
  int64_t rows = table->rank ? table->dim[0] : 1, width = 1;
  for (int d = 1; d < table->rank; d++) width *= table->dim[d];
  int64_t updates = shape_elements(&index->type.shape);
  kernel->elements = shape_elements(table);
  host_start(kernel, kernel->name, false);
  Emitter *e = &kernel->emitter;
  LLVMValueRef zero = emit_index_const(e, 0);
  HostLoop items = host_items_open(kernel);
  LLVMValueRef from = emit_mul(e, items.counter, COLUMNS);
  LLVMValueRef to = emit_add(e, from, emit_index_const(e, COLUMNS));
  to = emit_min(e, to, emit_index_const(e, width));

  HostLoop clear = host_loop_open(kernel, zero, emit_index_const(e, rows), 1, NULL, 0);
  HostLoop cleared = host_loop_open(kernel, from, to, 1, NULL, 0);
  LLVMValueRef at = emit_add(e, emit_mul(e, clear.counter, width), cleared.counter);
  emit_store_at(e, e->pointer[2], dtype, at, LLVMConstNull(emit_register_type(e, dtype)));
  host_loop_close(kernel, &cleared, NULL);
  host_loop_close(kernel, &clear, NULL);

  HostLoop each = host_loop_open(kernel, zero, emit_index_const(e, updates), 1, NULL, 0);
  LLVMValueRef row = emit_load_at(e, e->pointer[1], index->type.dtype, each.counter);
  row = LLVMBuildIntCast2(e->builder, row, e->index_type, true, "");
  LLVMValueRef inside = LLVMBuildICmp(e->builder, LLVMIntULT, row, emit_index_const(e, rows), "");
  /* an index outside is dropped: its loop over columns is empty */
  row = LLVMBuildSelect(e->builder, inside, row, zero, "");
  LLVMValueRef last = LLVMBuildSelect(e->builder, inside, to, from, "");
  LLVMValueRef source = emit_mul(e, each.counter, width), target = emit_mul(e, row, width);
  HostLoop columns = host_loop_open(kernel, from, last, 1, NULL, 0);
  LLVMValueRef update = emit_load_at(e, e->pointer[0], dtype, emit_add(e, source, columns.counter));
  LLVMValueRef place = emit_add(e, target, columns.counter);
  LLVMValueRef sum = emit_load_at(e, e->pointer[2], dtype, place);
  emit_store_at(e, e->pointer[2], dtype, place, emit_reduce_step(e, OP_SUM, dtype, sum, update));
  host_loop_close(kernel, &columns, NULL);
  host_loop_close(kernel, &each, NULL);
  host_loop_close(kernel, &items, NULL);
  host_finish(kernel);
  int64_t work = (width + COLUMNS - 1) / COLUMNS;
  host_add_launch(kernel, out, kernel->name, work, 1);
}

PutForm put_form(const Node *node) {
  const Shape *base = &node->type.shape, *part = &node->input[1]->type.shape;
  int axis = (int)node_int(node, ATTR_AXIS, 0);
  PutForm form = {.inner = 1, .places = base->dim[axis], .count = part->dim[axis]};
  for (int d = axis + 1; d < base->rank; d++) form.inner *= base->dim[d];
  form.elements = shape_elements(part);
  return form;
}

void host_emit_put(HostKernel *kernel, Kernel *out) {
  const Node *node = kernel->node, *at = node->input[2];
  DType dtype = node->type.dtype;
  PutForm form = put_form(node);
  kernel->elements = form.elements;
  host_start(kernel, kernel->name, false);
  Emitter *e = &kernel->emitter;
  LLVMValueRef zero = emit_index_const(e, 0), inner = emit_index_const(e, form.inner);
  LLVMValueRef places = emit_index_const(e, form.places);
  LLVMValueRef first = emit_load_at(e, e->pointer[2], at->type.dtype, zero);
  first = LLVMBuildIntCast2(e->builder, first, e->index_type, true, "");
  HostLoop items = host_items_open(kernel);
  LLVMValueRef place = LLVMBuildAdd(e->builder, first, emit_rem(e, items.counter, form.count), "");
  LLVMValueRef inside = LLVMBuildICmp(e->builder, LLVMIntULT, place, places, "");
  place = LLVMBuildSelect(e->builder, inside, place, zero, "");
  /* a row outside is dropped: its loop is empty */
  LLVMValueRef last = LLVMBuildSelect(e->builder, inside, inner, zero, "");
  LLVMValueRef target = emit_mul(e, emit_div(e, items.counter, form.count), form.places);
  target = emit_mul(e, emit_add(e, target, place), form.inner);
  LLVMValueRef source = emit_mul(e, items.counter, form.inner);
  HostLoop row = host_loop_open(kernel, zero, last, 1, NULL, 0);
  LLVMValueRef value = emit_load_at(e, e->pointer[1], dtype, emit_add(e, source, row.counter));
  emit_store_at(e, e->pointer[3], dtype, emit_add(e, target, row.counter), value);
  host_loop_close(kernel, &row, NULL);
  host_loop_close(kernel, &items, NULL);
  host_finish(kernel);
  int64_t work = form.elements / form.inner;
  host_add_launch(kernel, out, kernel->name, work, host_grain(kernel, form.inner));
}
