/* nvptx_column: kernels whose reductions leave the last dimension: bias gradients, batch
 * statistics. A block has up to 32 groups of neighbouring columns, 16 bytes each (where rows are
 * not multiples of that: 32 lanes beside each other, several times), and threads down each group,
 * several neighbouring rows of each under way at once; they meet in shared memory. Where the
 * columns alone would leave the GPU idle, the rows are cut into splits too: the first launch leaves
 * a partial value per split in the workspace, the second combines them, in order, so that the bits
 * never change. */
#include "codegen/nvptx_places.h"
#include "passes/fuse.h"
#include <stdio.h>

enum {
  COLUMN_THREADS = 256,
  MAX_AHEAD = 4,    /* rows of a thread under way at once */
  HEAVY_NODES = 16, /* of the body: from here on fewer */
  MAX_WIDTH = 8,    /* columns of a thread */
  MAX_SUMS = 16,    /* reductions times columns of a thread: registers, and shared memory */
  MAX_SPLITS = 264,
  ENOUGH_BLOCKS = 264, /* two for each multiprocessor of an H100 */
  RESIDENT = 4,        /* blocks of a multiprocessor at once: 64 registers a thread */
  MANY_VALUES = 20,    /* of one row of a thread, from all operands: from here on half as many */
  COMBINE_THREADS = 128,
  COMBINE_LANES = 8, /* that share the parts of a column */
};

typedef struct {
  Entry entry;
  Domain domain;
  Reductions reductions;
  int width, ahead; /* columns of a thread, and rows under way: */
  int places;       /* of each row of tiles so many */
  bool is_strided;  /* a thread's columns are `across` apart, not neighbours */
  int across, down; /* groups of columns, and threads down each, in a block */
  int64_t columns, rows, splits, rows_per_split; /* rows: of tiles */
  int64_t offset[KERNEL_MOST_ACCUMULATORS];        /* in the workspace, in bytes */
  LLVMValueRef lane, below, split, begin, end;     /* below: place down the group */
  LLVMValueRef group[MAX_WIDTH], valid[MAX_WIDTH]; /* of a column of the thread: its group (strided:
                                                      itself), clamped; NULL: always there */
  /* of finished reductions; of moments: the column's first element */
  LLVMValueRef value[KERNEL_MOST_ACCUMULATORS][MAX_WIDTH];
  LLVMValueRef shift[KERNEL_MOST_ACCUMULATORS][MAX_WIDTH];
} Column;

/* The index in the domain of column `e` of the group at `row`: digits in the domain's order. */
static Index nvptx_column_domain_index(Column *c, LLVMValueRef row, int e) {
  Entry *entry = &c->entry;
  LLVMValueRef digit[MAX_RANK], rest[2] = {c->group[e], row};
  int width = c->is_strided ? 1 : c->width;
  int first[2] = {-1, -1}, last = -1;
  int64_t extent[MAX_RANK];
  for (int i = c->domain.count - 1; i >= 0; i--) {
    first[c->domain.is_reduced[i]] = i;
    if (last < 0 && !c->domain.is_reduced[i]) last = i;
  }
  for (int i = c->domain.count - 1; i >= 0; i--) {
    int kind = c->domain.is_reduced[i];
    extent[i] = i == last ? c->domain.extent[i] / width : c->domain.extent[i];
    digit[i] = i == first[kind] ? rest[kind] : entry_rem(entry, rest[kind], extent[i]);
    if (i != first[kind]) rest[kind] = entry_div(entry, rest[kind], extent[i]);
  }
  Index index = {0};
  for (int i = 0; i < c->domain.count; i++) {
    index_push(&index, extent[i], digit[i], true);
    if (i == last) index_push(&index, width, entry_const(entry, e), true);
    entry_push_place(entry, &c->domain, i, &index);
  }
  return index;
}

/* The same among the kept digits only. */
static Index nvptx_column_kept_index(Column *c, int e) {
  Index index = {0};
  entry_push_digits(&c->entry, &c->domain, false, c->group[e], c->is_strided ? 1 : c->width,
                    c->is_strided ? 0 : e, &index);
  return index;
}

