/* nvptx_row: kernels whose reductions run over the last dimensions. A team of 1 to 1024 threads has
 * a row: lanes of a warp a short one, a block a long one. Each thread's share of the row is
 * unrolled and stays in registers through all stages, so a softmax or a layer norm reads its row
 * once; only rows beyond what registers hold are read again by each stage, in loops. Sums combine
 * in a fixed order: lanes by butterfly, warps one after the other (online variants such as Milakov
 * and Gimelshein 2018 would save nothing where the row stays). */
#include "codegen/nvptx_private.h"
#include "passes/fuse.h"

enum {
  ROW_THREADS = 256,
  MOST_THREADS = 1024,
  LIGHT_SHARE = 16, /* elements a thread keeps where little is computed of each */
  HEAVY_SHARE = 8,
  HEAVY_NODES = 24,  /* of the body: from here on it is heavy */
  FILLED = 132 * 512 /* threads that keep a GPU busy */
};

typedef struct {
  Entry entry;
  Domain domain;
  Reductions reductions;
  int64_t rows, length; /* of the domain */
  int team, width;      /* threads per row; neighbouring elements a thread takes at once */
  int64_t share;        /* elements per thread, a multiple of width */
  bool is_unrolled;
  LLVMValueRef thread, lane, row, row_valid; /* lane: in the team; row_valid NULL: always */
  Index row_index;
  Index *index; /* unrolled: of each element of the share */
  LLVMValueRef *valid;
} Row;

/* The index of element `e` of the share, whose place is clamped to the row's end. `chunk`: of the
 * row, team * width elements each. */
static Index element_index(Row *r, LLVMValueRef chunk, int e, LLVMValueRef *valid) {
  Entry *entry = &r->entry;
  LLVMValueRef team = entry_const(entry, r->team);
  LLVMValueRef group = entry_op(entry, LLVMAdd, entry_op(entry, LLVMMul, chunk, team), r->lane);
  int64_t groups = r->length / r->width;
  *valid = NULL;
  if (r->share / r->width * r->team > groups) {
    *valid = entry_less(entry, group, entry_const(entry, groups));
    group = entry_min(entry, group, entry_const(entry, groups - 1));
  }
  Index index = r->row_index;
  entry_push_digits(entry, &r->domain, true, group, r->width, e, &index);
  return index;
}

/* All threads of a team end with the same value. */
static LLVMValueRef combine_team(Row *r, const Reduction *one, LLVMValueRef value) {
  Entry *entry = &r->entry;
  int lanes = r->team < WARP ? r->team : WARP;
  for (int mask = lanes / 2; mask >= 1; mask /= 2)
    value = reduction_step(entry, one, value, entry_shuffle(entry, value, mask));
  if (r->team <= WARP) return value;
  int warps = r->team / WARP, all = entry->threads / WARP;
  LLVMTypeRef type = LLVMTypeOf(value);
  bool is_bit = LLVMGetTypeKind(type) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(type) == 1;
  LLVMTypeRef stored = is_bit ? entry->i32 : type;
  LLVMValueRef shared = entry_shared(entry, "warp_part", stored, all);
  LLVMValueRef thread = r->thread, warp_size = entry_const(entry, WARP);
  LLVMValueRef warp = entry_op(entry, LLVMUDiv, thread, warp_size);
  LLVMValueRef first = LLVMBuildICmp(
      entry->b, LLVMIntEQ, entry_op(entry, LLVMURem, thread, warp_size), entry_const(entry, 0), "");
  LLVMBasicBlockRef after = entry_begin_if(entry, first);
  LLVMValueRef word = is_bit ? LLVMBuildZExt(entry->b, value, stored, "") : value;
  LLVMBuildStore(entry->b, word, entry_at(entry, stored, shared, warp));
  entry_end_if(entry, after);
  entry_barrier(entry);
  LLVMValueRef total = NULL, team_warp = entry_const(entry, 0);
  if (warps < all) /* the first warp of this team */
    team_warp =
        entry_op(entry, LLVMMul, entry_op(entry, LLVMUDiv, thread, entry_const(entry, r->team)),
                 entry_const(entry, warps));
  for (int i = 0; i < warps; i++) {
    LLVMValueRef place = entry_op(entry, LLVMAdd, team_warp, entry_const(entry, i));
    LLVMValueRef part =
        LLVMBuildLoad2(entry->b, stored, entry_at(entry, stored, shared, place), "");
    if (is_bit) part = LLVMBuildTrunc(entry->b, part, type, "");
    total = total ? reduction_step(entry, one, total, part) : part;
  }
  return total;
}

