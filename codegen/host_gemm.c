/* host_gemm: what kernels/gemm_x86.c must know of one product: its tiles and its epilogue, a loop
 * over a tile whose pointers are noalias parameters of their own function, so that LLVM vectorises
 * it. */
#include "codegen/host_gemm.h"
#include "kernels/gemm_host.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { EPILOGUE_NUMBERS = 5 }; /* batch, row, column, rows, columns */

typedef struct {
  DotForm form;
  int64_t type; /* OPERAND_... */
  GemmTile tile;
} Product;

static Product product_of(const HostKernel *kernel, const Node *dot) {
  Product p = {dot_form(dot), host_operand_type(dot->input[0]->type.dtype)};
  int bytes = kernel->module->vector_bytes;
  bool is_few = gemm_is_few(p.form.m, p.form.n, p.form.k, p.form.ta, p.form.tb, p.type);
  p.tile = is_few ? gemm_choose_few(p.form.batch, p.form.m, p.form.n, p.form.k, bytes)
                  : gemm_choose(p.form.batch, p.form.m, p.form.n, p.form.k, p.form.ta, p.type, bytes);
  return p;
}

/* Without AVX2 there are too few registers; with few rows a panel would be packed for little use.
 * Of narrow operands it makes all products: no library does. */
bool host_gemm_suits(const HostKernel *kernel, const Node *dot) {
  if (dot->op != OP_DOT || dot->type.dtype != DT_F32) return false;
  Product p = product_of(kernel, dot);
  if (p.type != OPERAND_F32) return true;
  return kernel->module->vector_bytes >= 32 && p.tile.rows > 0 && p.form.k > 0 &&
         p.form.batch * p.form.m * p.form.n > 0 &&
         (p.form.m >= 8 || !p.form.tb ||
          gemm_is_few(p.form.m, p.form.n, p.form.k, p.form.ta, p.form.tb, p.type));
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

/* A loop over a tile of `columns` columns, whose rows are `stride` apart. */
static void tile_loop(HostKernel *kernel, const Node *dot, const TileForm *p,
                      const LLVMValueRef number[EPILOGUE_NUMBERS], LLVMValueRef tile,
                      int64_t columns, int64_t stride) {
  Emitter *e = &kernel->emitter;
  LLVMValueRef zero = emit_index_const(e, 0);
  HostLoop down = host_loop_open(kernel, zero, number[3], 1, NULL, 0);
  HostLoop across = host_loop_open(kernel, zero, emit_index_const(e, columns), 1, NULL, 0);
  TileValue at = {tile, emit_index_const(e, stride), down.counter, across.counter};
  Index index = {0};
  index_push(&index, p->batch, number[0], false);
  index_push(&index, p->m, emit_add(e, number[1], down.counter), false);
  index_push(&index, p->n, emit_add(e, number[2], across.counter), true);
  emit_bind(e, dot, load_tile, &at);
  host_store_results(kernel, NULL, &index);
  emit_bind(e, dot, NULL, NULL);
  host_loop_close(kernel, &across, NULL);
  host_loop_close(kernel, &down, NULL);
}

/* Tiles are as wide as the product's tile, but for those at the right: two loops of known length.
 */
static void tile_loops(HostKernel *kernel, const Node *dot, const TileForm *p,
                       const LLVMValueRef number[EPILOGUE_NUMBERS], LLVMValueRef tile) {
  int64_t width = p->vectors * GEMM_LANES, right = p->n % width;
  int64_t right_width = (right + GEMM_LANES - 1) / GEMM_LANES * GEMM_LANES;
  if (p->n < width || !right) {
    int64_t columns = right ? right : width;
    tile_loop(kernel, dot, p, number, tile, columns, right ? right_width : width);
    return;
  }
  Emitter *e = &kernel->emitter;
  LLVMBasicBlockRef whole = emit_block(e, "whole"), partial = emit_block(e, "right");
  LLVMBasicBlockRef after = emit_block(e, "after");
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

static int pointers_of(const HostKernel *kernel) {
  return kernel->node->input_count + node_result_count(kernel->node);
}

/* Its parameters: operands and results, the numbers, tile. */
static LLVMValueRef make_tile_function(HostKernel *kernel, const Node *dot, const TileForm *p) {
  Module *module = kernel->module;
  int pointers = pointers_of(kernel), tile_at = pointers + EPILOGUE_NUMBERS;
  LLVMTypeRef *types = ARENA_ARRAY(kernel->scratch, LLVMTypeRef, tile_at + 1);
  for (int i = 0; i <= tile_at; i++)
    types[i] = i < pointers || i == tile_at ? module->pointer : module->i64;
  LLVMValueRef function =
      module_helper(module, arena_printf(kernel->scratch, "%s.tile", kernel->name),
                    LLVMFunctionType(module->nothing, types, (unsigned)tile_at + 1, false));
  module_parameter(module, function, tile_at, "noalias", 0);
  host_open(kernel, function, pointers);
  LLVMValueRef number[EPILOGUE_NUMBERS];
  for (int i = 0; i < EPILOGUE_NUMBERS; i++)
    number[i] = LLVMGetParam(function, (unsigned)(pointers + i));
  tile_loops(kernel, dot, p, number, LLVMGetParam(function, (unsigned)tile_at));
  host_finish(kernel);
  return function;
}

/* gemm_epilogue(args, batch, row, column, rows, columns, tile, stride): loads the pointers. */
LLVMValueRef host_tile_epilogue(HostKernel *kernel, const Node *product, const TileForm *form) {
  Module *module = kernel->module;
  LLVMValueRef tile_function = make_tile_function(kernel, product, form);
  LLVMTypeRef wide = module->i64;
  LLVMTypeRef types[8] = {module->pointer, wide, wide, wide, wide, wide, module->pointer, wide};
  LLVMValueRef function =
      LLVMAddFunction(module->llvm, arena_printf(kernel->scratch, "%s.out", kernel->name),
                      LLVMFunctionType(module->nothing, types, 8, false));
  LLVMSetLinkage(function, LLVMInternalLinkage);
  host_unpack(kernel, function, tile_function, pointers_of(kernel));
  return function;
}

/* ── the product ────────────────────────────────────────────────────────────────────────────── */
void host_tile_kernels(HostKernel *kernel, const char *family, const TileForm *form, int64_t rows,
                       LLVMValueRef out[4]) {
  int64_t width = form->vectors * GEMM_LANES, right = form->n % width;
  int64_t down[2] = {form->m >= rows ? rows : 0, form->m % rows};
  int64_t across[2] = {form->n >= width ? form->vectors : 0,
                       (right + GEMM_LANES - 1) / GEMM_LANES};
  for (int i = 0; i < 4; i++) {
    int y = (int)down[i & 1], x = (int)across[i >> 1];
    const char *name = arena_printf(kernel->scratch, "%s%dx%d", family, y, x);
    out[i] = y && x ? module_library(kernel->module, name, NULL)
                    : LLVMConstNull(kernel->module->pointer);
  }
}

LLVMValueRef host_constant(HostKernel *kernel, const char *name, const int64_t *numbers, int count,
                           const LLVMValueRef *pointers, int pointer_count) {
  LLVMValueRef *field = ARENA_ARRAY(kernel->scratch, LLVMValueRef, count + pointer_count);
  for (int i = 0; i < count; i++)
    field[i] = LLVMConstInt(kernel->module->i64, (uint64_t)numbers[i], true);
  for (int i = 0; i < pointer_count; i++)
    field[count + i] = pointers[i] ? pointers[i] : LLVMConstNull(kernel->module->pointer);
  return module_constant(kernel->module,
                         arena_printf(kernel->scratch, "%s.%s", kernel->name, name), field,
                         count + pointer_count);
}

int64_t host_bf16_ways(const Module *module) {
  return (module_leaves_out(module, "amx") ? 0 : GEMM_AMX) |
         (module_leaves_out(module, "dpbf16") ? 0 : GEMM_DPBF16) |
         (module_leaves_out(module, "widened") ? 0 : GEMM_WIDENED);
}

/* What the epilogue reads and writes at the element itself: the results, and inputs that have the product's shape. */
static void find_near(const HostKernel *kernel, const Product *p, const int argument[2], int64_t near[GEMM_NEAR]) {
  const Node *node = kernel->node;
  int64_t elements = p->form.batch * p->form.m * p->form.n;
  int count = 0, first = p->tile.is_packed ? 1 : 0;
  for (int i = 0; i < pointers_of(kernel) && count < GEMM_NEAR; i++) {
    int at = i < node_result_count(node) ? node->input_count + i : i - node_result_count(node);
    Type type = at < node->input_count ? node->input[at]->type : node_result_type(node, at - node->input_count);
    if (at == argument[0] || at == argument[1] || shape_elements(&type.shape) != elements) continue;
    near[count] = gemm_near(first + at, elements, dtype_bytes(type.dtype));
    if (near[count]) count++;
  }
}

/* What gemm_x86.c is told of the product; pointers are not set. Of a packed b the workspace is the first argument. */
static GemmProduct describe_product(const HostKernel *kernel, const Product *p, const int argument[2]) {
  const GemmTile *tile = &p->tile;
  int first = tile->is_packed ? 1 : 0;
  GemmProduct out = {.batch = p->form.batch,
                     .m = p->form.m,
                     .n = p->form.n,
                     .k = p->form.k,
                     .ta = p->form.ta,
                     .tb = p->form.tb,
                     .rows = tile->rows,
                     .vectors = tile->vectors,
                     .type = p->type,
                     .may_use = host_bf16_ways(kernel->module),
                     .in_place = gemm_in_place(p->form.n, p->form.k, p->form.tb),
                     .depth = tile->depth,
                     .down = tile->down,
                     .across = tile->across,
                     .is_packed = tile->is_packed,
                     .arg_a = first + argument[0],
                     .arg_b = first + argument[1],
                     .arg_c = first + kernel->node->input_count};
  find_near(kernel, p, argument, out.near);
  return out;
}

/* A GemmProduct of the module: its numbers, its four tiles, its epilogue. */
static LLVMValueRef define_product(HostKernel *kernel, const char *name, const GemmProduct *p, LLVMValueRef epilogue) {
  enum { NUMBERS = offsetof(GemmProduct, tile) / sizeof(int64_t) };
  _Static_assert(sizeof(GemmProduct) == (NUMBERS + 5) * 8, "pointers are last");
  int64_t numbers[NUMBERS];
  memcpy(numbers, p, sizeof numbers);
  TileForm form = {p->batch, p->m, p->n, p->vectors};
  LLVMValueRef pointers[5] = {[4] = epilogue};
  const char *family = p->depth ? "gemm_tile_p" : p->ta ? "gemm_tile_t" : "gemm_tile_n";
  host_tile_kernels(kernel, family, &form, p->rows, pointers);
  return host_constant(kernel, name, numbers, NUMBERS, pointers, 5);
}

static void emit_packed(HostKernel *kernel, const GemmProduct *p, const GemmTile *tile, int b, LLVMValueRef epilogue,
                        Kernel *out) {
  double columns = (double)gemm_packed_columns(p), items = (double)gemm_pack_items(p);
  double multiplications = (double)p->batch * (double)p->m * columns * (double)p->k;
  host_packed_emit(kernel, b, gemm_packed_bytes(p),
                   &(PackedLaunch){"gemm_pack_run", define_product(kernel, "packing", p, NULL), gemm_pack_items(p),
                                   (double)p->batch * columns * (double)p->k * 16 / items},
                   &(PackedLaunch){"gemm_run", define_product(kernel, "product", p, epilogue), tile->work,
                                   multiplications * 2 / (double)tile->work},
                   out);
}

bool host_gemm_emit(HostKernel *kernel, const Node *dot, const int argument[2], Kernel *out) {
  Product p = product_of(kernel, dot);
  LLVMValueRef epilogue = NULL;
  TileForm form = {p.form.batch, p.form.m, p.form.n, p.tile.vectors};
  if (kernel->body) epilogue = host_tile_epilogue(kernel, dot, &form);
  GemmProduct product = describe_product(kernel, &p, argument);
  if (p.tile.is_packed) {
    emit_packed(kernel, &product, &p.tile, argument[1], epilogue, out);
    return true;
  }
  host_call_library(kernel, kernel->name, "gemm_run", define_product(kernel, "product", &product, epilogue));
  const int64_t worth = 2500; /* cycles: several times the cost of a barrier */
  int split = kernel->module->vector_bytes >= 64 ? 1 : 64 / kernel->module->vector_bytes;
  int64_t each = gemm_tile_cycles(p.tile.rows, p.tile.vectors, p.form.k, split);
  if (p.tile.depth) each *= p.tile.down * p.tile.across;
  host_add_launch(kernel, out, kernel->name, p.tile.work, worth / each + 1);
  return true;
}
