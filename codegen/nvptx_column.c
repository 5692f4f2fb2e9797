/* nvptx_column: kernels whose reductions leave the last dimension: bias gradients, batch
 * statistics. A block has 32 neighbouring columns and 8 threads down each; where the columns alone
 * would leave the GPU idle, the rows are cut into splits too: the first launch leaves a partial
 * value per split in the workspace, the second combines them, in order, so that the bits never
 * change. */
#include "codegen/nvptx_private.h"
#include "passes/fuse.h"
#include <stdio.h>

enum { DOWN = 8, AHEAD = 4, COLUMN_THREADS = WARP * DOWN, MAX_SPLITS = 32, ENOUGH_BLOCKS = 256 };

typedef struct {
  Entry entry;
  Domain domain;
  Reductions reductions;
  int64_t columns, rows, splits, rows_per_split, offset[32]; /* offset: workspace bytes */
  LLVMValueRef column, column_valid, lane, down, split, begin, end;
} Column;

/* The index in the domain of (row, column): digits in the domain's order. */
static Index domain_index(Column *c, LLVMValueRef row) {
  Entry *entry = &c->entry;
  LLVMValueRef digit[MAX_RANK], rest[2] = {c->column, row};
  int first[2] = {-1, -1};
  for (int i = c->domain.count - 1; i >= 0; i--) first[c->domain.is_reduced[i]] = i;
  for (int i = c->domain.count - 1; i >= 0; i--) {
    int kind = c->domain.is_reduced[i];
    LLVMValueRef size = entry_const(entry, c->domain.extent[i]);
    digit[i] = i == first[kind] ? rest[kind] : entry_op(entry, LLVMURem, rest[kind], size);
    if (i != first[kind]) rest[kind] = entry_op(entry, LLVMUDiv, rest[kind], size);
  }
  Index index = {0};
  for (int i = 0; i < c->domain.count; i++) index_push(&index, c->domain.extent[i], digit[i], true);
  return index;
}

static void store_side_outputs(Column *c, const Index *index, LLVMValueRef valid) {
  Entry *entry = &c->entry;
  Job *job = entry->job;
  Shape domain = kernel_domain(job->node);
  bool any = false;
  for (int i = 0; i < job->result_count; i++) any = any || nvptx_is_domain(job, i, &domain);
  if (!any) return;
  LLVMBasicBlockRef after = entry_begin_if(entry, entry_and(entry, c->column_valid, valid));
  for (int i = 0; i < job->result_count; i++)
    if (nvptx_is_domain(job, i, &domain)) entry_store_result(entry, i, index);
  entry_end_if(entry, after);
}

/* The threads down a column meet in shared memory; all of them end with the value. */
static LLVMValueRef combine_down(Column *c, const Reduction *one, LLVMValueRef value) {
  Entry *entry = &c->entry;
  LLVMTypeRef type = LLVMTypeOf(value);
  bool is_bit = LLVMGetTypeKind(type) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(type) == 1;
  LLVMTypeRef stored = is_bit ? entry->i32 : type;
  LLVMValueRef shared = entry_shared(entry, "column_part", stored, COLUMN_THREADS);
  LLVMValueRef warp = entry_const(entry, WARP);
  LLVMValueRef place = entry_op(entry, LLVMAdd, entry_op(entry, LLVMMul, c->down, warp), c->lane);
  LLVMValueRef word = is_bit ? LLVMBuildZExt(entry->b, value, stored, "") : value;
  LLVMBuildStore(entry->b, word, entry_at(entry, stored, shared, place));
  entry_barrier(entry);
  LLVMValueRef total = NULL;
  for (int i = 0; i < DOWN; i++) {
    place = entry_op(entry, LLVMAdd, c->lane, entry_const(entry, i * WARP));
    LLVMValueRef part =
        LLVMBuildLoad2(entry->b, stored, entry_at(entry, stored, shared, place), "");
    if (is_bit) part = LLVMBuildTrunc(entry->b, part, type, "");
    total = total ? reduction_step(entry, one, total, part) : part;
  }
  return total;
}

