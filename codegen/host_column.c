/* host_column: reductions over leading dimensions. The last digit is kept; blocks of it have their
 * accumulators in a small buffer that stays in the first cache, and every row is added to it by a
 * vectorised loop. Where the kept digits alone are too little work for the threads, the reduced
 * rows are cut into parts, decided here and not by the number of threads: each part leaves its sums
 * in the workspace and a second launch combines them, in order. */
#include "codegen/host_private.h"
#include <stdio.h>

enum { BLOCK = 512, UNROLL = 4, MAX_PARTS = 64, PART_ELEMENTS = 16384, ENOUGH_ITEMS = 16, CHUNK_ROWS = 256 };

typedef struct {
  HostKernel *kernel;
  Reductions reductions;
  int64_t kept_outer, reduced; /* products of extents */
  int64_t inner, blocks;       /* the last digit, and its blocks */
  int64_t parts, part_rows;
  LLVMValueRef buffer[KERNEL_MOST_ACCUMULATORS];
  LLVMValueRef kept_value[MAX_RANK]; /* by digit */
  LLVMValueRef first, size;          /* of the block, in the last digit */
  bool *is_side, *is_reduced;        /* by result */
} Column;

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static void column_measure(Column *column) {
  const Domain *domain = &column->kernel->domain;
  column->kept_outer = column->reduced = column->inner = 1;
  for (int k = 0; k < domain->count; k++) {
    if (domain->is_reduced[k])
      column->reduced *= domain->extent[k];
    else if (k == domain->count - 1)
      column->inner = domain->extent[k];
    else
      column->kept_outer *= domain->extent[k];
  }
  column->blocks = (column->inner + BLOCK - 1) / BLOCK;
  column->parts = 1;
  int64_t items = column->kept_outer * column->blocks;
  if (items < ENOUGH_ITEMS && column->reductions.stages == 1)
    column->parts = min64(column->reduced * column->inner / PART_ELEMENTS, MAX_PARTS);
  if (column->parts < 1) column->parts = 1;
  column->part_rows = (column->reduced + column->parts - 1) / column->parts;
  if (column->part_rows)
    column->parts = (column->reduced + column->part_rows - 1) / column->part_rows;
}

/* The index of the domain: kept digits of this item, reduced ones from the row's number. */
static Index host_column_domain_index(Column *column, LLVMValueRef row, LLVMValueRef inner) {
  HostKernel *kernel = column->kernel;
  const Domain *domain = &kernel->domain;
  int64_t extent[MAX_RANK];
  LLVMValueRef value[MAX_RANK];
  int reduced = 0;
  for (int k = 0; k < domain->count; k++)
    if (domain->is_reduced[k]) extent[reduced++] = domain->extent[k];
  host_unravel(kernel, row, extent, reduced, value);
  Index index = {0};
  for (int k = 0, r = 0; k < domain->count; k++) {
    bool is_last = k == domain->count - 1;
    LLVMValueRef digit = domain->is_reduced[k] ? value[r++]
                         : is_last             ? inner
                                               : column->kept_value[k];
    index_push(&index, domain->extent[k], digit, is_last);
  }
  return index;
}

static Index host_column_kept_index(Column *column, LLVMValueRef inner) {
  const Domain *domain = &column->kernel->domain;
  Index index = {0};
  for (int k = 0; k < domain->count; k++) {
    bool is_last = k == domain->count - 1;
    if (!domain->is_reduced[k])
      index_push(&index, domain->extent[k], is_last ? inner : column->kept_value[k], is_last);
  }
  return index;
}

static void find_side_outputs(Column *column) {
  const Graph *body = column->kernel->body;
  int count = body->roots.count;
  column->is_side = ARENA_ARRAY(column->kernel->scratch, bool, count);
  column->is_reduced = ARENA_ARRAY(column->kernel->scratch, bool, count);
  for (int i = 0; i < count; i++) {
    const Node *node = body->roots.at[i].node;
    column->is_side[i] =
        !column->reductions.level[node->id] && kernel_is_whole(column->kernel->node, node);
    column->is_reduced[i] = !column->is_side[i];
  }
}

/* ── accumulating ───────────────────────────────────────────────────────────────────────────── */
static LLVMValueRef load_buffer(Column *column, int i, LLVMValueRef local) {
  return emit_load_at(&column->kernel->emitter, column->buffer[i], column->reductions.at[i].dtype,
                      local);
}