/* Values first, then stores: neighbours become one access. */
static void store_side_outputs(Column *c, const Index *index, LLVMValueRef valid) {
  Entry *entry = &c->entry;
  Job *job = entry->job;
  bool any = false;
  for (int i = 0; i < job->result_count; i++) any = any || job->is_whole[i];
  if (!any) return;
  int step = c->is_strided ? 1 : c->width;
  for (int first = 0; first < c->width; first += step) {
    LLVMBasicBlockRef after = entry_begin_if(entry, entry_and(entry, c->valid[first], valid));
    for (int i = 0; i < job->result_count; i++)
      for (int e = first; e < first + step && job->is_whole[i]; e++)
        emit_value(&entry->emitter, job->node->body->roots.at[i].node, &index[e]);
    for (int i = 0; i < job->result_count; i++)
      if (job->is_whole[i]) entry_store_group(entry, i, &index[first], step);
    entry_end_if(entry, after);
  }
}

/* The threads down a group meet in shared memory; all of them end with the values. */
static void combine_down(Column *c, Reduction **which, int count, LLVMValueRef *sum) {
  Entry *entry = &c->entry;
  LLVMValueRef shared[KERNEL_MOST_ACCUMULATORS];
  LLVMValueRef place = entry_add(entry, entry_mul(entry, c->below, c->across), c->lane);
  for (int i = 0; i < count * c->width; i++)
    shared[i] = entry_share(entry, "column_part", COLUMN_THREADS, place, sum[i]);
  entry_barrier(entry);
  for (int i = 0; i < count * c->width; i++) {
    LLVMValueRef total = NULL;
    for (int d = 0; d < c->down; d++) {
      LLVMValueRef at = entry_add(entry, c->lane, entry_const(entry, d * c->across));
      LLVMValueRef part = entry_shared_at(entry, shared[i], LLVMTypeOf(sum[i]), at);
      total = total ? reduction_step(&entry->emitter, which[i / c->width], total, part) : part;
    }
    sum[i] = total;
  }
}

static void find_shifts(Column *c) {
  nvptx_set_place(&c->domain, 0);
  for (int i = 0; i < c->reductions.count; i++)
    for (int e = 0; c->reductions.at[i].moment && e < c->width; e++) {
      Index first = nvptx_column_domain_index(c, entry_const(&c->entry, 0), e);
      c->shift[i][e] = emit_value(&c->entry.emitter, c->reductions.at[i].node->input[0], &first);
    }
}

/* Makes the finished values of column `e` of the group the ones that are pulled. */
static void select_column(Column *c, int e) {
  for (int i = 0; i < c->reductions.count; i++)
    if (c->value[i][e])
      reduction_finish(&c->entry.emitter, &c->reductions.at[i], c->shift[i][e], c->value[i][e]);
}

static void run_stage(Column *c, int stage) {
  Entry *entry = &c->entry;
  Reductions *all = &c->reductions;
  LLVMValueRef sum[KERNEL_MOST_ACCUMULATORS];
  Reduction *which[KERNEL_MOST_ACCUMULATORS];
  int count = 0;
  if (stage == 1) find_shifts(c);
  for (int i = 0; i < all->count; i++)
    if (all->at[i].stage == stage) which[count++] = &all->at[i];
  for (int i = 0; i < count * c->width; i++)
    sum[i] = reduction_identity(&entry->emitter, which[i / c->width]);
  Loop loop;
  int each = c->ahead / c->places, unit = c->down * each;
  LLVMValueRef start = entry_add(entry, c->begin, entry_mul(entry, c->below, each));
  LLVMValueRef base = entry_begin_loop(entry, &loop, start, c->end, entry_const(entry, unit), sum,
                                       count * c->width);
  Index index[MAX_AHEAD][MAX_WIDTH];
  LLVMValueRef valid[MAX_AHEAD];
  for (int u = 0; u < c->ahead; u++) {
    LLVMValueRef row = entry_add(entry, base, entry_const(entry, u / c->places));
    nvptx_set_place(&c->domain, u % c->places);
    /* splits are multiples of the unit too */
    valid[u] = c->rows % unit ? entry_less(entry, row, c->end) : NULL;
    if (valid[u])
      row = LLVMBuildSelect(entry->b, valid[u], row,
                            entry_sub(entry, c->end, entry_const(entry, 1)), "");
    for (int e = 0; e < c->width; e++) index[u][e] = nvptx_column_domain_index(c, row, e);
  }
  for (int i = 0; i < count * c->width; i++)
    for (int u = 0; u < c->ahead; u++) {
      int e = i % c->width;
      LLVMValueRef element =
          reduction_element(&entry->emitter, all, which[i / c->width], &index[u][e],
                            c->shift[which[i / c->width] - all->at][e], valid[u]);
      sum[i] = reduction_step(&entry->emitter, which[i / c->width], sum[i], element);
    }
  if (stage == 1)
    for (int u = 0; u < c->ahead; u++) store_side_outputs(c, index[u], valid[u]);
  entry_end_loop(entry, &loop, sum);
  combine_down(c, which, count, sum);
  for (int i = 0; i < count * c->width; i++)
    c->value[which[i / c->width] - all->at][i % c->width] = sum[i];
  if (c->splits == 1) select_column(c, 0); /* a next stage has single columns */
}

