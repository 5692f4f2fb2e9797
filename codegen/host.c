/* host: the frame of CPU kernels. An entry point `name(args, begin, end)` loads the pointers and
 * calls an always-inlined body whose pointer parameters are noalias: that is how LLVM learns that
 * buffers do not overlap. A result that is written in place has no parameter of its own, it uses
 * its operand's pointer, so that LLVM knows of this one overlap. */
#include "codegen/host_attention.h"
#include "codegen/host_private.h"
#include "codegen/select.h"
#include <stdio.h>
#include <string.h>

/* Which distinct pointer argument `k`, an operand or a result, is. */
static int parameter_of(const HostKernel *kernel, int k) {
  int result = k - kernel->node->input_count;
  return result >= 0 && kernel->alias[result] >= 0 ? kernel->alias[result] : k;
}

void host_unpack(HostKernel *kernel, LLVMValueRef function, LLVMValueRef body, int count) {
  Module *module = kernel->module;
  int all = (int)LLVMCountParams(body);
  LLVMBuilderRef builder = module_begin(module, function);
  LLVMValueRef *values = ARENA_ARRAY(kernel->scratch, LLVMValueRef, all);
  module_load_pointers(module, builder, LLVMGetParam(function, 0), count, values);
  for (int i = count; i < all; i++) values[i] = LLVMGetParam(function, (unsigned)(i - count + 1));
  LLVMBuildCall2(builder, LLVMGlobalGetValueType(body), body, values, (unsigned)all, "");
  LLVMBuildRetVoid(builder);
  LLVMDisposeBuilder(builder);
}

void host_call_library(HostKernel *kernel, const char *name, const char *run, LLVMValueRef data) {
  Module *module = kernel->module;
  LLVMTypeRef types[4] = {module->pointer, module->pointer, module->i64, module->i64};
  LLVMTypeRef run_type = LLVMFunctionType(module->nothing, types, 4, false);
  LLVMTypeRef type = LLVMFunctionType(module->nothing, types + 1, 3, false);
  LLVMValueRef callee = module_library(module, run, run_type), values[4] = {data};
  LLVMValueRef function = module_kernel(module, name, type);
  LLVMBuilderRef builder = module_begin(module, function);
  for (unsigned i = 0; i < 3; i++) values[i + 1] = LLVMGetParam(function, i);
  LLVMBuildCall2(builder, run_type, callee, values, 4, "");
  LLVMBuildRetVoid(builder);
  LLVMDisposeBuilder(builder);
}

void host_open(HostKernel *kernel, LLVMValueRef function, int apart) {
  const Node *node = kernel->node;
  Module *module = kernel->module;
  Emitter *e = &kernel->emitter;
  int results = node_result_count(node), pointers = node->input_count + results;
  bool may_overlap = false;
  for (int i = 0; i < results; i++) may_overlap |= kernel->alias[i] == -2;
  for (int i = 0; i < apart && !may_overlap; i++)
    module_parameter(module, function, i, "noalias", 0);
  kernel->entry = LLVMAppendBasicBlockInContext(module->context, function, "entry");
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(module->context);
  LLVMPositionBuilderAtEnd(builder,
                           LLVMAppendBasicBlockInContext(module->context, function, "start"));
  emitter_init(e, module, kernel->scratch, kernel->body, builder, module->i64);
  e->function = function;
  e->input_count = node->input_count;
  e->result_count = results;
  e->pointer = ARENA_ARRAY(kernel->scratch, LLVMValueRef, pointers);
  for (int k = 0; k < pointers; k++) {
    Type type = k < node->input_count ? node->input[k]->type
                                      : node_result_type(node, k - node->input_count);
    e->pointer[k] = LLVMGetParam(function, (unsigned)parameter_of(kernel, k));
    emit_extent(e, e->pointer[k], shape_elements(&type.shape));
  }
  if (kernel->body) emit_hoist_scalars(e);
}

void host_start(HostKernel *kernel, const char *name, bool has_workspace) {
  Module *module = kernel->module;
  int pointers = kernel->node->input_count + node_result_count(kernel->node);
  int count = pointers + has_workspace;
  LLVMTypeRef *types = ARENA_ARRAY(kernel->scratch, LLVMTypeRef, count + 2);
  for (int i = 0; i < count + 2; i++) types[i] = i < count ? module->pointer : module->i64;
  LLVMTypeRef type = LLVMFunctionType(module->nothing, types, (unsigned)count + 2, false);
  LLVMValueRef body = module_helper(module, arena_printf(kernel->scratch, "%s.body", name), type);
  for (int i = 0; i < count; i++) module_parameter(module, body, i, "align", PLAN_ALIGN);
  LLVMTypeRef entry_types[3] = {module->pointer, module->i64, module->i64};
  LLVMTypeRef entry_type = LLVMFunctionType(module->nothing, entry_types, 3, false);
  host_unpack(kernel, module_kernel(module, name, entry_type), body, count);
  kernel->workspace = has_workspace ? LLVMGetParam(body, (unsigned)pointers) : NULL;
  kernel->begin = LLVMGetParam(body, (unsigned)count);
  kernel->end = LLVMGetParam(body, (unsigned)count + 1);
  host_open(kernel, body, count);
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
    value[k] = emit_rem(e, outer, extent[k]);
    outer = emit_div(e, outer, extent[k]);
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
    kernel.domain = kernel_kind(node) == KERNEL_LOOP ? collapse_divided(scratch, node)
                                                     : collapse_domain(scratch, node, NULL);
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