static void store_buffer(Column *column, int i, LLVMValueRef local, LLVMValueRef value) {
  emit_store_at(&column->kernel->emitter, column->buffer[i], column->reductions.at[i].dtype, local,
                value);
}

static void clear_buffers(Column *column) {
  Emitter *e = &column->kernel->emitter;
  HostLoop loop = host_loop_open(column->kernel, emit_index_const(e, 0), column->size, 1, NULL, 0);
  for (int i = 0; i < column->reductions.count; i++)
    store_buffer(column, i, loop.counter, reduction_identity(e, &column->reductions.at[i]));
  host_loop_close(column->kernel, &loop, NULL);
}

/* One row at one place of the block: folds into value[], and stores side outputs in the first pass.
 */
static void take_row(Column *column, int pass, LLVMValueRef row, LLVMValueRef place,
                     LLVMValueRef local, LLVMValueRef *value) {
  HostKernel *kernel = column->kernel;
  Reductions *all = &column->reductions;
  Emitter *e = &kernel->emitter;
  Index index = host_column_domain_index(column, row, place);
  for (int i = 0; i < all->count; i++) {
    if (all->at[i].stage != pass) continue;
    int extreme = all->at[i].extreme;
    if (extreme >= 0) all->at[extreme].value = load_buffer(column, extreme, local);
    LLVMValueRef input = reduction_element(e, all, &all->at[i], &index, NULL, NULL);
    value[i] = reduction_step(e, &all->at[i], value[i], input);
  }
  if (pass == 1) host_store_results(kernel, column->is_side, &index);
}

/* for rows in steps of `unroll`: for every place of the block. */
static void rows_loop(Column *column, int pass, LLVMValueRef from, LLVMValueRef to, int unroll) {
  HostKernel *kernel = column->kernel;
  Reductions *all = &column->reductions;
  Emitter *e = &kernel->emitter;
  HostLoop rows = host_loop_open(kernel, from, to, unroll, NULL, 0);
  /* counted from the block's first place: LLVM would make an `or` of first + counter, which have no
   * bit in common, would no longer see that neighbours are read, and gather, ten times slower */
  HostLoop places =
      host_loop_open(kernel, column->first, emit_add(e, column->first, column->size), 1, NULL, 0);
  LLVMValueRef local = emit_sub(e, places.counter, column->first);
  LLVMValueRef value[KERNEL_MOST_ACCUMULATORS];
  for (int i = 0; i < all->count; i++)
    if (all->at[i].stage == pass) value[i] = load_buffer(column, i, local);
  for (int u = 0; u < unroll; u++)
    take_row(column, pass, emit_add(e, rows.counter, emit_index_const(e, u)), places.counter, local,
             value);
  for (int i = 0; i < all->count; i++)
    if (all->at[i].stage == pass) store_buffer(column, i, local, value[i]);
  host_loop_close(kernel, &places, NULL);
  host_loop_close(kernel, &rows, NULL);
}

/* Unrolling saves traffic to the accumulators, which is nothing beside expensive arithmetic. */
static bool is_heavy(const Graph *body) {
  bool has_window = false;
  for (int i = 0; i < body->nodes.count; i++) has_window |= op_info[body->nodes.at[i]->op].op_class == CLASS_WINDOW;
  return body->nodes.count > 60 || has_window || host_has_expensive(body);
}

static void column_accumulate(Column *column, int pass, LLVMValueRef from, LLVMValueRef to) {
  Emitter *e = &column->kernel->emitter;
  if (is_heavy(column->kernel->body) || column->reduced < 2 * UNROLL) {
    rows_loop(column, pass, from, to, 1);
    return;
  }
  LLVMValueRef whole = emit_div(e, emit_sub(e, to, from), UNROLL);
  whole = emit_add(e, from, emit_mul(e, whole, UNROLL));
  rows_loop(column, pass, from, whole, UNROLL);
  rows_loop(column, pass, whole, to, 1);
}

static void make_buffers(Column *column) {
  for (int i = 0; i < column->reductions.count; i++)
    column->buffer[i] = host_alloca(
        column->kernel, emit_memory_type(&column->kernel->emitter, column->reductions.at[i].dtype),
        min64(column->inner, BLOCK));
}

