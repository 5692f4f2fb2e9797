/* plan_step: see plan_step.h. */
#include "plan/plan_step.h"
#include "plan/plan_beside.h"
#include "plan/plan_calls.h"
#include "plan/plan_map.h"
#include "plan/plan_order.h"
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

typedef struct {
  Words *words;
  const Plan *plan;
  PlanGraph *graph; /* NULL: no line has begun one */
} Reader;

typedef VEC(int) Indices;

static bool read_indices(Reader *p, Indices *out) {
  if (!words_expect(p->words, "(")) return false;
  while (!words_take(p->words, ")")) {
    int64_t index;
    if (!words_integer(p->words, "a buffer's number", 0, p->graph->buffers.count - 1, &index))
      return false;
    VEC_PUSH(p->words->arena, *out, (int)index);
  }
  return true;
}

/* More than this no GPU of compute capability 5 to 12 takes (CUDA C++ Programming Guide, "Technical
 * Specifications per Compute Capability"). */
enum { MOST_SHARED = 227 << 10 };
static const int64_t most_grid[3] = {INT32_MAX, 65535, 65535}, most_block[3] = {1024, 1024, 64};

static bool read_triple(Reader *p, const char *what, const int64_t most[3], int64_t out[3]) {
  return words_integer(p->words, what, 1, most[0], &out[0]) && words_expect(p->words, ",") &&
         words_integer(p->words, what, 1, most[1], &out[1]) && words_expect(p->words, ",") &&
         words_integer(p->words, what, 1, most[2], &out[2]);
}

/* Kernels and library calls are C identifiers: they become symbols. */
static bool is_identifier(const char *text) {
  for (const char *at = text; *at; at++)
    if (!isalnum((unsigned char)*at) && *at != '_' && *at != '$') return false;
  return *text && !isdigit((unsigned char)*text);
}

static bool read_attributes(Reader *p, PlanStep *step) {
  CallId id;
  const char *keys = step->kind == STEP_BEGIN      ? beside_attributes(step->name)
                     : call_parse(step->name, &id) ? call_info[id].attributes
                                                   : NULL;
  if (!keys)
    return words_fail(p->words, "there is no %s \"%s\"",
                      step->kind == STEP_BEGIN ? "communication" : "library call", step->name);
  VEC(PlanInt) ints = {0};
  for (const char *at = keys; *at;) {
    size_t length = strcspn(at, " ");
    PlanInt item = {arena_strndup(p->words->arena, at, length), 0};
    if (!words_expect(p->words, item.key) || !words_expect(p->words, "=")) return false;
    if (!words_integer(p->words, item.key, INT64_MIN, INT64_MAX, &item.value)) return false;
    VEC_PUSH(p->words->arena, ints, item);
    at += length;
    while (*at == ' ') at++;
  }
  step->ints = ints.at;
  step->int_count = ints.count;
  return true;
}

/* Maps, as many as there are. */
static bool read_maps(Reader *p, PlanStep *step) {
  VEC(PlanMap) maps = {0};
  while (words_take(p->words, "map")) {
    PlanMap map;
    const char *why = NULL;
    if (maps.count == STEP_MAPS)
      return words_fail(p->words, "a launch has at most %d maps", STEP_MAPS);
    if (!map_read(p->words, &map)) return false;
    if (map.arg >= step->arg_count)
      return words_fail(p->words, "a map of argument %d, and there are %d", map.arg,
                        step->arg_count);
    if (!map_check(p->plan, &map, &p->graph->buffers.at[step->args[map.arg]], &why))
      return words_fail(p->words, "%s", why);
    VEC_PUSH(p->words->arena, maps, map);
  }
  if (maps.count && (step->kind != STEP_LAUNCH || strcmp(p->plan->target, "ptx") != 0))
    return words_fail(p->words, "only a launch for ptx has maps");
  step->maps = maps.at;
  step->map_count = maps.count;
  return true;
}

