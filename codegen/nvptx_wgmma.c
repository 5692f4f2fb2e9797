/* nvptx_wgmma: the instruction of Hopper's tensor cores as a callback of kernels/wgmma_ptx.h and
 * attention_wgmma.h: text with as many operands as the product has columns. */
#include "codegen/nvptx_wgmma.h"
#include "codegen/nvptx_callback.h"

enum { MAX_SUMS = 128, MAX_RESULTS = 2 * MAX_SUMS, KEPT = 4 /* registers of a, if it lies in these */, MAX_OPERANDS = 512 };

/* The numbers of operands: behind the sums a, b, the first depth's predicate and the others'. */
static int words_of_a(const Wgmma *w) { return w->is_a_kept ? KEPT : 1; }
static int first_b(const Wgmma *w) { return w->high * (w->columns / 2 + w->depths * words_of_a(w)); }

/* sum[columns / 2] (+)= a b, as text: LLVM 19 has no words for it either. The sums are results and
 * operands of the same registers; what follows a and b: whether to add to the sums, not to negate a
 * and b, and of 16-bit elements whether their panels are flat. */
static void wgmma_line(const Wgmma *w, int depth, int tile, Text *text) {
  bool are_bytes = dtype_is_float8(w->dtype);
  int sums = w->columns / 2, a = w->high * sums + (depth * w->high + tile) * words_of_a(w);
  text_printf(text, "wgmma.mma_async.sync.aligned.m64n%dk%d.f32.%s.%s {", w->columns, are_bytes ? 32 : 16,
              dtype_text(w->dtype), dtype_text(are_bytes ? w->of_b : w->dtype));
  for (int i = 0; i < sums; i++) text_printf(text, "%s$%d", i ? ", " : "", tile * sums + i);
  if (w->is_a_kept)
    text_printf(text, "}, {$%d, $%d, $%d, $%d}", a, a + 1, a + 2, a + 3);
  else
    text_printf(text, "}, $%d", a);
  int b = first_b(w);
  text_printf(text, ", $%d, $%d, 1, 1", b + depth, b + w->depths + (depth > 0));
  if (!are_bytes && !w->is_a_kept) text_printf(text, ", %d", w->is_a_flat);
  if (!are_bytes) text_printf(text, ", %d", w->is_b_flat);
  text_printf(text, ";");
}

static void wgmma_text(const Wgmma *w, Text *text, Text *constraints) {
  int results = w->high * w->columns / 2;
  for (int i = 0; i < w->depths * w->high; i++) {
    if (i) text_printf(text, "\n\t");
    wgmma_line(w, i / w->high, i % w->high, text);
  }
  for (int i = 0; i < results; i++) text_printf(constraints, "=f,");
  for (int i = results; i < first_b(w); i++) text_printf(constraints, w->is_a_kept ? "r," : "l,");
  for (int i = 0; i < w->depths; i++) text_printf(constraints, "l,");
  text_printf(constraints, "b,b");
  for (int i = 0; i < results; i++) text_printf(constraints, ",%d", i);
  text_printf(constraints, ",~{memory}");
}

/* Loads what stands in arrays: a, then b. The count. */
static int load_wgmma_operands(const Wgmma *w, Emitter *emitter, LLVMValueRef *out) {
  LLVMTypeRef wide = emitter->module->i64, type = w->is_a_kept ? emitter->module->i32 : wide;
  LLVMValueRef a = LLVMGetParam(emitter->function, 1), b = LLVMGetParam(emitter->function, 2);
  int words = words_of_a(w), count = 0;
  for (int d = 0; d < w->depths; d++)
    for (int i = 0; i < w->high * words; i++)
      out[count++] = LLVMBuildLoad2(emitter->builder, type, emit_at_number(emitter, type, a, d * w->most_high * words + i), "");
  for (int d = 0; d < w->depths; d++)
    out[count++] = LLVMBuildLoad2(emitter->builder, wide, emit_at_number(emitter, wide, b, d), "");
  return count;
}

void nvptx_define_wgmma(Job *job, const char *suffix, const Wgmma *w) {
  LLVMContextRef context = job->module->context;
  LLVMTypeRef pointer = job->module->pointer, real = job->module->f32, word = job->module->i32;
  LLVMTypeRef parameters[4] = {pointer, pointer, pointer, word};
  LLVMTypeRef results[MAX_RESULTS], operands[MAX_OPERANDS];
  LLVMValueRef arguments[MAX_OPERANDS], place[MAX_RESULTS];
  int sums = w->columns / 2, result_count = w->high * sums;
  Emitter emitter = {.module = job->module};
  callback_open_plain(job, &emitter, suffix, w->name, job->module->nothing, parameters, 4);
  LLVMBuilderRef b = emitter.builder;
  int count = load_wgmma_operands(w, &emitter, arguments);
  arguments[count++] = LLVMBuildICmp(b, LLVMIntNE, LLVMGetParam(emitter.function, 3),
                                     LLVMConstInt(word, 0, false), "");
  arguments[count++] = LLVMConstInt(job->module->i1, 1, false);
  for (int i = 0; i < result_count; i++) {
    results[i] = real;
    place[i] = emit_at_number(&emitter, real, LLVMGetParam(emitter.function, 0), i / sums * MAX_SUMS + i % sums);
    arguments[count++] = LLVMBuildLoad2(b, real, place[i], "");
  }
  for (int i = 0; i < count; i++) operands[i] = LLVMTypeOf(arguments[i]);
  Text text = {0}, constraints = {0};
  wgmma_text(w, &text, &constraints);
  LLVMTypeRef type = LLVMFunctionType(LLVMStructTypeInContext(context, results, (unsigned)result_count, 0),
                                      operands, (unsigned)count, false);
  LLVMValueRef words =
      LLVMGetInlineAsm(type, text.at, text.count, constraints.at, constraints.count, true, false,
                       LLVMInlineAsmDialectATT, false);
  LLVMValueRef result = LLVMBuildCall2(b, type, words, arguments, (unsigned)count, "");
  for (int i = 0; i < result_count; i++)
    LLVMBuildStore(b, LLVMBuildExtractValue(b, result, (unsigned)i, ""), place[i]);
  callback_close(&emitter, NULL);
  text_free(&text);
  text_free(&constraints);
}
