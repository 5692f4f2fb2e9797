/* host_gemm: what kernels/gemm_x86.c must know of one product: its tiles and its epilogue, a loop
 * over a tile whose pointers are noalias parameters of their own function, so that LLVM vectorises
 * it. */
#include "codegen/host_gemm.h"
#include "kernels/gemm_host.h"
#include <stdio.h>

enum { EPILOGUE_NUMBERS = 5 }; /* batch, row, column, rows, columns */

typedef struct {
  int64_t batch, m, n, k;
  bool ta, tb;
  int64_t type; /* OPERAND_... */
  GemmTile tile;
} Product;

static Product product_of(const HostKernel *kernel, const Node *dot) {
  const Shape *a = &dot->input[0]->type.shape, *c = &dot->type.shape;
  Product p = {.batch = 1, .m = c->dim[c->rank - 2], .n = c->dim[c->rank - 1]};
  p.ta = node_int(dot, ATTR_TRANS_A, 0);
  p.tb = node_int(dot, ATTR_TRANS_B, 0);
  p.k = a->dim[a->rank - (p.ta ? 2 : 1)];
  for (int d = 0; d + 2 < c->rank; d++) p.batch *= c->dim[d];
  p.type = host_operand_type(dot->input[0]->type.dtype);
  p.tile = gemm_choose(p.batch, p.m, p.n, p.k, p.ta, p.type != OPERAND_F32,
                       kernel->module->vector_bytes);
  return p;
}

/* Without AVX2 there are too few registers; with few rows a panel would be packed for little use.
 * Of narrow operands it makes all products: no library does. */
