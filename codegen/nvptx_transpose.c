/* nvptx_transpose: loop kernels that read part of their operands transposed: the fastest dimension
 * of those is not that of the results. A block takes a tile of both dimensions: first all threads
 * compute the transposed part in its own order, side by side, into shared memory; then, behind a
 * barrier, the results in theirs. So both ways move whole lines of memory, in accesses of 16 bytes
 * where the extents permit. Only one transposition of a kernel is done so, the first one found;
 * others are read element by element.
 *
 * In shared memory a column is `pitch` rows, a number that makes the threads of a warp meet
 * different banks in both orders: eight of them side by side, four lines, do so with any odd one.
 */
#include "codegen/nvptx_private.h"
#include "codegen/own_index.h"
#include "codegen/turn.h"
#include "passes/fuse.h"

enum {
  TURN_THREADS = 256,
  TURN_ACROSS = 8,
  TURN_RUN = 32,
  BANKS = 32,
  LARGE_TILE = 64,
  SMALL_TILE = 32,
  MAX_STAGED = 4
};
enum { ENOUGH_TILES = 264, MAX_NEIGHBOURS = 8 };

/* One order in which a block's threads go through the tile. */
typedef struct {
  int inner, outer;      /* dimensions of the result */
  bool is_joined;        /* the tile is whole lines of inner: one run through both */
  int width;             /* neighbours of a thread */
  int64_t groups, lines; /* groups of neighbours in a run, runs */
  int across, down;      /* threads along both */
} Order;

typedef struct Turn Turn;
typedef struct {
  Turn *turn;
  const Node *node; /* the transpose */
  LLVMValueRef memory;
  LLVMTypeRef type;
} Staged;

struct Turn {
  Entry entry;
  TurnShape shape;
  int64_t tile[MAX_RANK]; /* of row and column */
  Staged staged[MAX_STAGED];
  int staged_count, threads;
  Order in, out;
  int64_t pitch;
  LLVMValueRef first[MAX_RANK]; /* of the block; all but row and column: its place */
  LLVMValueRef place[MAX_RANK]; /* row, column: the element in the tile that is being made */
};

/* ── which transposes ───────────────────────────────────────────────────────────────────────── */

static bool is_same_turn(const TurnShape *a, const TurnShape *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->extent[i] != b->extent[i] || a->source[i] != b->source[i]) return false;
  return true;
}

/* Finds the transposes that are read only at the index of the element that is computed: the tile
 * has no other elements. */
static void find_staged(Turn *turn, const Job *job) {
  const Graph *body = job->node->body;
  const bool *is_own = own_index_reads(job->scratch, job->node);
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    TurnShape own = {0};
    if (node->op != OP_TRANSPOSE || !is_own[i] || !turn_describe(node, &own)) continue;
    if (turn->staged_count && !is_same_turn(&own, &turn->shape)) continue;
    turn->shape = own;
    turn->staged[turn->staged_count++] = (Staged){.node = node};
    if (turn->staged_count == MAX_STAGED) return;
  }
}

/* ── tiles ──────────────────────────────────────────────────────────────────────────────────── */

static void mark(const Turn *turn, const Node *node, bool *marked, bool stops) {
  if (marked[node->id]) return;
  for (int i = 0; stops && i < turn->staged_count; i++)
    if (turn->staged[i].node == node) return;
  marked[node->id] = true;
  for (int i = 0; i < node->input_count; i++) mark(turn, node->input[i], marked, stops);
}

static void choose_extents(Turn *turn, int64_t size) {
  int dims[2] = {turn->shape.row, turn->shape.column};
  for (int d = 0; d < 2; d++) {
    int64_t extent = turn->shape.extent[dims[d]];
    turn->tile[dims[d]] = extent < size ? extent : size;
  }
  for (int d = 0; d < 2; d++) {
    int64_t *tile = &turn->tile[dims[d]], other = turn->tile[dims[1 - d]];
    while (*tile >= size && *tile < turn->shape.extent[dims[d]] && 2 * *tile * other <= size * size)
      *tile *= 2;
  }
}

static int64_t tiles_along(const Turn *turn, int d) {
  return d == turn->shape.row || d == turn->shape.column ? (turn->shape.extent[d] + turn->tile[d] - 1) / turn->tile[d]
                                             : turn->shape.extent[d];
}
static int64_t all_tiles(const Turn *turn) {
  int64_t count = 1;
  for (int d = 0; d < turn->shape.rank; d++) count *= tiles_along(turn, d);
  return count;
}

static bool turn_has_pitch(const Job *job) {
  for (int i = 0; i < job->operand_count + job->result_count; i++)
    if (job->pitch[i]) return true;
  return false;
}

