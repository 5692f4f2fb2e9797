/* plan_writes: see plan_writes.h. What may be written is asked of each output of each step, also of
 * library calls in place of launches; what must be, of each parameter and state, whose bytes are
 * looked up among all that steps write. */
#include "plan/plan_writes.h"
#include "base/lookup.h"
#include <stdlib.h>
#include <string.h>

bool plan_is_written(const PlanGraph *graph, int place, int64_t offset, const Type *type) {
  for (int i = 0; i < graph->steps.count; i++) {
    const PlanStep *step = &graph->steps.at[i];
    for (int k = step->input_count; k < step->arg_count; k++) {
      const PlanBuffer *buffer = &graph->buffers.at[step->args[k]];
      if (buffer->place == place && buffer->offset == offset && buffer->type.dtype == type->dtype &&
          shape_elements(&buffer->type.shape) == shape_elements(&type->shape))
        return true;
    }
  }
  return false;
}

/* ── pieces of a place ────────────────────────────────────────────────────────────────────── */
typedef struct {
  int64_t begin, end;
} Span;
typedef VEC(Span) Spans;

/* The bytes of a place that steps write. Once, twice: ascending, none touches the next. */
typedef struct {
  Spans all, once, twice;
} Written;

static void span_add(Arena *arena, Spans *spans, int64_t begin, int64_t end) {
  Span *last = spans->count ? &spans->at[spans->count - 1] : NULL;
  if (begin >= end) return;
  if (last && begin <= last->end)
    last->end = end > last->end ? end : last->end;
  else
    VEC_PUSH(arena, *spans, ((Span){begin, end}));
}

/* How many bytes of [begin, end) are in one of them; the first that could be is looked up. */
static int64_t span_bytes(const Spans *spans, int64_t begin, int64_t end) {
  int low = 0, high = spans->count;
  int64_t bytes = 0;
  while (low < high) {
    int middle = (low + high) / 2;
    if (spans->at[middle].end <= begin)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < spans->count && spans->at[low].begin < end; low++) {
    const Span *at = &spans->at[low];
    bytes += (at->end < end ? at->end : end) - (at->begin > begin ? at->begin : begin);
  }
  return bytes;
}

/* ── what a run writes ────────────────────────────────────────────────────────────────────── */
typedef struct {
  Arena *arena;
  const Plan *plan;
  const PlanGraph *graph;
  RoleTrait by;
  int64_t resting;
  Written *of; /* by place */
} Writes;

/* What all bytes of a place are; MODEL: each is some state's. */
static LeafRole place_role(const PlanPlace *place) {
  if (place->is_frozen) return ROLE_FROZEN;
  if (place->saved == SAVED_WEIGHTS) return ROLE_PARAMS;
  if (place->elements == ELEMENTS_ROUNDED) return ROLE_NARROW;
  if (place->elements == ELEMENTS_LIKE && place->life == FOR_STEP) return ROLE_GRADIENT_SUM;
  return place->life == FOR_EVER && !place->host ? ROLE_MODEL : ROLE_NONE;
}

static const char *text_of(LeafRole role) {
  return role == ROLE_PARAMS   ? "the parameters"
         : role == ROLE_FROZEN ? "frozen parameters"
         : role == ROLE_NARROW ? "the rounded parameters"
                               : "gradients";
}

/* The state that these bytes are of; NULL: there is no such one. They stand in the order of
 * memory. */
static const PlanTensor *state_at(const Plan *plan, const PlanBuffer *buffer) {
  int low = 0, high = plan->states.count;
  while (low < high) {
    int middle = (low + high) / 2;
    int64_t at = plan->states.at[middle].offset;
    int place = plan_whole_place(plan, plan->states.at[middle].place, &at);
    if (place < buffer->place || (place == buffer->place && at <= buffer->offset))
      low = middle + 1;
    else
      high = middle;
  }
  if (!low) return NULL;
  const PlanTensor *state = &plan->states.at[low - 1];
  int64_t end = state->offset + type_bytes(&state->type);
  int place = plan_whole_place(plan, state->place, &end);
  return place == buffer->place && buffer->offset + type_bytes(&buffer->type) <= end ? state : NULL;
}

/* NULL: it may. */
static const char *plan_writes_check_write(const Writes *w, const PlanBuffer *buffer) {
  LeafRole role = place_role(&w->plan->places.at[buffer->place]);
  if (role != ROLE_MODEL) {
    if (role == ROLE_NONE || role_has(role, w->by)) return NULL;
    return arena_printf(w->arena, "writes %s", text_of(role));
  }
  const PlanTensor *state = state_at(w->plan, buffer);
  char type[TYPE_TEXT];
  if (!state) return "writes bytes between the states";
  if (!role_has(state->role, w->by))
    return arena_printf(w->arena, "writes the state \"%s\"", state->name);
  if (state->type.dtype == buffer->type.dtype) return NULL;
  return arena_printf(w->arena, "writes the state \"%s\" as %s", state->name,
                      type_text(&buffer->type, type));
}

