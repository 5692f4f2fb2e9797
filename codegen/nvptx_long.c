/* nvptx_long: kernels of rows that are longer than what registers hold, and of those of some length
 * that begin anywhere in 16 bytes. A block has a row and goes through it once for each stage of its
 * reductions, and once more for the results; a thread's elements are the same every time. What
 * several passes read of memory is kept in shared memory by the first of them, as much as fits
 * there, so that it comes from further away once. Each thread reads only what it kept itself.
 *
 * A thread takes `width` neighbours at once, in one access of 16 bytes, and `depth` of these groups
 * together, whose loads are all in flight before the first is used. Rows whose length is no
 * multiple of the width begin anywhere in 16 bytes: groups begin at the first multiple of the width
 * in memory that is in the row, and what lies before and behind the groups, the edge, is one
 * element of a thread. */
#include "codegen/nvptx_private.h"
#include "codegen/own_index.h"
#include "passes/fuse.h"
#include <string.h>

enum {
  MOST_DEPTH = 6,
  SMALL_DEPTH = 4,
  MOST_CODE = 2048, /* nodes of the body, times elements that are unrolled */
  LONG_LEAST_THREADS = 128,
  LONG_THREADS = 512,
  LONG_MOST_THREADS = 1024,
  LONG_SHARED = 99 << 10,         /* of a block, on every GPU from sm_80 on */
  LONG_SHARED_HOPPER = 227 << 10, /* on sm_90a */
  LONG_SUMS = 4 << 10,            /* of it, for sums of warps */
};

typedef struct {
  LLVMValueRef slot;  /* the thread's group among all of the block's */
  LLVMValueRef valid; /* NULL: it is in the row; else, if it is not, it is the last one that is */
  LLVMValueRef linear[8]; /* element numbers in operands and results of the domain's size, */
  LLVMValueRef place;     /* and where the first of them lies */
  Index index[8];
  LLVMValueRef *loaded; /* by operand: its group, or NULL */
} Group;

/* Operands of the domain's size that are read at the kernel's own index only. */
typedef struct {
  const Node *arg; /* NULL: not of these */
  uint64_t passes; /* that read it: bits */
  int first;       /* of them */
  int64_t place;   /* where it is kept in shared memory; -1: it is not */
} Operand;

typedef struct {
  Entry entry;
  Domain domain;
  Reductions reductions;
  int64_t rows, length, pitch;
  int width, depth, team;
  bool is_odd;        /* the length is no multiple of the width, and unless the pitch is one, rows begin anywhere */
  int64_t surely;     /* groups that every row has */
  int64_t full;       /* times that `depth` groups of all threads lie in the row */
  int tail;           /* groups of a thread behind these, not all in the row */
  int64_t kept;       /* how many of the `full` are kept in shared memory, */
  bool keeps_tail;    /* and whether what is behind them is */
  int64_t shared;     /* bytes */
  int store_pass;     /* 0: no result has the domain's size */
  LLVMValueRef thread, panels;
  LLVMValueRef head, groups; /* elements before the first group; groups of the row */
  Index row_index, edge;
  LLVMValueRef edge_valid;
  Operand *operand;
  Group group[MOST_DEPTH];
  int count; /* of groups that the thread is at */
} Long;

static bool is_overwritten(const Job *job, int operand) {
  for (int i = 0; job->alias && i < job->result_count; i++)
    if (job->is_whole[i] && (job->alias[i] == operand || job->alias[i] == -2)) return true;
  return false;
}

static bool overwrites(const Job *job) {
  for (int i = 0; job->alias && i < job->result_count; i++)
    if (job->is_whole[i] && job->alias[i] != -1) return true;
  return false;
}