static void stage_unrolled(Row *r, int stage) {
  Reductions *all = &r->reductions;
  for (int i = 0; i < all->count; i++) {
    Reduction *one = &all->at[i];
    if (one->stage != stage) continue;
    LLVMValueRef sum = NULL;
    for (int64_t e = 0; e < r->share; e++) {
      LLVMValueRef value = reduction_element(&r->entry, all, one, &r->index[e], r->valid[e]);
      sum = sum ? reduction_step(&r->entry, one, sum, value) : value;
    }
    if (!sum) sum = reduction_identity(&r->entry, one);
    one->value = combine_team(r, one, sum);
  }
}

static void stage_loop(Row *r, int stage) {
  Entry *entry = &r->entry;
  Reductions *all = &r->reductions;
  LLVMValueRef sum[32];
  Reduction *which[32];
  int count = 0;
  for (int i = 0; i < all->count; i++)
    if (all->at[i].stage == stage) {
      which[count] = &all->at[i];
      sum[count++] = reduction_identity(entry, &all->at[i]);
    }
  Loop loop;
  LLVMValueRef chunk =
      entry_begin_loop(entry, &loop, entry_const(entry, 0), entry_const(entry, r->share / r->width),
                       entry_const(entry, 1), sum, count);
  for (int e = 0; e < r->width; e++) {
    LLVMValueRef valid;
    Index index = element_index(r, chunk, e, &valid);
    for (int i = 0; i < count; i++)
      sum[i] = reduction_step(entry, which[i], sum[i],
                              reduction_element(entry, all, which[i], &index, valid));
  }
  entry_end_loop(entry, &loop, sum);
  for (int i = 0; i < count; i++) which[i]->value = combine_team(r, which[i], sum[i]);
}

static void store_elements(Row *r, const Index *index, int count, LLVMValueRef valid) {
  Entry *entry = &r->entry;
  Job *job = entry->job;
  Shape domain = kernel_domain(job->node);
  /* values before the guard: they may serve all results, and loads stay in flight together */
  for (int i = 0; i < job->result_count; i++)
    for (int e = 0; e < count && nvptx_is_domain(job, i, &domain); e++)
      emit_value(&entry->emitter, job->node->body->roots.at[i].node, &index[e]);
  LLVMBasicBlockRef after = entry_begin_if(entry, entry_and(entry, r->row_valid, valid));
  for (int i = 0; i < job->result_count; i++)
    for (int e = 0; e < count && nvptx_is_domain(job, i, &domain); e++)
      entry_store_result(entry, i, &index[e]);
  entry_end_if(entry, after);
}

static bool has_domain_result(Job *job) {
  Shape domain = kernel_domain(job->node);
  for (int i = 0; i < job->result_count; i++)
    if (nvptx_is_domain(job, i, &domain)) return true;
  return false;
}

static void store_results(Row *r) {
  Entry *entry = &r->entry;
  Job *job = entry->job;
  Shape domain = kernel_domain(job->node);
  if (has_domain_result(job)) {
    if (r->is_unrolled) {
      for (int64_t e = 0; e < r->share; e += r->width)
        store_elements(r, &r->index[e], r->width, r->valid[e]);
    } else {
      Loop loop;
      LLVMValueRef chunk =
          entry_begin_loop(entry, &loop, entry_const(entry, 0),
                           entry_const(entry, r->share / r->width), entry_const(entry, 1), NULL, 0);
      Index index[8];
      LLVMValueRef valid = NULL;
      for (int e = 0; e < r->width; e++) index[e] = element_index(r, chunk, e, &valid);
      store_elements(r, index, r->width, valid);
      entry_end_loop(entry, &loop, NULL);
    }
  }
  /* all threads have read what one of them overwrites (the step counter and its kin) */
  bool overwrites = false;
  for (int i = 0; i < job->result_count; i++)
    overwrites |= !nvptx_is_domain(job, i, &domain) && job->alias && job->alias[i] >= 0;
  if (overwrites) entry_barrier(entry);
  LLVMValueRef first = LLVMBuildICmp(entry->b, LLVMIntEQ, r->lane, entry_const(entry, 0), "");
  LLVMBasicBlockRef after = entry_begin_if(entry, entry_and(entry, r->row_valid, first));
  for (int i = 0; i < job->result_count; i++)
    if (!nvptx_is_domain(job, i, &domain)) entry_store_result(entry, i, &r->row_index);
  entry_end_if(entry, after);
}

static void set_team(Row *r, int team) {
  int64_t groups = r->length / r->width;
  r->team = team;
  r->share = (groups + team - 1) / team * r->width;
}