/* Many rows in chunks, whose sums are then added: the error of a sum grows with the number of its terms. */
static void accumulate_chunks(Column *column, LLVMValueRef from, LLVMValueRef to) {
  HostKernel *kernel = column->kernel;
  Emitter *e = &kernel->emitter;
  Column chunk = *column;
  make_buffers(&chunk);
  HostLoop chunks = host_loop_open(kernel, from, to, CHUNK_ROWS, NULL, 0);
  clear_buffers(&chunk);
  column_accumulate(&chunk, 1, chunks.counter, emit_min(e, emit_add(e, chunks.counter, emit_index_const(e, CHUNK_ROWS)), to));
  HostLoop places = host_loop_open(kernel, emit_index_const(e, 0), column->size, 1, NULL, 0);
  for (int i = 0; i < column->reductions.count; i++) {
    LLVMValueRef sum = load_buffer(column, i, places.counter), more = load_buffer(&chunk, i, places.counter);
    store_buffer(column, i, places.counter, reduction_step(e, &column->reductions.at[i], sum, more));
  }
  host_loop_close(kernel, &places, NULL);
  host_loop_close(kernel, &chunks, NULL);
}

/* ── results ────────────────────────────────────────────────────────────────────────────────── */
static void host_column_store_reduced(Column *column) {
  HostKernel *kernel = column->kernel;
  Reductions *all = &column->reductions;
  Emitter *e = &kernel->emitter;
  HostLoop loop = host_loop_open(kernel, emit_index_const(e, 0), column->size, 1, NULL, 0);
  Index index = host_column_kept_index(column, emit_add(e, column->first, loop.counter));
  for (int i = 0; i < all->count; i++)
    if (all->at[i].is_final)
      emit_bind_value(e, all->at[i].node, load_buffer(column, i, loop.counter));
  host_store_results(kernel, column->is_reduced, &index);
  for (int i = 0; i < all->count; i++) emit_bind(e, all->at[i].node, NULL, NULL);
  host_loop_close(kernel, &loop, NULL);
}

/* Where the sums of reduction `i`, part `part`, kept number `kept` lie in the workspace. All have
 * slots of 8 bytes. */
static LLVMValueRef slot(Column *column, int i, LLVMValueRef part, LLVMValueRef kept) {
  Emitter *e = &column->kernel->emitter;
  int64_t sums = column->kept_outer * column->inner;
  LLVMValueRef base = emit_index_const(e, (int64_t)i * column->parts * sums * 8);
  LLVMValueRef start = emit_at(e, e->module->i8, column->kernel->workspace, base);
  LLVMValueRef at = emit_add(e, emit_mul(e, part, sums), kept);
  return emit_at(e, emit_memory_type(e, column->reductions.at[i].dtype), start, at);
}

static LLVMValueRef kept_number(Column *column, LLVMValueRef local) {
  Emitter *e = &column->kernel->emitter;
  Index index = host_column_kept_index(column, emit_add(e, column->first, local));
  return index_linear(e, &index);
}

static void save_part(Column *column, LLVMValueRef part) {
  Emitter *e = &column->kernel->emitter;
  LLVMValueRef zero = emit_index_const(e, 0);
  HostLoop loop = host_loop_open(column->kernel, zero, column->size, 1, NULL, 0);
  for (int i = 0; i < column->reductions.count; i++)
    emit_store_at(e, slot(column, i, part, kept_number(column, loop.counter)),
                  column->reductions.at[i].dtype, zero, load_buffer(column, i, loop.counter));
  host_loop_close(column->kernel, &loop, NULL);
}

static void add_part(Column *column, LLVMValueRef part) {
  Emitter *e = &column->kernel->emitter;
  LLVMValueRef zero = emit_index_const(e, 0);
  HostLoop loop = host_loop_open(column->kernel, zero, column->size, 1, NULL, 0);
  for (int i = 0; i < column->reductions.count; i++) {
    const Reduction *one = &column->reductions.at[i];
    LLVMValueRef saved =
        emit_load_at(e, slot(column, i, part, kept_number(column, loop.counter)), one->dtype, zero);
    LLVMValueRef sum = load_buffer(column, i, loop.counter);
    store_buffer(column, i, loop.counter, reduction_step(e, one, sum, saved));
  }
  host_loop_close(column->kernel, &loop, NULL);
}

