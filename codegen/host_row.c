/* host_row: one work item is one row: the reduced dimensions, which are the last. Each pass over
 * the row accumulates the reductions of its depth; a last pass stores what has the domain's shape.
 * Expensive values that several passes need are kept in a buffer on the stack while the row is
 * short; but only those that all passes read at the row's own index (own_index.h). */
#include "codegen/host_private.h"
#include "codegen/own_index.h"

enum { STAGE_BYTES = 16384, MAX_STAGES = 8 };

typedef struct {
  const Node *node;
  LLVMValueRef buffer;
  int first_pass, last_pass;
} Kept;

typedef struct {
  HostKernel *kernel;
  Reductions reductions;
  Index outer; /* digits of the row */
  int outer_count;
  int64_t rows, row_elements;
  int stage_count;
  Kept stage[MAX_STAGES];
} Row;

static bool host_row_is_whole(const Row *row, const Node *node) {
  return kernel_is_whole(row->kernel->node, node);
}

/* ── staging ────────────────────────────────────────────────────────────────────────────────── */
/* Marks what a pass pulls, from `node` down to reductions. */
static void mark_pulled(const Node *node, bool *pulled) {
  if (pulled[node->id] || op_info[node->op].op_class == CLASS_REDUCE) return;
  pulled[node->id] = true;
  for (int i = 0; i < node->input_count; i++) mark_pulled(node->input[i], pulled);
}

static void note_pass(Row *row, const bool *pulled, int pass, int *first, int *last) {
  for (int i = 0; i < row->kernel->body->nodes.count; i++) {
    if (!pulled[i]) continue;
    if (!first[i]) first[i] = pass;
    last[i] = pass;
  }
}

/* By node: is something expensive computed for it, with no reduction in between? */
static bool *find_expensive(const Row *row) {
  const Graph *body = row->kernel->body;
  bool *is_expensive = ARENA_ARRAY(row->kernel->scratch, bool, body->nodes.count);
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    is_expensive[i] = host_is_expensive(node->op);
    for (int k = 0; op_info[node->op].op_class != CLASS_REDUCE && k < node->input_count; k++)
      is_expensive[i] |= is_expensive[node->input[k]->id];
  }
  return is_expensive;
}

/* Worth keeping is what an expensive op computes, and what a move makes of expensive values at
 * other indices: those cannot be kept, but the moved ones can. */
static bool row_is_worth_keeping(const Node *node, const bool *is_expensive) {
  if (host_is_expensive(node->op)) return true;
  return op_info[node->op].op_class == CLASS_MOVE && node->op != OP_RESHAPE &&
         node->op != OP_BROADCAST && is_expensive[node->id];
}

/* The last pass, that of the results, is depth + 1. */
static void choose_stages(Row *row) {
  const Graph *body = row->kernel->body;
  Reductions *all = &row->reductions;
  int count = body->nodes.count, *first = ARENA_ARRAY(row->kernel->scratch, int, count),
      *last = ARENA_ARRAY(row->kernel->scratch, int, count);
  for (int pass = 1; pass <= all->stages + 1; pass++) {
    bool *pulled = ARENA_ARRAY(row->kernel->scratch, bool, count);
    for (int i = 0; i < all->count; i++)
      if (all->at[i].stage == pass) mark_pulled(all->at[i].node->input[0], pulled);
    for (int i = 0; i < body->roots.count && pass > all->stages; i++)
      if (host_row_is_whole(row, body->roots.at[i].node))
        mark_pulled(body->roots.at[i].node, pulled);
    note_pass(row, pulled, pass, first, last);
  }
  const bool *is_expensive = find_expensive(row);
  const bool *is_own = own_index_reads(row->kernel->scratch, row->kernel->node);
  for (int i = 0; i < count && row->stage_count < MAX_STAGES; i++) {
    const Node *node = body->nodes.at[i];
    if (!is_own[i] || first[i] == last[i] || !row_is_worth_keeping(node, is_expensive) ||
        row->row_elements * dtype_bytes(node->type.dtype) > STAGE_BYTES)
      continue;
    row->stage[row->stage_count++] = (Kept){node, NULL, first[i], last[i]};
  }
}

static LLVMValueRef place_in_row(Row *row, const Index *index) {
  Index inner = {0};
  for (int k = row->outer_count; k < index->count; k++)
    inner.digit[inner.count++] = index->digit[k];
  return index_linear(&row->kernel->emitter, &inner);
}

static LLVMValueRef load_stage(Emitter *e, const Node *node, const Index *index, void *user) {
  Row *row = user;
  const Kept *kept = row->stage;
  while (kept->node != node) kept++;
  LLVMValueRef value = emit_load_at(e, kept->buffer, node->type.dtype, place_in_row(row, index));
  if (!emit_is_checking(e)) return value;
  emit_bind(e, node, NULL, NULL);
  LLVMValueRef again = emit_value(e, node, index);
  emit_bind(e, node, load_stage, row);
  emit_check_kept(e, value, again, index, shape_elements(&node->type.shape));
  return value;
}

static void fill_stages(Row *row, int pass, const Index *index) {
  Emitter *e = &row->kernel->emitter;
  for (int i = 0; i < row->stage_count; i++)
    if (row->stage[i].first_pass == pass)
      emit_store_at(e, row->stage[i].buffer, row->stage[i].node->type.dtype,
                    place_in_row(row, index), emit_value(e, row->stage[i].node, index));
}

