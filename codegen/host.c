/* host: the frame of CPU kernels. An entry point `name(args, begin, end)` loads the pointers and
 * calls an always-inlined body whose pointer parameters are noalias: that is how LLVM learns that
 * buffers do not overlap. A result that is written in place has no parameter of its own, it uses
 * its operand's pointer, so that LLVM knows of this one overlap. */
#include "codegen/host_attention.h"
#include "codegen/host_private.h"
#include "codegen/select.h"
#include <stdio.h>
#include <string.h>

static int result_count(const HostKernel *kernel) {
  return kernel->body ? kernel->body->roots.count : 1;
}

/* Which distinct pointer argument `k` (operands, results, workspace) is. */
static int parameter_of(const HostKernel *kernel, int k) {
  int result = k - kernel->node->input_count;
  bool is_alias = result >= 0 && result < result_count(kernel) && kernel->alias[result] >= 0;
  return is_alias ? kernel->alias[result] : k;
}

static LLVMValueRef make_body(HostKernel *kernel, const char *name, int argument_count) {
  LLVMContextRef context = kernel->module->context;
  LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0),
              wide = LLVMInt64TypeInContext(context);
  LLVMTypeRef *types = ARENA_ARRAY(kernel->scratch, LLVMTypeRef, argument_count + 2);
  for (int i = 0; i < argument_count; i++) types[i] = pointer;
  types[argument_count] = types[argument_count + 1] = wide;
  LLVMTypeRef type =
      LLVMFunctionType(LLVMVoidTypeInContext(context), types, (unsigned)argument_count + 2, false);
  char *full = arena_printf(kernel->scratch, "%s.body", name);
  LLVMValueRef body = module_helper(kernel->module, full, type);
  bool may_overlap = false;
  for (int i = 0; i < result_count(kernel); i++) may_overlap |= kernel->alias[i] == -2;
  for (int i = 0; i < argument_count; i++) {
    if (!may_overlap) module_parameter(kernel->module, body, i, "noalias", 0);
    module_parameter(kernel->module, body, i, "align", PLAN_ALIGN);
  }
  return body;
}

/* The entry point: loads every pointer of args and calls the body. */
static void make_entry(HostKernel *kernel, const char *name, LLVMValueRef body,
                       int argument_count) {
  LLVMContextRef context = kernel->module->context;
  LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0),
              wide = LLVMInt64TypeInContext(context);
  LLVMTypeRef types[3] = {pointer, wide, wide};
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(context), types, 3, false);
  LLVMValueRef function = module_kernel(kernel->module, name, type);
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, function, "entry"));
  LLVMValueRef *values = ARENA_ARRAY(kernel->scratch, LLVMValueRef, argument_count + 2);
  for (int i = 0; i < argument_count; i++) {
    LLVMValueRef at = LLVMConstInt(wide, (uint64_t)i, false);
    LLVMValueRef slot =
        LLVMBuildInBoundsGEP2(builder, pointer, LLVMGetParam(function, 0), &at, 1, "");
    values[i] = LLVMBuildLoad2(builder, pointer, slot, "");
  }
  values[argument_count] = LLVMGetParam(function, 1);
  values[argument_count + 1] = LLVMGetParam(function, 2);
  LLVMBuildCall2(builder, LLVMGlobalGetValueType(body), body, values, (unsigned)argument_count + 2,
                 "");
  LLVMBuildRetVoid(builder);
  LLVMDisposeBuilder(builder);
}

void host_extents(HostKernel *kernel) {
  const Node *node = kernel->node;
  for (int k = 0; k < node->input_count + result_count(kernel); k++) {
    Type type = k < node->input_count ? node->input[k]->type
                                      : node_result_type(node, k - node->input_count);
    emit_extent(&kernel->emitter, kernel->emitter.pointer[k], shape_elements(&type.shape));
  }
}

void host_start(HostKernel *kernel, const char *name, bool has_workspace) {
  LLVMContextRef context = kernel->module->context;
  int pointers = kernel->node->input_count + result_count(kernel), count = pointers + has_workspace;
  LLVMValueRef body = make_body(kernel, name, count);
  make_entry(kernel, name, body, count);
  kernel->entry = LLVMAppendBasicBlockInContext(context, body, "entry");
  LLVMBasicBlockRef start = LLVMAppendBasicBlockInContext(context, body, "start");
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, start);
  Emitter *e = &kernel->emitter;
  emitter_init(e, kernel->module, kernel->scratch, kernel->body, builder,
               LLVMInt64TypeInContext(context));
  e->function = body;
  e->input_count = kernel->node->input_count;
  e->result_count = result_count(kernel);
  e->pointer = ARENA_ARRAY(kernel->scratch, LLVMValueRef, pointers);
  for (int k = 0; k < pointers; k++)
    e->pointer[k] = LLVMGetParam(body, (unsigned)parameter_of(kernel, k));
  host_extents(kernel);
  kernel->workspace = has_workspace ? LLVMGetParam(body, (unsigned)pointers) : NULL;
  kernel->begin = LLVMGetParam(body, (unsigned)count);
  kernel->end = LLVMGetParam(body, (unsigned)count + 1);
  if (kernel->body) emit_hoist_scalars(e);
}