/* Threads per row and what each holds. Lanes first: a warp needs no barrier. */
static void choose_team(Row *r) {
  Job *job = r->entry.job;
  int64_t inner = 1;
  for (int i = 0; i < r->domain.count; i++)
    if (r->domain.is_reduced[i]) inner = r->domain.extent[i];
  r->width = nvptx_width(job, inner);
  bool is_heavy = job->node->body->nodes.count >= HEAVY_NODES || job->operand_count > 4;
  int64_t most = is_heavy ? HEAVY_SHARE : LIGHT_SHARE,
          in_warp = is_heavy ? LIGHT_SHARE : 2 * LIGHT_SHARE;
  if (most < r->width) most = r->width;
  int widest = is_heavy ? MOST_THREADS / 2 : MOST_THREADS;
  set_team(r, 1);
  while (r->team < WARP && r->team * r->width < r->length) set_team(r, r->team * 2);
  if (r->share > in_warp)
    while (r->team < widest && r->share > most) set_team(r, r->team * 2);
  /* few rows: more threads each */
  while (r->team >= WARP && r->team < ROW_THREADS && r->rows * r->team < FILLED &&
         r->share >= 4 * r->width)
    set_team(r, r->team * 2);
  r->is_unrolled = r->share <= (r->team <= WARP ? in_warp : most);
  if (!r->is_unrolled) set_team(r, r->rows < FILLED / MOST_THREADS ? widest : ROW_THREADS);
}

/* Everything for the rows that the block has at hand. */
static void do_rows(Row *r) {
  Entry *entry = &r->entry;
  r->row_index = (Index){0};
  entry_push_digits(entry, &r->domain, false, r->row, 1, 0, &r->row_index);
  if (r->is_unrolled) {
    r->index = ARENA_ARRAY(entry->job->scratch, Index, r->share + 1);
    r->valid = ARENA_ARRAY(entry->job->scratch, LLVMValueRef, r->share + 1);
    for (int64_t e = 0; e < r->share; e++)
      r->index[e] =
          element_index(r, entry_const(entry, e / r->width), (int)(e % r->width), &r->valid[e]);
  }
  for (int stage = 0; stage < r->reductions.stages; stage++) {
    if (r->is_unrolled)
      stage_unrolled(r, stage);
    else
      stage_loop(r, stage);
    for (int i = 0; i < r->reductions.count; i++)
      if (r->reductions.at[i].stage == stage)
        reduction_finish(entry, &r->reductions.at[i], r->reductions.at[i].value);
  }
  store_results(r);
}

/* Does every row read the same elements of some operand? */
static bool shares_operand(const Row *r) {
  const Node *node = r->entry.job->node;
  for (int i = 0; i < node->input_count; i++) {
    int64_t elements = shape_elements(&node->input[i]->type.shape);
    if (elements > 1 && elements < r->length * r->rows && elements % r->length == 0) return true;
  }
  return false;
}

/* Of many rows a block has several, one after the other: what all rows share (the weights of a
 * norm) it reads once. */
bool nvptx_row(Job *job) {
  Row *r = ARENA_NEW(job->scratch, Row);
  r->entry.job = job;
  r->domain = collapse_domain(job->scratch, job->node);
  r->rows = domain_elements(&r->domain, 0);
  r->length = domain_elements(&r->domain, 1);
  if (!nvptx_collect(job, &r->reductions)) return false;
  choose_team(r);
  int threads = r->team > ROW_THREADS ? r->team : ROW_THREADS;
  while (threads > WARP && r->team <= WARP && threads / 2 / r->team >= r->rows) threads /= 2;
  int per_block = threads / r->team, most = FILLED / threads * (shares_operand(r) ? 1 : 2);
  int64_t blocks = (r->rows + per_block - 1) / per_block;
  bool is_looped = blocks > most;
  if (is_looped) blocks = most;
  Entry *entry = &r->entry;
  entry_open(entry, job, job->name, threads, false);
  LLVMValueRef thread = entry_special(entry, "tid.x"), block = entry_special(entry, "ctaid.x");
  LLVMValueRef team = entry_const(entry, r->team), rows = entry_const(entry, r->rows);
  r->thread = thread;
  r->lane = r->team == threads ? thread : entry_op(entry, LLVMURem, thread, team);
  LLVMValueRef base = entry_op(entry, LLVMMul, block, entry_const(entry, per_block));
  Loop loop;
  if (is_looped)
    base =
        entry_begin_loop(entry, &loop, base, rows, entry_const(entry, blocks * per_block), NULL, 0);
  r->row = per_block == 1 ? base
                          : entry_op(entry, LLVMAdd, base, entry_op(entry, LLVMUDiv, thread, team));
  if (r->rows % per_block) {
    r->row_valid = entry_less(entry, r->row, rows);
    r->row = entry_min(entry, r->row, entry_const(entry, r->rows - 1));
  }
  do_rows(r);
  if (is_looped) {
    if (r->team > WARP) entry_barrier(entry); /* the next rows' sums meet in the same places */
    entry_end_loop(entry, &loop, NULL);
  }
  entry_close(entry, job->name, blocks, 1, 1);
  return true;
}