/* ── entry points ───────────────────────────────────────────────────────────────────────────── */
/* Work items: kept outer digits × parts × blocks of the last digit. Returns the part. */
static LLVMValueRef open_item(Column *column, LLVMValueRef item, int64_t parts) {
  HostKernel *kernel = column->kernel;
  const Domain *domain = &kernel->domain;
  Emitter *e = &kernel->emitter;
  int64_t extent[MAX_RANK + 2];
  LLVMValueRef value[MAX_RANK + 2];
  int count = 0;
  for (int k = 0; k + 1 < domain->count; k++)
    if (!domain->is_reduced[k]) extent[count++] = domain->extent[k];
  extent[count] = parts;
  extent[count + 1] = column->blocks;
  host_unravel(kernel, item, extent, count + 2, value);
  for (int k = 0, n = 0; k + 1 < domain->count; k++)
    if (!domain->is_reduced[k]) column->kept_value[k] = value[n++];
  column->first = emit_mul(e, value[count + 1], BLOCK);
  column->size = emit_index_const(e, column->inner);
  if (column->blocks > 1) {
    LLVMValueRef left = emit_sub(e, column->size, column->first);
    LLVMValueRef whole = emit_index_const(e, BLOCK);
    column->size = emit_min(e, left, whole);
  } else {
    column->first = emit_index_const(e, 0);
  }
  return value[count];
}

static void emit_main(Column *column, Kernel *out) {
  HostKernel *kernel = column->kernel;
  Emitter *e = &kernel->emitter;
  bool is_cut = column->parts > 1;
  host_start(kernel, kernel->name, is_cut);
  make_buffers(column);
  HostLoop items = host_items_open(kernel);
  LLVMValueRef part = open_item(column, items.counter, column->parts);
  clear_buffers(column);
  LLVMValueRef from = emit_index_const(e, 0), to = emit_index_const(e, column->reduced);
  if (is_cut) {
    from = emit_mul(e, part, column->part_rows);
    to = emit_min(e, emit_add(e, from, emit_index_const(e, column->part_rows)), to);
  }
  if (column->reductions.stages == 1 && column->part_rows > CHUNK_ROWS)
    accumulate_chunks(column, from, to);
  else
    for (int pass = 1; pass <= column->reductions.stages; pass++) column_accumulate(column, pass, from, to);
  if (is_cut)
    save_part(column, part);
  else
    host_column_store_reduced(column);
  host_loop_close(kernel, &items, NULL);
  host_finish(kernel);
  host_add_launch(kernel, out, kernel->name, column->kept_outer * column->parts * column->blocks,
                  host_grain(kernel, column->part_rows * min64(column->inner, BLOCK)));
}

static void host_column_emit_combine(Column *column, Kernel *out) {
  HostKernel *kernel = column->kernel;
  Emitter *e = &kernel->emitter;
  char *name = arena_printf(kernel->scratch, "%s_combine", kernel->name);
  host_start(kernel, name, true);
  make_buffers(column);
  HostLoop items = host_items_open(kernel);
  open_item(column, items.counter, 1);
  clear_buffers(column);
  HostLoop parts = host_loop_open(kernel, emit_index_const(e, 0),
                                  emit_index_const(e, column->parts), 1, NULL, 0);
  add_part(column, parts.counter);
  host_loop_close(kernel, &parts, NULL);
  host_column_store_reduced(column);
  host_loop_close(kernel, &items, NULL);
  host_finish(kernel);
  int64_t work = column->kept_outer * column->blocks;
  host_add_launch(kernel, out, name, work,
                  host_grain(kernel, column->parts * min64(column->inner, BLOCK)));
}

bool host_emit_column(HostKernel *kernel, Kernel *out) {
  Column column = {.kernel = kernel};
  reductions_find(kernel->scratch, kernel->node, &column.reductions);
  const Domain *domain = &kernel->domain;
  if (domain->count && domain->is_reduced[domain->count - 1]) return host_emit_row(kernel, out);
  column_measure(&column);
  find_side_outputs(&column);
  emit_main(&column, out);
  if (column.parts > 1) {
    host_column_emit_combine(&column, out);
    int64_t sums = column.kept_outer * column.inner;
    out->workspace = sums * column.parts * 8 * column.reductions.count;
  }
  return true;
}