/* ── what is read when ─────────────────────────────────────────────────────────────────────── */
/* Marks what a pass computes: what reductions give is there by then. */
static void mark_pass(const Long *r, int pass, bool *is_read) {
  const Job *job = r->entry.job;
  const Graph *body = job->node->body;
  Pick pick;
  for (int i = 0; i < r->reductions.count; i++) {
    const Reduction *one = &r->reductions.at[i];
    if (one->stage == pass && !reduction_is_pick(one, &pick))
      is_read[one->node->input[0]->id] = true;
  }
  for (int i = 0; pass == r->store_pass && i < job->result_count; i++)
    if (job->is_whole[i]) is_read[body->roots.at[i].node->id] = true;
  for (int i = body->nodes.count - 1; i >= 0; i--) {
    const Node *node = body->nodes.at[i];
    if (!is_read[i] || op_info[node->op].op_class == CLASS_REDUCE) continue;
    for (int k = 0; k < node->input_count; k++) is_read[node->input[k]->id] = true;
  }
}

static void find_long_operands(Long *r) {
  Job *job = r->entry.job;
  const Graph *body = job->node->body;
  const bool *is_own = own_index_reads(job->scratch, job->node);
  r->operand = ARENA_ARRAY(job->scratch, Operand, job->operand_count);
  for (int pass = 1; pass <= r->reductions.stages + (r->store_pass > 0); pass++) {
    bool *is_read = ARENA_ARRAY(job->scratch, bool, body->nodes.count);
    mark_pass(r, pass, is_read);
    for (int i = 0; i < body->nodes.count; i++) {
      const Node *node = body->nodes.at[i];
      if (node->op != OP_ARG || !is_read[i] || !is_own[i] || r->width == 1 ||
          shape_elements(&node->type.shape) != r->rows * r->length)
        continue;
      Operand *operand = &r->operand[node_int(node, ATTR_INDEX, 0)];
      if (!operand->arg) *operand = (Operand){.arg = node, .first = pass, .place = -1};
      operand->passes |= UINT64_C(1) << pass;
    }
  }
}

/* ── how a row is divided ──────────────────────────────────────────────────────────────────── */
static int64_t bytes_in_shared(const Long *r) {
  int64_t bytes = 0;
  for (int i = 0; i < r->entry.job->operand_count; i++) {
    const Operand *one = &r->operand[i];
    if (one->arg && (one->passes & (one->passes - 1))) bytes += dtype_bytes(one->arg->type.dtype);
  }
  return bytes;
}

/* How many groups a thread has at once: six, or as many less as several operands are loaded, such
 * that they go round the row in the fewest times. Where not all of a long row is kept in shared memory, what
 * tells one part from the other takes registers, too, of which a thread has 64: then four. */
static void choose_depth(Long *r, int64_t groups) {
  int loads = 1;
  for (int pass = 1; pass <= r->reductions.stages + 1; pass++) {
    int count = 0;
    for (int i = 0; i < r->entry.job->operand_count; i++)
      count += r->operand[i].arg && (r->operand[i].passes >> pass & 1);
    if (count > loads) loads = count;
  }
  int most = loads > 3 ? 2 : MOST_DEPTH / loads;
  if (strcmp(r->entry.job->module->cpu, "sm_90a") && most > SMALL_DEPTH) most = SMALL_DEPTH;
  int64_t nodes = r->entry.job->node->body->nodes.count * r->width;
  while (most > 1 && nodes * most > MOST_CODE) most--;
  int64_t of_thread = (groups + r->team - 1) / r->team;
  while (most > 1 && (of_thread + most - 2) / (most - 1) == (of_thread + most - 1) / most) most--;
  r->depth = most;
}