void host_finish(HostKernel *kernel) {
  LLVMBuilderRef builder = kernel->emitter.builder;
  LLVMBuildRetVoid(builder);
  LLVMPositionBuilderAtEnd(builder, kernel->entry);
  LLVMBuildBr(builder, LLVMGetNextBasicBlock(kernel->entry));
  LLVMDisposeBuilder(builder);
}

LLVMValueRef host_alloca(HostKernel *kernel, LLVMTypeRef type, int64_t count) {
  LLVMBuilderRef builder = kernel->emitter.builder;
  LLVMBasicBlockRef here = LLVMGetInsertBlock(builder);
  LLVMPositionBuilderAtEnd(builder, kernel->entry);
  LLVMValueRef memory = LLVMBuildAlloca(builder, LLVMArrayType2(type, (uint64_t)count), "");
  LLVMSetAlignment(memory, PLAN_ALIGN);
  LLVMPositionBuilderAtEnd(builder, here);
  emit_extent(&kernel->emitter, memory, count);
  return memory;
}

void host_store_results(HostKernel *kernel, const bool *which, const Index *index) {
  Emitter *e = &kernel->emitter;
  int count = kernel->body->roots.count;
  LLVMValueRef *value = ARENA_ARRAY(kernel->scratch, LLVMValueRef, count);
  for (int i = 0; i < count; i++)
    if (!which || which[i]) value[i] = emit_value(e, kernel->body->roots.at[i].node, index);
  for (int i = 0; i < count; i++)
    if (value[i])
      emit_store_at(e, e->pointer[e->input_count + i], kernel->body->roots.at[i].node->type.dtype,
                    index_linear(e, index), value[i]);
}

void host_unravel(HostKernel *kernel, LLVMValueRef outer, const int64_t *extent, int count,
                  LLVMValueRef *value) {
  Emitter *e = &kernel->emitter;
  for (int k = count - 1; k > 0; k--) {
    LLVMValueRef size = emit_index_const(e, extent[k]);
    value[k] = emit_index_op(e, LLVMURem, outer, size);
    outer = emit_index_op(e, LLVMUDiv, outer, size);
  }
  if (count) value[0] = outer;
}

KernelLaunch *host_add_launch(HostKernel *kernel, Kernel *out, const char *name, int64_t work,
                              int64_t grain) {
  KernelLaunch *launch = &out->launch[out->launch_count++];
  *launch = (KernelLaunch){.name = arena_strdup(kernel->module->arena, name),
                           .work = work,
                           .grain = grain < work ? grain : work};
  return launch;
}

int64_t host_operand_type(DType dtype) {
  return dtype == DT_BF16 ? OPERAND_BF16 : dtype == DT_F16 ? OPERAND_F16 : OPERAND_F32;
}

bool host_emit(Module *module, const Node *node, const char *name, const int *alias, Kernel *out) {
  Arena *scratch = arena_new();
  HostKernel kernel = {.module = module,
                       .scratch = scratch,
                       .node = node,
                       .body = node->body,
                       .name = name,
                       .alias = alias};
  bool good = true;
  int errors = module->diag->errors;
  if (node->op == OP_SCATTER_ADD) {
    host_emit_scatter(&kernel, out);
  } else if (node->op == OP_PUT) {
    host_emit_put(&kernel, out);
  } else if (node->op == OP_ATTENTION || node->op == OP_ATTENTION_GRAD) {
    host_emit_attention(&kernel, out);
  } else if (node->op != OP_FUSED) {
    good = select_contraction(&kernel, out);
  } else {
    kernel.domain = collapse_domain(scratch, node);
    Shape domain = kernel_domain(node);
    kernel.elements = shape_elements(&domain);
    switch (kernel_kind(node)) {
    case KERNEL_LOOP:
      host_emit_loop(&kernel, out);
      break;
    case KERNEL_ROW:
      good = host_emit_row(&kernel, out);
      break;
    case KERNEL_COLUMN:
      good = host_emit_column(&kernel, out);
      break;
    default:
      good = select_contraction(&kernel, out);
      break;
    }
  }
  arena_free(scratch);
  return good && module->diag->errors == errors;
}