/* The blocks of the kernels that a launch joins: all of its blocks. */
static bool read_parts(Reader *p, PlanStep *step) {
  VEC(int64_t) parts = {0};
  int64_t blocks, all = 0;
  if (!words_take(p->words, "parts=")) return true;
  do {
    if (!words_integer(p->words, "the blocks of a part", 1, step->grid[0], &blocks)) return false;
    if (parts.count == STEP_PARTS)
      return words_fail(p->words, "a launch joins at most %d kernels", STEP_PARTS);
    VEC_PUSH(p->words->arena, parts, blocks);
    all += blocks;
  } while (words_take(p->words, ","));
  step->parts = parts.at;
  step->part_count = parts.count;
  bool is_row = step->kind == STEP_LAUNCH && step->grid[1] == 1 && step->grid[2] == 1;
  return (is_row && all == step->grid[0]) ||
         words_fail(p->words, "the parts of a launch are not all of its blocks");
}

/* How a kernel is launched: optional numbers, in the printer's order. */
static bool plan_step_read_launch(Reader *p, PlanStep *step) {
  if (words_take(p->words, "work=") &&
      !words_integer(p->words, "work", 1, LARGEST_PLACE, &step->work))
    return false;
  if (words_take(p->words, "grain=") &&
      !words_integer(p->words, "grain", 1, LARGEST_PLACE, &step->grain))
    return false;
  if (words_take(p->words, "grid=") && !read_triple(p, "grid", most_grid, step->grid)) return false;
  if (words_take(p->words, "block=") && !read_triple(p, "block", most_block, step->block))
    return false;
  if (words_take(p->words, "shared=") &&
      !words_integer(p->words, "shared", 1, MOST_SHARED, &step->shared))
    return false;
  if (words_take(p->words, "stays=") && !words_integer(p->words, "stays", 1, 32, &step->stays))
    return false;
  if (words_take(p->words, "cluster=") &&
      !words_integer(p->words, "cluster", 2, 8, &step->cluster))
    return false;
  if (step->cluster && step->grid[0] % step->cluster)
    return words_fail(p->words, "a grid of %" PRId64 " blocks is no multiple of cluster=%" PRId64,
                      step->grid[0], step->cluster);
  if (!read_parts(p, step)) return false;
  step->is_early = words_take(p->words, "early");
  if (step->is_early && (step->kind != STEP_LAUNCH || strcmp(p->plan->target, "ptx") != 0))
    return words_fail(p->words, "only a launch for ptx is early");
  return read_maps(p, step);
}

/* One of these words; false: it is none of them. */
static bool read_choice(Reader *p, const char *what, const char *text(int), int count, int *out) {
  for (*out = 0; *out < count; ++*out)
    if (words_take(p->words, text(*out))) return true;
  return words_fail(p->words, "there is no %s '%.40s'", what, p->words->at);
}

static const char *phase_at(int index) { return phase_text((StepPhase)index); }
static const char *work_at(int index) { return work_text((WorkKind)index); }

/* What a step belongs to: optional words, in the printer's order. */
static bool read_belonging(Reader *p, PlanStep *step) {
  int phase = 0, work = 0;
  if (words_take(p->words, "layer=") && !(step->layer = words_name(p->words, "the layer")))
    return false;
  if (words_take(p->words, "phase=") && !read_choice(p, "phase", phase_at, PHASE_COUNT, &phase))
    return false;
  if (words_take(p->words, "kind=") && !read_choice(p, "kind", work_at, WORK_COUNT, &work))
    return false;
  step->phase = (StepPhase)phase;
  step->work_kind = (WorkKind)work;
  return true;
}

/* What it must do and move, where it is from, and its label. */
static bool read_costs(Reader *p, PlanStep *step) {
  int64_t line = 0;
  if (words_take(p->words, "flops=") &&
      !words_integer(p->words, "flops", 1, INT64_MAX, &step->flops))
    return false;
  if (words_take(p->words, "moves=") &&
      !words_integer(p->words, "moves", 1, INT64_MAX, &step->bytes))
    return false;
  if (words_take(p->words, "line=") && !words_integer(p->words, "line", 1, UINT32_MAX, &line))
    return false;
  step->line = (uint32_t)line;
  if (!read_belonging(p, step)) return false;
  return (step->label = words_string(p->words, "the label")) != NULL;
}

