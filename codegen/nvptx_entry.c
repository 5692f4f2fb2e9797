/* nvptx_entry: an entry under construction: its parameters and launch, threads, shared memory,
 * control flow and numbers. Invariant: a pointer parameter is noalias unless a result lies on it;
 * read-only and noalias is what lets LLVM load through the read-only path (ld.global.nc). */
#include "codegen/nvptx_private.h"
#include "plan/plan_map.h"
#include <stdio.h>
#include <string.h>

static bool is_small(const Type *type) { return shape_elements(&type->shape) < (INT32_MAX >> 1); }

bool entry_is_small(const Job *job) {
  const Graph *body = job->node->body;
  bool fits = true;
  for (int i = 0; i < job->node->input_count; i++) fits &= is_small(&job->node->input[i]->type);
  for (int i = 0; i < job->result_count; i++) fits &= is_small(&job->result_type[i]);
  for (int i = 0; body && i < body->nodes.count; i++) fits &= is_small(&body->nodes.at[i]->type);
  return fits;
}

LLVMTypeRef entry_index_type(const Job *job) {
  bool fits = entry_is_small(job) && !module_leaves_out(job->module, "index32");
  return fits ? job->module->i32 : job->module->i64;
}

static void annotate(Module *module, LLVMValueRef function, const char *key, unsigned value) {
  LLVMContextRef context = module->context;
  LLVMMetadataRef parts[3] = {LLVMValueAsMetadata(function),
                              LLVMMDStringInContext2(context, key, strlen(key)),
                              LLVMValueAsMetadata(LLVMConstInt(module->i32, value, false))};
  LLVMAddNamedMetadataOperand(
      module->llvm, "nvvm.annotations",
      LLVMMetadataAsValue(context, LLVMMDNodeInContext2(context, parts, 3)));
}

void entry_annotate(Entry *entry, const char *key, unsigned value) {
  annotate(entry->job->module, entry->function, key, value);
}

/* alias -2: the result meets operands in no simple way, so none of them may be promised anything.
 */
static bool is_aliased(const Job *job, int operand) {
  for (int i = 0; job->alias && i < job->result_count; i++)
    if (job->alias[i] == operand || job->alias[i] == -2) return true;
  return false;
}

/* Parameter `number` of the function is p: an operand, a result, or behind these the workspace. */
static void describe_parameter(Job *job, LLVMValueRef function, int number, int p) {
  Module *module = job->module;
  bool is_operand = p < job->operand_count;
  int result = p - job->operand_count;
  bool is_result = !is_operand && result < job->result_count;
  const Type *type = is_operand  ? &job->node->input[p]->type
                     : is_result ? &job->result_type[result]
                                 : NULL;
  bool is_shared =
      is_operand ? is_aliased(job, p) : is_result && job->alias && job->alias[result] != -1;
  if (!is_shared) module_parameter(module, function, number, "noalias", 0);
  if (is_operand && !is_shared) module_parameter(module, function, number, "readonly", 0);
  module_parameter(module, function, number, "nocapture", 0);
  bool is_scalar = type && shape_elements(&type->shape) == 1;
  module_parameter(module, function, number, "align",
                   is_scalar ? (uint64_t)dtype_bytes(type->dtype) : (uint64_t)PLAN_ALIGN);
}

/* 128 bytes by value from parameter `first` on, which the kernel may take the address of. */
static void describe_maps(Job *job, LLVMValueRef function, int first) {
  LLVMContextRef context = job->module->context;
  LLVMTypeRef bytes = LLVMArrayType2(job->module->i8, MAP_BYTES);
  LLVMAttributeRef by_value = LLVMCreateTypeAttribute(
      context, LLVMGetEnumAttributeKindForName("byval", strlen("byval")), bytes);
  LLVMMetadataRef places[STEP_MAPS], key = LLVMMDStringInContext2(context, "grid_constant", 13);
  for (int i = 0; i < job->map_count; i++) {
    LLVMAddAttributeAtIndex(function, (unsigned)(first + i + 1), by_value);
    module_parameter(job->module, function, first + i, "align", MAP_ALIGN);
    places[i] =
        LLVMValueAsMetadata(LLVMConstInt(job->module->i32, (unsigned)(first + i + 1), false));
  }
  LLVMMetadataRef parts[3] = {LLVMValueAsMetadata(function), key,
                              LLVMMDNodeInContext2(context, places, (size_t)job->map_count)};
  LLVMAddNamedMetadataOperand(
      job->module->llvm, "nvvm.annotations",
      LLVMMetadataAsValue(context, LLVMMDNodeInContext2(context, parts, 3)));
}

