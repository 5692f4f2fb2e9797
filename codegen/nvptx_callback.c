/* nvptx_callback: see nvptx_callback.h. */
#include "codegen/nvptx_callback.h"
#include <stdio.h>

enum { MAX_NAME = 256, MAX_EXTRA = 7 };

static void suffixed(char *out, const char *name, const char *suffix) {
  snprintf(out, MAX_NAME, "%s%s", name, suffix);
}

void callback_open(Job *job, Emitter *emitter, const char *suffix, const char *name,
                   LLVMTypeRef result, LLVMTypeRef *parameters, int count, const Graph *body) {
  Module *module = job->module;
  char full[MAX_NAME];
  suffixed(full, name, suffix);
  LLVMTypeRef type = LLVMFunctionType(result, parameters, (unsigned)count, false);
  LLVMValueRef function = module_helper(module, full, type);
  LLVMBuilderRef b = module_begin(module, function);
  emitter_init(emitter, module, job->scratch, body, b, module->i32);
  emitter->function = function;
  emitter->input_count = job->operand_count;
  emitter->result_count = job->result_count;
  emitter->pitch = job->pitch;
  int pointers = job_pointers(job);
  emitter->pointer = ARENA_ARRAY(job->scratch, LLVMValueRef, pointers);
  if (pointers)
    module_load_pointers(module, b, LLVMGetParam(function, 0), pointers, emitter->pointer);
}

void callback_open_plain(Job *job, Emitter *emitter, const char *suffix, const char *name,
                         LLVMTypeRef result, LLVMTypeRef *parameters, int count) {
  Job plain = *job;
  plain.operand_count = -1; /* callback_open loads operands, results and one more, and maps */
  plain.result_count = plain.map_count = 0;
  plain.has_packed = false;
  callback_open(&plain, emitter, suffix, name, result, parameters, count, NULL);
}

void callback_pointer(Job *job, const char *suffix, const char *name, int argument,
                      int64_t offset) {
  Emitter emitter;
  LLVMTypeRef pointer = job->module->pointer;
  callback_open(job, &emitter, suffix, name, pointer, &pointer, 1, NULL);
  callback_close(&emitter,
                 emit_at_number(&emitter, job->module->i8, emitter.pointer[argument], offset));
}

void callback_close(Emitter *emitter, LLVMValueRef value) {
  if (value)
    LLVMBuildRet(emitter->builder, value);
  else
    LLVMBuildRetVoid(emitter->builder);
  LLVMDisposeBuilder(emitter->builder);
}

void callback_call(Entry *entry, const char *suffix, const char *name, LLVMValueRef *extra,
                   int count) {
  Job *job = entry->job;
  Module *module = job->module;
  LLVMTypeRef pointer = module->pointer;
  LLVMTypeRef types[MAX_EXTRA + 1] = {pointer};
  int pointers = job_pointers(job);
  LLVMValueRef arguments[MAX_EXTRA + 1];
  LLVMTypeRef array = LLVMArrayType2(pointer, (uint64_t)pointers);
  arguments[0] = LLVMBuildAlloca(entry->b, array, "");
  for (int i = 0; i < pointers; i++) {
    LLVMValueRef address = emit_at_number(&entry->emitter, pointer, arguments[0], i);
    LLVMBuildStore(entry->b, entry->emitter.pointer[i], address);
  }
  for (int i = 0; i < count; i++) {
    bool is_pointer = LLVMGetTypeKind(LLVMTypeOf(extra[i])) == LLVMPointerTypeKind;
    arguments[i + 1] =
        is_pointer ? extra[i] : LLVMBuildIntCast2(entry->b, extra[i], module->i32, false, "");
    types[i + 1] = LLVMTypeOf(arguments[i + 1]);
  }
  char full[MAX_NAME];
  suffixed(full, name, suffix);
  LLVMTypeRef type = LLVMFunctionType(module->nothing, types, (unsigned)count + 1, false);
  LLVMValueRef function = LLVMGetNamedFunction(module->llvm, full);
  if (!function) function = LLVMAddFunction(module->llvm, full, type);
  LLVMBuildCall2(entry->b, type, function, arguments, (unsigned)count + 1, "");
}

void callback_call_block(Entry *entry, const char *suffix, const char *name, LLVMValueRef panels) {
  LLVMValueRef extra[5] = {panels, entry_special(entry, "ctaid.x"), entry_special(entry, "ctaid.y"),
                           entry_special(entry, "ctaid.z"), entry_special(entry, "tid.x")};
  callback_call(entry, suffix, name, extra, 5);
}

bool callback_fits(Job *job) {
  if (entry_is_small(job)) return true;
  diag_error(
      job->module->diag, job->node->origin.loc,
      "a tensor of this operation has 2^30 elements or more, which its GPU kernel cannot index");
  return false;
}
