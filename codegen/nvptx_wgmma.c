/* nvptx_wgmma: gemm_wgmma, the instruction of Hopper's tensor cores, as the callback of
 * kernels/wgmma_ptx.h: text with as many operands as the tile wants. */
#include "codegen/nvptx_callback.h"
#include "codegen/nvptx_contract.h"

static LLVMValueRef place(Emitter *emitter, LLVMTypeRef type, LLVMValueRef array, int i) {
  LLVMValueRef at =
      LLVMConstInt(LLVMInt64TypeInContext(emitter->module->context), (unsigned)i, false);
  return LLVMBuildInBoundsGEP2(emitter->builder, type, array, &at, 1, "");
}

/* sum[n / 2] (+)= a b, as text: LLVM 19 has no words for it either. The sums are results and
 * operands of the same registers; what follows the descriptors: whether to add to the sums, not to
 * negate a and b, and whether their panels are flat. */
static void wgmma_text(const Contract *c, int sums, Text *text, Text *constraints) {
  const char *type = c->dtype == DT_F16 ? "f16" : "bf16";
  text_printf(text, "wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s {", sums * 2, type, type);
  for (int i = 0; i < sums; i++) text_printf(text, "%s$%d", i ? ", " : "", i);
  text_printf(text, "}, $%d, $%d, $%d, 1, 1, %d, %d;", sums, sums + 1, sums + 2, !c->a.is_deep,
              !c->b.is_deep);
  for (int i = 0; i < sums; i++) text_printf(constraints, "=f,");
  text_printf(constraints, "l,l,b");
  for (int i = 0; i < sums; i++) text_printf(constraints, ",%d", i);
  text_printf(constraints, ",~{memory}");
}

void nvptx_define_wgmma(Contract *c) {
  enum { MAX_SUMS = 128 };
  LLVMContextRef context = c->job->module->context;
  LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0),
              real = LLVMFloatTypeInContext(context);
  LLVMTypeRef wide = LLVMInt64TypeInContext(context), word = LLVMInt32TypeInContext(context);
  LLVMTypeRef parameters[4] = {pointer, wide, wide, word}, results[MAX_SUMS];
  LLVMTypeRef operands[MAX_SUMS + 3];
  LLVMValueRef arguments[MAX_SUMS + 3];
  int sums = c->tile.micro_n / 2;
  Emitter emitter = {.module = c->job->module};
  callback_open_plain(c->job, &emitter, c->suffix, "gemm_wgmma", LLVMVoidTypeInContext(context),
                      parameters, 4);
  LLVMValueRef sum = LLVMGetParam(emitter.function, 0);
  for (int i = 0; i < 2; i++) {
    operands[i] = wide;
    arguments[i] = LLVMGetParam(emitter.function, (unsigned)i + 1);
  }
  operands[2] = LLVMInt1TypeInContext(context);
  arguments[2] = LLVMBuildICmp(emitter.builder, LLVMIntNE, LLVMGetParam(emitter.function, 3),
                               LLVMConstInt(word, 0, false), "");
  for (int i = 0; i < sums; i++) {
    results[i] = operands[i + 3] = real;
    arguments[i + 3] = LLVMBuildLoad2(emitter.builder, real, place(&emitter, real, sum, i), "");
  }
  Text text = {0}, constraints = {0};
  wgmma_text(c, sums, &text, &constraints);
  LLVMTypeRef type = LLVMFunctionType(LLVMStructTypeInContext(context, results, (unsigned)sums, 0),
                                      operands, (unsigned)sums + 3, false);
  LLVMValueRef words =
      LLVMGetInlineAsm(type, text.at, text.count, constraints.at, constraints.count, true, false,
                       LLVMInlineAsmDialectATT, false);
  LLVMValueRef result =
      LLVMBuildCall2(emitter.builder, type, words, arguments, (unsigned)sums + 3, "");
  for (int i = 0; i < sums; i++)
    LLVMBuildStore(emitter.builder, LLVMBuildExtractValue(emitter.builder, result, (unsigned)i, ""),
                   place(&emitter, real, sum, i));
  callback_close(&emitter, NULL);
  text_free(&text);
  text_free(&constraints);
}