bool host_gemm_suits(const HostKernel *kernel, const Node *dot) {
  if (dot->op != OP_DOT || dot->type.dtype != DT_F32) return false;
  Product p = product_of(kernel, dot);
  if (p.type != OPERAND_F32) return true;
  return kernel->module->vector_bytes >= 32 && p.tile.rows > 0 && p.k > 0 &&
         p.batch * p.m * p.n > 0 && (p.m >= 8 || !p.tb);
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

/* A loop over a tile of `columns` columns, whose rows are `stride` apart. */
static void tile_loop(HostKernel *kernel, const Node *dot, const Product *p,
                      const LLVMValueRef number[EPILOGUE_NUMBERS], LLVMValueRef tile,
                      int64_t columns, int64_t stride) {
  Emitter *e = &kernel->emitter;
  LLVMValueRef zero = emit_index_const(e, 0);
  HostLoop down = host_loop_open(kernel, zero, number[3], 1, NULL, 0);
  HostLoop across = host_loop_open(kernel, zero, emit_index_const(e, columns), 1, NULL, 0);
  TileValue at = {tile, emit_index_const(e, stride), down.counter, across.counter};
  Index index = {0};
  index_push(&index, p->batch, number[0], false);
  index_push(&index, p->m, emit_index_op(e, LLVMAdd, number[1], down.counter), false);
  index_push(&index, p->n, emit_index_op(e, LLVMAdd, number[2], across.counter), true);
  emit_bind(e, dot, load_tile, &at);
  host_store_results(kernel, NULL, &index);
  emit_bind(e, dot, NULL, NULL);
  host_loop_close(kernel, &across, NULL);
  host_loop_close(kernel, &down, NULL);
}

/* Tiles are as wide as the product's tile, but for those at the right: two loops of known length.
 */
static void tile_loops(HostKernel *kernel, const Node *dot, const Product *p,
                       const LLVMValueRef number[EPILOGUE_NUMBERS], LLVMValueRef tile) {
  int64_t width = p->tile.vectors * GEMM_LANES, right = p->n % width;
  int64_t right_width = (right + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES;
  if (p->n < width || !right) {
    int64_t columns = right ? right : width;
    tile_loop(kernel, dot, p, number, tile, columns, right ? right_width : width);
    return;
  }
  Emitter *e = &kernel->emitter;
  LLVMContextRef context = kernel->module->context;
  LLVMBasicBlockRef whole = LLVMAppendBasicBlockInContext(context, e->function, "whole");
  LLVMBasicBlockRef partial = LLVMAppendBasicBlockInContext(context, e->function, "right");
  LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(context, e->function, "after");
  LLVMValueRef is_whole =
      LLVMBuildICmp(e->builder, LLVMIntEQ, number[4], emit_index_const(e, width), "");
  LLVMBuildCondBr(e->builder, is_whole, whole, partial);
  for (int i = 0; i < 2; i++) {
    LLVMPositionBuilderAtEnd(e->builder, i ? partial : whole);
    emit_scope_open(e);
    tile_loop(kernel, dot, p, number, tile, i ? right : width, i ? right_width : width);
    emit_scope_close(e);
    LLVMBuildBr(e->builder, after);
  }
  LLVMPositionBuilderAtEnd(e->builder, after);
}

/* Its parameters: operands and results, the numbers, tile. */
static LLVMValueRef make_tile_function(HostKernel *kernel, const Node *dot, const Product *p) {
  LLVMContextRef context = kernel->module->context;
  LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0),
              wide = LLVMInt64TypeInContext(context);
  int pointers = kernel->node->input_count + result_count(kernel);
  int count = pointers + EPILOGUE_NUMBERS + 1, tile_at = pointers + EPILOGUE_NUMBERS;
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
  host_extents(kernel);
  emit_hoist_scalars(e);
  LLVMValueRef number[EPILOGUE_NUMBERS];
  for (int i = 0; i < EPILOGUE_NUMBERS; i++)
    number[i] = LLVMGetParam(function, (unsigned)(pointers + i));
  tile_loops(kernel, dot, p, number, LLVMGetParam(function, (unsigned)tile_at));
  host_finish(kernel);
  return function;
}

/* gemm_epilogue(args, batch, row, column, rows, columns, tile, stride): loads the pointers. */
static LLVMValueRef define_epilogue(HostKernel *kernel, LLVMValueRef tile_function) {
  LLVMContextRef context = kernel->module->context;
  LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0),
              wide = LLVMInt64TypeInContext(context);
  LLVMTypeRef types[8] = {pointer, wide, wide, wide, wide, wide, pointer, wide};
  LLVMValueRef function =
      LLVMAddFunction(kernel->module->llvm, arena_printf(kernel->scratch, "%s.out", kernel->name),
                      LLVMFunctionType(LLVMVoidTypeInContext(context), types, 8, false));
  LLVMSetLinkage(function, LLVMInternalLinkage);
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, function, "entry"));
  int pointers = kernel->node->input_count + result_count(kernel), count = pointers + 6;
  LLVMValueRef *values = ARENA_ARRAY(kernel->scratch, LLVMValueRef, count);
  for (int i = 0; i < pointers; i++) {
    LLVMValueRef at = LLVMConstInt(wide, (uint64_t)i, false);
    LLVMValueRef slot =
        LLVMBuildInBoundsGEP2(builder, pointer, LLVMGetParam(function, 0), &at, 1, "");
    values[i] = LLVMBuildLoad2(builder, pointer, slot, "");
  }
  for (int i = 0; i < 6; i++) values[pointers + i] = LLVMGetParam(function, (unsigned)i + 1);
  LLVMBuildCall2(builder, LLVMGlobalGetValueType(tile_function), tile_function, values,
                 (unsigned)count, "");
  LLVMBuildRetVoid(builder);
  LLVMDisposeBuilder(builder);
  return function;
}

/* ── the product ────────────────────────────────────────────────────────────────────────────── */
/* The GemmTileKernel of this many rows and vectors; NULL for none. */
static LLVMValueRef tile_kernel(HostKernel *kernel, bool ta, int rows, int vectors) {
  if (!rows || !vectors) return LLVMConstNull(LLVMPointerTypeInContext(kernel->module->context, 0));
  return module_library(
      kernel->module,
      arena_printf(kernel->scratch, "gemm_tile_%c%dx%d", ta ? 't' : 'n', rows, vectors), NULL);
}