/* ── which of the node's operands and results a launch touches ──────────────────────────────── */
void entry_leave_out(Job *job, SecondMakes makes, bool is_second) {
  const Graph *body = job->node->body;
  bool *left_out = ARENA_ARRAY(job->scratch, bool, job->operand_count + job->result_count);
  int count = body ? body->nodes.count : 0;
  bool *is_used = ARENA_ARRAY(job->scratch, bool, count + 1);
  for (int r = 0; r < job->result_count; r++) {
    bool is_sum = !job->is_whole[r] && (kernel_kind(job->node) != KERNEL_ROW || job->is_beside[r]);
    bool is_of_second = makes == SECOND_MAKES_ALL || is_sum;
    left_out[job->operand_count + r] = is_of_second != is_second;
    if (is_of_second && body) is_used[body->roots.at[r].node->id] = true;
  }
  for (int i = count - 1; i >= 0; i--) {
    const Node *node = body->nodes.at[i];
    OpClass of = op_info[node->op].op_class;
    if (!is_used[i] || of == CLASS_REDUCE || of == CLASS_CONTRACT) continue;
    for (int k = 0; k < node->input_count; k++) is_used[node->input[k]->id] = true;
  }
  for (int i = 0; i < job->operand_count; i++) /* scalars are loaded by whoever may use them */
    left_out[i] = is_second && shape_elements(&job->node->input[i]->type.shape) > 1;
  for (int i = 0; i < count && is_second; i++)
    if (is_used[i] && body->nodes.at[i]->op == OP_ARG)
      left_out[node_int(body->nodes.at[i], ATTR_INDEX, 0)] = false;
  job->left_out = left_out;
  job->reads_workspace = is_second;
}

void entry_only(Job *job, const int *list, int count, int inputs) {
  int *own = ARENA_ARRAY(job->scratch, int, count);
  memcpy(own, list, sizeof *list * (size_t)count);
  job->only = own;
  job->only_count = count;
  job->only_inputs = inputs;
}

/* Adds operands or results [first, end), without those that are left out. */
static int list_touched(const Job *job, int first, int end, int *list, int count) {
  for (int p = first; p < end; p++)
    if (!job->left_out || !job->left_out[p]) list[count++] = p;
  return count;
}

/* What an entry has parameters for, in order: of the positions of operands, results and the workspace. */
static int list_entry_parameters(const Job *job, bool has_workspace, int *list, int *input_count) {
  int workspace = job->operand_count + job->result_count;
  if (job->only) {
    memcpy(list, job->only, sizeof *list * (size_t)job->only_count);
    *input_count = job->only_inputs;
    return job->only_count;
  }
  bool reads = has_workspace && job->reads_workspace;
  int count = list_touched(job, 0, job->operand_count, list, 0);
  if (reads) list[count++] = workspace;
  *input_count = count;
  count = list_touched(job, job->operand_count, workspace, list, count);
  if (has_workspace && !reads) list[count++] = workspace;
  return count;
}