/* All of them before the first is stored, on which another one's operand may lie. */
static void make_results(Column *c, const Index *index) {
  Job *job = c->entry.job;
  for (int i = 0; i < job->result_count; i++)
    if (!job->is_whole[i]) emit_value(&c->entry.emitter, job->node->body->roots.at[i].node, index);
}

static void nvptx_column_store_reduced(Column *c) {
  Entry *entry = &c->entry;
  Job *job = entry->job;
  Index index[MAX_WIDTH] = {0};
  for (int e = 0; e < c->width; e++) {
    select_column(c, e);
    index[e] = nvptx_column_kept_index(c, e);
    if (!c->is_strided) make_results(c, &index[e]);
  }
  for (int e = 0; e < c->width; e++) {
    LLVMBasicBlockRef after = entry_begin_if(entry, c->is_strided ? c->valid[e] : NULL);
    select_column(c, e);
    make_results(c, &index[e]);
    for (int i = 0; i < job->result_count; i++)
      if (!job->is_whole[i]) entry_store_result(entry, i, &index[e]);
    entry_end_if(entry, after);
  }
}

/* In the workspace: for each reduction, splits × columns values. */
static LLVMValueRef partial_place(Column *c, int reduction, LLVMValueRef split, int e) {
  Entry *entry = &c->entry;
  const Reduction *one = &c->reductions.at[reduction];
  LLVMTypeRef type = emit_memory_type(&entry->emitter, one->dtype);
  LLVMValueRef base = emit_at_number(&entry->emitter, entry->job->module->i8, entry->workspace,
                                     c->offset[reduction]);
  LLVMValueRef column = c->group[e];
  if (!c->is_strided && c->width > 1)
    column = entry_add(entry, entry_mul(entry, column, c->width), entry_const(entry, e));
  LLVMValueRef place = entry_add(entry, entry_mul(entry, split, c->columns), column);
  return emit_at(&entry->emitter, type, base, place);
}

/* Which columns, or groups of neighbours, the thread has. */
static void place_columns(Column *c, LLVMValueRef block, int across) {
  Entry *entry = &c->entry;
  int each = c->is_strided ? c->width : 1;
  int64_t groups = c->is_strided ? c->columns : c->columns / c->width;
  LLVMValueRef first = entry_add(entry, entry_mul(entry, block, across * each), c->lane);
  for (int e = 0; e < c->width; e++) {
    int at = c->is_strided ? e * across : 0;
    c->group[e] = entry_add(entry, first, entry_const(entry, at));
    c->valid[e] = NULL;
    if (groups % (across * each)) {
      c->valid[e] = entry_less(entry, c->group[e], entry_const(entry, groups));
      c->group[e] = entry_min(entry, c->group[e], entry_const(entry, groups - 1));
    }
    if (e && !c->is_strided) c->group[e] = c->group[0], c->valid[e] = c->valid[0];
  }
}

