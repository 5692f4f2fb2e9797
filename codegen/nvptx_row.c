/* nvptx_row: kernels whose reductions run over the last dimensions, and kernels without reductions
 * of which all rows share operands. A team of 1 to 1024 threads has a row: lanes of a warp a short
 * one, a block a long one. Each thread's share of the row is unrolled and stays in registers
 * through all stages, so a softmax or a layer norm reads its row once; longer rows are
 * nvptx_long.c's. Of many rows a block has several, one after the other, and keeps what they share.
 * Sums combine in a fixed order: lanes by butterfly, warps one after the other (online variants
 * such as Milakov and Gimelshein 2018 would save nothing where the row stays). */
#include "codegen/chain.h"
#include "codegen/nvptx_places.h"
#include "codegen/nvptx_row_sums.h"
#include "passes/fuse.h"

enum {
  ROW_THREADS = 256,
  MOST_THREADS = 1024,
  LIGHT_SHARE = 16, /* elements a thread keeps where little is computed of each */
  HEAVY_SHARE = 8,
  HEAVY_NODES = 24,   /* of the body: from here on it is heavy */
  FILLED = MULTIPROCESSORS * 512, /* threads that keep a GPU busy */
  MOST_KEPT = 64,     /* registers for what rows share */
  SECTOR = 32,        /* bytes that memory moves at once */
  LONG_ODD = 1536,    /* elements: from here on rows that begin anywhere are nvptx_long's */
};

typedef struct {
  Entry entry;
  Domain domain;
  Reductions reductions;
  int64_t rows, length; /* of the domain; a loop's rows of `places` places count once */
  int places;           /* that a thread computes together: more than one only where it has one group of a row */
  int64_t pitch;        /* elements between the beginnings of rows */
  int64_t align;   /* elements: lanes start at a multiple of it, before the row; 1: at the row */
  int team, width; /* threads per row; neighbouring elements a thread takes at once */
  int64_t share;   /* elements per thread, a multiple of width */
  bool is_unrolled;
  RowSums sums; /* of columns */
  bool meets;   /* the last stage's sums were combined behind a barrier */
  LLVMValueRef thread, lane, row, row_valid; /* lane: in the team; row_valid NULL: always */
  LLVMValueRef before; /* places of the lanes before the row's first element */
  Index row_index;
  Index *index; /* unrolled: of each element of the share */
  LLVMValueRef *valid;
} Row;

static bool is_loop(const Row *r) { return !r->reductions.count; }

/* Is an element of the row overwritten by a result? Then only its own thread may look at it once
 * the row's reductions are complete. */
static bool is_in_place(const Job *job) {
  for (int i = 0; job->alias && i < job->result_count; i++)
    if (job->is_whole[i] && job->alias[i] != -1) return true;
  return false;
}

/* Do all lanes of this chunk lie in the row, wherever they start? */
static bool row_is_inside(const Row *r, LLVMValueRef chunk) {
  if (!LLVMIsAConstantInt(chunk)) return false;
  int64_t first = LLVMConstIntGetSExtValue(chunk) * r->team;
  return first >= r->align - 1 && first + r->team <= r->length;
}

/* Which group of `width` elements a lane has in a chunk of the row (team * width elements), clamped
 * to the row. */
static LLVMValueRef group_at(Row *r, LLVMValueRef chunk, LLVMValueRef *valid) {
  Entry *entry = &r->entry;
  LLVMValueRef group = entry_add(entry, entry_mul(entry, chunk, r->team), r->lane);
  int64_t groups = r->length / r->width;
  LLVMValueRef last = entry_const(entry, groups - 1), first = entry_const(entry, 0);
  *valid = NULL;
  if (r->before && row_is_inside(r, chunk)) return entry_sub(entry, group, r->before);
  if (r->before) {
    group = entry_sub(entry, group, r->before);
    LLVMValueRef clamped = entry_min(entry, group, last);
    clamped = LLVMBuildSelect(entry->b, entry_less(entry, clamped, first), first, clamped, "");
    *valid = LLVMBuildICmp(entry->b, LLVMIntEQ, clamped, group, "");
    return clamped;
  }
  if (r->share / r->width * r->team <= groups) return group;
  *valid = entry_less(entry, group, entry_const(entry, groups));
  return entry_min(entry, group, last);
}

/* The index of element `e` of a group, in the current row. */
static Index element_index(Row *r, LLVMValueRef group, int e) {
  Index index = r->row_index;
  entry_push_digits(&r->entry, &r->domain, true, group, r->width, e, &index);
  return index;
}

