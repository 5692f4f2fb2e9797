/* nvptx_mma: the instructions of tensor cores, as the callbacks of kernels/mma_ptx.h and
 * attention_mma.h: C has no words for them. Fragments are arrays there; inlining leaves registers
 * only. */
#include "codegen/nvptx_mma.h"
#include "codegen/nvptx_callback.h"
#include <stdio.h>
#include <string.h>

typedef struct {
  Job *job;
  const char *suffix, *prefix;
  DType dtype;
  bool is_tf32;
} Mma;

static void open_callback(const Mma *m, Emitter *emitter, const char *what, LLVMTypeRef result,
                          LLVMTypeRef *parameters, int count) {
  char name[64];
  snprintf(name, sizeof name, "%s_%s", m->prefix, what);
  callback_open_plain(m->job, emitter, m->suffix, name, result, parameters, count);
}

/* sum[4] += a[4] b[2], by an intrinsic; real: the type of sums */
static void define_mma_by(const Mma *m, const char *name, LLVMTypeRef real) {
  LLVMTypeRef pointer = m->job->module->pointer;
  LLVMTypeRef word = m->job->module->i32, parameters[3] = {pointer, pointer, pointer};
  LLVMTypeRef pair = LLVMVectorType(m->job->module->half, 2);
  Emitter emitter = {.module = m->job->module};
  open_callback(m, &emitter, "mma", m->job->module->nothing, parameters, 3);
  LLVMValueRef arguments[10], sum = LLVMGetParam(emitter.function, 0);
  for (int i = 0; i < 6; i++) {
    LLVMValueRef from = LLVMGetParam(emitter.function, i < 4 ? 1 : 2);
    arguments[i] = LLVMBuildLoad2(emitter.builder, word,
                                  emit_at_number(&emitter, word, from, i < 4 ? i : i - 4), "");
    if (m->dtype == DT_F16)
      arguments[i] = LLVMBuildBitCast(emitter.builder, arguments[i], pair, "");
  }
  for (int i = 0; i < 4; i++)
    arguments[6 + i] =
        LLVMBuildLoad2(emitter.builder, real, emit_at_number(&emitter, real, sum, i), "");
  LLVMValueRef result = emit_intrinsic(&emitter, name, NULL, arguments, 10);
  for (unsigned i = 0; i < 4; i++)
    LLVMBuildStore(emitter.builder, LLVMBuildExtractValue(emitter.builder, result, i, ""),
                   emit_at_number(&emitter, real, sum, (int)i));
  callback_close(&emitter, NULL);
}

static void define_matrices(const Mma *m, const char *what, const char *intrinsic) {
  LLVMContextRef context = m->job->module->context;
  LLVMTypeRef shared = LLVMPointerTypeInContext(context, 3), word = m->job->module->i32;
  LLVMTypeRef parameters[2] = {m->job->module->pointer, shared};
  Emitter emitter = {.module = m->job->module};
  open_callback(m, &emitter, what, m->job->module->nothing, parameters, 2);
  LLVMValueRef row = LLVMGetParam(emitter.function, 1);
  LLVMValueRef result = emit_intrinsic(&emitter, intrinsic, shared, &row, 1);
  for (unsigned i = 0; i < 4; i++)
    LLVMBuildStore(emitter.builder, LLVMBuildExtractValue(emitter.builder, result, i, ""),
                   emit_at_number(&emitter, word, LLVMGetParam(emitter.function, 0), (int)i));
  callback_close(&emitter, NULL);
}

static void define_round(const Mma *m) {
  LLVMTypeRef word = m->job->module->i32;
  Emitter emitter = {.module = m->job->module};
  open_callback(m, &emitter, "round", word, &word, 1);
  LLVMValueRef value =
      LLVMBuildBitCast(emitter.builder, LLVMGetParam(emitter.function, 0), m->job->module->f32, "");
  callback_close(&emitter, emit_intrinsic(&emitter, "llvm.nvvm.f2tf32.rna", NULL, &value, 1));
}