/* The combining launch has single columns, each of some neighbouring lanes. */
static void split_open(Column *c, const char *name, bool is_combining) {
  Entry *entry = &c->entry;
  Job *job = entry->job;
  int threads = is_combining ? COMBINE_THREADS : COLUMN_THREADS;
  int across = is_combining ? COMBINE_THREADS / COMBINE_LANES : c->across;
  entry_open(entry, job, name, threads, c->splits > 1);
  if (!is_combining) {
    bool is_wide = c->width * job->operand_count >= MANY_VALUES || c->places > 1;
    entry_annotate(entry, "minctasm", is_wide ? RESIDENT / 2 : RESIDENT);
  }
  LLVMValueRef thread = entry_special(entry, "tid.x"), block = entry_special(entry, "ctaid.x");
  int size = is_combining ? COMBINE_LANES : across;
  LLVMValueRef fast = entry_rem(entry, thread, size), slow = entry_div(entry, thread, size);
  c->lane = is_combining ? slow : fast;
  c->below = is_combining ? fast : slow;
  place_columns(c, block, across);
  if (is_combining) return;
  if (c->splits == 1) {
    c->begin = entry_const(entry, 0);
    c->end = entry_const(entry, c->rows);
    return;
  }
  c->split = entry_special(entry, "ctaid.y");
  c->begin = entry_mul(entry, c->split, c->rows_per_split);
  c->end = entry_min(entry, entry_add(entry, c->begin, entry_const(entry, c->rows_per_split)),
                     entry_const(entry, c->rows));
}

/* Columns of a thread, and the block's shape. */
static void choose_shape(Column *c) {
  int64_t inner = 1;
  for (int i = 0; i < c->domain.count; i++)
    if (!c->domain.is_reduced[i]) inner = c->domain.extent[i];
  c->width = nvptx_width(c->entry.job, inner);
  for (int i = 0; i < c->reductions.count; i++)
    if (c->reductions.at[i].extreme >= 0) c->width = 1; /* several stages: one column at a time */
  while (c->width > 1 && c->width * c->reductions.count > MAX_SUMS) c->width /= 2;
  bool is_heavy = c->entry.job->node->body->nodes.count >= HEAVY_NODES;
  c->ahead = is_heavy && c->width > 1 ? 2 : MAX_AHEAD;
  c->across = 1;
  while (c->across < WARP && c->across * c->width < c->columns) c->across *= 2;
  bool is_staged = false;
  for (int i = 0; i < c->reductions.count; i++) is_staged |= c->reductions.at[i].extreme >= 0;
  c->is_strided = c->width == 1 && !is_staged && c->columns > WARP;
  while (c->is_strided && c->width < MAX_WIDTH && c->across * c->width < c->columns &&
         2 * c->width * c->reductions.count <= MAX_SUMS)
    c->width *= 2;
  if (c->is_strided && c->width > 4 && c->ahead > 1) c->ahead /= 2;
  c->down = COLUMN_THREADS / c->across;
  c->places = c->is_strided ? 1 : nvptx_tile_places(c->entry.job, &c->domain, true, c->width);
  if (c->places > 1) c->ahead = c->places;
  c->rows /= c->places;
}

static int64_t blocks_across(const Column *c) {
  int64_t columns = c->across * c->width;
  return (c->columns + columns - 1) / columns;
}

static void choose_splits(Column *c) {
  int64_t blocks = blocks_across(c);
  int64_t unit = c->down * c->ahead / c->places;
  c->splits = 1;
  c->rows_per_split = c->rows;
  for (int i = 0; i < c->reductions.count; i++)
    if (c->reductions.at[i].extreme >= 0) return; /* its stages need whole columns */
  int64_t wanted = ENOUGH_BLOCKS / blocks, most = c->rows / (2 * unit);
  if (wanted > most) wanted = most;
  if (wanted > MAX_SPLITS) wanted = MAX_SPLITS;
  if (wanted < 2) return;
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
  for (int i = 0; i < c->reductions.count; i++)
    for (int e = 0; e < c->width; e++) {
      LLVMValueRef value = c->value[i][e], place = partial_place(c, i, c->split, e);
      if (c->reductions.at[i].dtype == DT_BOOL)
        value = LLVMBuildZExt(entry->b, value, entry->job->module->i8, "");
      LLVMBasicBlockRef after = entry_begin_if(entry, c->is_strided ? c->valid[e] : NULL);
      LLVMBuildStore(entry->b, value, place);
      entry_end_if(entry, after);
    }
}