/* Neighbours lie side by side in rows with a pitch only: those of what is read in the order of the nodes `among`, and of what is written. */
static int width_in_rows(const Job *job, const bool *among, bool is_result, int width) {
  const Graph *body = job->node->body;
  for (int i = 0; i < body->nodes.count; i++) {
    const Node *node = body->nodes.at[i];
    if (!among[i] || node->op != OP_ARG) continue;
    const Type *type = &job->node->input[node_int(node, ATTR_INDEX, 0)]->type;
    while (type->pitch && shape_last(&type->shape) % width) width /= 2;
  }
  for (int r = 0; is_result && r < job->result_count; r++)
    while (job->result_type[r].pitch && shape_last(&job->result_type[r].shape) % width) width /= 2;
  return width;
}

/* Lines are joined only where they lie one behind the other: rows with a pitch do not. */
static void choose_order(Turn *turn, const Job *job, bool is_result) {
  Order *order = is_result ? &turn->out : &turn->in;
  *order = (Order){.inner = is_result ? turn->shape.column : turn->shape.row,
                   .outer = is_result ? turn->shape.row : turn->shape.column};
  int64_t inner = turn->shape.extent[order->inner], run = turn->tile[order->inner];
  int before = is_result ? turn->shape.row : turn->shape.source[turn->shape.column]; /* which place it has there */
  order->is_joined = before == turn->shape.rank - 2 && run == inner && run % TURN_RUN && !turn_has_pitch(job);
  order->lines = turn->tile[order->outer];
  if (order->is_joined) {
    run *= order->lines;
    inner *= turn->shape.extent[order->outer];
    order->lines = 1;
  }
  bool *among = ARENA_ARRAY(job->scratch, bool, job->node->body->nodes.count);
  const Graph *body = job->node->body;
  for (int i = 0; is_result && i < body->roots.count; i++)
    mark(turn, body->roots.at[i].node, among, true);
  for (int i = 0; !is_result && i < turn->staged_count; i++)
    mark(turn, turn->staged[i].node->input[0], among, false);
  order->width = width_in_rows(job, among, is_result, nvptx_width_among(job, inner, among, is_result));
  while (run % order->width) order->width /= 2;
  order->groups = run / order->width;
}

/* Along a run as many as make whole lines of memory, or as are too many for the runs. */
static void place_threads(Order *order, int threads) {
  order->across = 1;
  while (order->across < threads && order->across < order->groups &&
         (order->across < TURN_ACROSS || order->across * order->width < TURN_RUN ||
          threads / order->across > order->lines))
    order->across *= 2;
  order->down = threads / order->across;
}

static int64_t staged_bytes(const Turn *turn) {
  int64_t bytes = 0;
  for (int i = 0; i < turn->staged_count; i++)
    bytes += dtype_bytes(turn->staged[i].node->type.dtype) * turn->pitch * turn->tile[turn->shape.column];
  return bytes;
}

/* How often a bank of shared memory is asked for different words when a warp begins. */
static int conflicts(const Turn *turn, const Order *order, int64_t pitch) {
  int64_t bytes = dtype_bytes(turn->staged[0].node->type.dtype), word[WARP];
  int found = 0;
  for (int e = 0; e < order->width; e++)
    for (int lane = 0; lane < WARP; lane++) {
      int64_t inner = lane % order->across * order->width + e, outer = lane / order->across;
      if (order->is_joined) {
        outer = inner / turn->shape.extent[order->inner];
        inner %= turn->shape.extent[order->inner];
      }
      bool is_row = order->inner == turn->shape.row;
      word[lane] = ((is_row ? outer : inner) * pitch + (is_row ? inner : outer)) * bytes / 4;
      for (int other = bytes > 4 ? lane / 16 * 16 : 0; other < lane; other++)
        found += (word[other] - word[lane]) % BANKS == 0 && word[other] != word[lane];
    }
  return found;
}

static void choose_pitch(Turn *turn) {
  int64_t rows = turn->tile[turn->shape.row];
  int least = INT32_MAX;
  for (int64_t pitch = rows; pitch < rows + BANKS && least; pitch++) {
    int found = conflicts(turn, &turn->in, pitch) + conflicts(turn, &turn->out, pitch);
    if (found >= least) continue;
    least = found;
    turn->pitch = pitch;
  }
}