LLVMValueRef nvptx_combine(Entry *entry, const Reduction *one, LLVMValueRef value,
                           LLVMValueRef thread, int team) {
  int lanes = team < WARP ? team : WARP;
  for (int mask = lanes / 2; mask >= 1; mask /= 2)
    value = reduction_step(&entry->emitter, one, value, entry_shuffle(entry, value, mask));
  if (team <= WARP) return value;
  int warps = team / WARP, all = entry->threads / WARP;
  LLVMValueRef warp = entry_div(entry, thread, WARP);
  LLVMValueRef first = entry_is_zero(entry, entry_rem(entry, thread, WARP));
  LLVMBasicBlockRef after = entry_begin_if(entry, first);
  LLVMValueRef shared = entry_share(entry, "warp_part", all, warp, value);
  entry_end_if(entry, after);
  entry_barrier(entry);
  LLVMValueRef total = NULL, team_warp = entry_const(entry, 0);
  if (warps < all) /* the first warp of this team */
    team_warp = entry_mul(entry, entry_div(entry, thread, team), warps);
  for (int i = 0; i < warps; i++) {
    LLVMValueRef place = entry_add(entry, team_warp, entry_const(entry, i));
    LLVMValueRef part = entry_shared_at(entry, shared, LLVMTypeOf(value), place);
    total = total ? reduction_step(&entry->emitter, one, total, part) : part;
  }
  return total;
}

bool nvptx_pick(Entry *entry, const Domain *domain, const Index *row, Reduction *one) {
  Pick pick;
  if (!reduction_is_pick(one, &pick)) return false;
  LLVMValueRef place = emit_value(&entry->emitter, pick.place, row);
  LLVMTypeRef type = LLVMTypeOf(place);
  LLVMValueRef end = LLVMConstInt(type, (uint64_t)domain_elements(domain, 1), false);
  LLVMValueRef is_there = LLVMBuildICmp(entry->b, LLVMIntULT, place, end, "");
  place = LLVMBuildSelect(entry->b, is_there, place, LLVMConstNull(type), "");
  Index index = *row;
  entry_push_digits(entry, domain, true,
                    LLVMBuildIntCast2(entry->b, place, entry->index, false, ""), 1, 0, &index);
  LLVMValueRef value = emit_value(&entry->emitter, pick.value, &index);
  LLVMValueRef none = reduction_identity(&entry->emitter, one);
  value = LLVMBuildSelect(entry->b, is_there, value, none, "");
  value = reduction_step(&entry->emitter, one, none, value); /* -0 is 0 in a sum */
  reduction_finish(&entry->emitter, one, NULL, value);
  return true;
}

/* Picks first: they read, and behind the last barrier others may write. */
static void do_stage_unrolled(Row *r, int stage) {
  Entry *entry = &r->entry;
  Reductions *all = &r->reductions;
  r->meets = false;
  for (int i = 0; i < all->count; i++)
    if (all->at[i].stage == stage) nvptx_pick(entry, &r->domain, &r->row_index, &all->at[i]);
  for (int i = 0; i < all->count; i++) {
    Reduction *one = &all->at[i];
    if (one->stage != stage || one->value) continue;
    LLVMValueRef sum = NULL;
    for (int64_t e = 0; e < r->share; e++) {
      LLVMValueRef value =
          reduction_element(&entry->emitter, all, one, &r->index[e], NULL, r->valid[e]);
      sum = sum ? reduction_step(&entry->emitter, one, sum, value) : value;
    }
    if (!sum) sum = reduction_identity(&entry->emitter, one);
    one->value = nvptx_combine(entry, one, sum, r->thread, r->team);
    r->meets = r->team > WARP;
  }
  for (int i = 0; i < all->count; i++)
    if (all->at[i].stage == stage && all->at[i].value)
      reduction_finish(&entry->emitter, &all->at[i], NULL, all->at[i].value);
}

static void make_elements(Row *r, const Index *index, int64_t count) {
  Job *job = r->entry.job;
  for (int64_t e = 0; e < count; e++)
    for (int i = 0; i < job->result_count; i++)
      if (job->is_whole[i])
        emit_value(&r->entry.emitter, job->node->body->roots.at[i].node, &index[e]);
}

/* Values are computed before the guard, where they serve all results and their loads are in flight
 * together. But if a result overwrites an operand, lanes beyond the row must not read it: other
 * threads may be storing there. */