static const char *take_step(Writes *w, const PlanStep *step, bool is_counted) {
  const char *why = NULL;
  for (int i = step->input_count; i < step->arg_count && !why; i++) {
    const PlanBuffer *buffer = &w->graph->buffers.at[step->args[i]];
    Span span = {buffer->offset, buffer->offset + type_bytes(&buffer->type)};
    why = plan_writes_check_write(w, buffer);
    if (is_counted) VEC_PUSH(w->arena, w->of[buffer->place].all, span);
  }
  return why;
}

/* The second launch of one node: other code with the same buffers, some of which it writes. */
static bool goes_on(const PlanStep *before, const PlanStep *step) {
  return before->kind == STEP_LAUNCH && step->kind == STEP_LAUNCH &&
         before->arg_count == step->arg_count && before->input_count == step->input_count &&
         !memcmp(before->args, step->args, sizeof *step->args * (size_t)step->arg_count) &&
         strcmp(before->name, step->name) != 0;
}

static int compare_spans(const void *a, const void *b) {
  int64_t x = ((const Span *)a)->begin, y = ((const Span *)b)->begin;
  return (x > y) - (x < y);
}

static void join_writes(Arena *arena, Written *of) {
  int64_t end = 0;
  if (of->all.count) qsort(of->all.at, (size_t)of->all.count, sizeof(Span), compare_spans);
  for (int i = 0; i < of->all.count; i++) {
    Span at = of->all.at[i];
    span_add(arena, &of->once, at.begin, at.end);
    span_add(arena, &of->twice, at.begin, at.end < end ? at.end : end);
    if (at.end > end) end = at.end;
  }
}

/* What must be written is, as a whole and once. */
static const char *check_written(const Writes *w, int place, int64_t begin, int64_t bytes,
                                 const char *what, const char *name) {
  place = plan_whole_place(w->plan, place, &begin);
  if (span_bytes(&w->of[place].once, begin, begin + bytes) < bytes)
    return arena_printf(w->arena, "does not write %s \"%s\"", what, name);
  if (span_bytes(&w->of[place].twice, begin, begin + bytes))
    return arena_printf(w->arena, "writes %s \"%s\" twice", what, name);
  return NULL;
}

static bool must_write(const Writes *w, LeafRole role) {
  return role_has(role, w->by) && !role_has(role, ROLE_PERHAPS);
}

/* Of a parameter, what lies in a place that has the order of the parameters' elements. */
static const char *plan_writes_check_elements(const Writes *w, const PlanTensor *param, int place) {
  const PlanPlace *in = &w->plan->places.at[place];
  int64_t wide = dtype_bytes(param->type.dtype), narrow = dtype_bytes(in->dtype);
  Type held = plan_held(param);
  int64_t first = param->offset / wide * narrow, bytes = type_bytes(&held) / wide * narrow;
  LeafRole role = place_role(in);
  if (in->elements < ELEMENTS_LIKE || in->of_elements != param->place || in->is_window) return NULL;
  if (role == ROLE_NARROW && in->bytes && must_write(w, role))
    return check_written(w, place, first, bytes, "rounded, the parameter", param->name);
  if (role == ROLE_GRADIENT_SUM && w->by == ROLE_BY_UPDATE && /* by any number of steps: they add */
      span_bytes(&w->of[place].once, first, first + bytes) < bytes)
    return arena_printf(w->arena, "does not write the gradient of \"%s\"", param->name);
  return NULL;
}

static bool has_rest(const Writes *w, const PlanTensor *param) {
  return param->rests && param->rests <= w->resting;
}

/* A state of which element i belongs to element i of the parameters. */
static const char *check_sliced(const Writes *w, const PlanTensor *state) {
  const char *why = NULL;
  for (int i = 0; i < w->plan->params.count && !why; i++) {
    const PlanTensor *param = &w->plan->params.at[i];
    Type held = plan_held(param);
    int64_t wide = dtype_bytes(state->type.dtype), first = param->offset / dtype_bytes(param->type.dtype) * wide;
    int64_t bytes = shape_elements(&held.shape) * wide;
    bool is_in = !w->plan->places.at[param->place].is_frozen && first + bytes <= type_bytes(&state->type);
    if (is_in && !has_rest(w, param))
      why = check_written(w, state->place, state->offset + first, bytes, "the state", state->name);
  }
  return why;
}

