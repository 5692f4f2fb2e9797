/* nvptx: entries, threads, shared memory, and reductions by stages: what all GPU skeletons are made
 * of. Invariant: a pointer parameter is noalias unless a result lies on it; read-only and noalias
 * is what lets LLVM load through the read-only path (ld.global.nc). */
#include "codegen/nvptx_private.h"
#include "passes/fuse.h"
#include "plan/plan_map.h"
#include <stdio.h>
#include <string.h>

bool nvptx_may_map(const Job *job, int operand) {
  const Node *node = job->node->input[operand];
  while (!node_str(node, ATTR_ARENA) && node->input_count) node = node->input[0];
  const char *arena = node_str(node, ATTR_ARENA);
  return !arena || strcmp(arena, arena_text(ARENA_INPUT)) != 0;
}

/* ── entries ────────────────────────────────────────────────────────────────────────────────── */

/* i32 where every element number, and what a grid overshoots it by, fits. */
LLVMTypeRef entry_index_type(const Job *job, LLVMContextRef context) {
  int64_t most = 0;
  for (int i = 0; i < job->node->input_count; i++) {
    int64_t count = shape_elements(&job->node->input[i]->type.shape);
    most = count > most ? count : most;
  }
  for (int i = 0; i < job->result_count; i++) {
    int64_t count = shape_elements(&job->result_type[i].shape);
    most = count > most ? count : most;
  }
  if (job->node->body)
    for (int i = 0; i < job->node->body->nodes.count; i++) {
      int64_t count = shape_elements(&job->node->body->nodes.at[i]->type.shape);
      most = count > most ? count : most;
    }
  return most < (INT32_MAX >> 1) ? LLVMInt32TypeInContext(context)
                                 : LLVMInt64TypeInContext(context);
}

static void annotate(Module *module, LLVMValueRef function, const char *key, unsigned value) {
  LLVMContextRef context = module->context;
  LLVMMetadataRef parts[3] = {
      LLVMValueAsMetadata(function), LLVMMDStringInContext2(context, key, strlen(key)),
      LLVMValueAsMetadata(LLVMConstInt(LLVMInt32TypeInContext(context), value, false))};
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

static void describe_parameter(Job *job, LLVMValueRef function, int p) {
  Module *module = job->module;
  bool is_operand = p < job->operand_count;
  int result = p - job->operand_count;
  bool is_result = !is_operand && result < job->result_count;
  const Type *type = is_operand  ? &job->node->input[p]->type
                     : is_result ? &job->result_type[result]
                                 : NULL;
  bool is_shared =
      is_operand ? is_aliased(job, p) : is_result && job->alias && job->alias[result] != -1;
  if (!is_shared) module_parameter(module, function, p, "noalias", 0);
  if (is_operand && !is_shared) module_parameter(module, function, p, "readonly", 0);
  module_parameter(module, function, p, "nocapture", 0);
  bool is_scalar = type && shape_elements(&type->shape) == 1;
  module_parameter(module, function, p, "align",
                   is_scalar ? (uint64_t)dtype_bytes(type->dtype) : (uint64_t)PLAN_ALIGN);
}

/* 128 bytes by value from parameter `first` on, which the kernel may take the address of. */
static void describe_maps(Job *job, LLVMValueRef function, int first) {
  LLVMContextRef context = job->module->context;
  LLVMTypeRef bytes = LLVMArrayType2(LLVMInt8TypeInContext(context), MAP_BYTES);
  LLVMAttributeRef by_value = LLVMCreateTypeAttribute(
      context, LLVMGetEnumAttributeKindForName("byval", strlen("byval")), bytes);
  LLVMMetadataRef places[STEP_MAPS], key = LLVMMDStringInContext2(context, "grid_constant", 13);
  for (int i = 0; i < job->map_count; i++) {
    LLVMAddAttributeAtIndex(function, (unsigned)(first + i + 1), by_value);
    module_parameter(job->module, function, first + i, "align", MAP_ALIGN);
    places[i] = LLVMValueAsMetadata(
        LLVMConstInt(LLVMInt32TypeInContext(context), (unsigned)(first + i + 1), false));
  }
  LLVMMetadataRef parts[3] = {LLVMValueAsMetadata(function), key,
                              LLVMMDNodeInContext2(context, places, (size_t)job->map_count)};
  LLVMAddNamedMetadataOperand(
      job->module->llvm, "nvvm.annotations",
      LLVMMetadataAsValue(context, LLVMMDNodeInContext2(context, parts, 3)));
}

static void open_entry(Entry *entry, Job *job, const char *name, int threads, bool has_workspace,
                       bool has_maps) {
  Module *module = job->module;
  LLVMContextRef context = module->context;
  *entry = (Entry){.job = job, .threads = threads, .has_maps = has_maps};
  int count = job->operand_count + job->result_count + has_workspace;
  int all = count + (has_maps ? job->map_count : 0);
  LLVMTypeRef *types = ARENA_ARRAY(job->scratch, LLVMTypeRef, all + 1);
  for (int i = 0; i < all; i++) types[i] = LLVMPointerTypeInContext(context, 0);
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(context), types, (unsigned)all, false);
  entry->function = module_kernel(module, name, type);
  LLVMSetFunctionCallConv(entry->function, PTX_CALL_KERNEL);
  annotate(module, entry->function, "maxntidx", (unsigned)threads);
  for (int i = 0; i < count; i++) describe_parameter(job, entry->function, i);
  if (all > count) describe_maps(job, entry->function, count);
  entry->b = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(entry->b,
                           LLVMAppendBasicBlockInContext(context, entry->function, "entry"));
  entry->i32 = LLVMInt32TypeInContext(context);
  entry->index = entry_index_type(job, context);
  emitter_init(&entry->emitter, module, job->scratch, job->node->body, entry->b, entry->index);
  entry->emitter.function = entry->function;
  entry->emitter.input_count = job->operand_count;
  entry->emitter.result_count = job->result_count;
  entry->emitter.pointer = ARENA_ARRAY(job->scratch, LLVMValueRef, all + 1);
  for (int i = 0; i < all; i++)
    entry->emitter.pointer[i + (i >= count && !has_workspace)] =
        LLVMGetParam(entry->function, (unsigned)i);
  if (has_workspace) entry->workspace = entry->emitter.pointer[count - 1];
  if (job->node->body) emit_hoist_scalars(&entry->emitter);
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
  out->launch[out->launch_count++] = (KernelLaunch){
      .name = arena_strdup(entry->job->module->arena, name),
      .grid = {grid_x, grid_y, grid_z},
      .block = {entry->threads, 1, 1},
      .maps = entry->job->maps,
      .map_count = entry->has_maps ? entry->job->map_count : 0,
  };
}