static void bind_stages(Row *row, int pass) {
  for (int i = 0; i < row->stage_count; i++)
    if (row->stage[i].first_pass == pass)
      emit_bind(&row->kernel->emitter, row->stage[i].node, load_stage, row);
}

/* ── passes ─────────────────────────────────────────────────────────────────────────────────── */
/* Loops over the row's digits. Carried values go through all of them. */
typedef struct {
  int count;
  HostLoop loop[MAX_RANK];
  Index index;
} RowLoops;

static RowLoops open_loops(Row *row, LLVMValueRef *initial, int carried) {
  HostKernel *kernel = row->kernel;
  const Domain *domain = &kernel->domain;
  RowLoops loops = {.index = row->outer};
  LLVMValueRef zero = emit_index_const(&kernel->emitter, 0);
  for (int k = row->outer_count; k < domain->count; k++) {
    HostLoop *loop = &loops.loop[loops.count++];
    LLVMValueRef end = emit_index_const(&kernel->emitter, domain->extent[k]);
    *loop = host_loop_open(kernel, zero, end, 1, initial, carried);
    initial = loop->carried;
    index_push(&loops.index, domain->extent[k], loop->counter, k == domain->count - 1);
  }
  return loops;
}

static void close_loops(Row *row, RowLoops *loops, LLVMValueRef *next) {
  for (int k = loops->count - 1; k >= 0; k--) {
    host_loop_close(row->kernel, &loops->loop[k], next);
    next = loops->loop[k].carried;
  }
}

static void reduce_pass(Row *row, int pass) {
  HostKernel *kernel = row->kernel;
  Reductions *all = &row->reductions;
  Emitter *e = &kernel->emitter;
  LLVMValueRef values[KERNEL_MOST_ACCUMULATORS];
  int which[KERNEL_MOST_ACCUMULATORS], count = 0;
  for (int i = 0; i < all->count; i++)
    if (all->at[i].stage == pass) {
      which[count] = i;
      values[count++] = reduction_identity(e, &all->at[i]);
    }
  RowLoops loops = open_loops(row, values, count);
  LLVMValueRef *carried = loops.count ? loops.loop[loops.count - 1].carried : values;
  LLVMValueRef next[KERNEL_MOST_ACCUMULATORS];
  for (int k = 0; k < count; k++) {
    const Reduction *one = &all->at[which[k]];
    LLVMValueRef input = reduction_element(e, all, one, &loops.index, NULL, NULL);
    next[k] = reduction_step(e, one, carried[k], input);
  }
  fill_stages(row, pass, &loops.index);
  close_loops(row, &loops, next);
  for (int k = 0; k < count; k++)
    reduction_finish(e, &all->at[which[k]], NULL, loops.count ? loops.loop[0].carried[k] : next[k]);
  bind_stages(row, pass);
}

static void store_pass(Row *row) {
  HostKernel *kernel = row->kernel;
  int count = kernel->body->roots.count;
  bool any = false, *by_element = ARENA_ARRAY(kernel->scratch, bool, count);
  bool *by_row = ARENA_ARRAY(kernel->scratch, bool, count);
  for (int i = 0; i < count; i++) {
    by_element[i] = host_row_is_whole(row, kernel->body->roots.at[i].node);
    by_row[i] = !by_element[i];
    any |= by_element[i];
  }
  if (any) {
    RowLoops loops = open_loops(row, NULL, 0);
    host_store_results(kernel, by_element, &loops.index);
    close_loops(row, &loops, NULL);
  }
  host_store_results(kernel, by_row, &row->outer);
}

static void forget_row(Row *row) {
  Emitter *e = &row->kernel->emitter;
  for (int i = 0; i < row->reductions.count; i++)
    emit_bind(e, row->reductions.at[i].node, NULL, NULL);
}

bool host_emit_row(HostKernel *kernel, Kernel *out) {
  Row row = {.kernel = kernel, .rows = 1, .row_elements = 1};
  reductions_find(kernel->scratch, kernel->node, &row.reductions);
  const Domain *domain = &kernel->domain;
  while (row.outer_count < domain->count && !domain->is_reduced[row.outer_count])
    row.rows *= domain->extent[row.outer_count++];
  for (int k = row.outer_count; k < domain->count; k++) {
    row.row_elements *= domain->extent[k];
    if (!domain->is_reduced[k]) {
      diag_error(kernel->module->diag, kernel->node->origin.loc,
                 "internal error: the reduced dimensions of a row kernel are not its last");
      return false;
    }
  }
  host_start(kernel, kernel->name, false);
  Emitter *e = &kernel->emitter;
  choose_stages(&row);
  for (int i = 0; i < row.stage_count; i++)
    row.stage[i].buffer =
        host_alloca(kernel, emit_memory_type(e, row.stage[i].node->type.dtype), row.row_elements);
  HostLoop items = host_items_open(kernel);
  LLVMValueRef value[MAX_RANK];
  host_unravel(kernel, items.counter, domain->extent, row.outer_count, value);
  for (int k = 0; k < row.outer_count; k++)
    index_push(&row.outer, domain->extent[k], value[k], false);
  for (int pass = 1; pass <= row.reductions.stages; pass++) reduce_pass(&row, pass);
  store_pass(&row);
  forget_row(&row);
  host_loop_close(kernel, &items, NULL);
  host_finish(kernel);
  host_add_launch(kernel, out, kernel->name, row.rows, host_grain(kernel, row.row_elements));
  return true;
}