static void store_elements(Row *r, const Index *index, int count, LLVMValueRef valid) {
  Entry *entry = &r->entry;
  Job *job = entry->job;
  bool is_guarded = is_loop(r) || is_in_place(job);
  if (!is_guarded) make_elements(r, index, count);
  LLVMBasicBlockRef after = entry_begin_if(entry, entry_and(entry, r->row_valid, valid));
  if (is_guarded) make_elements(r, index, count);
  for (int i = 0; i < job->result_count; i++)
    if (job->is_whole[i]) entry_store_group(entry, i, index, count);
  entry_end_if(entry, after);
}

static bool has_domain_result(Job *job) {
  for (int i = 0; i < job->result_count; i++)
    if (job->is_whole[i]) return true;
  return false;
}

void nvptx_store_rows(Entry *entry, const Index *row, LLVMValueRef condition) {
  Job *job = entry->job;
  /* one thread overwrites what all have to read before, such as the step counter */
  bool overwrites = false;
  for (int i = 0; i < job->result_count; i++)
    overwrites |= !job->is_whole[i] && !job->is_beside[i] && job->alias && job->alias[i] >= 0;
  if (overwrites && job->rows) entry_warp_barrier(entry); /* a warp has a row, which no other one overwrites */
  if (overwrites && !job->rows) entry_barrier(entry);
  LLVMBasicBlockRef after = entry_begin_if(entry, condition);
  for (int i = 0; i < job->result_count; i++)
    if (!job->is_whole[i] && !job->is_beside[i])
      emit_value(&entry->emitter, job->node->body->roots.at[i].node, row);
  for (int i = 0; i < job->result_count; i++)
    if (!job->is_whole[i] && !job->is_beside[i]) entry_store_result(entry, i, row);
  entry_end_if(entry, after);
}

static void store_results(Row *r) {
  Entry *entry = &r->entry;
  Job *job = entry->job;
  /* sums over several warps were combined behind a barrier, but shuffles do not order memory */
  if (is_in_place(job) && !is_loop(r) && r->team <= WARP) entry_warp_barrier(entry);
  if (is_in_place(job) && !is_loop(r) && r->team > WARP && !r->meets) entry_barrier(entry);
  if (has_domain_result(job)) {
    if (r->is_unrolled) {
      int64_t count = r->share * r->places;
      for (int64_t e = 0; e < count && is_loop(r); e++)
        if (!r->valid[e % r->share]) make_elements(r, &r->index[e], 1);
      for (int64_t e = 0; e < count; e += r->width)
        store_elements(r, &r->index[e], r->width, r->valid[e % r->share]);
    } else {
      Loop loop;
      LLVMValueRef chunk =
          entry_begin_loop(entry, &loop, entry_const(entry, 0),
                           entry_const(entry, r->share / r->width), entry_const(entry, 1), NULL, 0);
      Index index[8];
      LLVMValueRef valid, group = group_at(r, chunk, &valid);
      for (int e = 0; e < r->width; e++) index[e] = element_index(r, group, e);
      store_elements(r, index, r->width, valid);
      entry_end_loop(entry, &loop, NULL);
    }
  }
  nvptx_store_rows(entry, &r->row_index,
                   entry_and(entry, r->row_valid, entry_is_zero(entry, r->lane)));
}

static void set_team(Row *r, int team) {
  int64_t groups = (r->length + r->align - 1) / r->width;
  r->team = team;
  r->share = (groups + team - 1) / team * r->width;
}

/* Where rows begin in the middle of a sector, lanes start at the sector's beginning, so that no
 * sector is written by two stores of a warp. */
static void choose_align(Row *r) {
  Job *job = r->entry.job;
  int64_t elements = 1;
  for (int i = 0; i < job->result_count; i++) {
    int64_t in_sector = SECTOR / dtype_bytes(job->result_type[i].dtype);
    if (job->is_whole[i] && in_sector > elements) elements = in_sector;
  }
  bool is_odd = r->width == 1 && !r->sums.count && r->length > WARP && r->pitch % elements;
  r->align = is_odd ? elements : 1;
}