/* ── threads ────────────────────────────────────────────────────────────────────────────────── */

static LLVMValueRef call_intrinsic(Entry *entry, const char *name, LLVMValueRef *arguments,
                                   int count) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMValueRef function = LLVMGetIntrinsicDeclaration(entry->job->module->llvm, id, NULL, 0);
  return LLVMBuildCall2(entry->b, LLVMGlobalGetValueType(function), function, arguments,
                        (unsigned)count, "");
}

LLVMValueRef entry_special(Entry *entry, const char *name) {
  char full[64];
  snprintf(full, sizeof full, "llvm.nvvm.read.ptx.sreg.%s", name);
  LLVMValueRef value = call_intrinsic(entry, full, NULL, 0);
  return LLVMBuildIntCast2(entry->b, value, entry->index, false, "");
}

void entry_barrier(Entry *entry) { call_intrinsic(entry, "llvm.nvvm.barrier0", NULL, 0); }

void entry_warp_barrier(Entry *entry) {
  LLVMValueRef all = LLVMConstInt(entry->i32, 0xffffffffu, false);
  call_intrinsic(entry, "llvm.nvvm.bar.warp.sync", &all, 1);
}

static LLVMValueRef shuffle_word(Entry *entry, LLVMValueRef word, int mask) {
  LLVMValueRef arguments[4] = {LLVMConstInt(entry->i32, 0xffffffffu, false), word,
                               LLVMConstInt(entry->i32, (unsigned)mask, false),
                               LLVMConstInt(entry->i32, WARP - 1, false)};
  bool is_float = LLVMGetTypeKind(LLVMTypeOf(word)) == LLVMFloatTypeKind;
  return call_intrinsic(entry,
                        is_float ? "llvm.nvvm.shfl.sync.bfly.f32" : "llvm.nvvm.shfl.sync.bfly.i32",
                        arguments, 4);
}

