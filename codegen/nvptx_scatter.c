/* nvptx_scatter: scatter_add, the gradient of gather: kernels/scatter_ptx.h, specialised. The sums
 * are in the order of the updates, without atomics, so that the bits never change. */
#include "codegen/nvptx_callback.h"
#include <stdio.h>

enum { SCATTER_THREADS = 256 };

static LLVMTypeRef wide_type(Job *job) { return LLVMInt64TypeInContext(job->module->context); }

static void define_load(Job *job, const char *suffix) {
  DType dtype = job->node->input[0]->type.dtype;
  Emitter emitter = {.module = job->module};
  LLVMTypeRef parameters[2] = {LLVMPointerTypeInContext(job->module->context, 0), wide_type(job)};
  callback_open(job, &emitter, suffix, "scatter_load", emit_register_type(&emitter, dtype),
                parameters, 2, NULL);
  callback_close(&emitter, emit_load_at(&emitter, emitter.pointer[0], dtype,
                                        LLVMGetParam(emitter.function, 1)));
}

static void define_store(Job *job, const char *suffix) {
  DType dtype = job->node->type.dtype;
  Emitter emitter = {.module = job->module};
  LLVMTypeRef parameters[3] = {LLVMPointerTypeInContext(job->module->context, 0), wide_type(job),
                               emit_register_type(&emitter, dtype)};
  callback_open(job, &emitter, suffix, "scatter_store", LLVMVoidTypeInContext(job->module->context),
                parameters, 3, NULL);
  emit_store_at(&emitter, emitter.pointer[job->operand_count], dtype,
                LLVMGetParam(emitter.function, 1), LLVMGetParam(emitter.function, 2));
  callback_close(&emitter, NULL);
}

static void define_index(Job *job, const char *suffix) {
  LLVMTypeRef parameters[2] = {LLVMPointerTypeInContext(job->module->context, 0),
                               callback_word(job->module)};
  Emitter emitter = {.module = job->module};
  callback_open(job, &emitter, suffix, "scatter_index", wide_type(job), parameters, 2, NULL);
  LLVMValueRef index = emit_load_at(&emitter, emitter.pointer[1], job->node->input[1]->type.dtype,
                                    LLVMGetParam(emitter.function, 1));
  callback_close(&emitter, LLVMBuildIntCast2(emitter.builder, index, wide_type(job), true, ""));
}

bool nvptx_scatter(Job *job) {
  const Shape *out = &job->node->type.shape;
  DType dtype = job->node->type.dtype;
  char suffix[224];
  snprintf(suffix, sizeof suffix, "__%s", job->name);
  if (!callback_fits(job)) return false;
  if (!dtype_is_float(dtype)) {
    diag_error(job->module->diag, job->node->loc, "scatter_add of %s has no GPU kernel",
               dtype_text(dtype));
    return false;
  }
  if (!module_specialise(job->module, dtype == DT_F64 ? "scatter64_ptx" : "scatter_ptx", "scatter_",
                         suffix))
    return false;
  int64_t columns = shape_elements(out) / out->dim[0];
  const Constant constants[] = {
      {"scatter_updates", shape_elements(&job->node->input[1]->type.shape)},
      {"scatter_columns", columns},
  };
  callback_constants(job->module, suffix, constants, 2);
  define_load(job, suffix);
  define_index(job, suffix);
  define_store(job, suffix);
  Entry entry;
  entry_open(&entry, job, job->name, SCATTER_THREADS, false);
  LLVMValueRef extra[3] = {entry_special(&entry, "ctaid.x"), entry_special(&entry, "ctaid.y"),
                           entry_special(&entry, "tid.x")};
  callback_call(&entry, suffix, "scatter_row", extra, 3);
  entry_close(&entry, job->name, out->dim[0], (columns + SCATTER_THREADS - 1) / SCATTER_THREADS, 1);
  return true;
}