/* Large tiles have more loads under way, small ones make more blocks. */
static bool choose_tile(Turn *turn, const Job *job) {
  for (int64_t size = LARGE_TILE; size >= SMALL_TILE; size /= 2) {
    choose_extents(turn, size);
    turn->pitch = turn->tile[turn->shape.row] + BANKS;
    bool is_enough = size == SMALL_TILE || all_tiles(turn) >= ENOUGH_TILES;
    if (is_enough && staged_bytes(turn) <= SHARED_STATIC) break;
  }
  if (staged_bytes(turn) > SHARED_STATIC || all_tiles(turn) > INT32_MAX) return false;
  choose_order(turn, job, false);
  choose_order(turn, job, true);
  int64_t in = turn->in.groups * turn->in.lines, out = turn->out.groups * turn->out.lines;
  turn->threads = WARP;
  while (turn->threads < TURN_THREADS && turn->threads < in && turn->threads < out)
    turn->threads *= 2;
  place_threads(&turn->in, turn->threads);
  place_threads(&turn->out, turn->threads);
  choose_pitch(turn);
  return true;
}

/* ── a thread's way through the tile ────────────────────────────────────────────────────────── */

typedef struct {
  LLVMValueRef group, line; /* of the tile */
  LLVMValueRef is_inside;   /* of the tile and of the tensor; NULL: always */
} Step;

static int64_t steps_of(const Order *order) {
  return (order->groups + order->across - 1) / order->across *
         ((order->lines + order->down - 1) / order->down);
}

/* a < b, unless that is known. */
static LLVMValueRef within(Turn *turn, LLVMValueRef a, int64_t b, bool is_known) {
  return is_known ? NULL : entry_less(&turn->entry, a, entry_const(&turn->entry, b));
}

/* Of the tensor's dimension d of this many elements. */
static LLVMValueRef within_tensor(Turn *turn, LLVMValueRef at, int64_t count, int d) {
  return within(turn, at, count, turn->shape.extent[d] % turn->tile[d] == 0);
}

/* The group and the line of a step in the tensor; its fastest dimension in groups of neighbours. */
static LLVMValueRef group_of(Turn *turn, const Order *order, const Step *step) {
  LLVMValueRef first = turn->first[order->inner];
  if (order->is_joined)
    first = entry_mul(&turn->entry, turn->first[order->outer], turn->shape.extent[order->inner]);
  first = entry_div(&turn->entry, first, order->width);
  return entry_add(&turn->entry, first, step->group);
}
static LLVMValueRef line_of(Turn *turn, const Order *order, const Step *step) {
  return entry_add(&turn->entry, turn->first[order->outer], step->line);
}
static int64_t groups_of(const Turn *turn, const Order *order) {
  int64_t lines = order->is_joined ? turn->shape.extent[order->outer] : 1;
  return turn->shape.extent[order->inner] * lines / order->width;
}

static Step step_at(Turn *turn, const Order *order, LLVMValueRef thread, int64_t number) {
  Entry *entry = &turn->entry;
  int64_t across = (order->groups + order->across - 1) / order->across;
  Step step = {
      .group = entry_add(&turn->entry, entry_rem(entry, thread, order->across),
                         entry_const(entry, number % across * order->across)),
      .line = entry_add(&turn->entry, entry_div(entry, thread, order->across),
                        entry_const(entry, number / across * order->down)),
  };
  LLVMValueRef conditions[4] = {
      within(turn, step.group, order->groups, order->groups % order->across == 0),
      within(turn, step.line, order->lines, order->lines % order->down == 0),
      within_tensor(turn, group_of(turn, order, &step), groups_of(turn, order),
                    order->is_joined ? order->outer : order->inner),
      order->is_joined ? NULL
                       : within_tensor(turn, line_of(turn, order, &step),
                                       turn->shape.extent[order->outer], order->outer),
  };
  for (int i = 0; i < 4; i++)
    if (conditions[i]) step.is_inside = entry_and(entry, step.is_inside, conditions[i]);
  return step;
}

/* The index of neighbour e of a step. */
static Index index_at(Turn *turn, const Order *order, const Step *step, int e) {
  Index index = {0};
  for (int place = 0; place < turn->shape.rank; place++) {
    int d = place;
    for (int i = 0; order == &turn->in && i < turn->shape.rank; i++)
      if (turn->shape.source[i] == place) d = i;
    if (d == order->inner) {
      index_push(&index, groups_of(turn, order), group_of(turn, order, step), true);
      index_push(&index, order->width, entry_const(&turn->entry, e), true);
    } else if (d != order->outer) {
      index_push(&index, turn->shape.extent[d], turn->first[d], true);
    } else if (!order->is_joined) {
      index_push(&index, turn->shape.extent[d], line_of(turn, order, step), true);
    }
  }
  return index;
}

/* The same element's place in the tile. */
static void turn_place_at(Turn *turn, const Order *order, const Step *step, int e) {
  LLVMValueRef at = entry_add(&turn->entry, entry_mul(&turn->entry, step->group, order->width),
                              entry_const(&turn->entry, e));
  turn->place[order->inner] = at;
  turn->place[order->outer] = step->line;
  if (!order->is_joined) return;
  turn->place[order->inner] = entry_rem(&turn->entry, at, turn->shape.extent[order->inner]);
  turn->place[order->outer] = entry_div(&turn->entry, at, turn->shape.extent[order->inner]);
}