/* Part `number` of those that are this lane's; beyond the last one, what changes nothing. */
static LLVMValueRef column_read_part(Column *c, int reduction, int64_t number) {
  Entry *entry = &c->entry;
  Reduction *one = &c->reductions.at[reduction];
  LLVMTypeRef type = emit_register_type(&entry->emitter, one->dtype);
  LLVMTypeRef kept = one->dtype == DT_BOOL ? entry->job->module->i8 : type;
  LLVMValueRef split = entry_add(entry, c->below, entry_const(entry, number * COMBINE_LANES));
  LLVMValueRef last = entry_const(entry, c->splits - 1), is_there = NULL;
  if ((number + 1) * COMBINE_LANES > c->splits) {
    is_there = LLVMBuildICmp(entry->b, LLVMIntSLE, split, last, "");
    split = entry_min(entry, split, last);
  }
  LLVMValueRef part = LLVMBuildLoad2(entry->b, kept, partial_place(c, reduction, split, 0), "");
  if (one->dtype == DT_BOOL) part = LLVMBuildTrunc(entry->b, part, type, "");
  if (!is_there) return part;
  return LLVMBuildSelect(entry->b, is_there, part, reduction_identity(&entry->emitter, one), "");
}

/* In a fixed order: each lane its parts, then lanes with lanes. */
static void combine_splits(Column *c) {
  Entry *entry = &c->entry;
  for (int i = 0; i < c->reductions.count; i++) {
    Reduction *one = &c->reductions.at[i];
    LLVMValueRef total = column_read_part(c, i, 0);
    for (int64_t number = 1; number * COMBINE_LANES < c->splits; number++)
      total = reduction_step(&entry->emitter, one, total, column_read_part(c, i, number));
    for (int mask = 1; mask < COMBINE_LANES; mask *= 2)
      total = reduction_step(&entry->emitter, one, total, entry_shuffle(entry, total, mask));
    c->value[i][0] = total;
  }
}

bool nvptx_column(Job *job) {
  Column *c = ARENA_NEW(job->scratch, Column);
  c->entry.job = job;
  c->domain = collapse_domain(job->scratch, job->node, job->result_type);
  c->columns = domain_elements(&c->domain, 0);
  c->rows = domain_elements(&c->domain, 1);
  reductions_find(job->scratch, job->node, &c->reductions);
  choose_shape(c);
  choose_splits(c);
  split_open(c, job->name, false);
  for (int stage = 1; stage <= c->reductions.stages; stage++) run_stage(c, stage);
  Entry *entry = &c->entry;
  LLVMValueRef top = entry_is_zero(entry, c->below);
  LLVMBasicBlockRef after =
      entry_begin_if(entry, entry_and(entry, c->is_strided ? NULL : c->valid[0], top));
  if (c->splits == 1)
    nvptx_column_store_reduced(c);
  else
    store_partials(c);
  entry_end_if(entry, after);
  entry_close(entry, job->name, blocks_across(c), c->splits, 1);
  if (c->splits == 1) return true;

  char name[256];
  snprintf(name, sizeof name, "%s_combine", job->name);
  Entry fresh = {.job = job};
  c->entry = fresh;
  c->width = 1;
  c->is_strided = false;
  split_open(c, name, true);
  find_shifts(c);
  combine_splits(c);
  top = entry_is_zero(entry, c->below);
  after = entry_begin_if(entry, entry_and(entry, c->valid[0], top));
  nvptx_column_store_reduced(c);
  entry_end_if(entry, after);
  int64_t columns = COMBINE_THREADS / COMBINE_LANES;
  entry_close(entry, name, (c->columns + columns - 1) / columns, 1, 1);
  return true;
}