/* From one buffer to another, or to one. */
static bool check_bytes(Reader *p, PlanStep *step) {
  const PlanBuffer *buffers = p->graph->buffers.at;
  bool is_copy = step->kind == STEP_COPY;
  if (step->input_count != is_copy || step->arg_count != is_copy + 1)
    return words_fail(p->words, "a %s has %s", step_kind_text(step->kind),
                      is_copy ? "one input and one output" : "no input and one output");
  const PlanBuffer *to = &buffers[step->args[is_copy]];
  step->work = type_bytes(&to->type);
  if (!is_copy) return true;
  const PlanBuffer *from = &buffers[step->args[0]];
  if (type_bytes(&from->type) != step->work)
    return words_fail(p->words, "a copy of %" PRId64 " bytes to %" PRId64, type_bytes(&from->type),
                      step->work);
  return !plan_buffers_overlap(from, to) ||
         words_fail(p->words, "a copy between buffers that overlap");
}

static bool plan_step_check(Reader *p, PlanStep *step) {
  for (int i = step->input_count; i < step->arg_count; i++) {
    const PlanPlace *place = &p->plan->places.at[p->graph->buffers.at[step->args[i]].place];
    if (place->host == HOST_FROM)
      return words_fail(p->words, "a step writes to place %s, which the host fills", place->name);
  }
  const char *why = NULL;
  switch (step->kind) {
  case STEP_CALL:
    return call_check(p->words->arena, step, p->graph->buffers.at, &why) ||
           words_fail(p->words, "%s", why);
  case STEP_BEGIN:
    return beside_check(p->words->arena, step, p->graph->buffers.at, &why) ||
           words_fail(p->words, "%s", why);
  case STEP_COPY:
  case STEP_FILL:
    return check_bytes(p, step);
  case STEP_END:
    return step->queue == p->graph->steps.at[step->partner].queue ||
           words_fail(p->words, "it is not in the queue of step %d, which it ends", step->partner);
  case STEP_LAUNCH:
    break;
  }
  if (!strcmp(p->plan->target, "ptx")) {
    if (!step->grid[0] || !step->block[0])
      return words_fail(p->words, "a launch has no grid or block");
    if (step->block[0] * step->block[1] * step->block[2] > 1024)
      return words_fail(p->words, "a block has more than 1024 threads");
  }
  return true;
}

/* Steps before this one, ascending. */
static bool read_after(Reader *p, PlanStep *step) {
  Indices after = {0};
  int64_t low = 0, most = p->graph->steps.count - 1, index;
  if (!words_take(p->words, "after=")) return true;
  do {
    if (low > most) return words_fail(p->words, "a step waits for one that is not before it");
    if (!words_integer(p->words, "a step's number", low, most, &index)) return false;
    VEC_PUSH(p->words->arena, after, (int)index);
    low = index + 1;
  } while (words_take(p->words, ","));
  step->after = after.at;
  step->after_count = after.count;
  return true;
}

static bool read_queue(Reader *p, PlanStep *step) {
  if (!words_expect(p->words, "queue=")) return false;
  for (int i = 0; i < QUEUE_COUNT; i++)
    if (words_take(p->words, queue_text((QueueId)i))) {
      step->queue = (QueueId)i;
      return true;
    }
  return words_fail(p->words, "there is no queue '%.40s'", p->words->at);
}

/* What an `end` ends: a step that no other one ends. */
static bool read_begun(Reader *p, PlanStep *step) {
  int64_t begun;
  if (!words_integer(p->words, "the step that it ends", 0, p->graph->steps.count - 1, &begun))
    return false;
  if (p->graph->steps.at[begun].kind != STEP_BEGIN)
    return words_fail(p->words, "step %" PRId64 " begins nothing that it could end", begun);
  PlanStep *begin = &p->graph->steps.at[begun];
  if (begin->partner)
    return words_fail(p->words, "step %d ends step %" PRId64 " already", begin->partner, begun);
  begin->partner = p->graph->steps.count;
  step->partner = (int)begun;
  return true;
}

static bool read_args(Reader *p, PlanStep *step) {
  Indices args = {0};
  if (!read_indices(p, &args)) return false;
  step->input_count = args.count;
  if (!words_expect(p->words, "->") || !read_indices(p, &args)) return false;
  step->args = args.at;
  step->arg_count = args.count;
  return true;
}

