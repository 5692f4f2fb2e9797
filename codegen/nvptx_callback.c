/* nvptx_callback: see nvptx_callback.h. */
#include "codegen/nvptx_callback.h"
#include <stdio.h>

enum { MAX_NAME = 256, MAX_EXTRA = 7 };

static void suffixed(char *out, const char *name, const char *suffix) {
  snprintf(out, MAX_NAME, "%s%s", name, suffix);
}

LLVMTypeRef callback_word(Module *module) { return LLVMInt32TypeInContext(module->context); }

static LLVMBuilderRef begin_function(Module *module, LLVMValueRef function) {
  LLVMBuilderRef b = LLVMCreateBuilderInContext(module->context);
  LLVMPositionBuilderAtEnd(b, LLVMAppendBasicBlockInContext(module->context, function, "entry"));
  return b;
}

void callback_constants(Module *module, const char *suffix, const Constant *constants, int count) {
  char full[MAX_NAME];
  LLVMTypeRef word = callback_word(module), type = LLVMFunctionType(word, NULL, 0, false);
  for (int i = 0; i < count; i++) {
    suffixed(full, constants[i].name, suffix);
    LLVMBuilderRef b = begin_function(module, module_helper(module, full, type));
    LLVMBuildRet(b, LLVMConstInt(word, (uint64_t)constants[i].value, true));
    LLVMDisposeBuilder(b);
  }
}

void callback_open(Job *job, Emitter *emitter, const char *suffix, const char *name,
                   LLVMTypeRef result, LLVMTypeRef *parameters, int count, const Graph *body) {
  Module *module = job->module;
  char full[MAX_NAME];
  suffixed(full, name, suffix);
  LLVMTypeRef type = LLVMFunctionType(result, parameters, (unsigned)count, false);
  LLVMValueRef function = module_helper(module, full, type);
  LLVMBuilderRef b = begin_function(module, function);
  emitter_init(emitter, module, job->scratch, body, b, callback_word(module));
  emitter->function = function;
  emitter->input_count = job->operand_count;
  emitter->result_count = job->result_count;
  int pointers = job->operand_count + job->result_count + 1 + job->map_count;
  emitter->pointer = ARENA_ARRAY(job->scratch, LLVMValueRef, pointers);
  LLVMTypeRef pointer = LLVMPointerTypeInContext(module->context, 0);
  for (int i = 0; i < pointers; i++) {
    LLVMValueRef place = LLVMConstInt(callback_word(module), (unsigned)i, false);
    LLVMValueRef address =
        LLVMBuildInBoundsGEP2(b, pointer, LLVMGetParam(function, 0), &place, 1, "");
    emitter->pointer[i] = LLVMBuildLoad2(b, pointer, address, "");
  }
}

void callback_open_plain(Job *job, Emitter *emitter, const char *suffix, const char *name,
                         LLVMTypeRef result, LLVMTypeRef *parameters, int count) {
  Job plain = *job;
  plain.operand_count = -1; /* callback_open loads operands, results and one more, and maps */
  plain.result_count = plain.map_count = 0;
  callback_open(&plain, emitter, suffix, name, result, parameters, count, NULL);
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
  LLVMTypeRef pointer = LLVMPointerTypeInContext(module->context, 0);
  LLVMTypeRef types[MAX_EXTRA + 1] = {pointer};
  int workspace = job->operand_count + job->result_count, pointers = workspace + 1 + job->map_count;
  LLVMValueRef arguments[MAX_EXTRA + 1];
  LLVMTypeRef array = LLVMArrayType2(pointer, (uint64_t)pointers);
  arguments[0] = LLVMBuildAlloca(entry->b, array, "");
  for (int i = 0; i < pointers; i++) {
    bool is_there = i < workspace || (i == workspace ? entry->workspace != NULL : entry->has_maps);
    LLVMValueRef place = LLVMConstInt(entry->i32, (unsigned)i, false);
    LLVMValueRef address = LLVMBuildInBoundsGEP2(entry->b, pointer, arguments[0], &place, 1, "");
    LLVMBuildStore(entry->b, is_there ? entry->emitter.pointer[i] : LLVMConstNull(pointer),
                   address);
  }
  for (int i = 0; i < count; i++) {
    bool is_pointer = LLVMGetTypeKind(LLVMTypeOf(extra[i])) == LLVMPointerTypeKind;
    arguments[i + 1] =
        is_pointer ? extra[i] : LLVMBuildIntCast2(entry->b, extra[i], entry->i32, false, "");
    types[i + 1] = LLVMTypeOf(arguments[i + 1]);
  }
  char full[MAX_NAME];
  suffixed(full, name, suffix);
  LLVMTypeRef type =
      LLVMFunctionType(LLVMVoidTypeInContext(module->context), types, (unsigned)count + 1, false);
  LLVMBuildCall2(entry->b, type, LLVMGetNamedFunction(module->llvm, full), arguments,
                 (unsigned)count + 1, "");
}

bool callback_fits(Job *job) {
  if (entry_index_type(job, job->module->context) == callback_word(job->module)) return true;
  diag_error(
      job->module->diag, job->node->origin.loc,
      "a tensor of this operation has 2^30 elements or more, which its GPU kernel cannot index");
  return false;
}