static void choose_long_shape(Long *r, int width, bool is_heavy) {
  Job *job = r->entry.job;
  int64_t inner = 1;
  for (int i = 0; i < r->domain.count; i++)
    if (r->domain.is_reduced[i]) inner = r->domain.extent[i];
  r->pitch = nvptx_row_pitch(job, r->length);
  r->width = r->pitch ? width : 1;
  if (!r->pitch) r->pitch = r->length;
  width = r->width;
  r->is_odd = inner % width != 0;
  find_long_operands(r);
  int64_t limit = strcmp(job->module->cpu, "sm_90a") ? LONG_SHARED : LONG_SHARED_HOPPER;
  limit -= LONG_SUMS;
  int64_t bytes = bytes_in_shared(r), groups = r->length / width;
  /* a multiprocessor has one block then, or none to spare */
  bool is_alone = r->rows <= MULTIPROCESSORS || 2 * bytes * r->length > limit;
  r->team = is_alone && !is_heavy ? LONG_MOST_THREADS : LONG_THREADS;
  while (r->team > LONG_LEAST_THREADS && groups < 3 * r->team) r->team /= 2;
  choose_depth(r, groups);
  r->surely = r->is_odd && r->pitch % width ? (r->length - width + 1) / width : groups;
  r->full = r->surely / (r->depth * r->team);
  int64_t rest = groups - r->full * r->depth * r->team;
  r->tail = (int)((rest + r->team - 1) / r->team);
  int64_t group = bytes * r->width * r->team, most = group ? limit / group : 0;
  r->kept = most / r->depth < r->full ? most / r->depth : r->full;
  r->keeps_tail = r->kept == r->full && r->full * r->depth + r->tail <= most;
  int64_t kept = r->kept * r->depth + (r->keeps_tail ? r->tail : 0);
  for (int i = 0; kept && i < job->operand_count; i++) {
    Operand *one = &r->operand[i];
    if (!one->arg || !(one->passes & (one->passes - 1))) continue;
    one->place = r->shared;
    r->shared += kept * r->team * r->width * dtype_bytes(one->arg->type.dtype);
  }
}

/* ── groups ────────────────────────────────────────────────────────────────────────────────── */
static LLVMValueRef load_own(Emitter *emitter, const Node *arg, const Index *index, void *user) {
  Long *r = user;
  int operand = (int)node_int(arg, ATTR_INDEX, 0);
  if (r->operand[operand].arg) {
    LLVMValueRef at = index_linear(emitter, index);
    for (int u = 0; u < r->count; u++)
      for (int e = 0; e < r->width && r->group[u].loaded[operand]; e++)
        if (r->group[u].linear[e] == at)
          return emit_group_element(emitter, arg->type.dtype, r->group[u].loaded[operand], e);
  }
  emitter->load = NULL;
  LLVMValueRef value = emit_value(emitter, arg, index);
  emitter->load = load_own;
  return value;
}

static LLVMValueRef in_pitch(Long *r, const Index *index) {
  Entry *entry = &r->entry;
  const Shape shape = {2, {r->rows, r->length}};
  LLVMValueRef begin = index_dim(&entry->emitter, index, &shape, 0);
  return entry_add(entry, entry_mul(entry, begin, r->pitch), index_dim(&entry->emitter, index, &shape, 1));
}

/* The groups that the thread has `times` times round the row, of which some may not be in it. */
static void place_groups(Long *r, LLVMValueRef times, int count, bool may_end) {
  Entry *entry = &r->entry;
  Emitter *emitter = &entry->emitter;
  LLVMValueRef first = entry_mul(entry, times, (int64_t)r->depth * r->team);
  first = entry_add(entry, first, r->thread);
  r->count = count;
  for (int u = 0; u < count; u++) {
    Group *group = &r->group[u];
    Job *job = entry->job;
    *group = (Group){.slot = entry_add(entry, first, entry_const(entry, (int64_t)u * r->team)),
                     .loaded = ARENA_ARRAY(job->scratch, LLVMValueRef, job->operand_count)};
    LLVMValueRef at = group->slot;
    if (may_end && (r->full * r->depth + u + 1) * r->team > r->surely) {
      group->valid = entry_less(entry, at, r->groups);
      at = entry_min(entry, at, entry_sub(entry, r->groups, entry_const(entry, 1)));
    }
    LLVMValueRef column = NULL;
    if (r->is_odd) column = entry_add(entry, entry_mul(entry, at, r->width), r->head);
    for (int e = 0; e < r->width; e++) {
      Index *index = &group->index[e];
      *index = r->row_index;
      if (r->is_odd)
        entry_push_digits(entry, &r->domain, true,
                          entry_add(entry, column, entry_const(entry, e)), 1, 0, index);
      else
        entry_push_digits(entry, &r->domain, true, at, r->width, e, index);
      group->linear[e] = index_linear(emitter, index);
    }
    group->place = group->linear[0];
    if (r->pitch != r->length) group->place = in_pitch(r, &group->index[0]);
  }
}