int nvptx_row_width(const Job *job, int64_t inner, int64_t elements, int64_t length, bool is_loop) {
  const Graph *body = job->node->body;
  bool *among = ARENA_ARRAY(job->scratch, bool, body->nodes.count), has_windows = false;
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    int64_t count = shape_elements(&node->type.shape);
    has_windows |= op_info[node->op].op_class == CLASS_WINDOW;
    among[i] = node->op != OP_ARG || (is_loop ? count > length : count >= elements);
  }
  return nvptx_width_among(job, inner, is_loop && has_windows ? NULL : among, true);
}

static bool row_is_heavy(const Row *r) {
  const Job *job = r->entry.job;
  return r->sums.count > 0 || job->node->body->nodes.count >= HEAVY_NODES || job->operand_count > 4;
}

/* Would a thread of a long row take several neighbours, where it has one here? */
static bool row_begins_anywhere(const Row *r) {
  return r->width == 1 && r->length >= LONG_ODD &&
         nvptx_row_width(r->entry.job, 8, r->rows * r->length, r->length, false) > 1;
}

static void choose_team(Row *r, int kept) {
  Job *job = r->entry.job;
  int64_t inner = 1;
  for (int i = 0; i < r->domain.count; i++)
    if (r->domain.is_reduced[i]) inner = r->domain.extent[i];
  r->width = nvptx_row_width(job, inner, r->rows * r->length, r->length, is_loop(r));
  choose_align(r);
  bool is_heavy = row_is_heavy(r);
  int64_t most = is_heavy ? HEAVY_SHARE : LIGHT_SHARE, in_warp = r->sums.count ? HEAVY_SHARE
                                                                 : is_heavy    ? LIGHT_SHARE
                                                                               : 2 * LIGHT_SHARE;
  while (kept * in_warp > MOST_KEPT && in_warp > most) in_warp /= 2;
  if (most < r->width) most = r->width;
  int widest = is_heavy ? MOST_THREADS / 2 : MOST_THREADS;
  set_team(r, r->sums.count ? WARP : 1);
  while (r->team < WARP && r->team * r->width < r->length) set_team(r, r->team * 2);
  if (r->share > in_warp)
    while (r->team < widest && r->share > most) set_team(r, r->team * 2);
  /* few rows: more threads each */
  while (r->team >= WARP && r->team < ROW_THREADS && r->rows * r->team < FILLED &&
         r->share >= 4 * r->width)
    set_team(r, r->team * 2);
  /* no sums to meet: what is kept, a block reads once */
  while (is_loop(r) && kept && r->team < ROW_THREADS && r->share > r->width)
    set_team(r, r->team * 2);
  r->is_unrolled = r->share <= (r->team <= WARP ? in_warp : most);
  if (!r->is_unrolled) set_team(r, ROW_THREADS);
}

/* How many rows' worth of teams the grid has: rows of a team follow each other by a stride that
 * moves the rows' beginnings by whole multiples of `align`. */
static int64_t choose_blocks(const Row *r, int threads, bool is_keeping) {
  int64_t per_block = threads / r->team;
  /* a loop has only one access of each operand under way in a thread: more threads */
  int64_t most = FILLED / threads * (is_keeping && !is_loop(r) ? 1 : 2);
  int64_t blocks = (r->rows + per_block - 1) / per_block;
  if (blocks <= most) return blocks;
  while (most * per_block * r->pitch % r->align) most--;
  return most;
}

/* The digits of a thread's elements: before the loop over rows, so that what depends on nothing
 * else can be remembered there. */
static void place_elements(Row *r, LLVMValueRef *group) {
  Entry *entry = &r->entry;
  for (int64_t e = 0; e < r->share; e += r->width) {
    LLVMValueRef valid;
    group[e] = group_at(r, entry_const(entry, e / r->width), &valid);
    for (int k = 0; k < r->width; k++) r->valid[e + k] = valid;
    for (int k = 0; k < r->width; k++) group[e + k] = group[e];
  }
}

/* What all rows share is read now, and stays in registers. One barrier, so that the warps of a
 * block read it at the same time: once, from further away than the first-level cache. */
static void keep_shared(Row *r, LLVMValueRef *group) {
  Entry *entry = &r->entry;
  r->row_index = (Index){0};
  entry_push_digits(entry, &r->domain, false, entry_const(entry, 0), 1, 0, &r->row_index);
  for (int64_t e = 0; e < r->share; e++) {
    Index index = element_index(r, group[e], (int)(e % r->width));
    nvptx_shared(entry->job, r->rows * r->places, entry, &index);
  }
  if (r->team < entry->threads && entry->threads > WARP) entry_barrier(entry);
}

