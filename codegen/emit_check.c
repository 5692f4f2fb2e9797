/* emit_check: ftc --check-memory. Every load and store that the emitter makes on the CPU is asked
 * whether its element is one of the tensor's, or of the buffer's on the stack, before it is made; if
 * not, the program ends with a sentence and exit code 3. Kernels in C (products, attention) are not
 * asked, nor is PTX, which the simulator checks. */
#include "codegen/emit_private.h"

typedef struct EmitExtent {
  struct EmitExtent *next;
  LLVMValueRef pointer;
  int64_t elements;
} EmitExtent;

void emit_extent(Emitter *emitter, LLVMValueRef pointer, int64_t elements) {
  if (!emitter->module->options || !emitter->module->options->check_memory) return;
  EmitExtent *extent = ARENA_NEW(emitter->arena, EmitExtent);
  *extent = (EmitExtent){emitter->extents, pointer, elements};
  emitter->extents = extent;
}

/* void (text, element, elements): says it, and ends the process. */
static LLVMValueRef fail_function(Emitter *emitter) {
  static const char name[] = "ft_outside", format[] = "%s: element %lld of %lld: this is a fault of ft\n";
  Module *module = emitter->module;
  LLVMContextRef context = module->context;
  LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0), wide = LLVMInt64TypeInContext(context),
              i32 = LLVMInt32TypeInContext(context), nothing = LLVMVoidTypeInContext(context);
  LLVMValueRef function = LLVMGetNamedFunction(module->llvm, name);
  if (function) return function;
  LLVMTypeRef types[3] = {pointer, wide, wide};
  function = LLVMAddFunction(module->llvm, name, LLVMFunctionType(nothing, types, 3, false));
  LLVMSetLinkage(function, LLVMInternalLinkage);
  unsigned kind = LLVMGetEnumAttributeKindForName("noinline", 8);
  LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex,
                          LLVMCreateEnumAttribute(context, kind, 0));
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, function, "entry"));
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

void emit_check(Emitter *emitter, LLVMValueRef pointer, LLVMValueRef element, bool is_store) {
  const EmitExtent *extent = emitter->extents;
  while (extent && extent->pointer != pointer) extent = extent->next;
  if (!extent) return;
  LLVMContextRef context = emitter->module->context;
  LLVMBuilderRef builder = emitter->builder;
  LLVMValueRef fail = fail_function(emitter);
  LLVMTypeRef wide = LLVMInt64TypeInContext(context);
  LLVMValueRef at = LLVMBuildIntCast2(builder, element, wide, true, "");
  LLVMValueRef limit = LLVMConstInt(wide, (uint64_t)extent->elements, false);
  LLVMValueRef function = LLVMGetBasicBlockParent(LLVMGetInsertBlock(builder));
  LLVMBasicBlockRef outside = LLVMAppendBasicBlockInContext(context, function, "outside"),
                    inside = LLVMAppendBasicBlockInContext(context, function, "inside");
  LLVMValueRef is_inside = LLVMBuildICmp(builder, LLVMIntULT, at, limit, "");
  LLVMBuildCondBr(builder, is_inside, inside, outside);
  LLVMPositionBuilderAtEnd(builder, outside);
  size_t length;
  const char *name = LLVMGetValueName2(function, &length);
  const char *text = arena_printf(emitter->arena, "kernel %.*s %s outside of a tensor", (int)length,
                                  name, is_store ? "writes" : "reads");
  LLVMValueRef arguments[3] = {LLVMBuildGlobalStringPtr(builder, text, "ft_outside_text"), at, limit};
  LLVMBuildCall2(builder, LLVMGlobalGetValueType(fail), fail, arguments, 3, "");
  LLVMBuildUnreachable(builder);
  LLVMPositionBuilderAtEnd(builder, inside);
}