static const char *check_params(const Writes *w) {
  const Plan *plan = w->plan;
  const char *why = NULL;
  for (int i = 0; i < plan->params.count && !why; i++) {
    const PlanTensor *param = &plan->params.at[i];
    Type held = plan_held(param);
    if (has_rest(w, param)) continue;
    if (must_write(w, place_role(&plan->places.at[param->place])))
      why = check_written(w, param->place, param->offset, type_bytes(&held), "the parameter",
                          param->name);
    for (int p = 0; p < plan->places.count && !why; p++)
      why = plan_writes_check_elements(w, param, p);
  }
  return why;
}

const char *plan_check_writes(Arena *arena, const Plan *plan, const PlanGraph *graph,
                              RoleTrait by, StepForm form) {
  Arena *scratch = arena_new();
  Writes w = {.arena = scratch, .plan = plan, .graph = graph, .by = by, .resting = form.resting};
  w.of = ARENA_ARRAY(scratch, Written, plan->places.count + 1);
  const char *why = NULL;
  for (int i = 0; i < graph->steps.count && !why; i++)
    why = take_step(&w, &graph->steps.at[i],
                    !i || !goes_on(&graph->steps.at[i - 1], &graph->steps.at[i]));
  for (int i = 0; i < graph->insteads.count && !why; i++)
    for (int k = 0; k < graph->insteads.at[i].call_count && !why; k++)
      why = take_step(&w, &graph->insteads.at[i].call[k], false);
  for (int p = 0; p < plan->places.count; p++) join_writes(scratch, &w.of[p]);
  if (!why) why = check_params(&w);
  for (int i = 0; i < plan->states.count && !why; i++) {
    const PlanTensor *state = &plan->states.at[i];
    if (must_write(&w, state->role) && w.resting && role_has(state->role, ROLE_SLICED))
      why = check_sliced(&w, state);
    else if (must_write(&w, state->role))
      why = check_written(&w, state->place, state->offset, type_bytes(&state->type), "the state",
                          state->name);
  }
  if (why) why = arena_strdup(arena, why);
  arena_free(scratch);
  return why;
}

/* ── sums of gradients ────────────────────────────────────────────────────────────────────── */
/* Does the step write only gradients that it, or a step before it, has read? The step that adds
 * need not be the one that writes: the sum may be computed in another order and then be transposed.
 * `read` has the buffers that were read so far. */
static bool adds(const Plan *plan, const PlanGraph *graph, const PlanStep *step, Lookup *read) {
  bool is_good = true;
  for (int i = 0; i < step->arg_count; i++) {
    const PlanBuffer *buffer = &graph->buffers.at[step->args[i]];
    int64_t key[] = {buffer->place, buffer->offset, type_bytes(&buffer->type)};
    if (place_role(&plan->places.at[buffer->place]) != ROLE_GRADIENT_SUM) continue;
    if (i < step->input_count)
      lookup_add(read, key, sizeof key, 0);
    else
      is_good &= lookup_find(read, key, sizeof key) >= 0;
  }
  return is_good;
}

static bool touches_sums(const Plan *plan, const PlanGraph *graph, const PlanStep *step) {
  for (int i = 0; i < step->arg_count; i++) {
    int place = graph->buffers.at[step->args[i]].place;
    if (place_role(&plan->places.at[place]) == ROLE_GRADIENT_SUM) return true;
  }
  return false;
}

static bool clears_all(const Plan *plan, const PlanGraph *graph, const PlanStep *step) {
  const PlanBuffer *buffer = &graph->buffers.at[step->args[0]];
  return step->kind == STEP_FILL &&
         type_bytes(&buffer->type) == plan->places.at[buffer->place].bytes;
}

const char *plan_check_sums(Arena *arena, const Plan *plan, const PlanGraph *graph, RoleTrait by) {
  const PlanStep *last = NULL; /* that clears or adds */
  Lookup read = {.arena = arena_new()};
  int wrong = -1;
  for (int i = 0; i < graph->steps.count; i++) {
    const PlanStep *step = &graph->steps.at[i];
    if (!touches_sums(plan, graph, step)) continue;
    bool clears = by == ROLE_BY_UPDATE && step->kind == STEP_FILL;
    if (wrong < 0 && !clears && !adds(plan, graph, step, &read)) wrong = i;
    last = step;
  }
  for (int i = 0; i < graph->insteads.count; i++)
    for (int k = 0; k < graph->insteads.at[i].call_count; k++) {
      Lookup own = {.arena = read.arena}; /* a call adds by itself */
      if (wrong < 0 && !adds(plan, graph, &graph->insteads.at[i].call[k], &own))
        wrong = graph->insteads.at[i].first;
    }
  arena_free(read.arena);
  if (wrong >= 0)
    return arena_printf(arena, "adds nothing to the sums of gradients that its step %d writes",
                        wrong);
  if (by == ROLE_BY_UPDATE && last && !clears_all(plan, graph, last))
    return "does not clear the sums of gradients at its end";
  return NULL;
}