/* An operand's address in shared memory for this group. */
static LLVMValueRef kept_at(Long *r, const Operand *one, const Group *group, LLVMTypeRef type) {
  Emitter *emitter = &r->entry.emitter;
  LLVMValueRef base = emit_at_number(emitter, emitter->module->i8, r->panels, one->place);
  return emit_at(emitter, type, base, group->slot);
}

/* Loads what the pass reads at the thread's groups; `guarded`: of what results overwrite, or of the
 * rest. Groups that are not in the row read the last one, which another thread may be storing. */
static void load_operands(Long *r, int pass, int from, int to, bool is_kept, bool of_overwritten) {
  Entry *entry = &r->entry;
  Emitter *emitter = &entry->emitter;
  for (int u = from; u < to; u++)
    for (int i = 0; i < entry->job->operand_count; i++) {
      const Operand *one = &r->operand[i];
      Group *group = &r->group[u];
      bool reads_kept = is_kept && one->place >= 0 && pass > one->first;
      bool waits = pass == r->store_pass && group->valid && !reads_kept &&
                   is_overwritten(entry->job, i);
      if (!one->arg || !(one->passes >> pass & 1) || waits != of_overwritten) continue;
      DType dtype = one->arg->type.dtype;
      LLVMTypeRef type = emit_group_type(emitter, dtype, r->width);
      if (reads_kept)
        group->loaded[i] = LLVMBuildLoad2(entry->b, type, kept_at(r, one, group, type), "");
      else
        group->loaded[i] =
            emit_load_group(emitter, emitter->pointer[i], dtype, group->place, r->width);
    }
}

static void keep_groups(Long *r, int pass) {
  for (int u = 0; u < r->count; u++)
    for (int i = 0; i < r->entry.job->operand_count; i++) {
      const Operand *one = &r->operand[i];
      LLVMValueRef value = r->group[u].loaded[i];
      if (one->place >= 0 && one->first == pass)
        LLVMBuildStore(r->entry.b, value, kept_at(r, one, &r->group[u], LLVMTypeOf(value)));
    }
}

/* What a row has once, and its elements read, is not computed in loops over them. */
static void hoist_rows(Long *r, int pass) {
  Entry *entry = &r->entry;
  const Graph *body = entry->job->node->body;
  bool *is_read = ARENA_ARRAY(entry->job->scratch, bool, body->nodes.count);
  mark_pass(r, pass, is_read);
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    if (is_read[i] && node->op == OP_BROADCAST && r->reductions.level[i] < pass &&
        shape_elements(&node->type.shape) == r->rows * r->length &&
        shape_elements(&node->input[0]->type.shape) == r->rows)
      emit_value(&entry->emitter, node->input[0], &r->row_index);
  }
}

/* ── the passes ────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  Reduction *one[KERNEL_MOST_ACCUMULATORS];
  LLVMValueRef sum[KERNEL_MOST_ACCUMULATORS];
  int count;
} RowSums;

/* All elements of the thread's groups in pairs, then with the sum: short chains of additions. */
static void add_groups(Long *r, RowSums *stage) {
  Emitter *emitter = &r->entry.emitter;
  for (int i = 0; i < stage->count; i++) {
    const Reduction *one = stage->one[i];
    LLVMValueRef part[MOST_DEPTH * 8];
    int count = 0;
    for (int u = 0; u < r->count; u++)
      for (int e = 0; e < r->width; e++)
        part[count++] = reduction_element(emitter, &r->reductions, one, &r->group[u].index[e], NULL,
                                          r->group[u].valid);
    for (; count > 1; count = (count + 1) / 2)
      for (int k = 0; k < count / 2; k++)
        part[k] = reduction_step(emitter, one, part[k], part[count - 1 - k]);
    stage->sum[i] = reduction_step(emitter, one, stage->sum[i], part[0]);
  }
}

