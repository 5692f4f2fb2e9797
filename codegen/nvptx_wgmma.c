/* nvptx_wgmma: the instruction of Hopper's tensor cores as a callback of kernels/wgmma_ptx.h and
 * attention_wgmma.h: text with as many operands as the product has columns. */
#include "codegen/nvptx_wgmma.h"
#include "codegen/nvptx_callback.h"

enum { MAX_SUMS = 128, KEPT = 4 /* registers of a, if it lies in these */ };

/* sum[columns / 2] (+)= a b, as text: LLVM 19 has no words for it either. The sums are results and
 * operands of the same registers; what follows a and b: whether to add to the sums, not to negate a
 * and b, and of 16-bit elements whether their panels are flat. */
static void wgmma_text(const Wgmma *w, Text *text, Text *constraints) {
  bool are_bytes = dtype_is_float8(w->dtype);
  int sums = w->columns / 2, at = sums;
  text_printf(text, "wgmma.mma_async.sync.aligned.m64n%dk%d.f32.%s.%s {", w->columns, are_bytes ? 32 : 16,
              dtype_text(w->dtype), dtype_text(are_bytes ? w->of_b : w->dtype));
  for (int i = 0; i < sums; i++) text_printf(text, "%s$%d", i ? ", " : "", i);
  if (w->is_a_kept) {
    text_printf(text, "}, {$%d, $%d, $%d, $%d}", at, at + 1, at + 2, at + 3);
    at += KEPT;
  } else {
    text_printf(text, "}, $%d", at++);
  }
  text_printf(text, ", $%d, $%d, 1, 1", at, at + 1);
  if (!are_bytes && !w->is_a_kept) text_printf(text, ", %d", w->is_a_flat);
  if (!are_bytes) text_printf(text, ", %d", w->is_b_flat);
  text_printf(text, ";");
  for (int i = 0; i < sums; i++) text_printf(constraints, "=f,");
  text_printf(constraints, w->is_a_kept ? "r,r,r,r,l,b" : "l,l,b");
  for (int i = 0; i < sums; i++) text_printf(constraints, ",%d", i);
  text_printf(constraints, ",~{memory}");
}

void nvptx_define_wgmma(Job *job, const char *suffix, const Wgmma *w) {
  LLVMContextRef context = job->module->context;
  LLVMTypeRef pointer = job->module->pointer, real = job->module->f32;
  LLVMTypeRef wide = job->module->i64, word = job->module->i32;
  LLVMTypeRef parameters[4] = {pointer, w->is_a_kept ? pointer : wide, wide, word};
  LLVMTypeRef results[MAX_SUMS], operands[MAX_SUMS + KEPT + 2];
  LLVMValueRef arguments[MAX_SUMS + KEPT + 2];
  int sums = w->columns / 2, count = 0;
  Emitter emitter = {.module = job->module};
  callback_open_plain(job, &emitter, suffix, w->name, job->module->nothing, parameters, 4);
  LLVMBuilderRef b = emitter.builder;
  LLVMValueRef sum = LLVMGetParam(emitter.function, 0), a = LLVMGetParam(emitter.function, 1);
  for (int i = 0; i < KEPT && w->is_a_kept; i++)
    arguments[count++] = LLVMBuildLoad2(b, word, emit_at_number(&emitter, word, a, i), "");
  if (!w->is_a_kept) arguments[count++] = a;
  arguments[count++] = LLVMGetParam(emitter.function, 2);
  arguments[count++] = LLVMBuildICmp(b, LLVMIntNE, LLVMGetParam(emitter.function, 3),
                                     LLVMConstInt(word, 0, false), "");
  for (int i = 0; i < sums; i++) {
    results[i] = real;
    arguments[count++] = LLVMBuildLoad2(b, real, emit_at_number(&emitter, real, sum, i), "");
  }
  for (int i = 0; i < count; i++) operands[i] = LLVMTypeOf(arguments[i]);
  Text text = {0}, constraints = {0};
  wgmma_text(w, &text, &constraints);
  LLVMTypeRef type = LLVMFunctionType(LLVMStructTypeInContext(context, results, (unsigned)sums, 0),
                                      operands, (unsigned)count, false);
  LLVMValueRef words =
      LLVMGetInlineAsm(type, text.at, text.count, constraints.at, constraints.count, true, false,
                       LLVMInlineAsmDialectATT, false);
  LLVMValueRef result = LLVMBuildCall2(b, type, words, arguments, (unsigned)count, "");
  for (int i = 0; i < sums; i++)
    LLVMBuildStore(b, LLVMBuildExtractValue(b, result, (unsigned)i, ""),
                   emit_at_number(&emitter, real, sum, i));
  callback_close(&emitter, NULL);
  text_free(&text);
  text_free(&constraints);
}