/* A GemmProduct: its numbers, its four tiles (NULL where there is none such), its epilogue. */
static LLVMValueRef define_product(HostKernel *kernel, const Product *p, const int argument[2],
                                   LLVMValueRef epilogue) {
  LLVMContextRef context = kernel->module->context;
  LLVMTypeRef wide = LLVMInt64TypeInContext(context);
  LLVMValueRef null = LLVMConstNull(LLVMPointerTypeInContext(context, 0));
  const GemmTile *tile = &p->tile;
  int64_t numbers[] = {p->batch,     p->m,
                       p->n,         p->k,
                       p->ta,        p->tb,
                       tile->rows,   tile->vectors,
                       p->type,      gemm_in_place(p->n, p->k, p->tb),
                       tile->depth,  tile->down,
                       tile->across, argument[0],
                       argument[1],  kernel->node->input_count};
  enum { NUMBERS = sizeof numbers / sizeof *numbers, FIELDS = NUMBERS + 5 };
  _Static_assert(sizeof(GemmProduct) == FIELDS * 8, "a field was added to GemmProduct");
  LLVMValueRef field[FIELDS];
  for (int i = 0; i < NUMBERS; i++) field[i] = LLVMConstInt(wide, (uint64_t)numbers[i], true);
  int width = tile->vectors * GEMM_LANES, right = (int)(p->n % width);
  int rows[2] = {p->m >= tile->rows ? tile->rows : 0, (int)(p->m % tile->rows)};
  int vectors[2] = {p->n >= width ? tile->vectors : 0, (right + GEMM_LANES - 1) / GEMM_LANES};
  for (int i = 0; i < 4; i++)
    field[NUMBERS + i] = tile_kernel(kernel, p->ta, rows[i & 1], vectors[i >> 1]);
  field[NUMBERS + 4] = epilogue ? epilogue : null;
  LLVMValueRef value = LLVMConstStructInContext(context, field, FIELDS, false);
  LLVMValueRef product = LLVMAddGlobal(kernel->module->llvm, LLVMTypeOf(value),
                                       arena_printf(kernel->scratch, "%s.product", kernel->name));
  LLVMSetInitializer(product, value);
  LLVMSetGlobalConstant(product, true);
  LLVMSetLinkage(product, LLVMInternalLinkage);
  return product;
}

/* gemm_run(&product, args, begin, end) */
static void host_gemm_define_entry(HostKernel *kernel, LLVMValueRef product) {
  LLVMContextRef context = kernel->module->context;
  LLVMTypeRef wide = LLVMInt64TypeInContext(context),
              pointer = LLVMPointerTypeInContext(context, 0);
  LLVMTypeRef types[4] = {pointer, pointer, wide, wide}, nothing = LLVMVoidTypeInContext(context);
  LLVMTypeRef run_type = LLVMFunctionType(nothing, types, 4, false);
  LLVMValueRef run = module_library(kernel->module, "gemm_run", run_type);
  LLVMValueRef function =
      module_kernel(kernel->module, kernel->name, LLVMFunctionType(nothing, types + 1, 3, false));
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, function, "entry"));
  LLVMValueRef values[4] = {product};
  for (unsigned i = 0; i < 3; i++) values[i + 1] = LLVMGetParam(function, i);
  LLVMBuildCall2(builder, run_type, run, values, 4, "");
  LLVMBuildRetVoid(builder);
  LLVMDisposeBuilder(builder);
}

bool host_gemm_emit(HostKernel *kernel, const Node *dot, const int argument[2], Kernel *out) {
  Product p = product_of(kernel, dot);
  LLVMValueRef epilogue = NULL;
  if (kernel->body) epilogue = define_epilogue(kernel, make_tile_function(kernel, dot, &p));
  host_gemm_define_entry(kernel, define_product(kernel, &p, argument, epilogue));
  const int64_t worth = 2500; /* cycles: some times what a barrier costs */
  int split = kernel->module->vector_bytes >= 64 ? 1 : 64 / kernel->module->vector_bytes;
  int64_t each = gemm_tile_cycles(p.tile.rows, p.tile.vectors, p.k, split);
  if (p.tile.depth) each *= p.tile.down * p.tile.across;
  host_add_launch(kernel, out, kernel->name, p.tile.work, worth / each + 1);
  return true;
}