static void stage_groups(Long *r, int pass, RowSums *stage, LLVMValueRef times, int count,
                         bool may_end, bool is_kept) {
  place_groups(r, times, count, may_end);
  load_operands(r, pass, 0, count, is_kept, false);
  if (is_kept) keep_groups(r, pass);
  add_groups(r, stage);
  r->count = 0;
}

static void store_group(Long *r, const Group *group) {
  Entry *entry = &r->entry;
  Emitter *emitter = &entry->emitter;
  Job *job = entry->job;
  const Graph *body = job->node->body;
  for (int i = 0; i < job->result_count; i++)
    for (int e = 0; e < r->width && job->is_whole[i]; e++)
      emit_value(emitter, body->roots.at[i].node, &group->index[e]);
  for (int i = 0; i < job->result_count; i++) {
    if (!job->is_whole[i]) continue;
    const Node *node = body->roots.at[i].node;
    LLVMValueRef value[8], pointer = emitter->pointer[job->operand_count + i];
    if (r->width == 1) {
      entry_store_result(entry, i, &group->index[0]);
      continue;
    }
    for (int e = 0; e < r->width; e++) value[e] = emit_value(emitter, node, &group->index[e]);
    emit_store_group(emitter, pointer, node->type.dtype, group->place, r->width, value);
  }
}

static void store_groups(Long *r, LLVMValueRef times, int count, bool may_end, bool is_kept) {
  Entry *entry = &r->entry;
  int pass = r->store_pass;
  place_groups(r, times, count, may_end);
  load_operands(r, pass, 0, count, is_kept, false);
  for (int u = 0; u < count; u++) {
    LLVMBasicBlockRef after = entry_begin_if(entry, r->group[u].valid);
    load_operands(r, pass, u, u + 1, is_kept, true);
    store_group(r, &r->group[u]);
    entry_end_if(entry, after);
  }
  r->count = 0;
}

/* One pass through the row: groups that surely are in it, kept in shared memory and not, then those
 * at its end. */
static void go_through_row(Long *r, int pass, RowSums *stage) {
  Entry *entry = &r->entry;
  for (int part = 0; part < 2; part++) {
    int64_t from = part ? r->kept : 0, to = part ? r->full : r->kept;
    if (from == to) continue;
    Loop loop;
    LLVMValueRef times =
        entry_begin_loop(entry, &loop, entry_const(entry, from), entry_const(entry, to),
                         entry_const(entry, 1), stage->sum, stage->count);
    if (pass == r->store_pass)
      store_groups(r, times, r->depth, false, !part);
    else
      stage_groups(r, pass, stage, times, r->depth, false, !part);
    entry_end_loop(entry, &loop, stage->sum);
  }
  if (!r->tail) return;
  emit_scope_open(&entry->emitter);
  LLVMValueRef times = entry_const(entry, r->full);
  if (pass == r->store_pass)
    store_groups(r, times, r->tail, true, r->keeps_tail);
  else
    stage_groups(r, pass, stage, times, r->tail, true, r->keeps_tail);
  emit_scope_close(&entry->emitter);
}

/* False: the stage has no sums that threads meet for. */
static bool do_stage(Long *r, int number) {
  Entry *entry = &r->entry;
  Reductions *all = &r->reductions;
  RowSums stage = {0};
  hoist_rows(r, number);
  for (int i = 0; i < all->count; i++) {
    Reduction *one = &all->at[i];
    if (one->stage != number || nvptx_pick(entry, &r->domain, &r->row_index, one)) continue;
    stage.one[stage.count] = one;
    LLVMValueRef none = reduction_identity(&entry->emitter, one);
    stage.sum[stage.count++] =
        r->is_odd ? reduction_element(&entry->emitter, all, one, &r->edge, NULL, r->edge_valid)
                  : none;
  }
  if (!stage.count) return false;
  go_through_row(r, number, &stage);
  for (int i = 0; i < stage.count; i++) {
    LLVMValueRef sum = nvptx_combine(entry, stage.one[i], stage.sum[i], r->thread, r->team);
    reduction_finish(&entry->emitter, stage.one[i], NULL, sum);
  }
  return true;
}

