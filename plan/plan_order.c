/* plan_order: see plan_order.h. Memory is cut at every place where a buffer begins or ends. For
 * each piece the last step that writes it and the steps that have read it since are known as the
 * steps are gone through, so a step needs to be compared with these only. Whether one step comes
 * after another by way of others is a matrix of bits, made for a band of columns at a time. */
#include "plan/plan_order.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool plan_begins_early(const PlanStep *step, const PlanStep *before) {
  return step->is_early && before && before->is_early;
}

bool plan_buffers_overlap(const PlanBuffer *a, const PlanBuffer *b) {
  int64_t a_end = a->offset + type_bytes(&a->type), b_end = b->offset + type_bytes(&b->type);
  int64_t first = a->offset > b->offset ? a->offset : b->offset;
  return a->place == b->place && first < (a_end < b_end ? a_end : b_end);
}

bool plan_steps_conflict(const PlanGraph *graph, const PlanStep *a, const PlanStep *b) {
  for (int i = 0; i < a->arg_count; i++)
    for (int j = 0; j < b->arg_count; j++)
      if ((i >= a->input_count || j >= b->input_count) &&
          plan_buffers_overlap(&graph->buffers.at[a->args[i]], &graph->buffers.at[b->args[j]]))
        return true;
  return false;
}

/* ── pieces of memory ─────────────────────────────────────────────────────────────────────── */
/* What is between two neighbouring places where buffers begin or end. */
typedef struct {
  bool is_written;  /* by any step: else nothing has to wait for anything here */
  unsigned has;     /* plan_order_check_reads: written so far by a step (1), by a call (2) */
  int writer;       /* the last one so far; -1: none */
  VEC(int) readers; /* since then */
} Piece;

typedef struct {
  int64_t *cut; /* ascending */
  int cut_count;
  Piece *piece; /* [i] lies between cut i and cut i + 1 */
} PlaceMemory;

typedef struct {
  PlaceMemory *of; /* by place */
  int count;
} Memory;