LLVMValueRef entry_shuffle(Entry *entry, LLVMValueRef value, int mask) {
  LLVMTypeRef type = LLVMTypeOf(value);
  LLVMTypeRef i64 = LLVMInt64TypeInContext(entry->job->module->context);
  if (LLVMGetTypeKind(type) == LLVMFloatTypeKind) return shuffle_word(entry, value, mask);
  if (LLVMGetTypeKind(type) != LLVMDoubleTypeKind && LLVMGetIntTypeWidth(type) <= 32) {
    LLVMValueRef word = LLVMBuildIntCast2(entry->b, value, entry->i32, false, "");
    return LLVMBuildIntCast2(entry->b, shuffle_word(entry, word, mask), type, false, "");
  }
  LLVMValueRef bits = LLVMBuildBitCast(entry->b, value, i64, "");
  LLVMValueRef shift = LLVMConstInt(i64, 32, false);
  LLVMValueRef low = LLVMBuildTrunc(entry->b, bits, entry->i32, "");
  LLVMValueRef high =
      LLVMBuildTrunc(entry->b, LLVMBuildLShr(entry->b, bits, shift, ""), entry->i32, "");
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

LLVMValueRef entry_panels(Entry *entry, int64_t bytes) {
  LLVMTypeRef byte = LLVMInt8TypeInContext(entry->job->module->context);
  bool is_static = bytes <= SHARED_STATIC;
  LLVMValueRef global = entry_shared(entry, "panels", byte, is_static ? (int)bytes : 0);
  if (is_static) return global;
  LLVMSetInitializer(global, NULL);
  LLVMSetLinkage(global, LLVMExternalLinkage);
  return global;
}

LLVMValueRef entry_at(Entry *entry, LLVMTypeRef type, LLVMValueRef base, LLVMValueRef index) {
  LLVMValueRef wide = LLVMBuildIntCast2(
      entry->b, index, LLVMInt64TypeInContext(entry->job->module->context), true, "");
  return LLVMBuildInBoundsGEP2(entry->b, type, base, &wide, 1, "");
}

/* ── control flow ───────────────────────────────────────────────────────────────────────────── */

static LLVMBasicBlockRef append_block(Entry *entry, const char *name) {
  return LLVMAppendBasicBlockInContext(entry->job->module->context, entry->function, name);
}

LLVMBasicBlockRef entry_begin_if(Entry *entry, LLVMValueRef condition) {
  if (!condition) return NULL;
  LLVMBasicBlockRef inside = append_block(entry, "then"), after = append_block(entry, "after");
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
  LLVMBasicBlockRef inside = append_block(entry, "body");
  loop->header = append_block(entry, "loop");
  loop->after = append_block(entry, "done");
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
LLVMValueRef entry_op(Entry *entry, LLVMOpcode op, LLVMValueRef a, LLVMValueRef b) {
  return emit_index_op(&entry->emitter, op, a, b);
}
LLVMValueRef entry_less(Entry *entry, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildICmp(entry->b, LLVMIntSLT, a, b, "");
}
LLVMValueRef entry_min(Entry *entry, LLVMValueRef a, LLVMValueRef b) {
  return LLVMBuildSelect(entry->b, entry_less(entry, a, b), a, b, "");
}
LLVMValueRef entry_and(Entry *entry, LLVMValueRef a, LLVMValueRef b) {
  if (!a || !b) return a ? a : b;
  return LLVMBuildAnd(entry->b, a, b, "");
}

int64_t domain_elements(const Domain *domain, int reduced) {
  int64_t count = 1;
  for (int i = 0; i < domain->count; i++)
    if (reduced < 0 || domain->is_reduced[i] == (reduced != 0)) count *= domain->extent[i];
  return count;
}

/* The digits of one kind, least significant first, by division; pushed in the order of the domain.
 */
void entry_push_digits(Entry *entry, const Domain *domain, bool is_reduced, LLVMValueRef value,
                       int width, int lane, Index *index) {
  int first = -1, last = -1;
  LLVMValueRef digit[MAX_RANK];
  for (int i = domain->count - 1; i >= 0; i--) {
    if (domain->is_reduced[i] != is_reduced) continue;
    if (last < 0) last = i;
    first = i;
  }
  LLVMValueRef rest = value;
  for (int i = last; i >= 0 && i >= first; i--) {
    if (domain->is_reduced[i] != is_reduced) continue;
    int64_t extent = i == last ? domain->extent[i] / width : domain->extent[i];
    LLVMValueRef size = entry_const(entry, extent);
    digit[i] = i == first ? rest : entry_op(entry, LLVMURem, rest, size);
    if (i != first) rest = entry_op(entry, LLVMUDiv, rest, size);
  }
  for (int i = first; i >= 0 && i <= last; i++) {
    if (domain->is_reduced[i] != is_reduced) continue;
    index_push(index, i == last ? domain->extent[i] / width : domain->extent[i], digit[i], true);
    if (i == last) index_push(index, width, entry_const(entry, lane), true);
  }
}

/* Do the dimensions that the broadcast makes lead, with `rows` elements in all? */
static bool is_along_rows(const Node *node, int64_t rows) {
  const Shape *out = &node->type.shape, *in = &node->input[0]->type.shape;
  int64_t leading = 1;
  for (int d = 0; d < out->rank && leading < rows; d++) {
    if (in->dim[d] != 1) return false;
    leading *= out->dim[d];
  }
  return leading == rows && shape_elements(in) > 1;
}

int nvptx_shared(Job *job, int64_t rows, Entry *entry, const Index *index) {
  const Graph *body = job->node->body;
  Shape domain = kernel_domain(job->node);
  int64_t elements = shape_elements(&domain);
  bool *is_reduced = ARENA_ARRAY(job->scratch, bool, body->nodes.count); /* made of reductions */
  bool *is_read = ARENA_ARRAY(job->scratch, bool, body->nodes.count);    /* made of operands */
  int count = 0;
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    is_reduced[i] = op_info[node->op].op_class == CLASS_REDUCE;
    is_read[i] = node->op == OP_ARG;
    for (int k = 0; k < node->input_count; k++) {
      is_reduced[i] |= is_reduced[node->input[k]->id];
      is_read[i] |= is_read[node->input[k]->id];
    }
    if (node->op != OP_BROADCAST || is_reduced[i] || !is_read[i] ||
        shape_elements(&node->type.shape) != elements || !is_along_rows(node, rows))
      continue;
    count++;
    if (entry) emit_value(&entry->emitter, node, index);
  }
  return count;
}

static bool keeps_neighbours(const Node *node) {
  int last = node->type.shape.rank - 1;
  switch (node->op) {
  case OP_RESHAPE:
  case OP_BROADCAST:
  case OP_CONCAT:
  case OP_SLICE:
  case OP_GATHER:
    return true;
  case OP_TRANSPOSE:
    return last >= 0 && node_attr(node, ATTR_PERM)->ints[last] == last &&
           node->type.shape.dim[last] > 1;
  default:
    return false;
  }
}

static int wider(int bytes, const Type *type) {
  bool is_more = shape_elements(&type->shape) > 1 && dtype_bytes(type->dtype) > bytes;
  return is_more ? dtype_bytes(type->dtype) : bytes;
}

int nvptx_width_among(const Job *job, int64_t extent, const bool *among, bool has_results) {
  const Graph *body = job->node->body;
  int widest = 1;
  for (int i = 0; !body && i < job->operand_count; i++)
    widest = wider(widest, &job->node->input[i]->type);
  for (int i = 0; has_results && i < job->result_count; i++)
    widest = wider(widest, &job->result_type[i]);
  for (int i = 0; body && i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    OpClass op_class = op_info[node->op].op_class;
    if (among && !among[i]) continue;
    if (node->op == OP_ARG) widest = wider(widest, &node->type);
    /* neighbours of the domain must be read side by side; else lanes should be neighbours */
    if (op_class == CLASS_WINDOW && !emit_window_is_flat(node)) return 1;
    if (op_class == CLASS_MOVE && !keeps_neighbours(node)) return 1;
  }
  int width = 16 / widest > 8 ? 8 : 16 / widest;
  while (width > 1 && extent % width) width /= 2;
  return width;
}

int nvptx_width(const Job *job, int64_t extent) {
  return nvptx_width_among(job, extent, NULL, true);
}

void entry_store_result(Entry *entry, int result, const Index *index) {
  Emitter *emitter = &entry->emitter;
  const Node *node = entry->job->node->body->roots.at[result].node;
  LLVMValueRef value = emit_value(emitter, node, index);
  emit_store_at(emitter, emitter->pointer[entry->job->operand_count + result], node->type.dtype,
                index_linear(emitter, index), value);
}

void entry_store_group(Entry *entry, int result, const Index *index, int count) {
  Emitter *emitter = &entry->emitter;
  const Node *node = entry->job->node->body->roots.at[result].node;
  LLVMValueRef value[8];
  bool is_group = count > 1 && emit_lane_of(emitter, node->type.dtype, &index[0]) == 0 &&
                  index->digit[index->count - 1].extent == count;
  if (!is_group) {
    for (int e = 0; e < count; e++) entry_store_result(entry, result, &index[e]);
    return;
  }
  for (int e = 0; e < count; e++) value[e] = emit_value(emitter, node, &index[e]);
  emit_store_group(emitter, emitter->pointer[entry->job->operand_count + result], node->type.dtype,
                   index, value);
}

bool nvptx_is_domain(const Job *job, int result, const Shape *domain) {
  return shape_equal(&job->result_type[result].shape, domain);
}

/* ── reductions ─────────────────────────────────────────────────────────────────────────────── */

static bool is_moment(const Node *node) { return node->op == OP_MEAN || node->op == OP_SPREAD; }

/* Mean and spread of one input share their sums. */
static void collect_moments(Reductions *out, const Node *node, int *level) {
  for (int i = 0; i < out->count; i++)
    if (out->at[i].moment && out->at[i].node->input[0] == node->input[0]) {
      *level = out->at[i].stage + 1;
      return;
    }
  for (Moment moment = MOMENT_SUM; moment <= MOMENT_SQUARES; moment++)
    out->at[out->count++] = (Reduction){
        .node = node, .op = OP_SUM, .dtype = node->type.dtype, .stage = *level, .moment = moment};
  ++*level;
}

bool nvptx_collect(Job *job, Reductions *out) {
  const Graph *body = job->node->body;
  int *level = ARENA_ARRAY(job->scratch, int, body->nodes.count);
  out->count = out->stages = 0;
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    for (int k = 0; k < node->input_count; k++)
      if (level[node->input[k]->id] > level[i]) level[i] = level[node->input[k]->id];
    if (op_info[node->op].op_class != CLASS_REDUCE) continue;
    if (out->count + 2 > (int)(sizeof out->at / sizeof *out->at)) {
      diag_error(job->module->diag, node->loc, "internal error: a kernel with too many reductions");
      return false;
    }
    if (is_moment(node)) {
      collect_moments(out, node, &level[i]);
      if (level[i] > out->stages) out->stages = level[i];
      continue;
    }
    bool is_arg = node->op == OP_ARGMAX || node->op == OP_ARGMIN;
    DType dtype = node->input[0]->type.dtype;
    Op op = node->op == OP_ARGMAX ? OP_RMAX : node->op == OP_ARGMIN ? OP_RMIN : node->op;
    out->at[out->count++] =
        (Reduction){.node = node, .op = op, .dtype = dtype, .stage = level[i]++};
    if (is_arg) {
      out->at[out->count] = (Reduction){.node = node,
                                        .op = OP_RMIN,
                                        .dtype = DT_I32,
                                        .stage = level[i]++,
                                        .is_candidate = true,
                                        .extreme = out->count - 1};
      out->count++;
    }
    if (level[i] > out->stages) out->stages = level[i];
  }
  return true;
}

