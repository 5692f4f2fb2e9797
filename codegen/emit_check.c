/* emit_check: ftc --check-memory. On the CPU every load and store of generated code is preceded by
 * a check that its element is inside of the tensor, or of the buffer on the stack, and what a row
 * kernel has kept is compared with the same value computed anew; if something is wrong, the program
 * ends with a sentence and exit code 3. Kernels in C (products, attention) are not checked, nor is
 * PTX, which the simulator checks. */
#include "codegen/emit_private.h"

typedef struct EmitExtent {
  struct EmitExtent *next;
  LLVMValueRef pointer;
  int64_t elements;
} EmitExtent;

bool emit_is_checking(const Emitter *emitter) {
  return emitter->module->options && emitter->module->options->check_memory;
}

void emit_extent(Emitter *emitter, LLVMValueRef pointer, int64_t elements) {
  if (!emit_is_checking(emitter)) return;
  EmitExtent *extent = ARENA_NEW(emitter->arena, EmitExtent);
  *extent = (EmitExtent){emitter->extents, pointer, elements};
  emitter->extents = extent;
}

/* void (text, element, elements): says it, and ends the process. */
static LLVMValueRef fail_function(Emitter *emitter) {
  static const char name[] = "ft_outside",
                    format[] = "%s: element %lld of %lld: this is a fault of ft\n";
  Module *module = emitter->module;
  LLVMTypeRef pointer = module->pointer, i32 = module->i32, nothing = module->nothing;
  LLVMValueRef function = LLVMGetNamedFunction(module->llvm, name);
  if (function) return function;
  LLVMTypeRef types[3] = {pointer, module->i64, module->i64};
  function = LLVMAddFunction(module->llvm, name, LLVMFunctionType(nothing, types, 3, false));
  LLVMSetLinkage(function, LLVMInternalLinkage);
  unsigned kind = LLVMGetEnumAttributeKindForName("noinline", 8);
  LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex,
                          LLVMCreateEnumAttribute(module->context, kind, 0));
  LLVMBuilderRef builder = module_begin(module, function);
  LLVMTypeRef print_type = LLVMFunctionType(i32, (LLVMTypeRef[]){i32, pointer}, 2, true);
  LLVMTypeRef exit_type = LLVMFunctionType(nothing, &i32, 1, false);
  LLVMValueRef print = LLVMAddFunction(module->llvm, "dprintf", print_type);
  LLVMValueRef end = LLVMAddFunction(module->llvm, "_exit", exit_type);
  LLVMValueRef arguments[5] = {LLVMConstInt(i32, 2, false),
                               LLVMBuildGlobalStringPtr(builder, format, "ft_outside_text"),
                               LLVMGetParam(function, 0), LLVMGetParam(function, 1),
                               LLVMGetParam(function, 2)};
  LLVMBuildCall2(builder, print_type, print, arguments, 5, "");
  LLVMValueRef code = LLVMConstInt(i32, 3, false);
  LLVMBuildCall2(builder, exit_type, end, &code, 1, "");
  LLVMBuildUnreachable(builder);
  LLVMDisposeBuilder(builder);
  return function;
}

/* Goes on where the condition holds; else says what the kernel does with the element. */
static void fail_unless(Emitter *emitter, LLVMValueRef condition, const char *what,
                        LLVMValueRef element, int64_t elements) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMValueRef fail = fail_function(emitter);
  LLVMTypeRef wide = emitter->module->i64;
  LLVMValueRef at = LLVMBuildIntCast2(builder, element, wide, true, "");
  LLVMValueRef function = LLVMGetBasicBlockParent(LLVMGetInsertBlock(builder));
  LLVMBasicBlockRef wrong = emit_block(emitter, "wrong"), right = emit_block(emitter, "right");
  LLVMBuildCondBr(builder, condition, right, wrong);
  LLVMPositionBuilderAtEnd(builder, wrong);
  size_t length;
  const char *name = LLVMGetValueName2(function, &length);
  const char *text = arena_printf(emitter->arena, "kernel %.*s %s", (int)length, name, what);
  LLVMValueRef arguments[3] = {LLVMBuildGlobalStringPtr(builder, text, "ft_outside_text"), at,
                               LLVMConstInt(wide, (uint64_t)elements, true)};
  LLVMBuildCall2(builder, LLVMGlobalGetValueType(fail), fail, arguments, 3, "");
  LLVMBuildUnreachable(builder);
  LLVMPositionBuilderAtEnd(builder, right);
}

void emit_check(Emitter *emitter, LLVMValueRef pointer, LLVMValueRef element, bool is_store) {
  const EmitExtent *extent = emitter->extents;
  while (extent && extent->pointer != pointer) extent = extent->next;
  if (!extent) return;
  LLVMTypeRef wide = emitter->module->i64;
  LLVMValueRef at = LLVMBuildIntCast2(emitter->builder, element, wide, true, "");
  LLVMValueRef limit = LLVMConstInt(wide, (uint64_t)extent->elements, false);
  LLVMValueRef is_inside = LLVMBuildICmp(emitter->builder, LLVMIntULT, at, limit, "");
  fail_unless(emitter, is_inside,
              is_store ? "writes outside of a tensor" : "reads outside of a tensor", element,
              extent->elements);
}

/* Equal, both NaN, or apart by what a fused multiply-add may change: a value of another index is
 * further away. */
static LLVMValueRef emit_is_alike(Emitter *emitter, LLVMValueRef a, LLVMValueRef b) {
  LLVMBuilderRef builder = emitter->builder;
  LLVMTypeRef type = LLVMTypeOf(a);
  if (LLVMGetTypeKind(type) == LLVMIntegerTypeKind)
    return LLVMBuildICmp(builder, LLVMIntEQ, a, b, "");
  LLVMValueRef apart = LLVMBuildFSub(builder, a, b, ""), size = a;
  apart = emit_intrinsic(emitter, "llvm.fabs", type, &apart, 1);
  size = emit_intrinsic(emitter, "llvm.fabs", type, &size, 1);
  LLVMValueRef room = LLVMBuildFMul(builder, size, LLVMConstReal(type, 1e-2), "");
  room = LLVMBuildFAdd(builder, room, LLVMConstReal(type, 1e-6), "");
  LLVMValueRef is_near = LLVMBuildFCmp(builder, LLVMRealOLE, apart, room, "");
  LLVMValueRef is_equal = LLVMBuildFCmp(builder, LLVMRealOEQ, a, b, "");
  LLVMValueRef a_nan = LLVMBuildFCmp(builder, LLVMRealUNO, a, a, "");
  LLVMValueRef b_nan = LLVMBuildFCmp(builder, LLVMRealUNO, b, b, "");
  LLVMValueRef are_nan = LLVMBuildAnd(builder, a_nan, b_nan, "");
  return LLVMBuildOr(builder, is_near, LLVMBuildOr(builder, is_equal, are_nan, ""), "");
}

void emit_check_kept(Emitter *emitter, LLVMValueRef kept, LLVMValueRef again, const Index *index,
                     int64_t elements) {
  LLVMValueRef at = index_linear(emitter, index);
  fail_unless(emitter, emit_is_alike(emitter, again, kept),
              "keeps a value that is not that of its place", at, elements);
}