/* What the columns' sums need of this row's elements, before a result overwrites one of them. */
static void add_to_row_sums(Row *r) {
  Entry *entry = &r->entry;
  for (int64_t e = 0; e < r->share; e++)
    nvptx_row_sums_add(entry, &r->sums, &r->index[e], e,
                       entry_and(entry, r->row_valid, r->valid[e]));
  if (r->sums.count) r->meets = false; /* others may still read */
}

/* The teams of a block leave one number for each column. */
static void store_sums(Row *r, LLVMValueRef *group, LLVMValueRef block) {
  Entry *entry = &r->entry;
  nvptx_row_sums_meet(entry, &r->sums, r->lane, r->team);
  LLVMBasicBlockRef after = entry_begin_if(
      entry,
      r->team < entry->threads ? entry_less(entry, r->thread, entry_const(entry, r->team)) : NULL);
  for (int64_t e = 0; e < r->share; e++) {
    LLVMValueRef column =
        entry_add(entry, entry_mul(entry, group[e], r->width), entry_const(entry, e % r->width));
    nvptx_row_sums_store(entry, &r->sums, block, column, e, r->valid[e]);
  }
  entry_end_if(entry, after);
}

/* Everything for the rows that the block works on now. */
static void do_rows(Row *r, LLVMValueRef *group) {
  Entry *entry = &r->entry;
  for (int p = 0; p < r->places; p++) {
    nvptx_set_place(&r->domain, p);
    r->row_index = (Index){0};
    entry_push_digits(entry, &r->domain, false, r->row, 1, 0, &r->row_index);
    for (int64_t e = 0; r->is_unrolled && e < r->share; e++)
      r->index[p * r->share + e] = element_index(r, group[e], (int)(e % r->width));
  }
  for (int stage = 1; stage <= r->reductions.stages; stage++) do_stage_unrolled(r, stage);
  add_to_row_sums(r);
  store_results(r);
}

/* By rows (codegen/chain.h): each of the first warps of a block has one. */
static bool emit_block_rows(Row *r) {
  Entry *entry = &r->entry;
  Job *job = entry->job;
  int64_t own = job->block_rows;
  set_team(r, WARP);
  r->is_unrolled = true;
  entry_open(entry, job, job->name, CHAIN_THREADS, false);
  entry_annotate(entry, "minctasm", 2);
  r->thread = entry_special(entry, "tid.x");
  r->lane = entry_rem(entry, r->thread, WARP);
  LLVMValueRef below = entry_div(entry, r->thread, WARP);
  r->row = entry_add(entry, entry_mul(entry, entry_special(entry, "ctaid.x"), own), below);
  if (r->align > 1) r->before = entry_rem(entry, entry_mul(entry, r->row, r->pitch % r->align), r->align);
  LLVMValueRef *group = ARENA_ARRAY(job->scratch, LLVMValueRef, r->share + 1);
  r->index = ARENA_ARRAY(job->scratch, Index, r->share + 1);
  r->valid = ARENA_ARRAY(job->scratch, LLVMValueRef, r->share + 1);
  place_elements(r, group);
  LLVMValueRef valid = own * WARP < CHAIN_THREADS ? entry_less(entry, below, entry_const(entry, own)) : NULL;
  if (r->rows % own) valid = entry_and(entry, valid, entry_less(entry, r->row, entry_const(entry, r->rows)));
  LLVMBasicBlockRef after = entry_begin_if(entry, valid);
  do_rows(r, group);
  entry_end_if(entry, after);
  entry_close(entry, job->name, (r->rows + own - 1) / own, 1, 1);
  job->out->launch[0].goes_by_rows = true;
  return true;
}