LLVMValueRef reduction_identity(Entry *entry, const Reduction *one) {
  return emit_reduce_identity(&entry->emitter, one->op, one->dtype);
}

LLVMValueRef reduction_step(Entry *entry, const Reduction *one, LLVMValueRef a, LLVMValueRef b) {
  return emit_reduce_step(&entry->emitter, one->op, one->dtype, a, b);
}

LLVMValueRef reduction_element(Emitter *emitter, Reductions *all, Reduction *one,
                               const Index *index, LLVMValueRef shift, LLVMValueRef valid) {
  LLVMBuilderRef b = emitter->builder;
  const Node *input = one->node->input[0];
  LLVMValueRef value = emit_value(emitter, input, index);
  if (one->is_candidate) {
    int axis = (int)node_attr(one->node, ATTR_AXES)->ints[0];
    LLVMValueRef position =
        LLVMBuildIntCast2(b, index_dim(emitter, index, &input->type.shape, axis),
                          LLVMInt32TypeInContext(emitter->module->context), true, "");
    value = emit_arg_candidate(emitter, input->type.dtype, value, all->at[one->extreme].value,
                               position);
  }
  if (one->moment) value = LLVMBuildFSub(b, value, shift, "");
  if (one->moment == MOMENT_SQUARES) value = LLVMBuildFMul(b, value, value, "");
  return valid ? LLVMBuildSelect(b, valid, value,
                                 emit_reduce_identity(emitter, one->op, one->dtype), "")
               : value;
}

