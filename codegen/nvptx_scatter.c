/* nvptx_scatter: kernels that write at indices that they read.
 *
 * scatter_add, the gradient of gather: kernels/scatter_ptx.h, specialised. The sums are in the
 * order of the updates, without atomics, so that the bits never change.
 *
 * put: a thread has an element of the part that is new; all else is in the result already. */
#include "codegen/nvptx_callback.h"
#include <stdio.h>

enum {
  SCATTER_THREADS = 256,
  COLUMNS = 128,   /* of a block */
  FEWEST_ROWS = 8, /* a warp each */
  MOST_ROWS = 128,
  ENOUGH_BLOCKS = 264, /* two for each multiprocessor of an H100 */
};

/* An element of an argument, by its number, which is of type `number`; an index as i64. */
static void define_load(Job *job, const char *suffix, const char *name, int argument,
                        LLVMTypeRef number) {
  const Node *node = job->node;
  DType dtype =
      argument < job->operand_count ? node->input[argument]->type.dtype : node->type.dtype;
  Emitter emitter = {.module = job->module};
  LLVMTypeRef parameters[2] = {job->module->pointer, number};
  LLVMTypeRef type = dtype_is_float(dtype) ? emit_register_type(&emitter, dtype) : job->module->i64;
  callback_open(job, &emitter, suffix, name, type, parameters, 2, NULL);
  LLVMValueRef value =
      emit_load_at(&emitter, emitter.pointer[argument], dtype, LLVMGetParam(emitter.function, 1));
  if (!dtype_is_float(dtype)) value = LLVMBuildIntCast2(emitter.builder, value, type, true, "");
  callback_close(&emitter, value);
}

static void define_store(Job *job, const char *suffix) {
  DType dtype = job->node->type.dtype;
  Emitter emitter = {.module = job->module};
  LLVMTypeRef parameters[3] = {job->module->pointer, job->module->i64,
                               emit_register_type(&emitter, dtype)};
  callback_open(job, &emitter, suffix, "scatter_store", job->module->nothing, parameters, 3, NULL);
  emit_store_at(&emitter, emitter.pointer[job->operand_count], dtype,
                LLVMGetParam(emitter.function, 1), LLVMGetParam(emitter.function, 2));
  callback_close(&emitter, NULL);
}

bool nvptx_scatter(Job *job) {
  const Shape *out = &job->node->type.shape;
  DType dtype = job->node->type.dtype;
  char suffix[224];
  snprintf(suffix, sizeof suffix, "__%s", job->name);
  if (!callback_fits(job)) return false;
  if (!dtype_is_float(dtype)) {
    diag_error(job->module->diag, job->node->origin.loc, "scatter_add of %s has no GPU kernel",
               dtype_text(dtype));
    return false;
  }
  module_specialise(job->module, dtype == DT_F64 ? "scatter64_ptx" : "scatter_ptx", "scatter_", suffix);
  int64_t columns = shape_elements(out) / out->dim[0];
  int64_t updates = shape_elements(&job->node->input[1]->type.shape);
  if (updates >= 1 << 24) {
    diag_error(job->module->diag, job->node->origin.loc,
               "the GPU kernel of scatter_add takes fewer than 2^24 indices, here are %lld",
               (long long)updates);
    return false;
  }
  int64_t across = (columns + COLUMNS - 1) / COLUMNS, rows = FEWEST_ROWS;
  while (rows < MOST_ROWS && out->dim[0] / (2 * rows) * across >= ENOUGH_BLOCKS) rows *= 2;
  const Constant constants[] = {
      {"scatter_updates", updates},
      {"scatter_columns", columns},
      {"scatter_count", out->dim[0]},
      {"scatter_rows", rows},
  };
  module_define_constants(job->module, suffix, constants, 4);
  define_load(job, suffix, "scatter_load", 0, job->module->i64);
  define_load(job, suffix, "scatter_index", 1, job->module->i32);
  /* what the result holds: sums that go on */
  define_load(job, suffix, "scatter_stored", job->operand_count, job->module->i64);
  define_store(job, suffix);
  Entry entry;
  entry_open(&entry, job, job->name, SCATTER_THREADS, false);
  LLVMValueRef extra[3] = {entry_special(&entry, "ctaid.x"), entry_special(&entry, "ctaid.y"),
                           entry_special(&entry, "tid.x")};
  callback_call(&entry, suffix, "scatter_block", extra, 3);
  entry_close(&entry, job->name, (out->dim[0] + rows - 1) / rows, across, 1);
  return true;
}

bool nvptx_put(Job *job) {
  const Node *node = job->node;
  DType dtype = node->type.dtype;
  PutForm form = put_form(node);
  int64_t blocks = (form.elements + SCATTER_THREADS - 1) / SCATTER_THREADS;
  if (blocks > INT32_MAX) {
    diag_error(job->module->diag, node->origin.loc,
               "this kernel has more elements than a GPU grid");
    return false;
  }
  if (!blocks) return true;
  Entry entry;
  entry_open(&entry, job, job->name, SCATTER_THREADS, false);
  Emitter *e = &entry.emitter;
  LLVMTypeRef wide = job->module->i64;
  LLVMValueRef block = entry_mul(&entry, entry_special(&entry, "ctaid.x"), SCATTER_THREADS);
  LLVMValueRef element = entry_add(&entry, block, entry_special(&entry, "tid.x"));
  LLVMValueRef all = entry_const(&entry, form.elements);
  LLVMBasicBlockRef after = entry_begin_if(&entry, entry_less(&entry, element, all));
  LLVMValueRef row = entry_div(&entry, element, form.inner);
  LLVMValueRef first =
      emit_load_at(e, e->pointer[2], node->input[2]->type.dtype, entry_const(&entry, 0));
  first = LLVMBuildIntCast2(entry.b, first, wide, true, "");
  LLVMValueRef nth =
      LLVMBuildIntCast2(entry.b, entry_rem(&entry, row, form.count), wide, false, "");
  LLVMValueRef place = LLVMBuildAdd(entry.b, first, nth, "");
  LLVMValueRef places = LLVMConstInt(wide, (uint64_t)form.places, false);
  LLVMValueRef inside = LLVMBuildICmp(entry.b, LLVMIntULT, place, places, "");
  LLVMBasicBlockRef outside = entry_begin_if(&entry, inside);
  LLVMValueRef target = entry_mul(&entry, entry_div(&entry, row, form.count), form.places);
  target = entry_add(&entry, target, LLVMBuildIntCast2(entry.b, place, entry.index, false, ""));
  target = entry_add(&entry, entry_mul(&entry, target, form.inner),
                     entry_rem(&entry, element, form.inner));
  emit_store_at(e, e->pointer[3], dtype, target, emit_load_at(e, e->pointer[1], dtype, element));
  entry_end_if(&entry, outside);
  entry_end_if(&entry, after);
  entry_close(&entry, job->name, blocks, 1, 1);
  return true;
}