static bool emit_row(Row *r) {
  Entry *entry = &r->entry;
  Job *job = entry->job;
  int kept = nvptx_shared(job, r->rows, NULL, NULL);
  r->pitch = nvptx_row_pitch(job, r->length);
  if (!r->pitch) r->pitch = r->length; /* which decides nothing but where lanes begin */
  choose_team(r, kept);
  if (job->rows) return emit_block_rows(r);
  if (is_loop(r) && r->share == r->width)
    r->places = nvptx_tile_places(job, &r->domain, false, r->width);
  r->rows /= r->places;
  bool is_long = !r->is_unrolled || (!kept && !r->sums.count && row_begins_anywhere(r));
  if (!is_loop(r) && is_long) return nvptx_long(job, &r->domain, &r->reductions, row_is_heavy(r));
  int threads = r->team > ROW_THREADS ? r->team : ROW_THREADS;
  while (threads > WARP && r->team <= WARP && threads / 2 / r->team >= r->rows) threads /= 2;
  if (is_in_place(job) && !is_loop(r) && r->rows % (threads / r->team)) {
    /* teams without a row would read the last one while it is overwritten */
    if (r->team < WARP) set_team(r, WARP);
    threads = r->team;
  }
  bool is_keeping = kept && r->is_unrolled && kept * r->share <= 2 * MOST_KEPT;
  int64_t per_block = threads / r->team, blocks = choose_blocks(r, threads, is_keeping);
  if (r->sums.count) blocks = nvptx_row_sums_blocks(&r->sums, r->rows, per_block, blocks);
  bool is_looped = blocks * per_block < r->rows;
  if (r->sums.count) entry_leave_out(job, SECOND_MAKES_COLUMN_SUMS, false);
  entry_open(entry, job, job->name, threads, r->sums.count > 0);
  /* left to itself ptxas spills for a fifth block */
  entry_annotate(entry, "minctasm", threads <= ROW_THREADS ? 2 : 1);
  LLVMValueRef thread = entry_special(entry, "tid.x"), block = entry_special(entry, "ctaid.x");
  LLVMValueRef rows = entry_const(entry, r->rows);
  r->thread = thread;
  r->lane = r->team == threads ? thread : entry_rem(entry, thread, r->team);
  LLVMValueRef base = entry_mul(entry, block, per_block);
  LLVMValueRef below = per_block == 1 ? NULL : entry_div(entry, thread, r->team);
  if (r->align > 1) {
    LLVMValueRef first = below ? entry_add(entry, base, below) : base;
    first = entry_mul(entry, first, r->pitch % r->align);
    r->before = entry_rem(entry, first, r->align);
  }
  LLVMValueRef *group = ARENA_ARRAY(job->scratch, LLVMValueRef, r->share + 1);
  r->index = ARENA_ARRAY(job->scratch, Index, r->share * r->places + 1);
  r->valid = ARENA_ARRAY(job->scratch, LLVMValueRef, r->share + 1);
  if (r->is_unrolled) place_elements(r, group);
  if (is_looped && is_keeping) keep_shared(r, group);
  Loop loop;
  nvptx_row_sums_clear(entry, &r->sums, r->share);
  if (is_looped)
    base = entry_begin_loop(entry, &loop, base, rows, entry_const(entry, blocks * per_block),
                            r->sums.total, r->sums.total_count);
  r->row = below ? entry_add(entry, base, below) : base;
  LLVMBasicBlockRef after = NULL;
  if (r->rows % per_block) {
    LLVMValueRef valid = entry_less(entry, r->row, rows);
    if (is_loop(r)) {
      after = entry_begin_if(entry, valid);
    } else {
      r->row_valid = valid;
      r->row = entry_min(entry, r->row, entry_const(entry, r->rows - 1));
    }
  }
  do_rows(r, group);
  entry_end_if(entry, after);
  if (is_looped) {
    /* the next rows' sums meet in the same places */
    if (r->team > WARP && !is_loop(r)) entry_barrier(entry);
    entry_end_loop(entry, &loop, r->sums.total);
  }
  if (r->sums.count) store_sums(r, group, block);
  entry_close(entry, job->name, blocks, 1, 1);
  nvptx_row_sums_combine(job, &r->sums);
  return true;
}

bool nvptx_row(Job *job) {
  Row *r = ARENA_NEW(job->scratch, Row);
  r->entry.job = job;
  r->domain = collapse_domain(job->scratch, job->node, job->result_type);
  r->rows = domain_elements(&r->domain, 0);
  r->length = domain_elements(&r->domain, 1);
  r->places = 1;
  reductions_find(job->scratch, job->node, &r->reductions);
  nvptx_row_sums_find(job, &r->sums);
  return emit_row(r);
}

/* The last digit of the domain is the row. */
bool nvptx_loop_rows(Job *job, const Domain *domain) {
  Row *r = ARENA_NEW(job->scratch, Row);
  r->entry.job = job;
  r->domain = *domain;
  for (int i = 0; i < domain->count; i++) r->domain.is_reduced[i] = i == domain->count - 1;
  r->rows = domain_elements(&r->domain, 0);
  r->length = domain_elements(&r->domain, 1);
  r->places = 1;
  return emit_row(r);
}