static void store_edge(Long *r) {
  Entry *entry = &r->entry;
  Job *job = entry->job;
  const Graph *body = job->node->body;
  LLVMBasicBlockRef after = entry_begin_if(entry, r->edge_valid);
  for (int i = 0; i < job->result_count; i++)
    if (job->is_whole[i]) emit_value(&entry->emitter, body->roots.at[i].node, &r->edge);
  for (int i = 0; i < job->result_count; i++)
    if (job->is_whole[i]) entry_store_result(entry, i, &r->edge);
  entry_end_if(entry, after);
}

/* ── the kernel ────────────────────────────────────────────────────────────────────────────── */
/* Where the groups of the block's row begin, and the thread's element of the edge: those before the
 * first group and those behind the last one, by the first 2 · width threads. */
static void place_row(Long *r, LLVMValueRef row) {
  Entry *entry = &r->entry;
  entry_push_digits(entry, &r->domain, false, row, 1, 0, &r->row_index);
  r->groups = entry_const(entry, r->length / r->width);
  if (!r->is_odd) return;
  LLVMValueRef width = entry_const(entry, r->width), length = entry_const(entry, r->length);
  LLVMValueRef begin = entry_rem(entry, entry_mul(entry, row, r->pitch % r->width), r->width);
  r->head = entry_rem(entry, entry_sub(entry, width, begin), r->width);
  r->groups = entry_div(entry, entry_sub(entry, length, r->head), r->width);
  LLVMValueRef behind = entry_add(entry, r->head, entry_mul(entry, r->groups, r->width));
  LLVMValueRef is_head = entry_less(entry, r->thread, width);
  LLVMValueRef tail = entry_add(entry, behind, entry_sub(entry, r->thread, width));
  LLVMValueRef column = LLVMBuildSelect(entry->b, is_head, r->thread, tail, "");
  LLVMValueRef end = LLVMBuildSelect(entry->b, is_head, r->head, length, "");
  r->edge_valid = entry_less(entry, column, end);
  column = LLVMBuildSelect(entry->b, r->edge_valid, column, entry_const(entry, 0), "");
  r->edge = r->row_index;
  entry_push_digits(entry, &r->domain, true, column, 1, 0, &r->edge);
}

static void do_passes(Long *r) {
  Job *job = r->entry.job;
  bool meets = true; /* all threads are through with what came before */
  for (int stage = 1; stage <= r->reductions.stages; stage++) meets = do_stage(r, stage);
  if (!r->store_pass) return;
  if (!meets && overwrites(job)) entry_barrier(&r->entry);
  RowSums none = {0};
  hoist_rows(r, r->store_pass);
  go_through_row(r, r->store_pass, &none);
  if (r->is_odd) store_edge(r);
}

bool nvptx_long(Job *job, const Domain *domain, const Reductions *reductions, bool is_heavy) {
  Long *r = ARENA_NEW(job->scratch, Long);
  Entry *entry = &r->entry;
  entry->job = job;
  r->domain = *domain;
  r->reductions = *reductions;
  r->rows = domain_elements(domain, 0);
  r->length = domain_elements(domain, 1);
  for (int i = 0; i < job->result_count; i++)
    if (job->is_whole[i]) r->store_pass = r->reductions.stages + 1;
  choose_long_shape(r, nvptx_row_width(job, 8, r->rows * r->length, r->length, false), is_heavy);
  entry_open(entry, job, job->name, r->team, false);
  entry_annotate(entry, "minctasm", r->team <= LONG_THREADS ? 2 : 1);
  r->thread = entry_special(entry, "tid.x");
  if (r->shared) r->panels = entry_panels(entry, r->shared);
  entry->emitter.load = load_own;
  entry->emitter.load_user = r;
  place_row(r, entry_special(entry, "ctaid.x"));
  do_passes(r);
  nvptx_store_rows(entry, &r->row_index, entry_is_zero(entry, r->thread));
  entry_close(entry, job->name, r->rows, 1, 1);
  if (r->shared > SHARED_STATIC) job->out->launch[job->out->launch_count - 1].shared = r->shared;
  return true;
}