/* mean = shift + sum / n, spread = squares - sum^2 / n: not below 0, whatever rounding does, but
 * NaN stays, and exactly 0 where all are the same. */
static void finish_moments(Emitter *emitter, const Reduction *both, LLVMValueRef shift) {
  LLVMBuilderRef b = emitter->builder;
  const Node *x = both->node->input[0];
  DType dtype = both->dtype;
  double count =
      (double)shape_elements(&x->type.shape) / (double)shape_elements(&both->node->type.shape);
  LLVMValueRef sum = both[0].value, zero = emit_constant(emitter, dtype, 0);
  LLVMValueRef part = LLVMBuildFMul(b, sum, emit_constant(emitter, dtype, 1 / count), "");
  LLVMValueRef spread = LLVMBuildFSub(b, both[1].value, LLVMBuildFMul(b, sum, part, ""), "");
  LLVMValueRef is_none = LLVMBuildFCmp(b, LLVMRealOLE, spread, zero, "");
  LLVMValueRef value[] = {LLVMBuildFAdd(b, shift, part, ""),
                          LLVMBuildSelect(b, is_none, zero, spread, "")};
  for (int i = 0; i < emitter->body->nodes.count; i++) {
    const Node *node = emitter->body->nodes.at[i];
    if (is_moment(node) && node->input[0] == x)
      emit_bind_value(emitter, node, value[node->op == OP_SPREAD]);
  }
}