static void open_entry(Entry *entry, Job *job, const char *name, int threads, bool has_workspace,
                       bool has_maps) {
  Module *module = job->module;
  *entry = (Entry){.job = job, .threads = threads, .has_maps = has_maps};
  int workspace = job->operand_count + job->result_count;
  int *list = ARENA_ARRAY(module->arena, int, workspace + 3);
  int count = list_entry_parameters(job, has_workspace, list, &entry->input_count);
  int maps = has_maps ? job->map_count : 0;
  LLVMTypeRef *types = ARENA_ARRAY(job->scratch, LLVMTypeRef, count + maps + 1);
  for (int i = 0; i < count + maps; i++) types[i] = module->pointer;
  LLVMTypeRef type = LLVMFunctionType(module->nothing, types, (unsigned)(count + maps), false);
  entry->parameters = list;
  entry->parameter_count = count;
  entry->function = module_kernel(module, name, type);
  annotate(module, entry->function, "maxntidx", (unsigned)threads);
  for (int i = 0; i < count; i++) describe_parameter(job, entry->function, i, list[i]);
  if (maps) describe_maps(job, entry->function, count);
  entry->b = module_begin(module, entry->function);
  entry->index = entry_index_type(job);
  emitter_init(&entry->emitter, module, job->scratch, job->node->body, entry->b, entry->index);
  entry->emitter.function = entry->function;
  entry->emitter.input_count = job->operand_count;
  entry->emitter.result_count = job->result_count;
  entry->emitter.pitch = job->pitch;
  LLVMValueRef *pointer = ARENA_ARRAY(job->scratch, LLVMValueRef, job_pointers(job));
  for (int i = 0; i < job_pointers(job); i++) pointer[i] = LLVMConstNull(module->pointer);
  for (int i = 0; i < count; i++) pointer[list[i]] = LLVMGetParam(entry->function, (unsigned)i);
  for (int i = 0; i < maps; i++)
    pointer[workspace + 1 + i] = LLVMGetParam(entry->function, (unsigned)(count + i));
  entry->emitter.pointer = pointer;
  if (has_workspace) entry->workspace = pointer[workspace];
  if (job->node->body && !job->reads_workspace && !job->only) emit_hoist_scalars(&entry->emitter);
}

void entry_open(Entry *entry, Job *job, const char *name, int threads, bool has_workspace) {
  open_entry(entry, job, name, threads, has_workspace, false);
}
void entry_open_mapped(Entry *entry, Job *job, const char *name, int threads, bool has_workspace) {
  open_entry(entry, job, name, threads, has_workspace, true);
}

void entry_close(Entry *entry, const char *name, int64_t grid_x, int64_t grid_y, int64_t grid_z) {
  LLVMBuildRetVoid(entry->b);
  LLVMDisposeBuilder(entry->b);
  Kernel *out = entry->job->out;
  bool is_part = entry->job->left_out || entry->job->only;
  out->launch[out->launch_count++] = (KernelLaunch){
      .name = arena_strdup(entry->job->module->arena, name),
      .grid = {grid_x, grid_y, grid_z},
      .block = {entry->threads, 1, 1},
      .maps = entry->job->maps,
      .map_count = entry->has_maps ? entry->job->map_count : 0,
      .args = is_part ? entry->parameters : NULL,
      .arg_count = entry->parameter_count,
      .input_count = entry->input_count,
  };
}

/* ── threads ────────────────────────────────────────────────────────────────────────────────── */

LLVMValueRef entry_special(Entry *entry, const char *name) {
  char full[64];
  snprintf(full, sizeof full, "llvm.nvvm.read.ptx.sreg.%s", name);
  LLVMValueRef value = emit_intrinsic(&entry->emitter, full, NULL, NULL, 0);
  return LLVMBuildIntCast2(entry->b, value, entry->index, false, "");
}

void entry_barrier(Entry *entry) {
  emit_intrinsic(&entry->emitter, "llvm.nvvm.barrier0", NULL, NULL, 0);
}

void entry_warp_barrier(Entry *entry) {
  LLVMValueRef all = LLVMConstInt(entry->job->module->i32, 0xffffffffu, false);
  emit_intrinsic(&entry->emitter, "llvm.nvvm.bar.warp.sync", NULL, &all, 1);
}

static LLVMValueRef shuffle_word(Entry *entry, LLVMValueRef word, int mask) {
  LLVMTypeRef i32 = entry->job->module->i32;
  LLVMValueRef arguments[4] = {LLVMConstInt(i32, 0xffffffffu, false), word,
                               LLVMConstInt(i32, (unsigned)mask, false),
                               LLVMConstInt(i32, WARP - 1, false)};
  bool is_float = LLVMGetTypeKind(LLVMTypeOf(word)) == LLVMFloatTypeKind;
  return emit_intrinsic(&entry->emitter,
                        is_float ? "llvm.nvvm.shfl.sync.bfly.f32" : "llvm.nvvm.shfl.sync.bfly.i32",
                        NULL, arguments, 4);
}