static int compare_offsets(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static Memory memory_of(Arena *arena, const PlanGraph *graph) {
  Memory memory = {0};
  for (int i = 0; i < graph->buffers.count; i++)
    if (graph->buffers.at[i].place >= memory.count) memory.count = graph->buffers.at[i].place + 1;
  memory.of = ARENA_ARRAY(arena, PlaceMemory, memory.count + 1);
  for (int i = 0; i < graph->buffers.count; i++)
    memory.of[graph->buffers.at[i].place].cut_count += 2;
  for (int p = 0; p < memory.count; p++) {
    memory.of[p].cut = ARENA_ARRAY(arena, int64_t, memory.of[p].cut_count + 1);
    memory.of[p].cut_count = 0;
  }
  for (int i = 0; i < graph->buffers.count; i++) {
    const PlanBuffer *buffer = &graph->buffers.at[i];
    PlaceMemory *in = &memory.of[buffer->place];
    in->cut[in->cut_count++] = buffer->offset;
    in->cut[in->cut_count++] = buffer->offset + type_bytes(&buffer->type);
  }
  for (int p = 0; p < memory.count; p++) {
    PlaceMemory *in = &memory.of[p];
    int kept = 0;
    if (in->cut_count) qsort(in->cut, (size_t)in->cut_count, sizeof *in->cut, compare_offsets);
    for (int i = 0; i < in->cut_count; i++)
      if (!kept || in->cut[i] != in->cut[kept - 1]) in->cut[kept++] = in->cut[i];
    in->cut_count = kept;
    in->piece = ARENA_ARRAY(arena, Piece, kept + 1);
    for (int i = 0; i < kept; i++) in->piece[i].writer = -1;
  }
  return memory;
}

/* The pieces of a buffer: [returned, *end). */
static Piece *pieces_of(const Memory *memory, const PlanBuffer *buffer, const Piece **end) {
  const PlaceMemory *in = &memory->of[buffer->place];
  int low[2];
  for (int side = 0; side < 2; side++) {
    int64_t place = buffer->offset + (side ? type_bytes(&buffer->type) : 0);
    int first = 0, last = in->cut_count;
    while (first < last) {
      int middle = (first + last) / 2;
      if (in->cut[middle] < place)
        first = middle + 1;
      else
        last = middle;
    }
    low[side] = first;
  }
  *end = in->piece + low[1];
  return in->piece + low[0];
}

/* ── which pairs of steps must be ordered ─────────────────────────────────────────────────── */
typedef struct {
  int first, end; /* [first, end) of the list `earlier`: steps that this one has to come after */
} Needed;

typedef struct {
  Arena *arena;
  const PlanGraph *graph;
  Memory memory;
  const int *instead; /* by step: the first of `insteads_by_end` that ends with it, and one more */
  const PlanInstead **insteads_by_end;
  int64_t looked_at; /* pieces and readers */
  Needed *needed;    /* by step */
  VEC(int) earlier;
  int *seen;            /* by step: the step that had it on its list last, plus 1 */
  bool *is_open;        /* by step: a BEGIN whose END has not come yet */
  int early, under_way; /* the first step that touches what a BEGIN has under way, and that */
} Finder;

/* Far beyond what the buffers of a model cross each other; a file made to keep us busy stops here.
 */
enum { MOST_LOOKS = 1 << 26 };

static void need(Finder *finder, int step, int earlier) {
  if (earlier < 0) return;
  if (finder->is_open[earlier] && !finder->early) finder->early = step, finder->under_way = earlier;
  if (earlier == step || finder->seen[earlier] == step + 1) return;
  finder->seen[earlier] = step + 1;
  VEC_PUSH(finder->arena, finder->earlier, earlier);
}

typedef void Visit(Finder *finder, int step, Piece *piece, bool writes);

static void visit_args(Finder *finder, int step, const PlanStep *touching, bool writes,
                       Visit *visit) {
  int first = writes ? touching->input_count : 0;
  int end = writes ? touching->arg_count : touching->input_count;
  for (int i = first; i < end && finder->looked_at < MOST_LOOKS; i++) {
    const Piece *last;
    Piece *piece = pieces_of(&finder->memory, &finder->graph->buffers.at[touching->args[i]], &last);
    for (; piece < last; piece++) {
      finder->looked_at++;
      visit(finder, step, piece, writes);
    }
  }
}

/* All that a step reads first, then all that it writes; and what calls that end with it touch. */
static void visit_step(Finder *finder, int step, Visit *visit) {
  const PlanStep *touching = &finder->graph->steps.at[step];
  if (touching->kind == STEP_END) touching = &finder->graph->steps.at[touching->partner];
  for (int writes = 0; writes < 2; writes++) {
    visit_args(finder, step, touching, writes, visit);
    for (int i = finder->instead[step]; i < finder->instead[step + 1]; i++)
      for (int k = 0; k < finder->insteads_by_end[i]->call_count; k++)
        visit_args(finder, step, &finder->insteads_by_end[i]->call[k], writes, visit);
  }
}

static void note_written(Finder *finder, int step, Piece *piece, bool writes) {
  (void)finder, (void)step;
  piece->is_written |= writes;
}

static void note_order(Finder *finder, int step, Piece *piece, bool writes) {
  if (!piece->is_written) return;
  need(finder, step, piece->writer);
  if (!writes) {
    int count = piece->readers.count;
    if (!count || piece->readers.at[count - 1] != step)
      VEC_PUSH(finder->arena, piece->readers, step);
    return;
  }
  for (int i = 0; i < piece->readers.count; i++) need(finder, step, piece->readers.at[i]);
  finder->looked_at += piece->readers.count;
  piece->readers.count = 0;
  piece->writer = step;
}

static void sort_insteads(Finder *finder) {
  const PlanGraph *graph = finder->graph;
  int steps = graph->steps.count, count = graph->insteads.count;
  int *first = ARENA_ARRAY(finder->arena, int, steps + 1);
  int *next = ARENA_ARRAY(finder->arena, int, steps + 1);
  finder->insteads_by_end = ARENA_ARRAY(finder->arena, const PlanInstead *, count + 1);
  for (int i = 0; i < count; i++) first[graph->insteads.at[i].end]++;
  for (int i = 1; i <= steps; i++) first[i] += first[i - 1];
  memcpy(next, first, sizeof *next * (size_t)(steps + 1));
  for (int i = 0; i < count; i++)
    finder->insteads_by_end[next[graph->insteads.at[i].end - 1]++] = &graph->insteads.at[i];
  finder->instead = first;
}

static int compare_steps(const void *a, const void *b) { return *(const int *)b - *(const int *)a; }

/* False: the buffers cross each other beyond all measure. */
static bool find_needed(Finder *finder, Arena *arena, const PlanGraph *graph) {
  int steps = graph->steps.count;
  *finder = (Finder){.arena = arena, .graph = graph, .memory = memory_of(arena, graph)};
  finder->needed = ARENA_ARRAY(arena, Needed, steps + 1);
  finder->seen = ARENA_ARRAY(arena, int, steps + 1);
  finder->is_open = ARENA_ARRAY(arena, bool, steps + 1);
  sort_insteads(finder);
  for (int i = 0; i < steps; i++) visit_step(finder, i, note_written);
  for (int i = 0; i < steps; i++) {
    const PlanStep *step = &graph->steps.at[i];
    finder->needed[i].first = finder->earlier.count;
    if (step->kind == STEP_END) finder->is_open[step->partner] = false;
    if (step->kind == STEP_END) need(finder, i, step->partner);
    visit_step(finder, i, note_order);
    finder->is_open[i] = step->kind == STEP_BEGIN;
    finder->needed[i].end = finder->earlier.count;
    if (finder->needed[i].end > finder->needed[i].first) /* the latest first */
      qsort(finder->earlier.at + finder->needed[i].first,
            (size_t)(finder->needed[i].end - finder->needed[i].first), sizeof(int), compare_steps);
  }
  return finder->looked_at < MOST_LOOKS;
}

/* What is wrong with the graph itself, whatever waits for what; NULL: nothing. */
static const char *refuse_graph(const Finder *finder, Arena *arena, bool is_found) {
  if (!is_found) return "its buffers cross each other too often to be checked";
  if (finder->early)
    return arena_printf(arena, "step %d touches bytes that step %d has under way", finder->early,
                        finder->under_way);
  for (int i = 0; i < finder->graph->steps.count; i++)
    if (finder->is_open[i]) return arena_printf(arena, "no step ends step %d", i);
  return NULL;
}

/* ── which steps come after which ─────────────────────────────────────────────────────────── */
/* A band: for each step, which of the steps [base, base + BAND) it comes after. Bands are gone
 * through from the last one to the first: what leads from a step to one of the band by way of
 * others leads only through later ones than that. */
enum { BAND = 4096, BAND_WORDS = BAND / 64 };

typedef struct {
  int base;
  uint64_t *bits; /* by step from `base` on, BAND_WORDS each */
} Band;

static uint64_t *band_row(const Band *band, int step) {
  return band->bits + (size_t)(step - band->base) * BAND_WORDS;
}

static bool band_has(const Band *band, int step, int earlier) {
  int at = earlier - band->base;
  return band_row(band, step)[at / 64] >> (at % 64) & 1;
}

/* The step comes after `earlier`, and after all that this one comes after. */
static void band_add(const Band *band, int step, int earlier) {
  if (earlier < band->base) return;
  uint64_t *to = band_row(band, step), *from = band_row(band, earlier);
  for (int i = 0; i < BAND_WORDS; i++) to[i] |= from[i];
  int at = earlier - band->base;
  if (at < BAND) to[at / 64] |= (uint64_t)1 << (at % 64);
}

/* Goes through the needed pairs of a band; `each` says what to do with one that nothing brings. */
typedef bool Unordered(void *context, const Band *band, int step, int earlier);

static bool walk_band(const Finder *finder, const Band *band, int *next, Unordered *each,
                      void *context) {
  const PlanGraph *graph = finder->graph;
  for (int step = band->base; step < graph->steps.count; step++) {
    const PlanStep *at = &graph->steps.at[step];
    for (int i = 0; i < at->after_count; i++) band_add(band, step, at->after[i]);
    for (; next[step] < finder->needed[step].end; next[step]++) {
      int earlier = finder->earlier.at[next[step]];
      if (earlier < band->base) break;
      if (!band_has(band, step, earlier) && !each(context, band, step, earlier)) return false;
    }
  }
  return true;
}

static bool walk_bands(const Finder *finder, Unordered *each, void *context) {
  int steps = finder->graph->steps.count, *next = ARENA_ARRAY(finder->arena, int, steps + 1);
  bool is_good = true;
  for (int i = 0; i < steps; i++) next[i] = finder->needed[i].first;
  for (int last = (steps - 1) / BAND; steps && last >= 0 && is_good; last--) {
    Band band = {.base = last * BAND};
    Arena *arena = arena_new();
    band.bits = ARENA_ARRAY(arena, uint64_t, (size_t)(steps - band.base) * BAND_WORDS);
    is_good = walk_band(finder, &band, next, each, context);
    arena_free(arena);
  }
  return is_good;
}

/* ── what the compiler and plan_parse ask ─────────────────────────────────────────────────── */
typedef struct {
  Arena *arena;
  PlanGraph *graph;
} Lists;

static bool add_wait(void *context, const Band *band, int step, int earlier) {
  Lists *lists = context;
  PlanStep *at = &lists->graph->steps.at[step];
  int *longer = ARENA_ARRAY(lists->arena, int, at->after_count + 1);
  longer[0] = earlier; /* they come from the latest to the earliest */
  for (int i = 0; i < at->after_count; i++) longer[i + 1] = at->after[i];
  at->after = longer;
  at->after_count++;
  band_add(band, step, earlier);
  return true;
}

const char *plan_order_find(Arena *arena, PlanGraph *graph) {
  Arena *scratch = arena_new();
  Lists lists = {arena, graph};
  Finder finder;
  for (int i = 0; i < graph->steps.count; i++) graph->steps.at[i].after_count = 0;
  const char *why = refuse_graph(&finder, arena, find_needed(&finder, scratch, graph));
  if (!why) walk_bands(&finder, add_wait, &lists);
  arena_free(scratch);
  return why;
}

typedef struct {
  Arena *arena;
  const char *why;
} Refusal;

static bool refuse(void *context, const Band *band, int step, int earlier) {
  Refusal *refusal = context;
  (void)band;
  refusal->why = arena_printf(
      refusal->arena, "step %d does not wait for step %d, whose bytes it touches", step, earlier);
  return false;
}

const char *plan_order_check(Arena *arena, const PlanGraph *graph) {
  Arena *scratch = arena_new();
  Refusal refusal = {arena, NULL};
  Finder finder;
  refusal.why = refuse_graph(&finder, arena, find_needed(&finder, scratch, graph));
  if (!refusal.why) walk_bands(&finder, refuse, &refusal);
  arena_free(scratch);
  return refusal.why;
}

/* ── reads ────────────────────────────────────────────────────────────────────────────────── */
enum { HAS_STEP = 1, HAS_CALL = 2 };

typedef struct {
  const PlanGraph *graph;
  Memory memory;
  bool *is_asked; /* by buffer: it holds nothing but what the graph has written */
} Reads;

/* -1, or the argument that reads what is not there. A step runs also where no call is made. */
static int unwritten_arg(const Reads *r, const PlanStep *step, unsigned by) {
  for (int i = 0; i < step->input_count; i++) {
    const Piece *end, *piece = pieces_of(&r->memory, &r->graph->buffers.at[step->args[i]], &end);
    for (; r->is_asked[step->args[i]] && piece < end; piece++)
      if (!(piece->has & (by == HAS_STEP ? HAS_STEP : HAS_STEP | HAS_CALL))) return i;
  }
  return -1;
}

static void mark_written(const Reads *r, const PlanStep *step, unsigned by) {
  for (int i = step->input_count; i < step->arg_count; i++) {
    const Piece *end;
    Piece *piece = pieces_of(&r->memory, &r->graph->buffers.at[step->args[i]], &end);
    for (; piece < end; piece++) piece->has |= by;
  }
}

/* What BEGIN begins has written when its END is done. A call in place of launches reads and writes
 * behind them, as in plan_order_check. */
static int take_reads(const Reads *r, const Finder *finder, int index) {
  const PlanStep *step = &r->graph->steps.at[index];
  int wrong = unwritten_arg(r, step, HAS_STEP);
  if (wrong >= 0) return step->args[wrong];
  if (step->kind == STEP_END)
    mark_written(r, &r->graph->steps.at[step->partner], HAS_STEP);
  else if (step->kind != STEP_BEGIN)
    mark_written(r, step, HAS_STEP);
  for (int i = finder->instead[index]; i < finder->instead[index + 1]; i++) {
    const PlanInstead *instead = finder->insteads_by_end[i];
    for (int k = 0; k < instead->call_count; k++) {
      const PlanStep *call = &instead->call[k];
      if ((wrong = unwritten_arg(r, call, HAS_CALL)) >= 0) return call->args[wrong];
      mark_written(r, call, HAS_CALL);
    }
  }
  return -1;
}

const char *plan_order_check_reads(Arena *arena, const Plan *plan, const PlanGraph *graph) {
  Arena *scratch = arena_new();
  Finder finder = {.arena = scratch, .graph = graph};
  Reads reads = {graph, memory_of(scratch, graph),
                 ARENA_ARRAY(scratch, bool, graph->buffers.count + 1)};
  const char *why = NULL;
  for (int i = 0; i < graph->buffers.count; i++) {
    const PlanPlace *place = &plan->places.at[graph->buffers.at[i].place];
    reads.is_asked[i] = place->host == HOST_TO || plan_is_temporary(plan, &graph->buffers.at[i]);
  }
  sort_insteads(&finder);
  for (int i = 0; i < graph->steps.count && !why; i++) {
    int buffer = take_reads(&reads, &finder, i);
    if (buffer >= 0)
      why = arena_printf(arena, "step %d reads buffer %d, which no step before it has written", i,
                         buffer);
  }
  arena_free(scratch);
  return why;
}
