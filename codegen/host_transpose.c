/* host_transpose: loops that read part of their operands transposed: the fastest dimension of those is not that of the results. A
 * work item is a tile of both dimensions: first the transposed part is computed in its own order into a room on the stack, then
 * kernels/transpose_x86.c turns that into the results' order, and then the results are computed in theirs. So memory is read and
 * written in whole lines, and both loops are vectorised. Only one transposition of a loop is done so, the first one found; others
 * are read element by element. */
#include "codegen/host_private.h"
#include "codegen/own_index.h"
#include "codegen/turn.h"
#include "kernels/transpose_host.h"

enum { SHORTEST = TRANSPOSE_BLOCK, SMALL_TILE = 32, LARGE_TILE = 64 };

/* The digit that a transpose of this shape reads neighbours along; -1: none of these. */
static int digit_of_row(const HostTurn *turn, const TurnShape *shape) {
  int64_t wanted = 1, behind = 1;
  for (int i = shape->row + 1; i < shape->rank; i++) wanted *= shape->extent[i];
  for (int d = turn->count - 1; d > 0; d--) {
    behind *= turn->extent[d];
    if (behind == wanted) return d - 1;
  }
  return -1;
}

/* Those that are read only at the index of the element that is computed: the tile has no other elements. */
static void find_turned(HostTurn *turn, const Graph *body, const bool *is_own) {
  for (int i = 0; i < body->nodes.count && turn->turned_count < HOST_MOST_TURNED; i++) {
    const Node *node = body->nodes.at[i];
    TurnShape shape = {0};
    if (node->op != OP_TRANSPOSE || !is_own[i] || !turn_describe(node, &shape)) continue;
    int row = digit_of_row(turn, &shape);
    bool is_long = row >= 0 && turn->extent[row] >= SHORTEST && turn->extent[turn->count - 1] >= SHORTEST;
    if (!is_long || (turn->turned_count && row != turn->row)) continue;
    turn->row = row;
    turn->turned[turn->turned_count++] = (HostTurned){.node = node};
  }
}

/* Large tiles of long extents, whose lines are in few pages at a time; else small ones. The last tile has what is left of the
 * extent, too. */
static HostTile tile_along(int64_t extent) {
  int64_t size = extent < 2 * LARGE_TILE ? SMALL_TILE : LARGE_TILE;
  int64_t count = extent < size ? 1 : extent / size, largest = count == 1 ? extent : size + extent % size;
  return (HostTile){size, count, (largest + TRANSPOSE_BLOCK - 1) / TRANSPOSE_BLOCK * TRANSPOSE_BLOCK};
}

bool host_turn_find(HostKernel *kernel, const int64_t *extent, int count, const bool *is_own, HostTurn *turn) {
  *turn = (HostTurn){.kernel = kernel};
  if (kernel->module->is_portable || module_leaves_out(kernel->module, "transpose_tiles")) return false;
  for (int d = 0; d < count; d++)
    if (extent[d] > 1) turn->extent[turn->count++] = extent[d];
  find_turned(turn, kernel->body, is_own);
  if (!turn->turned_count) return false;
  turn->rows = tile_along(turn->extent[turn->row]);
  turn->columns = tile_along(turn->extent[turn->count - 1]);
  turn->items = 1;
  for (int d = 0; d < turn->count; d++) {
    turn->tiles[d] = d == turn->row ? turn->rows.count : d == turn->count - 1 ? turn->columns.count : turn->extent[d];
    turn->items *= turn->tiles[d];
  }
  return true;
}

/* ── the loops ──────────────────────────────────────────────────────────────────────────────── */

/* An element of a tile that begins at `first`. */
static Index index_in_tile(HostTurn *turn, LLVMValueRef *first, LLVMValueRef row, LLVMValueRef column, bool goes_along_rows) {
  Emitter *e = &turn->kernel->emitter;
  Index index = {0};
  for (int d = 0; d < turn->count; d++) {
    bool is_row = d == turn->row, is_column = d == turn->count - 1;
    LLVMValueRef place = is_row ? emit_add(e, first[d], row) : is_column ? emit_add(e, first[d], column) : first[d];
    index_push(&index, turn->extent[d], place, is_row ? !goes_along_rows : is_column && goes_along_rows);
  }
  return index;
}

static LLVMValueRef extent_in_tile(HostTurn *turn, LLVMValueRef number, int d, const HostTile *tile) {
  Emitter *e = &turn->kernel->emitter;
  if (tile->count == 1) return emit_index_const(e, turn->extent[d]);
  LLVMValueRef is_last = LLVMBuildICmp(e->builder, LLVMIntEQ, number, emit_index_const(e, tile->count - 1), "");
  LLVMValueRef size = emit_index_const(e, tile->size), more = emit_index_const(e, turn->extent[d] % tile->size + tile->size);
  return turn->extent[d] % tile->size ? LLVMBuildSelect(e->builder, is_last, more, size, "") : size;
}