LLVMValueRef entry_shuffle(Entry *entry, LLVMValueRef value, int mask) {
  LLVMTypeRef type = LLVMTypeOf(value);
  LLVMTypeRef i32 = entry->job->module->i32, i64 = entry->job->module->i64;
  if (LLVMGetTypeKind(type) == LLVMFloatTypeKind) return shuffle_word(entry, value, mask);
  if (LLVMGetTypeKind(type) != LLVMDoubleTypeKind && LLVMGetIntTypeWidth(type) <= 32) {
    LLVMValueRef word = LLVMBuildIntCast2(entry->b, value, i32, false, "");
    return LLVMBuildIntCast2(entry->b, shuffle_word(entry, word, mask), type, false, "");
  }
  LLVMValueRef bits = LLVMBuildBitCast(entry->b, value, i64, "");
  LLVMValueRef shift = LLVMConstInt(i64, 32, false);
  LLVMValueRef low = LLVMBuildTrunc(entry->b, bits, i32, "");
  LLVMValueRef high = LLVMBuildTrunc(entry->b, LLVMBuildLShr(entry->b, bits, shift, ""), i32, "");
  low = LLVMBuildZExt(entry->b, shuffle_word(entry, low, mask), i64, "");
  high = LLVMBuildZExt(entry->b, shuffle_word(entry, high, mask), i64, "");
  high = LLVMBuildShl(entry->b, high, shift, "");
  return LLVMBuildBitCast(entry->b, LLVMBuildOr(entry->b, low, high, ""), type, "");
}

LLVMValueRef entry_shared(Entry *entry, const char *what, LLVMTypeRef type, int count) {
  LLVMTypeRef array = LLVMArrayType2(type, (uint64_t)count);
  LLVMValueRef global = LLVMAddGlobalInAddressSpace(entry->job->module->llvm, array, what, 3);
  LLVMSetLinkage(global, LLVMInternalLinkage);
  LLVMSetInitializer(global, LLVMGetUndef(array));
  LLVMSetAlignment(global, 16);
  return global;
}

static bool is_bit(LLVMTypeRef type) {
  return LLVMGetTypeKind(type) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(type) == 1;
}

LLVMValueRef entry_share(Entry *entry, const char *what, int count, LLVMValueRef place,
                         LLVMValueRef value) {
  if (is_bit(LLVMTypeOf(value)))
    value = LLVMBuildZExt(entry->b, value, entry->job->module->i32, "");
  LLVMTypeRef type = LLVMTypeOf(value);
  LLVMValueRef memory = entry_shared(entry, what, type, count);
  LLVMBuildStore(entry->b, value, emit_at(&entry->emitter, type, memory, place));
  return memory;
}

LLVMValueRef entry_shared_at(Entry *entry, LLVMValueRef memory, LLVMTypeRef type,
                             LLVMValueRef place) {
  LLVMTypeRef stored = is_bit(type) ? entry->job->module->i32 : type;
  LLVMValueRef address = emit_at(&entry->emitter, stored, memory, place);
  LLVMValueRef value = LLVMBuildLoad2(entry->b, stored, address, "");
  return stored == type ? value : LLVMBuildTrunc(entry->b, value, type, "");
}

LLVMValueRef entry_panels(Entry *entry, int64_t bytes) {
  bool is_static = bytes <= SHARED_STATIC;
  LLVMValueRef global =
      entry_shared(entry, "panels", entry->job->module->i8, is_static ? (int)bytes : 0);
  if (is_static) return global;
  LLVMSetInitializer(global, NULL);
  LLVMSetLinkage(global, LLVMExternalLinkage);
  return global;
}

/* ── control flow ───────────────────────────────────────────────────────────────────────────── */

LLVMBasicBlockRef entry_begin_if(Entry *entry, LLVMValueRef condition) {
  if (!condition) return NULL;
  Emitter *e = &entry->emitter;
  LLVMBasicBlockRef inside = emit_block(e, "then"), after = emit_block(e, "after");
  LLVMBuildCondBr(entry->b, condition, inside, after);
  LLVMPositionBuilderAtEnd(entry->b, inside);
  emit_scope_open(&entry->emitter);
  return after;
}