static bool read_step_body(Reader *p, PlanStep *step, bool is_instead) {
  if (!p->graph) return words_fail(p->words, "a step outside of a graph");
  if (!p->plan->target) return words_fail(p->words, "the target has no line before this");
  bool is_launched = step->kind == STEP_LAUNCH || step->kind == STEP_CALL;
  step->name = step_kind_text(step->kind);
  if (is_launched || step->kind == STEP_BEGIN) {
    if (!(step->name = words_string(p->words, "the name"))) return false;
    if (!is_identifier(step->name)) return words_fail(p->words, "the name is no identifier");
  }
  if (step->kind == STEP_CALL && !is_instead && !strcmp(step->name, call_info[CALL_MATMUL].name))
    return words_fail(p->words, "\"matmul\" stands only in place of launches");
  if (step->kind == STEP_END ? !read_begun(p, step) : !read_args(p, step)) return false;
  if ((step->kind == STEP_CALL || step->kind == STEP_BEGIN) && !read_attributes(p, step))
    return false;
  if (!read_after(p, step) || (!is_instead && !read_queue(p, step))) return false;
  if (is_launched && !plan_step_read_launch(p, step)) return false;
  return read_costs(p, step) && plan_step_check(p, step);
}

bool plan_read_step(Words *words, const Plan *plan, PlanGraph *graph, StepKind kind) {
  Reader reader = {words, plan, graph}, *p = &reader;
  PlanStep step = {.kind = kind};
  if (!read_step_body(p, &step, false)) return false;
  VEC_PUSH(p->words->arena, p->graph->steps, step);
  return true;
}

/* One more call of those that are made in place of launches. */
static bool read_instead_call(Reader *p, PlanInstead *instead) {
  PlanStep *call = &instead->call[instead->call_count++];
  call->kind = STEP_CALL;
  if (!read_step_body(p, call, true)) return false;
  if (call->after_count)
    return words_fail(p->words, "a call in place of launches waits for what these wait for");
  return !strcmp(call->name, call_info[CALL_MATMUL].name) ||
         words_fail(p->words, "only \"matmul\" stands in place of launches");
}

/* Replaces launches only. It begins behind the one before, or replaces a part of what that one
 * does: `most` is where the outermost one around it ends. */
bool plan_read_instead(Words *words, const Plan *plan, PlanGraph *graph) {
  Reader reader = {words, plan, graph}, *p = &reader;
  if (!p->graph) return words_fail(p->words, "a step outside of a graph");
  int64_t first, end, low = 0, most = p->graph->steps.count, count = most;
  for (int i = 0; i < p->graph->insteads.count; i++) low = p->graph->insteads.at[i].first;
  if (low >= count) return words_fail(p->words, "there is no launch that it could replace");
  if (!words_integer(p->words, "the first step", low, count - 1, &first)) return false;
  for (int i = 0; i < p->graph->insteads.count; i++)
    if (p->graph->insteads.at[i].end > first && p->graph->insteads.at[i].end < most)
      most = p->graph->insteads.at[i].end;
  if (!words_integer(p->words, "the end of the steps", first + 1, most, &end)) return false;
  if (p->graph->insteads.count) {
    const PlanInstead *before = &p->graph->insteads.at[p->graph->insteads.count - 1];
    if (before->first == first && before->end == end)
      return words_fail(p->words, "the same steps are replaced twice");
  }
  for (int64_t i = first; i < end; i++)
    if (p->graph->steps.at[i].kind != STEP_LAUNCH)
      return words_fail(p->words, "step %" PRId64 " is no launch", i);
  PlanInstead instead = {.first = (int)first, .end = (int)end};
  if (!read_instead_call(p, &instead)) return false;
  VEC_PUSH(p->words->arena, p->graph->insteads, instead);
  return true;
}

/* One more call of the `instead` before it. */
bool plan_read_also(Words *words, const Plan *plan, PlanGraph *graph) {
  Reader reader = {words, plan, graph}, *p = &reader;
  int count = p->graph ? p->graph->insteads.count : 0;
  PlanInstead *instead = count ? &p->graph->insteads.at[count - 1] : NULL;
  if (!instead || instead->call_count == INSTEAD_CALLS)
    return words_fail(p->words, "there is no call that it could follow");
  return read_instead_call(p, instead);
}
