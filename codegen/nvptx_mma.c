/* nvptx_mma: the instructions of tensor cores, as the callbacks of kernels/mma_ptx.h: C has no
 * words for them. Fragments are arrays there; inlining leaves registers only. */
#include "codegen/nvptx_callback.h"
#include "codegen/nvptx_contract.h"
#include <string.h>

static LLVMValueRef call(Emitter *emitter, const char *name, LLVMTypeRef *overload, int overloads,
                         LLVMValueRef *arguments, int count) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMValueRef function =
      LLVMGetIntrinsicDeclaration(emitter->module->llvm, id, overload, (size_t)overloads);
  return LLVMBuildCall2(emitter->builder, LLVMGlobalGetValueType(function), function, arguments,
                        (unsigned)count, "");
}

static LLVMValueRef place(Emitter *emitter, LLVMTypeRef type, LLVMValueRef array, int i) {
  LLVMValueRef at =
      LLVMConstInt(LLVMInt64TypeInContext(emitter->module->context), (unsigned)i, false);
  return LLVMBuildInBoundsGEP2(emitter->builder, type, array, &at, 1, "");
}

/* sum[4] += a[4] b[2] */
static void define_mma(Contract *c) {
  LLVMContextRef context = c->job->module->context;
  LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0),
              real = LLVMFloatTypeInContext(context);
  LLVMTypeRef word = LLVMInt32TypeInContext(context), parameters[3] = {pointer, pointer, pointer};
  LLVMTypeRef pair = LLVMVectorType(LLVMHalfTypeInContext(context), 2);
  Emitter emitter = {.module = c->job->module};
  callback_open_plain(c->job, &emitter, c->suffix, "gemm_mma", LLVMVoidTypeInContext(context),
                      parameters, 3);
  LLVMValueRef arguments[10], sum = LLVMGetParam(emitter.function, 0);
  for (int i = 0; i < 6; i++) {
    LLVMValueRef from = LLVMGetParam(emitter.function, i < 4 ? 1 : 2);
    arguments[i] =
        LLVMBuildLoad2(emitter.builder, word, place(&emitter, word, from, i < 4 ? i : i - 4), "");
    if (c->dtype == DT_F16)
      arguments[i] = LLVMBuildBitCast(emitter.builder, arguments[i], pair, "");
  }
  for (int i = 0; i < 4; i++)
    arguments[6 + i] = LLVMBuildLoad2(emitter.builder, real, place(&emitter, real, sum, i), "");
  const char *name = c->unit == UNIT_MMA32 ? "llvm.nvvm.mma.m16n8k8.row.col.tf32"
                     : c->dtype == DT_F16  ? "llvm.nvvm.mma.m16n8k16.row.col.f32.f32"
                                           : "llvm.nvvm.mma.m16n8k16.row.col.bf16";
  LLVMValueRef result = call(&emitter, name, NULL, 0, arguments, 10);
  for (unsigned i = 0; i < 4; i++)
    LLVMBuildStore(emitter.builder, LLVMBuildExtractValue(emitter.builder, result, i, ""),
                   place(&emitter, real, sum, (int)i));
  callback_close(&emitter, NULL);
}

static void define_matrices(Contract *c, const char *name, const char *intrinsic) {
  LLVMContextRef context = c->job->module->context;
  LLVMTypeRef shared = LLVMPointerTypeInContext(context, 3), word = LLVMInt32TypeInContext(context);
  LLVMTypeRef parameters[2] = {LLVMPointerTypeInContext(context, 0), shared};
  Emitter emitter = {.module = c->job->module};
  callback_open_plain(c->job, &emitter, c->suffix, name, LLVMVoidTypeInContext(context), parameters,
                      2);
  LLVMValueRef row = LLVMGetParam(emitter.function, 1);
  LLVMValueRef result = call(&emitter, intrinsic, &shared, 1, &row, 1);
  for (unsigned i = 0; i < 4; i++)
    LLVMBuildStore(emitter.builder, LLVMBuildExtractValue(emitter.builder, result, i, ""),
                   place(&emitter, word, LLVMGetParam(emitter.function, 0), (int)i));
  callback_close(&emitter, NULL);
}

static void define_round(Contract *c) {
  LLVMContextRef context = c->job->module->context;
  LLVMTypeRef word = LLVMInt32TypeInContext(context);
  Emitter emitter = {.module = c->job->module};
  callback_open_plain(c->job, &emitter, c->suffix, "gemm_round", word, &word, 1);
  LLVMValueRef value = LLVMBuildBitCast(emitter.builder, LLVMGetParam(emitter.function, 0),
                                        LLVMFloatTypeInContext(context), "");
  callback_close(&emitter, call(&emitter, "llvm.nvvm.f2tf32.rna", NULL, 0, &value, 1));
}

void nvptx_define_mma(Contract *c) {
  define_mma(c);
  define_matrices(c, "gemm_matrices", "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16");
  define_matrices(c, "gemm_matrices_across", "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16");
  if (c->unit == UNIT_MMA32) define_round(c);
}