static void run_stage(Column *c, int stage, bool is_first) {
  Entry *entry = &c->entry;
  Reductions *all = &c->reductions;
  LLVMValueRef sum[32];
  Reduction *which[32];
  int count = 0;
  for (int i = 0; i < all->count; i++)
    if (all->at[i].stage == stage) {
      which[count] = &all->at[i];
      sum[count++] = reduction_identity(entry, &all->at[i]);
    }
  Loop loop;
  LLVMValueRef start = entry_op(entry, LLVMAdd, c->begin, c->down);
  LLVMValueRef base =
      entry_begin_loop(entry, &loop, start, c->end, entry_const(entry, DOWN * AHEAD), sum, count);
  Index index[AHEAD];
  LLVMValueRef valid[AHEAD];
  for (int u = 0; u < AHEAD; u++) {
    LLVMValueRef row = entry_op(entry, LLVMAdd, base, entry_const(entry, u * DOWN));
    valid[u] = c->rows % (DOWN * AHEAD) || u ? entry_less(entry, row, c->end) : NULL;
    if (c->rows % (DOWN * AHEAD) == 0) valid[u] = NULL; /* splits are multiples too */
    if (valid[u])
      row = LLVMBuildSelect(entry->b, valid[u], row,
                            entry_op(entry, LLVMSub, c->end, entry_const(entry, 1)), "");
    index[u] = domain_index(c, row);
  }
  for (int i = 0; i < count; i++)
    for (int u = 0; u < AHEAD; u++)
      sum[i] = reduction_step(entry, which[i], sum[i],
                              reduction_element(entry, all, which[i], &index[u], valid[u]));
  if (is_first)
    for (int u = 0; u < AHEAD; u++) store_side_outputs(c, &index[u], valid[u]);
  entry_end_loop(entry, &loop, sum);
  for (int i = 0; i < count; i++) which[i]->value = combine_down(c, which[i], sum[i]);
  for (int i = 0; i < count; i++)
    if (c->splits == 1) reduction_finish(entry, which[i], which[i]->value);
}

static void store_reduced(Column *c) {
  Entry *entry = &c->entry;
  Job *job = entry->job;
  Shape domain = kernel_domain(job->node);
  Index index = {0};
  entry_push_digits(entry, &c->domain, false, c->column, 1, 0, &index);
  for (int i = 0; i < job->result_count; i++)
    if (!nvptx_is_domain(job, i, &domain)) entry_store_result(entry, i, &index);
}

/* In the workspace: for each reduction, splits × columns values. */
static LLVMValueRef partial_place(Column *c, int reduction, LLVMValueRef split) {
  Entry *entry = &c->entry;
  const Reduction *one = &c->reductions.at[reduction];
  LLVMTypeRef type = emit_memory_type(&entry->emitter, one->dtype);
  LLVMTypeRef byte = LLVMInt8TypeInContext(entry->job->module->context);
  if (one->dtype == DT_F16 || one->dtype == DT_BF16)
    type = LLVMFloatTypeInContext(entry->job->module->context);
  LLVMValueRef base =
      entry_at(entry, byte, entry->workspace, entry_const(entry, c->offset[reduction]));
  LLVMValueRef place = entry_op(
      entry, LLVMAdd, entry_op(entry, LLVMMul, split, entry_const(entry, c->columns)), c->column);
  return entry_at(entry, type, base, place);
}

static void split_open(Column *c, const char *name, bool is_combining) {
  Entry *entry = &c->entry;
  Job *job = entry->job;
  entry_open(entry, job, name, is_combining ? 128 : COLUMN_THREADS, c->splits > 1);
  LLVMValueRef thread = entry_special(entry, "tid.x"), block = entry_special(entry, "ctaid.x");
  int across = is_combining ? 128 : WARP;
  c->lane = is_combining ? thread : entry_op(entry, LLVMURem, thread, entry_const(entry, WARP));
  c->down = is_combining ? NULL : entry_op(entry, LLVMUDiv, thread, entry_const(entry, WARP));
  c->column = entry_op(entry, LLVMAdd, entry_op(entry, LLVMMul, block, entry_const(entry, across)),
                       c->lane);
  c->column_valid = NULL;
  if (c->columns % across) {
    c->column_valid = entry_less(entry, c->column, entry_const(entry, c->columns));
    c->column = entry_min(entry, c->column, entry_const(entry, c->columns - 1));
  }
  if (is_combining) return;
  if (c->splits == 1) {
    c->begin = entry_const(entry, 0);
    c->end = entry_const(entry, c->rows);
    return;
  }
  c->split = entry_special(entry, "ctaid.y");
  c->begin = entry_op(entry, LLVMMul, c->split, entry_const(entry, c->rows_per_split));
  c->end =
      entry_min(entry, entry_op(entry, LLVMAdd, c->begin, entry_const(entry, c->rows_per_split)),
                entry_const(entry, c->rows));
}