void reduction_finish(Emitter *emitter, Reduction *one, LLVMValueRef shift, LLVMValueRef value) {
  one->value = value;
  if (one->moment == MOMENT_SQUARES) finish_moments(emitter, one - 1, shift);
  if (one->moment) return;
  bool is_arg = one->node->op == OP_ARGMAX || one->node->op == OP_ARGMIN;
  if (!is_arg || one->is_candidate) emit_bind_value(emitter, one->node, value);
}

/* ── the door ───────────────────────────────────────────────────────────────────────────────── */

static const Node *find_contraction(const Node *node) {
  if (!node->body) return node;
  for (int i = 0; i < node->body->nodes.count; i++)
    if (op_info[node->body->nodes.at[i]->op].op_class == CLASS_CONTRACT)
      return node->body->nodes.at[i];
  return NULL;
}

static bool emit_kind(Job *job) {
  const Node *node = job->node;
  if (node->op == OP_SCATTER_ADD) return nvptx_scatter(job);
  if (node->op == OP_PUT) return nvptx_put(job);
  if (node->op == OP_ATTENTION || node->op == OP_ATTENTION_GRAD) return nvptx_attention(job);
  const Node *contraction = find_contraction(node);
  if (contraction) return nvptx_contract(job, contraction);
  switch (kernel_kind(node)) {
  case KERNEL_ROW:
    return nvptx_row(job);
  case KERNEL_COLUMN:
    return nvptx_column(job);
  default:
    return nvptx_loop(job);
  }
}

bool nvptx_emit(Module *module, const Node *node, const char *name, const int *alias, Kernel *out) {
  *out = (Kernel){0};
  Job job = {.module = module,
             .node = node,
             .name = name,
             .alias = alias,
             .out = out,
             .scratch = arena_new(),
             .operand_count = node->input_count};
  job.result_count = node_result_count(node);
  Type *types = ARENA_ARRAY(job.scratch, Type, job.result_count);
  for (int i = 0; i < job.result_count; i++) types[i] = node_result_type(node, i);
  job.result_type = types;
  int64_t elements = 0;
  for (int i = 0; i < job.result_count; i++) elements += shape_elements(&types[i].shape);
  bool ok = elements == 0 || emit_kind(&job); /* nothing to compute: no launch */
  arena_free(job.scratch);
  return ok;
}
