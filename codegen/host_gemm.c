/* host_gemm: specialises kernels/gemm_host.c: defines its constants and the epilogue, a loop over a
 * tile whose pointers are noalias parameters of their own function, so that LLVM vectorises it. */
#include "codegen/host_gemm.h"
#include "kernels/gemm_host.h"
#include <stdio.h>

enum { EPILOGUE_NUMBERS = 5 }; /* batch, row, column, rows, columns */

typedef struct {
  int64_t batch, m, n, k;
  bool ta, tb;
  GemmTile tile;
} Product;

static Product product_of(const HostKernel *kernel, const Node *dot) {
  const Shape *a = &dot->input[0]->type.shape, *c = &dot->type.shape;
  Product p = {.batch = 1, .m = c->dim[c->rank - 2], .n = c->dim[c->rank - 1]};
  p.ta = node_int(dot, ATTR_TRANS_A, 0);
  p.tb = node_int(dot, ATTR_TRANS_B, 0);
  p.k = a->dim[a->rank - (p.ta ? 2 : 1)];
  for (int d = 0; d + 2 < c->rank; d++) p.batch *= c->dim[d];
  p.tile = gemm_choose(p.batch, p.m, p.n, p.k, kernel->module->vector_bytes);
  return p;
}

/* Without AVX2 there are too few registers; with few rows a panel would be packed for little use.
 */
bool host_gemm_suits(const HostKernel *kernel, const Node *dot) {
  if (dot->op != OP_DOT || dot->type.dtype != DT_F32 || kernel->module->vector_bytes < 32)
    return false;
  Product p = product_of(kernel, dot);
  return p.tile.rows > 0 && p.k > 0 && p.batch * p.m * p.n > 0 && (p.m >= 8 || !p.tb);
}

/* ── constants ──────────────────────────────────────────────────────────────────────────────── */
static void define_constant(HostKernel *kernel, const char *name, LLVMTypeRef type, int64_t value) {
  LLVMContextRef context = kernel->module->context;
  LLVMValueRef function =
      module_helper(kernel->module, arena_printf(kernel->scratch, "%s__%s", name, kernel->name),
                    LLVMFunctionType(type, NULL, 0, false));
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, function, "entry"));
  LLVMBuildRet(builder, LLVMConstInt(type, (uint64_t)value, true));
  LLVMDisposeBuilder(builder);
}

static void define_constants(HostKernel *kernel, const Product *p, const int argument[2]) {
  LLVMTypeRef wide = LLVMInt64TypeInContext(kernel->module->context);
  LLVMTypeRef word = LLVMInt32TypeInContext(kernel->module->context);
  define_constant(kernel, "gemm_m", wide, p->m);
  define_constant(kernel, "gemm_n", wide, p->n);
  define_constant(kernel, "gemm_k", wide, p->k);
  define_constant(kernel, "gemm_ta", word, p->ta);
  define_constant(kernel, "gemm_tb", word, p->tb);
  define_constant(kernel, "gemm_rows", word, p->tile.rows);
  define_constant(kernel, "gemm_vectors", word, p->tile.vectors);
  define_constant(kernel, "gemm_arg_a", word, argument[0]);
  define_constant(kernel, "gemm_arg_b", word, argument[1]);
}

/* ── the epilogue ───────────────────────────────────────────────────────────────────────────── */
typedef struct {
  LLVMValueRef tile, stride, row, column; /* row, column: within the tile */
} TileValue;

static LLVMValueRef load_tile(Emitter *e, const Node *node, const Index *index, void *user) {
  const TileValue *at = user;
  (void)node, (void)index;
  LLVMValueRef place = LLVMBuildNSWMul(e->builder, at->row, at->stride, "");
  place = LLVMBuildNSWAdd(e->builder, place, at->column, "");
  return emit_load_at(e, at->tile, DT_F32, place);
}

static int result_count(const HostKernel *kernel) {
  return kernel->body ? kernel->body->roots.count : 1;
}