static void choose_splits(Column *c) {
  int64_t blocks = (c->columns + WARP - 1) / WARP;
  c->splits = 1;
  c->rows_per_split = c->rows;
  for (int i = 0; i < c->reductions.count; i++)
    if (c->reductions.at[i].is_candidate) return; /* its stages need whole columns */
  int64_t wanted = ENOUGH_BLOCKS / blocks, most = c->rows / (4 * DOWN * AHEAD);
  if (wanted > most) wanted = most;
  if (wanted > MAX_SPLITS) wanted = MAX_SPLITS;
  if (wanted < 2) return;
  int64_t unit = DOWN * AHEAD;
  c->rows_per_split = ((c->rows + wanted - 1) / wanted + unit - 1) / unit * unit;
  c->splits = (c->rows + c->rows_per_split - 1) / c->rows_per_split;
  int64_t bytes = 0;
  for (int i = 0; i < c->reductions.count; i++) {
    c->offset[i] = bytes;
    int64_t size = dtype_bytes(c->reductions.at[i].dtype);
    bytes += (c->splits * c->columns * (size < 4 ? 4 : size) + 63) / 64 * 64;
  }
  c->entry.job->out->workspace = bytes;
}

static void store_partials(Column *c) {
  Entry *entry = &c->entry;
  for (int i = 0; i < c->reductions.count; i++) {
    LLVMValueRef value = c->reductions.at[i].value, place = partial_place(c, i, c->split);
    if (c->reductions.at[i].dtype == DT_BOOL)
      value =
          LLVMBuildZExt(entry->b, value, LLVMInt8TypeInContext(entry->job->module->context), "");
    LLVMBuildStore(entry->b, value, place);
  }
}

static void combine_splits(Column *c) {
  Entry *entry = &c->entry;
  for (int i = 0; i < c->reductions.count; i++) {
    Reduction *one = &c->reductions.at[i];
    LLVMTypeRef type = emit_register_type(&entry->emitter, one->dtype);
    if (one->dtype == DT_BOOL) type = LLVMInt8TypeInContext(entry->job->module->context);
    LLVMValueRef total = NULL;
    for (int64_t s = 0; s < c->splits; s++) {
      LLVMValueRef part =
          LLVMBuildLoad2(entry->b, type, partial_place(c, i, entry_const(entry, s)), "");
      if (one->dtype == DT_BOOL)
        part = LLVMBuildTrunc(entry->b, part, emit_register_type(&entry->emitter, DT_BOOL), "");
      total = total ? reduction_step(entry, one, total, part) : part;
    }
    reduction_finish(entry, one, total);
  }
}

bool nvptx_column(Job *job) {
  Column *c = ARENA_NEW(job->scratch, Column);
  c->entry.job = job;
  c->domain = collapse_domain(job->scratch, job->node);
  c->columns = domain_elements(&c->domain, 0);
  c->rows = domain_elements(&c->domain, 1);
  if (!nvptx_collect(job, &c->reductions)) return false;
  choose_splits(c);
  int64_t blocks = (c->columns + WARP - 1) / WARP;
  split_open(c, job->name, false);
  for (int stage = 0; stage < c->reductions.stages; stage++) run_stage(c, stage, stage == 0);
  Entry *entry = &c->entry;
  LLVMValueRef top = LLVMBuildICmp(entry->b, LLVMIntEQ, c->down, entry_const(entry, 0), "");
  LLVMBasicBlockRef after = entry_begin_if(entry, entry_and(entry, c->column_valid, top));
  if (c->splits == 1)
    store_reduced(c);
  else
    store_partials(c);
  entry_end_if(entry, after);
  entry_close(entry, job->name, blocks, c->splits, 1);
  if (c->splits == 1) return true;

  char name[256];
  snprintf(name, sizeof name, "%s_combine", job->name);
  Entry fresh = {.job = job};
  c->entry = fresh;
  split_open(c, name, true);
  after = entry_begin_if(entry, c->column_valid);
  combine_splits(c);
  store_reduced(c);
  entry_end_if(entry, after);
  entry_close(entry, name, (c->columns + 127) / 128, 1, 1);
  return true;
}