void entry_end_if(Entry *entry, LLVMBasicBlockRef after) {
  if (!after) return;
  emit_scope_close(&entry->emitter);
  LLVMBuildBr(entry->b, after);
  LLVMPositionBuilderAtEnd(entry->b, after);
}

LLVMValueRef entry_begin_loop(Entry *entry, Loop *loop, LLVMValueRef first, LLVMValueRef end,
                              LLVMValueRef step, LLVMValueRef *carried, int count) {
  LLVMBasicBlockRef before = LLVMGetInsertBlock(entry->b);
  LLVMBasicBlockRef inside = emit_block(&entry->emitter, "body");
  loop->header = emit_block(&entry->emitter, "loop");
  loop->after = emit_block(&entry->emitter, "done");
  loop->step = step;
  loop->count = count;
  LLVMBuildBr(entry->b, loop->header);
  LLVMPositionBuilderAtEnd(entry->b, loop->header);
  loop->counter = LLVMBuildPhi(entry->b, entry->index, "");
  LLVMAddIncoming(loop->counter, &first, &before, 1);
  for (int i = 0; i < count; i++) {
    loop->phi[i] = LLVMBuildPhi(entry->b, LLVMTypeOf(carried[i]), "");
    LLVMAddIncoming(loop->phi[i], &carried[i], &before, 1);
    carried[i] = loop->phi[i];
  }
  LLVMBuildCondBr(entry->b, LLVMBuildICmp(entry->b, LLVMIntSLT, loop->counter, end, ""), inside,
                  loop->after);
  LLVMPositionBuilderAtEnd(entry->b, inside);
  emit_scope_open(&entry->emitter);
  return loop->counter;
}

void entry_end_loop(Entry *entry, Loop *loop, LLVMValueRef *carried) {
  emit_scope_close(&entry->emitter);
  LLVMBasicBlockRef last = LLVMGetInsertBlock(entry->b);
  LLVMValueRef next = LLVMBuildNSWAdd(entry->b, loop->counter, loop->step, "");
  LLVMAddIncoming(loop->counter, &next, &last, 1);
  for (int i = 0; i < loop->count; i++) {
    LLVMAddIncoming(loop->phi[i], &carried[i], &last, 1);
    carried[i] = loop->phi[i];
  }
  LLVMBuildBr(entry->b, loop->header);
  LLVMPositionBuilderAtEnd(entry->b, loop->after);
}

/* ── numbers ────────────────────────────────────────────────────────────────────────────────── */

LLVMValueRef entry_const(Entry *entry, int64_t value) {
  return emit_index_const(&entry->emitter, value);
}
LLVMValueRef entry_add(Entry *entry, LLVMValueRef a, LLVMValueRef b) {
  return emit_add(&entry->emitter, a, b);
}
LLVMValueRef entry_sub(Entry *entry, LLVMValueRef a, LLVMValueRef b) {
  return emit_sub(&entry->emitter, a, b);
}
LLVMValueRef entry_mul(Entry *entry, LLVMValueRef a, int64_t b) {
  return emit_mul(&entry->emitter, a, b);
}
LLVMValueRef entry_div(Entry *entry, LLVMValueRef a, int64_t b) {
  return emit_div(&entry->emitter, a, b);
}
LLVMValueRef entry_rem(Entry *entry, LLVMValueRef a, int64_t b) {
  return emit_rem(&entry->emitter, a, b);
}
LLVMValueRef entry_is_zero(Entry *entry, LLVMValueRef a) {
  return LLVMBuildICmp(entry->b, LLVMIntEQ, a, entry_const(entry, 0), "");
}
LLVMValueRef entry_less(Entry *entry, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildICmp(entry->b, LLVMIntSLT, a, b, "");
}
LLVMValueRef entry_min(Entry *entry, LLVMValueRef a, LLVMValueRef b) {
  return emit_min(&entry->emitter, a, b);
}
LLVMValueRef entry_and(Entry *entry, LLVMValueRef a, LLVMValueRef b) {
  if (!a || !b) return a ? a : b;
  return LLVMBuildAnd(entry->b, a, b, "");
}