void nvptx_define_mma(Job *job, const char *suffix, const char *prefix, DType dtype, bool is_tf32) {
  Mma m = {job, suffix, prefix, dtype, is_tf32};
  define_mma_by(&m,
                is_tf32           ? "llvm.nvvm.mma.m16n8k8.row.col.tf32"
                : dtype == DT_F16 ? "llvm.nvvm.mma.m16n8k16.row.col.f32.f32"
                                  : "llvm.nvvm.mma.m16n8k16.row.col.bf16",
                job->module->f32);
  define_matrices(&m, "matrices", "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16");
  define_matrices(&m, "matrices_across", "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16");
  if (is_tf32) define_round(&m);
}

/* sum[4] += a[4] b[2], of 8-bit floats, for which LLVM 19 has no words either. */
static void define_mma8(const Mma *m, DType b) {
  LLVMTypeRef pointer = m->job->module->pointer, real = m->job->module->f32, word = m->job->module->i32;
  LLVMTypeRef parameters[3] = {pointer, pointer, pointer}, results[4] = {real, real, real, real}, operands[10];
  LLVMValueRef arguments[10];
  Emitter emitter = {.module = m->job->module};
  open_callback(m, &emitter, "mma", m->job->module->nothing, parameters, 3);
  LLVMValueRef sum = LLVMGetParam(emitter.function, 0);
  for (int i = 0; i < 10; i++) {
    LLVMValueRef from = LLVMGetParam(emitter.function, i < 4 ? 1 : i < 6 ? 2 : 0);
    operands[i] = i < 6 ? word : real;
    arguments[i] = LLVMBuildLoad2(emitter.builder, operands[i],
                                  emit_at_number(&emitter, operands[i], from, i < 4 ? i : i < 6 ? i - 4 : i - 6), "");
  }
  char text[160];
  snprintf(text, sizeof text,
           "mma.sync.aligned.m16n8k32.row.col.f32.%s.%s.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, "
           "{$10, $11, $12, $13};",
           dtype_text(m->dtype), dtype_text(b));
  LLVMTypeRef type = LLVMFunctionType(LLVMStructTypeInContext(m->job->module->context, results, 4, 0), operands, 10, false);
  LLVMValueRef result = emit_assembly(&emitter, text, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", type, arguments, 10);
  unsigned convergent = LLVMGetEnumAttributeKindForName("convergent", 10);
  LLVMAddCallSiteAttribute(result, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                           LLVMCreateEnumAttribute(m->job->module->context, convergent, 0));
  for (unsigned i = 0; i < 4; i++)
    LLVMBuildStore(emitter.builder, LLVMBuildExtractValue(emitter.builder, result, i, ""),
                   emit_at_number(&emitter, real, sum, (int)i));
  callback_close(&emitter, NULL);
}

void nvptx_define_mma8(Job *job, const char *suffix, const char *prefix, DType a, DType b) {
  Mma m = {job, suffix, prefix, a, false};
  define_mma8(&m, b);
  define_matrices(&m, "matrices", "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16");
  define_matrices(&m, "matrices_across", "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16");
}

void nvptx_define_mma_whole(Job *job, const char *suffix, const char *prefix, bool is_a_signed, bool is_b_signed) {
  Mma m = {job, suffix, prefix, DT_U8, false};
  define_mma_by(&m,
                is_a_signed ? is_b_signed ? "llvm.nvvm.mma.m16n8k32.row.col.s8" : "llvm.nvvm.mma.m16n8k32.row.col.s8.u8"
                : is_b_signed ? "llvm.nvvm.mma.m16n8k32.row.col.u8.s8"
                              : "llvm.nvvm.mma.m16n8k32.row.col.u8",
                job->module->i32);
  define_matrices(&m, "matrices", "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16");
  define_matrices(&m, "matrices_across", "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16");
}