static LLVMValueRef staged_address(const Staged *staged) {
  Turn *turn = staged->turn;
  LLVMValueRef at =
      entry_add(&turn->entry, entry_mul(&turn->entry, turn->place[turn->shape.column], turn->pitch),
                turn->place[turn->shape.row]);
  return emit_at(&turn->entry.emitter, staged->type, staged->memory, at);
}

static LLVMValueRef read_staged(Emitter *emitter, const Node *node, const Index *index,
                                void *user) {
  const Staged *staged = user;
  (void)index; /* the element that is being made: turn->place */
  LLVMValueRef raw = LLVMBuildLoad2(emitter->builder, staged->type, staged_address(staged), "");
  return emit_from_memory(emitter, node->type.dtype, raw);
}

/* ── the kernel ─────────────────────────────────────────────────────────────────────────────── */

static void open_block(Turn *turn) {
  Entry *entry = &turn->entry;
  LLVMValueRef block = entry_special(entry, "ctaid.x");
  for (int d = turn->shape.rank - 1; d >= 0; d--) {
    turn->first[d] = entry_rem(entry, block, tiles_along(turn, d));
    if (d == turn->shape.row || d == turn->shape.column)
      turn->first[d] = tiles_along(turn, d) == 1
                           ? entry_const(entry, 0)
                           : entry_mul(&turn->entry, turn->first[d], turn->tile[d]);
    block = entry_div(entry, block, tiles_along(turn, d));
  }
  for (int i = 0; i < turn->staged_count; i++) {
    Staged *staged = &turn->staged[i];
    staged->turn = turn;
    staged->type = emit_memory_type(&entry->emitter, staged->node->type.dtype);
    staged->memory =
        entry_shared(entry, "turned", staged->type, (int)(turn->pitch * turn->tile[turn->shape.column]));
  }
}

/* Values first, then stores: loads are under way together. */
static void stage_step(Turn *turn, const Order *order, const Step *step) {
  Emitter *emitter = &turn->entry.emitter;
  LLVMValueRef value[MAX_NEIGHBOURS][MAX_STAGED];
  for (int e = 0; e < order->width; e++) {
    Index index = index_at(turn, order, step, e);
    for (int i = 0; i < turn->staged_count; i++)
      value[e][i] = emit_value(emitter, turn->staged[i].node->input[0], &index);
  }
  for (int e = 0; e < order->width; e++) {
    turn_place_at(turn, order, step, e);
    for (int i = 0; i < turn->staged_count; i++)
      LLVMBuildStore(emitter->builder,
                     emit_to_memory(emitter, turn->staged[i].node->type.dtype, value[e][i]),
                     staged_address(&turn->staged[i]));
  }
}

static void finish_step(Turn *turn, const Order *order, const Step *step) {
  Entry *entry = &turn->entry;
  const Job *job = entry->job;
  Index index[MAX_NEIGHBOURS];
  for (int e = 0; e < order->width; e++) {
    index[e] = index_at(turn, order, step, e);
    turn_place_at(turn, order, step, e);
    for (int i = 0; i < job->result_count; i++)
      emit_value(&entry->emitter, job->node->body->roots.at[i].node, &index[e]);
  }
  for (int i = 0; i < job->result_count; i++) entry_store_group(entry, i, index, order->width);
}

static void go_through(Turn *turn, const Order *order, LLVMValueRef thread,
                       void run(Turn *, const Order *, const Step *)) {
  for (int64_t s = 0; s < steps_of(order); s++) {
    Step step = step_at(turn, order, thread, s);
    LLVMBasicBlockRef after = entry_begin_if(&turn->entry, step.is_inside);
    run(turn, order, &step);
    entry_end_if(&turn->entry, after);
  }
}

bool nvptx_transpose(Job *job) {
  if (module_leaves_out(job->module, "transpose_tiles")) return false;
  Turn *turn = ARENA_NEW(job->scratch, Turn);
  find_staged(turn, job);
  if (!turn->staged_count || !choose_tile(turn, job)) return false;
  entry_open(&turn->entry, job, job->name, turn->threads, false);
  LLVMValueRef thread = entry_special(&turn->entry, "tid.x");
  open_block(turn);
  go_through(turn, &turn->in, thread, stage_step);
  entry_barrier(&turn->entry);
  for (int i = 0; i < turn->staged_count; i++)
    emit_bind(&turn->entry.emitter, turn->staged[i].node, read_staged, &turn->staged[i]);
  go_through(turn, &turn->out, thread, finish_step);
  entry_close(&turn->entry, job->name, all_tiles(turn), 1, 1);
  return true;
}