static LLVMValueRef place_in(HostTurn *turn, LLVMValueRef outer, int64_t step, LLVMValueRef inner) {
  Emitter *e = &turn->kernel->emitter;
  return emit_add(e, emit_mul(e, outer, step), inner);
}

/* The tile of what is transposed: computed column by column into the room, then turned. */
static void make_turned(HostTurn *turn, HostTurned *turned, LLVMValueRef *first, LLVMValueRef rows, LLVMValueRef columns) {
  HostKernel *kernel = turn->kernel;
  Emitter *e = &kernel->emitter;
  Module *module = kernel->module;
  DType dtype = turned->node->type.dtype;
  LLVMValueRef zero = emit_index_const(e, 0);
  HostLoop column = host_loop_open(kernel, zero, columns, 1, NULL, 0);
  HostLoop row = host_loop_open(kernel, zero, rows, 1, NULL, 0);
  Index index = index_in_tile(turn, first, row.counter, column.counter, false);
  emit_store_at(e, turn->room, dtype, place_in(turn, column.counter, turn->rows.room, row.counter),
                emit_value(e, turned->node, &index));
  host_loop_close(kernel, &row, NULL);
  host_loop_close(kernel, &column, NULL);
  LLVMTypeRef types[7] = {module->i64, module->pointer, module->i64, module->pointer, module->i64, module->i64, module->i64};
  LLVMTypeRef type = LLVMFunctionType(module->nothing, types, 7, false);
  LLVMValueRef values[7] = {emit_index_const(e, dtype_bytes(dtype)), turn->room, emit_index_const(e, turn->rows.room), turned->memory,
                            emit_index_const(e, turn->columns.room), columns, rows};
  LLVMBuildCall2(e->builder, type, module_library(module, "transpose_tile", type), values, 7, "");
}

static LLVMValueRef read_turned(Emitter *e, const Node *node, const Index *index, void *user) {
  const HostTurned *turned = user;
  (void)index; /* the element that is being made */
  return emit_load_at(e, turned->memory, node->type.dtype, turned->turn->place);
}

void host_turn_loops(HostTurn *turn, LLVMValueRef from, LLVMValueRef to, HostStore *store, void *user) {
  HostKernel *kernel = turn->kernel;
  Emitter *e = &kernel->emitter;
  int last = turn->count - 1;
  LLVMValueRef first[MAX_RANK], zero = emit_index_const(e, 0);
  DType widest = turn->turned[0].node->type.dtype;
  for (int i = 0; i < turn->turned_count; i++) {
    HostTurned *turned = &turn->turned[i];
    DType dtype = turned->node->type.dtype;
    if (dtype_bytes(dtype) > dtype_bytes(widest)) widest = dtype;
    turned->turn = turn;
    turned->memory = host_alloca(kernel, emit_memory_type(e, dtype), turn->rows.room * turn->columns.room);
  }
  turn->room = host_alloca(kernel, emit_memory_type(e, widest), turn->rows.room * turn->columns.room);
  HostLoop items = host_loop_open(kernel, from, to, 1, NULL, 0);
  items.is_items = true;
  host_unravel(kernel, items.counter, turn->tiles, turn->count, first);
  LLVMValueRef rows = extent_in_tile(turn, first[turn->row], turn->row, &turn->rows);
  LLVMValueRef columns = extent_in_tile(turn, first[last], last, &turn->columns);
  first[turn->row] = emit_mul(e, first[turn->row], turn->rows.size);
  first[last] = emit_mul(e, first[last], turn->columns.size);
  for (int i = 0; i < turn->turned_count; i++) make_turned(turn, &turn->turned[i], first, rows, columns);
  HostLoop row = host_loop_open(kernel, zero, rows, 1, NULL, 0);
  HostLoop column = host_loop_open(kernel, zero, columns, 1, NULL, 0);
  turn->place = place_in(turn, row.counter, turn->columns.room, column.counter);
  for (int i = 0; i < turn->turned_count; i++) emit_bind(e, turn->turned[i].node, read_turned, &turn->turned[i]);
  Index index = index_in_tile(turn, first, row.counter, column.counter, true);
  store(kernel, &index, user);
  for (int i = 0; i < turn->turned_count; i++) emit_bind(e, turn->turned[i].node, NULL, NULL);
  host_loop_close(kernel, &column, NULL);
  host_loop_close(kernel, &row, NULL);
  host_loop_close(kernel, &items, NULL);
}
