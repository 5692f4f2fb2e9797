/* plan_prepare: see plan_prepare.h. */
#include "plan/plan_prepare.h"
#include "plan/plan_order.h"
#include <stdlib.h>
#include <string.h>

int plan_prepare_of(const Plan *plan, const PlanGraph *graph) {
  return graph->prepare ? plan_find_graph(plan, graph->prepare) : -1;
}

static bool is_for_weights(const Plan *plan, const PlanBuffer *buffer) {
  return plan->places.at[buffer->place].life == FOR_WEIGHTS;
}

static bool is_for_ever(const Plan *plan, const PlanBuffer *buffer) {
  return plan->places.at[buffer->place].life == FOR_EVER;
}

/* ── what changes make it stale ───────────────────────────────────────────────────────────── */
static PlanBytes prepare_bytes_of(const PlanBuffer *buffer) {
  return (PlanBytes){buffer->place, buffer->offset, buffer->offset + type_bytes(&buffer->type)};
}

static int compare_bytes(const void *a, const void *b) {
  const PlanBytes *x = a, *y = b;
  if (x->place != y->place) return x->place < y->place ? -1 : 1;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

PlanSources plan_sources_of(Arena *arena, const Plan *plan, const PlanGraph *prepare) {
  PlanSources all = {0};
  int count = 0;
  for (int i = 0; i < prepare->steps.count; i++) {
    const PlanStep *step = &prepare->steps.at[i];
    for (int k = 0; k < step->input_count; k++) {
      const PlanBuffer *buffer = &prepare->buffers.at[step->args[k]];
      if (is_for_ever(plan, buffer)) VEC_PUSH(arena, all, prepare_bytes_of(buffer));
    }
  }
  if (all.count) qsort(all.at, (size_t)all.count, sizeof *all.at, compare_bytes);
  for (int i = 0; i < all.count; i++) {
    PlanBytes *last = count ? &all.at[count - 1] : NULL, at = all.at[i];
    if (last && last->place == at.place && at.begin <= last->end)
      last->end = at.end > last->end ? at.end : last->end;
    else
      all.at[count++] = at;
  }
  all.count = count;
  return all;
}

bool plan_sources_have(const PlanSources *sources, const Plan *plan, int place, int64_t offset,
                       int64_t bytes) {
  int low = 0, high = sources->count;
  PlanBytes asked = {.place = plan_whole_place(plan, place, &offset)};
  asked.begin = offset, asked.end = offset + bytes;
  while (low < high) { /* the first that ends behind where they begin */
    int middle = (low + high) / 2;
    const PlanBytes *at = &sources->at[middle];
    if (at->place < asked.place || (at->place == asked.place && at->end <= asked.begin))
      low = middle + 1;
    else
      high = middle;
  }
  return low < sources->count && sources->at[low].place == asked.place &&
         sources->at[low].begin < asked.end;
}

static bool step_writes_sources(const PlanSources *sources, const Plan *plan, const PlanGraph *writer,
                        const PlanStep *step) {
  for (int k = step->input_count; k < step->arg_count; k++) {
    const PlanBuffer *buffer = &writer->buffers.at[step->args[k]];
    if (plan_sources_have(sources, plan, buffer->place, buffer->offset, type_bytes(&buffer->type)))
      return true;
  }
  return false;
}

bool plan_sources_are_written(const PlanSources *sources, const Plan *plan,
                              const PlanGraph *writer) {
  for (int i = 0; i < writer->steps.count; i++)
    if (step_writes_sources(sources, plan, writer, &writer->steps.at[i])) return true;
  for (int i = 0; i < writer->insteads.count; i++)
    for (int k = 0; k < writer->insteads.at[i].call_count; k++)
      if (step_writes_sources(sources, plan, writer, &writer->insteads.at[i].call[k])) return true;
  return false;
}

/* ── the proof ────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  PlanBytes bytes;
  int graph, step;
} Kept;

typedef struct {
  Arena *arena;
  const Plan *plan;
  VEC(Kept) kept;
} Prepared;

static const char *prepare_refuse(const Prepared *p, int graph, const char *what, int number) {
  return arena_printf(p->arena, "graph \"%s\" prepares weights, and its step %d %s",
                      p->plan->graphs.at[graph].name, number, what);
}

/* Is what lies there gone when the graph is done? What is kept of a text is lost when anything but its
 * programme runs, but not by what prepares weights for that. */
static bool is_left(const Prepared *p, const PlanBuffer *buffer, bool is_for_text) {
  const PlanPlace *place = &p->plan->places.at[buffer->place];
  if (is_for_weights(p->plan, buffer)) return true;
  return is_for_text ? plan_is_temporary(p->plan, buffer)
                     : place->life == FOR_BATCH && place->host == HOST_NONE;
}

/* Of a graph that prepares weights: what a step reads and writes. */
static const char *check_step_of(Prepared *p, int graph, int number, bool is_for_text) {
  const PlanGraph *at = &p->plan->graphs.at[graph];
  const PlanStep *step = &at->steps.at[number];
  if (step->kind == STEP_BEGIN || step->kind == STEP_END)
    return prepare_refuse(p, graph, "is of several ranks", number);
  for (int k = 0; k < step->arg_count; k++) {
    const PlanBuffer *buffer = &at->buffers.at[step->args[k]];
    bool is_own = is_left(p, buffer, is_for_text);
    if (k < step->input_count) {
      if (!is_own && !is_for_ever(p->plan, buffer))
        return prepare_refuse(p, graph, "reads what is not kept for ever", number);
      continue;
    }
    if (!is_own) return prepare_refuse(p, graph, "writes what others read", number);
    if (is_for_weights(p->plan, buffer))
      VEC_PUSH(p->arena, p->kept, ((Kept){prepare_bytes_of(buffer), graph, number}));
  }
  return NULL;
}

/* Is `graph` run for texts, by programme GENERATE? */
static bool is_of_text(const Plan *plan, int graph) {
  const PlanRun *run;
  for (int i = 0; (run = plan_run_at(plan, i)) != NULL; i++)
    if (run->graph == graph && run->positions) return true;
  return false;
}

/* `user`: the graph that it prepares them for. */
static const char *check_graph_of(Prepared *p, int graph, int user) {
  const PlanGraph *at = &p->plan->graphs.at[graph];
  const char *why = NULL;
  if (at->prepare || at->outputs.count || at->insteads.count)
    return arena_printf(p->arena,
                        "graph \"%s\" prepares weights, and has outputs, other calls or another "
                        "graph before it",
                        at->name);
  bool is_for_text = is_of_text(p->plan, user);
  for (int i = 0; i < at->steps.count && !why; i++) why = check_step_of(p, graph, i, is_for_text);
  for (int i = 0; i < p->plan->programmes.count && !why; i++)
    for (int r = 0; r < p->plan->programmes.at[i].runs.count && !why; r++)
      if (p->plan->programmes.at[i].runs.at[r].graph == graph)
        why = arena_printf(p->arena, "programme \"%s\" runs graph \"%s\", which prepares weights",
                           p->plan->programmes.at[i].name, at->name);
  return why;
}

static int compare_kept(const void *a, const void *b) {
  return compare_bytes(&((const Kept *)a)->bytes, &((const Kept *)b)->bytes);
}

/* Launches of one node one behind the other have the same results. */
static bool are_of_one(const Prepared *p, const Kept *a, const Kept *b) {
  if (a->graph != b->graph || a->bytes.begin != b->bytes.begin || a->bytes.end != b->bytes.end)
    return false;
  int first = a->step < b->step ? a->step : b->step, last = a->step + b->step - first;
  const PlanGraph *graph = &p->plan->graphs.at[a->graph];
  const PlanStep *x = &graph->steps.at[first];
  for (int i = first + 1; i <= last; i++) {
    const PlanStep *y = &graph->steps.at[i];
    if (x->kind != STEP_LAUNCH || y->kind != STEP_LAUNCH || x->arg_count != y->arg_count ||
        x->input_count != y->input_count || !strcmp(x->name, y->name) ||
        memcmp(x->args, y->args, sizeof *x->args * (size_t)x->arg_count) != 0)
      return false;
  }
  return true;
}

/* No byte is written by two. Sorts them by where they begin. */
static const char *check_kept(Prepared *p) {
  if (p->kept.count) qsort(p->kept.at, (size_t)p->kept.count, sizeof(Kept), compare_kept);
  int last = 0; /* of those before: the one that ends last */
  for (int i = 1; i < p->kept.count; i++) {
    const Kept *before = &p->kept.at[last], *kept = &p->kept.at[i];
    bool is_met = before->bytes.place == kept->bytes.place && kept->bytes.begin < before->bytes.end;
    if (is_met && !are_of_one(p, before, kept))
      return arena_printf(p->arena,
                          "step %d of graph \"%s\" and step %d of graph \"%s\" both prepare byte "
                          "%lld of place %s",
                          before->step, p->plan->graphs.at[before->graph].name, kept->step,
                          p->plan->graphs.at[kept->graph].name, (long long)kept->bytes.begin,
                          p->plan->places.at[kept->bytes.place].name);
    if (!is_met || kept->bytes.end > before->bytes.end) last = i;
  }
  return NULL;
}

/* Is all of it written by this graph? Those that are kept stand in the order of memory, and none lies
 * on another. */
static bool is_prepared(const Prepared *p, int graph, PlanBytes read) {
  int low = 0, high = p->kept.count;
  while (low < high) { /* the first that begins behind where it begins */
    int middle = (low + high) / 2;
    PlanBytes at = p->kept.at[middle].bytes;
    if (at.place < read.place || (at.place == read.place && at.begin <= read.begin))
      low = middle + 1;
    else
      high = middle;
  }
  const Kept *kept = low ? &p->kept.at[low - 1] : NULL;
  if (read.begin == read.end) return true;
  return kept && kept->graph == graph && kept->bytes.place == read.place &&
         kept->bytes.end >= read.end;
}

static const char *check_prepared_use(const Prepared *p, int graph, const PlanStep *step, int number) {
  const PlanGraph *at = &p->plan->graphs.at[graph];
  int prepare = plan_prepare_of(p->plan, at);
  for (int k = 0; k < step->arg_count; k++) {
    const PlanBuffer *buffer = &at->buffers.at[step->args[k]];
    if (!is_for_weights(p->plan, buffer)) continue;
    if (k >= step->input_count)
      return arena_printf(p->arena, "step %d of graph \"%s\" writes place %s, which holds prepared "
                                    "weights",
                          number, at->name, p->plan->places.at[buffer->place].name);
    if (prepare < 0 || !is_prepared(p, prepare, prepare_bytes_of(buffer)))
      return arena_printf(p->arena, "step %d of graph \"%s\" reads weights that no graph prepares "
                                    "for it",
                          number, at->name);
  }
  return NULL;
}

/* Of a graph that prepares none. */
static const char *check_user(const Prepared *p, int graph) {
  const PlanGraph *at = &p->plan->graphs.at[graph];
  int prepare = plan_prepare_of(p->plan, at);
  const char *why = NULL;
  for (int i = 0; i < at->steps.count && !why; i++)
    why = check_prepared_use(p, graph, &at->steps.at[i], i);
  for (int i = 0; i < at->insteads.count; i++)
    for (int k = 0; k < at->insteads.at[i].call_count && !why; k++)
      why = check_prepared_use(p, graph, &at->insteads.at[i].call[k], at->insteads.at[i].first);
  PlanSources sources = {0};
  if (prepare >= 0) sources = plan_sources_of(p->arena, p->plan, &p->plan->graphs.at[prepare]);
  if (!why && plan_sources_are_written(&sources, p->plan, at))
    why = arena_printf(p->arena, "graph \"%s\" writes what its weights are prepared from",
                       at->name);
  return why;
}

const char *plan_check_prepare(Arena *arena, const Plan *plan) {
  int *of = ARENA_ARRAY(arena, int, plan->graphs.count + 1); /* the graph that it is for; -1: none */
  Prepared p = {.arena = arena, .plan = plan};
  const char *why = NULL;
  for (int g = 0; g < plan->graphs.count; g++) of[g] = -1;
  for (int g = 0; g < plan->graphs.count; g++) {
    const PlanGraph *graph = &plan->graphs.at[g];
    int prepare = plan_prepare_of(plan, graph);
    if (!graph->prepare) continue;
    if (prepare < 0 || of[prepare] >= 0)
      return arena_printf(arena, "graph \"%s\" has no graph \"%s\" of its own that prepares weights",
                          graph->name, graph->prepare);
    of[prepare] = g;
  }
  for (int g = 0; g < plan->graphs.count && !why; g++)
    if (of[g] >= 0) why = check_graph_of(&p, g, of[g]);
  if (!why) why = check_kept(&p);
  for (int g = 0; g < plan->graphs.count && !why; g++)
    if (of[g] < 0) why = check_user(&p, g);
  return why;
}