/* Its parameters: operands and results, the numbers, tile, stride. */
static LLVMValueRef make_tile_function(HostKernel *kernel, const Node *dot, const Product *p) {
  LLVMContextRef context = kernel->module->context;
  LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0),
              wide = LLVMInt64TypeInContext(context);
  int pointers = kernel->node->input_count + result_count(kernel);
  int count = pointers + EPILOGUE_NUMBERS + 2, tile_at = pointers + EPILOGUE_NUMBERS;
  LLVMTypeRef *types = ARENA_ARRAY(kernel->scratch, LLVMTypeRef, count);
  for (int i = 0; i < count; i++) types[i] = i < pointers || i == tile_at ? pointer : wide;
  LLVMValueRef function = module_helper(
      kernel->module, arena_printf(kernel->scratch, "%s.tile", kernel->name),
      LLVMFunctionType(LLVMVoidTypeInContext(context), types, (unsigned)count, false));
  bool may_overlap = false;
  for (int i = 0; i < result_count(kernel); i++) may_overlap |= kernel->alias[i] == -2;
  for (int i = 0; i < pointers && !may_overlap; i++)
    module_parameter(kernel->module, function, i, "noalias", 0);
  module_parameter(kernel->module, function, tile_at, "noalias", 0);

  kernel->entry = LLVMAppendBasicBlockInContext(context, function, "entry");
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, function, "start"));
  Emitter *e = &kernel->emitter;
  emitter_init(e, kernel->module, kernel->scratch, kernel->body, builder, wide);
  e->function = function;
  e->input_count = kernel->node->input_count;
  e->result_count = result_count(kernel);
  e->pointer = ARENA_ARRAY(kernel->scratch, LLVMValueRef, pointers);
  for (int i = 0; i < pointers; i++) {
    int result = i - e->input_count;
    bool is_alias = result >= 0 && kernel->alias[result] >= 0;
    e->pointer[i] = LLVMGetParam(function, (unsigned)(is_alias ? kernel->alias[result] : i));
  }
  if (kernel->body) emit_hoist_scalars(e);
  LLVMValueRef number[EPILOGUE_NUMBERS];
  for (int i = 0; i < EPILOGUE_NUMBERS; i++)
    number[i] = LLVMGetParam(function, (unsigned)(pointers + i));
  LLVMValueRef zero = emit_index_const(e, 0);
  HostLoop rows = host_loop_open(kernel, zero, number[3], 1, NULL, 0);
  HostLoop columns = host_loop_open(kernel, zero, number[4], 1, NULL, 0);
  TileValue at = {LLVMGetParam(function, (unsigned)tile_at),
                  LLVMGetParam(function, (unsigned)tile_at + 1), rows.counter, columns.counter};
  Index index = {0};
  index_push(&index, p->batch, number[0], false);
  index_push(&index, p->m, emit_index_op(e, LLVMAdd, number[1], rows.counter), false);
  index_push(&index, p->n, emit_index_op(e, LLVMAdd, number[2], columns.counter), true);
  if (kernel->body) {
    emit_bind(e, dot, load_tile, &at);
    for (int i = 0; i < kernel->body->roots.count; i++) host_store_result(kernel, i, &index);
  } else {
    emit_store_at(e, e->pointer[e->input_count], DT_F32, index_linear(e, &index),
                  load_tile(e, dot, &index, &at));
  }
  host_loop_close(kernel, &columns, NULL);
  host_loop_close(kernel, &rows, NULL);
  host_finish(kernel);
  return function;
}

/* gemm_epilogue(args, batch, row, column, rows, columns, tile, stride): loads the pointers. */
static void define_epilogue(HostKernel *kernel, LLVMValueRef tile_function) {
  LLVMContextRef context = kernel->module->context;
  LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0),
              wide = LLVMInt64TypeInContext(context);
  LLVMTypeRef types[8] = {pointer, wide, wide, wide, wide, wide, pointer, wide};
  LLVMValueRef function = module_helper(
      kernel->module, arena_printf(kernel->scratch, "gemm_epilogue__%s", kernel->name),
      LLVMFunctionType(LLVMVoidTypeInContext(context), types, 8, false));
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, function, "entry"));
  int pointers = kernel->node->input_count + result_count(kernel), count = pointers + 7;
  LLVMValueRef *values = ARENA_ARRAY(kernel->scratch, LLVMValueRef, count);
  for (int i = 0; i < pointers; i++) {
    LLVMValueRef at = LLVMConstInt(wide, (uint64_t)i, false);
    LLVMValueRef slot =
        LLVMBuildInBoundsGEP2(builder, pointer, LLVMGetParam(function, 0), &at, 1, "");
    values[i] = LLVMBuildLoad2(builder, pointer, slot, "");
  }
  for (int i = 0; i < 7; i++) values[pointers + i] = LLVMGetParam(function, (unsigned)i + 1);
  LLVMBuildCall2(builder, LLVMGlobalGetValueType(tile_function), tile_function, values,
                 (unsigned)count, "");
  LLVMBuildRetVoid(builder);
  LLVMDisposeBuilder(builder);
}

static void define_entry(HostKernel *kernel) {
  LLVMContextRef context = kernel->module->context;
  LLVMTypeRef wide = LLVMInt64TypeInContext(context);
  LLVMTypeRef types[3] = {LLVMPointerTypeInContext(context, 0), wide, wide};
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(context), types, 3, false);
  LLVMValueRef function = module_kernel(kernel->module, kernel->name, type);
  LLVMValueRef body = LLVMGetNamedFunction(
      kernel->module->llvm, arena_printf(kernel->scratch, "gemm_kernel__%s", kernel->name));
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, function, "entry"));
  LLVMValueRef values[3];
  for (unsigned i = 0; i < 3; i++) values[i] = LLVMGetParam(function, i);
  LLVMBuildCall2(builder, type, body, values, 3, "");
  LLVMBuildRetVoid(builder);
  LLVMDisposeBuilder(builder);
}

bool host_gemm_emit(HostKernel *kernel, const Node *dot, const int argument[2], Kernel *out) {
  Product p = product_of(kernel, dot);
  if (!module_specialise(kernel->module, "gemm_host", "gemm_",
                         arena_printf(kernel->scratch, "__%s", kernel->name)))
    return false;
  define_constants(kernel, &p, argument);
  define_epilogue(kernel, make_tile_function(kernel, dot, &p));
  define_entry(kernel);
  const int64_t worth = 16000; /* cycles: some times what waking a thread costs */
  int split = kernel->module->vector_bytes >= 64 ? 1 : 64 / kernel->module->vector_bytes;
  int64_t each = gemm_tile_cycles(p.tile.rows, p.tile.vectors, p.k, split);
  host_add_launch(kernel, out, kernel->name, p.tile.work, worth / each + 1);
  return true;
}
