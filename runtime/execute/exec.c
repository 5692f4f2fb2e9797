/* exec: see exec.h. Knows a device only through its table; owns the memory of the places. */
#include "runtime/execute/exec.h"
#include "runtime/execute/exec_fetch.h"
#include "runtime/execute/init.h"
#include "base/clock.h"
#include "runtime/common/permute.h"
#include "runtime/common/room.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

Plan *exec_plan(const Exec *exec) { return exec->plan; }
const PlanStages *exec_stages(const Exec *exec) { return &exec->artifact->stages; }
const PlanGraph *exec_graph_plan(const Exec *exec, ExecGraph graph) {
  const PlanRun *run = plan_run_at(exec->plan, graph - exec->plan->graphs.count);
  return &exec->plan->graphs.at[run ? run->graph : graph];
}
/* A graph of the plan as it is, or behind all of them, by the first such run, one that reads a
 * place in place of another one. */
ExecGraph exec_graph_of(const Plan *plan, const PlanRun *run) {
  const PlanRun *other;
  if (run->reads == run->instead_of) return run->graph;
  for (int i = 0; (other = plan_run_at(plan, i)) != NULL; i++)
    if (other->graph == run->graph && other->reads == run->reads &&
        other->instead_of == run->instead_of)
      return plan->graphs.count + i;
  return run->graph;
}
ExecGraph exec_result_graph(const Exec *exec, const char *programme) {
  const PlanProgramme *found = plan_find_programme(exec->plan, programme);
  ExecGraph graph =
      found ? exec_graph_of(exec->plan, &found->runs.at[found->runs.count - 1]) : EXEC_NO_GRAPH;
  return graph >= 0 && exec->graph[graph] ? graph : EXEC_NO_GRAPH;
}
bool exec_has_ema(const Exec *exec) {
  return exec_result_graph(exec, PROGRAMME_EVALUATE_AVERAGE) >= 0;
}
int64_t exec_parts(const Exec *exec) {
  const PlanProgramme *step = plan_find_programme(exec->plan, PROGRAMME_STEP);
  return step ? plan_batches(step) : 1;
}
static int64_t derived_number(const Exec *exec, const char *key) {
  return (int64_t)setting_number(exec->plan->settings, key);
}
int64_t exec_rank(const Exec *exec) { return derived_number(exec, "distributed.data_rank"); }
int64_t exec_ranks(const Exec *exec) { return derived_number(exec, "distributed.ranks"); }
const char *exec_device_text(const Exec *exec) { return exec->type->describe(exec->device); }

/* ── making ───────────────────────────────────────────────────────────────────────────────── */
static bool is_wanted(const ExecOptions *options, const PlanProgramme *programme) {
  if (!options->only) return strcmp(programme->name, PROGRAMME_GENERATE) != 0;
  for (const char *const *name = options->only; *name; name++)
    if (!strcmp(*name, programme->name)) return true;
  return false;
}

/* is_bound, by ExecGraph: will some programme run it? */
static void find_graphs(const Exec *exec, const ExecOptions *options, bool *is_bound) {
  for (int p = 0; p < exec->plan->programmes.count; p++) {
    const PlanProgramme *programme = &exec->plan->programmes.at[p];
    for (int i = 0; is_wanted(options, programme) && i < programme->runs.count; i++)
      is_bound[exec_graph_of(exec->plan, &programme->runs.at[i])] = true;
  }
}

static Status exec_bind(Exec *exec, ExecGraph graph) {
  const Plan *plan = exec->plan;
  const PlanRun *run = plan_run_at(plan, graph - plan->graphs.count);
  char *instead = NULL;
  if (run) {
    instead = exec->base[run->instead_of];
    exec->base[run->instead_of] = exec->base[run->reads];
  }
  Status status = exec->type->bind(exec->device, exec->artifact, run ? run->graph : graph,
                                   exec->base, &exec->graph[graph]);
  if (status == STATUS_OK) status = exec_prepare_bind(exec, graph, exec->base);
  if (run) exec->base[run->instead_of] = instead;
  return status;
}

static void reach(int64_t *bytes, int64_t last) { *bytes = last > *bytes ? last : *bytes; }

static void find_reach(Exec *exec, const PlanGraph *graph) {
  for (int i = 0; i < graph->buffers.count; i++) {
    const PlanBuffer *buffer = &graph->buffers.at[i];
    int64_t last = buffer->offset + type_bytes(&buffer->type);
    reach(&exec->bytes[buffer->place], last);
    int under = plan_whole_place(exec->plan, buffer->place, &last);
    reach(&exec->reach[under], last);
  }
}

static void reach_place(Exec *exec, int place) {
  int64_t last = exec->plan->places.at[place].bytes;
  int under = plan_whole_place(exec->plan, place, &last);
  reach(&exec->reach[under], last);
}

/* Of a place that is not saved, nor the host's, what graphs reach that will run; rounded elements
 * all where one reads any. A window has what there is of its place. */
static void find_bytes(Exec *exec, const bool *is_bound) {
  const Plan *plan = exec->plan;
  for (ExecGraph g = 0; g < exec->graph_count; g++) {
    int prepare = is_bound[g] ? plan_prepare_of(plan, exec_graph_plan(exec, g)) : -1;
    if (is_bound[g]) find_reach(exec, exec_graph_plan(exec, g));
    if (is_bound[g] && plan_run_at(plan, g - plan->graphs.count)) reach_place(exec, plan_run_at(plan, g - plan->graphs.count)->reads);
    if (prepare >= 0) find_reach(exec, &plan->graphs.at[prepare]);
  }
  for (int p = 0; p < plan->places.count; p++) {
    const PlanPlace *place = &plan->places.at[p];
    int64_t reach = plan_aligned(exec->bytes[p]);
    bool is_all = place->saved || place->host || reach > place->bytes ||
                  (place->elements == ELEMENTS_ROUNDED && reach);
    exec->bytes[p] = is_all ? place->bytes : reach;
  }
  for (int p = 0; p < plan->places.count; p++) {
    const PlanPlace *place = &plan->places.at[p];
    int64_t left = place->is_window ? exec->bytes[place->of] - place->offset : place->bytes;
    if (place->is_window) exec->bytes[p] = left < 0 ? 0 : left < place->bytes ? left : place->bytes;
  }
}

/* A device with memory of its own checks that itself. */
static Status check_room(const Exec *exec) {
  int64_t need = 0, room = room_of_host();
  for (int p = 0; p < exec->plan->places.count; p++) {
    const PlanPlace *place = &exec->plan->places.at[p];
    if (!place->is_window) need += place->saved == SAVED_CHECKPOINT ? exec->reach[p] : exec->bytes[p];
  }
  if (!exec->type->is_host_memory || need <= room) return STATUS_OK;
  return status_fail(
      STATUS_FAULT,
      "model %s needs %.1f GiB of memory and there are %.1f GiB for it: compile it with a "
      "smaller train.batch or with --set train.recompute=block (ftc --memory shows "
      "what takes it)",
      exec->plan->model, (double)need / (1 << 30), (double)room / (1 << 30));
}

static int64_t most_bytes(const PlanGraph *graph, const PlanStep *step) {
  int64_t most = 0;
  for (int i = 0; i < step->arg_count; i++) {
    int64_t bytes = type_bytes(&graph->buffers.at[step->args[i]].type);
    most = bytes > most ? bytes : most;
  }
  return most;
}

static int place_shared_of(const Plan *plan, int place) { return plan_whole_place(plan, place, &(int64_t){0}); }

/* By place: do ranks work on it together, on so many bytes that they should all reach it? It is so on
 * all ranks, whatever graphs these will run. */
static void find_places_of_ranks(const Plan *plan, bool *is_shared) {
  enum { LEAST = 1 << 13 };
  const PlanRun *run;
  for (int g = 0; g < plan->graphs.count; g++) {
    const PlanGraph *graph = &plan->graphs.at[g];
    for (int i = 0; i < graph->steps.count; i++) {
      const PlanStep *step = &graph->steps.at[i];
      bool is_large = step->kind == STEP_BEGIN && most_bytes(graph, step) >= LEAST;
      for (int k = 0; k < step->arg_count && is_large; k++)
        is_shared[place_shared_of(plan, graph->buffers.at[step->args[k]].place)] = true;
    }
  }
  for (int i = 0; (run = plan_run_at(plan, i)) != NULL; i++)
    if (is_shared[place_shared_of(plan, run->instead_of)])
      is_shared[place_shared_of(plan, run->reads)] = true;
}

static Status make_all_places(Exec *exec, const bool *is_shared) {
  const Plan *plan = exec->plan;
  const DeviceType *type = exec->type;
  for (int p = 0; p < plan->places.count; p++) {
    bool can_share = is_shared[p] && exec->comm && type->alloc_shared;
    if (plan->places.at[p].is_window || p == plan_batch_place(plan)) continue;
    STATUS_TRY((can_share ? type->alloc_shared : type->alloc)(exec->device, exec->bytes[p],
                                                              &exec->base[p]));
  }
  for (int p = 0; p < plan->places.count; p++)
    if (plan->places.at[p].is_window)
      exec->base[p] = exec->base[plan->places.at[p].of] + plan->places.at[p].offset;
  return STATUS_OK;
}

static Status make_memory(Exec *exec, const bool *is_bound) {
  bool *is_shared = calloc((size_t)exec->plan->places.count + 1, sizeof *is_shared);
  if (!is_shared) return status_fail(STATUS_FAULT, "out of memory");
  find_places_of_ranks(exec->plan, is_shared);
  find_bytes(exec, is_bound);
  Status status = check_room(exec);
  if (status == STATUS_OK) status = artifact_load(exec->artifact);
  if (status == STATUS_OK) status = make_all_places(exec, is_shared);
  free(is_shared);
  return status;
}

static Status exec_make(Exec *exec, const ExecOptions *options, bool *is_bound) {
  DeviceOptions device = {.threads = options->threads,
                          .reserved = options->reserved,
                          .comm = options->comm,
                          .is_deterministic = options->is_deterministic,
                          .is_unchecked = options->is_unchecked};
  exec->comm = options->comm;
  exec_set_derived(exec, "distributed.rank", comm_rank(options->comm));
  exec_set_derived(exec, "distributed.data_rank", comm_index(options->comm, MESH_DATA));
  exec_set_derived(exec, "distributed.pipeline_rank", comm_index(options->comm, MESH_PIPELINE));
  exec_set_derived(exec, "distributed.tensor_rank", comm_index(options->comm, MESH_TENSOR));
  exec_set_derived(exec, "distributed.ranks", comm_size(options->comm, MESH_DATA));
  STATUS_TRY(exec_check_parts(exec));
  STATUS_TRY(dev_find(options->device, exec->artifact, &exec->type, &device));
  STATUS_TRY(exec->type->open(exec->artifact, &device, &exec->device));
  find_graphs(exec, options, is_bound);
  STATUS_TRY(make_memory(exec, is_bound));
  for (ExecGraph g = 0; g < exec->graph_count; g++)
    if (is_bound[g]) STATUS_TRY(exec_bind(exec, g));
  return STATUS_OK;
}

/* An artifact for inference has the kernels of evaluations only. */
static Status check_inference(const Artifact *artifact, const ExecOptions *options) {
  for (int p = 0; artifact->weights >= 0 && p < artifact->plan->programmes.count; p++) {
    const char *name = artifact->plan->programmes.at[p].name;
    bool is_evaluation =
        !strcmp(name, PROGRAMME_EVALUATE) || !strcmp(name, PROGRAMME_EVALUATE_AVERAGE);
    if (!is_evaluation && is_wanted(options, &artifact->plan->programmes.at[p]))
      return status_fail(STATUS_USER,
                         "%s is compiled for inference (ftc --inference): it evaluates and predicts, "
                         "and can neither train nor generate; `ftc %s -o MODEL.so` makes one that can",
                         artifact->path, artifact->plan->source);
  }
  return STATUS_OK;
}

Status exec_new(Artifact *artifact, const ExecOptions *options, Exec **out) {
  STATUS_TRY(check_inference(artifact, options));
  Exec *exec = calloc(1, sizeof *exec);
  if (!exec) return status_fail(STATUS_FAULT, "out of memory");
  exec->artifact = artifact;
  exec->plan = artifact->plan;
  exec->graph_count = exec->plan->graphs.count + plan_run_count(exec->plan);
  exec->base = calloc((size_t)exec->plan->places.count + 1, sizeof *exec->base);
  exec->bytes = calloc((size_t)exec->plan->places.count + 1, sizeof *exec->bytes);
  exec->rounded = calloc((size_t)exec->plan->places.count + 1, sizeof *exec->rounded);
  exec->reach = calloc((size_t)exec->plan->places.count + 1, sizeof *exec->reach);
  exec->graph = calloc((size_t)exec->graph_count + 1, sizeof *exec->graph);
  exec->prepare = calloc((size_t)exec->graph_count + 1, sizeof *exec->prepare);
  exec->arena = arena_new();
  exec->places = calloc((size_t)exec->graph_count + 1, sizeof *exec->places);
  bool *is_bound = calloc((size_t)exec->graph_count + 1, sizeof *is_bound);
  bool has_all = exec->base && exec->bytes && exec->rounded && exec->reach && exec->graph && exec->places &&
                 exec->prepare;
  for (int p = 0; exec->rounded && p < exec->plan->places.count; p++) exec->rounded[p] = -1;
  Status status = has_all && is_bound ? exec_make(exec, options, is_bound)
                                      : status_fail(STATUS_FAULT, "out of memory");
  free(is_bound);
  if (status != STATUS_OK) {
    exec_free(exec);
    return status;
  }
  *out = exec;
  return STATUS_OK;
}

Status exec_join(Exec *exec) {
  return exec->type->join ? exec->type->join(exec->device) : STATUS_OK;
}

void exec_free(Exec *exec) {
  if (!exec) return;
  exec_fetch_free(exec);
  for (int i = 0; exec->graph && i < exec->graph_count; i++)
    if (exec->graph[i]) exec->type->unbind(exec->graph[i]);
  for (int i = 0; exec->prepare && i < exec->graph_count; i++)
    if (exec->prepare[i].graph) exec->type->unbind(exec->prepare[i].graph);
  free(exec->graph);
  free(exec->prepare);
  arena_free(exec->arena);
  for (int p = 0; exec->base && p < exec->plan->places.count; p++)
    if (exec->base[p] && !exec->plan->places.at[p].is_window)
      exec->type->free(exec->device, exec->base[p], exec->bytes[p]);
  if (exec->device) exec->type->close(exec->device);
  free(exec->base);
  free(exec->bytes);
  free(exec->rounded);
  free(exec->reach);
  free(exec);
}

void exec_enter(Exec *exec) {
  if (exec && exec->type->enter) exec->type->enter(exec->device);
}

void exec_leave(Exec *exec) {
  if (exec && exec->type->leave) exec->type->leave(exec->device);
}

int64_t exec_place_bytes(const Exec *exec, int place) { return exec->bytes[place]; }


/* ── running ──────────────────────────────────────────────────────────────────────────────── */
int64_t exec_batch_bytes(const Exec *exec) {
  return plan_place_bytes(exec->plan, plan_batch_place(exec->plan));
}

Status exec_batch_new(Exec *exec, void **out) {
  char *memory;
  STATUS_TRY(exec->type->alloc_host(exec->device, exec_batch_bytes(exec), &memory));
  *out = memory;
  return STATUS_OK;
}

void exec_batch_free(Exec *exec, void *batch) {
  if (batch) exec->type->free_host(exec->device, batch, exec_batch_bytes(exec));
}

int exec_holds(const Exec *exec) { return exec->type->holds; }

bool exec_has_idle(const Exec *exec) { return exec->type->run_beside != NULL; }

Status exec_run_beside(Exec *exec, ExecGraph graph, const void *batch, DeviceIdle *idle,
                       void *context) {
  STATUS_TRY(exec_ready(exec, graph));
  exec->last_steps = 1;
  return exec->type->run_beside(exec->graph[graph], batch, idle, context);
}

void exec_tell(Exec *exec, int64_t first, int64_t last) {
  if (exec->type->tell) exec->type->tell(exec->device, first, last);
}

Status exec_run(Exec *exec, ExecGraph graph, const void *batch) {
  STATUS_TRY(exec_ready(exec, graph));
  exec->last_steps = 1;
  return exec->type->run(exec->graph[graph], batch);
}

Status exec_keep(Exec *exec, const DeviceData *data, DeviceKept **out) {
  *out = NULL;
  return exec->type->keep ? exec->type->keep(exec->device, data, out) : STATUS_OK;
}

void exec_drop(Exec *exec, DeviceKept *kept) {
  if (kept) exec->type->drop(kept);
}

int exec_most_steps(const Exec *exec, ExecGraph graph) {
  return exec->type->most_steps ? exec->type->most_steps(exec->graph[graph]) : 1;
}

Status exec_run_kept(Exec *exec, ExecGraph graph, const DeviceKept *kept, int64_t first_step,
                     int steps) {
  STATUS_TRY(exec_ready(exec, graph));
  exec->last_steps = steps;
  return exec->type->run_kept(exec->graph[graph], kept, first_step, steps);
}

Status exec_make_ready(Exec *exec, ExecGraph graph, int ahead, int steps) {
  if (!exec->type->make_ready) return STATUS_OK;
  return exec->type->make_ready(exec->graph[graph], ahead, steps);
}

Status exec_make_all_ready(Exec *exec) {
  const DeviceType *type = exec->type;
  for (ExecGraph g = 0; type->make_ready && g < exec->graph_count; g++)
    for (int i = 0; i <= type->holds && exec->graph[g]; i++) { /* it has no more slots than that */
      STATUS_TRY(type->make_ready(exec->graph[g], i, 0));
      if (exec->prepare[g].graph) STATUS_TRY(type->make_ready(exec->prepare[g].graph, i, 0));
    }
  return STATUS_OK;
}

bool exec_counts(const Exec *exec) { return exec->type->count_step != NULL; }

Status exec_count_step(Exec *exec, ExecGraph graph, const void *batch, int index,
                       const DeviceCounting *how, DeviceCounts *out) {
  STATUS_TRY(exec_ready(exec, graph));
  return exec->type->count_step(exec->graph[graph], batch, index, how, out);
}

Status exec_speed(Exec *exec, DeviceSpeed *out) {
  *out = (DeviceSpeed){0};
  return exec->type->speed ? exec->type->speed(exec->device, out) : STATUS_OK;
}

Status exec_run_timed(Exec *exec, ExecGraph graph, const void *batch, int64_t *nanoseconds) {
  STATUS_TRY(exec_ready(exec, graph));
  exec->last_steps = 1;
  for (int i = 0; i < exec_graph_plan(exec, graph)->steps.count; i++) {
    nanoseconds[i] = 0;
    STATUS_TRY(exec->type->run_part(exec->graph[graph], batch, i, i + 1, &nanoseconds[i]));
  }
  return STATUS_OK;
}

static void find_work_times(const Exec *exec, ExecGraph graph, ExecStepTime *times) {
  const PlanGraph *plan = exec_graph_plan(exec, graph);
  for (int i = 0; i < plan->steps.count && exec->type->work_times; i++)
    if (plan->steps.at[i].kind == STEP_BEGIN)
      exec->type->work_times(exec->graph[graph], i, &times[i].begun, &times[i].ended);
}

/* A device with a clock of its own says how long a step took; it ended just before the host went on.
 * On the host a step takes all the time of its call, so that what it begins does not begin before. */
Status exec_run_traced(Exec *exec, ExecGraph graph, const void *batch, ExecStepTime *times,
                       ExecStepTime *sent) {
  const PlanGraph *plan = exec_graph_plan(exec, graph);
  DeviceGraph *bound = exec->graph[graph];
  STATUS_TRY(exec_ready(exec, graph));
  exec->last_steps = 1;
  for (int i = 0; i < plan->steps.count; i++) {
    int64_t begun = clock_nanoseconds(), time = 0;
    STATUS_TRY(exec->type->run_part(bound, batch, i, i + 1, &time));
    int64_t lasted = clock_nanoseconds() - begun;
    if (time > lasted || exec->type->is_host_memory) time = lasted; /* or clocks differ by a hair */
    times[i] = (ExecStepTime){.start = begun + lasted - time, .time = time};
    if (i == 0 && !exec->type->is_host_memory)
      *sent = (ExecStepTime){.start = begun, .time = lasted - time};
  }
  find_work_times(exec, graph, times);
  return STATUS_OK;
}

bool exec_notes(const Exec *exec) { return exec->type->note != NULL; }

Status exec_run_noted(Exec *exec, ExecGraph graph, const void *batch, Spans *spans, int64_t number,
                      ExecStepTime *times) {
  exec->type->note(exec->graph[graph], spans, number);
  Status status = exec_run(exec, graph, batch);
  if (status == STATUS_OK) status = exec_sync(exec);
  exec->type->note(exec->graph[graph], NULL, 0);
  if (status == STATUS_OK) find_work_times(exec, graph, times);
  return status;
}

bool exec_times_steps(const Exec *exec) { return exec->type->time_part != NULL; }

Status exec_time_step(Exec *exec, ExecGraph graph, int index, int64_t *nanoseconds,
                      const char **by) {
  *by = NULL;
  if (!exec->type->time_part) return STATUS_OK;
  return exec->type->time_part(exec->graph[graph], index, index + 1, nanoseconds, by);
}

Status exec_sync(Exec *exec) { return exec->type->sync(exec->device); }

/* ── results ──────────────────────────────────────────────────────────────────────────────── */
int exec_find_output(const Exec *exec, ExecGraph graph, OutputKind kind, const char *name) {
  if (graph == EXEC_NO_GRAPH) return -1;
  const PlanGraph *plan = exec_graph_plan(exec, graph);
  for (int i = 0; i < plan->outputs.count; i++)
    if ((kind == OUTPUT_KINDS || plan->outputs.at[i].kind == kind) &&
        (!name || !strcmp(plan->outputs.at[i].name, name)))
      return i;
  return -1;
}

static double half_value(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double value = exponent == 31  ? (mantissa ? NAN : INFINITY)
                 : exponent == 0 ? ldexp(mantissa, -24)
                                 : ldexp(mantissa + 1024, exponent - 25);
  return bits >> 15 ? -value : value;
}

double exec_scalar_value(DType dtype, const void *bytes) {
  union {
    uint32_t bits;
    float value;
  } brain;
  switch (dtype) {
  case DT_BOOL:
  case DT_U8:
    return *(const uint8_t *)bytes;
  case DT_I32:
    return *(const int32_t *)bytes;
  case DT_U32:
    return *(const uint32_t *)bytes;
  case DT_I64:
    return (double)*(const int64_t *)bytes;
  case DT_F16:
    return half_value(*(const uint16_t *)bytes);
  case DT_BF16:
    brain.bits = (uint32_t)*(const uint16_t *)bytes << 16;
    return brain.value;
  case DT_F32:
    return *(const float *)bytes;
  case DT_F64:
    return *(const double *)bytes;
  case DT_E4M3: /* no output is of these */
  case DT_E5M2:
  case DT_COUNT:
    break;
  }
  return NAN;
}

Status exec_scalar(Exec *exec, ExecGraph graph, int output, double *value) {
  const PlanOutput *found = &exec_graph_plan(exec, graph)->outputs.at[output];
  _Alignas(8) char bytes[8];
  if (shape_elements(&found->type.shape) != 1)
    return status_fail(STATUS_USER, "%s is not a scalar", found->name);
  STATUS_TRY(exec_read(exec, found->place, found->offset, dtype_bytes(found->type.dtype), bytes));
  *value = exec_scalar_value(found->type.dtype, bytes);
  return STATUS_OK;
}

Status exec_read_output(Exec *exec, ExecGraph graph, int output, void *to, int64_t bytes) {
  const PlanOutput *found = &exec_graph_plan(exec, graph)->outputs.at[output];
  if (bytes != type_bytes(&found->type))
    return status_fail(STATUS_USER, "%s has %lld bytes, not %lld", found->name,
                       (long long)type_bytes(&found->type), (long long)bytes);
  return exec_read(exec, found->place, found->offset, bytes, to);
}

/* ── memory ───────────────────────────────────────────────────────────────────────────────── */
static Status check_range(const Exec *exec, int place, int64_t offset, int64_t bytes) {
  int64_t size = exec->bytes[place];
  if (exec->base[place] && offset >= 0 && bytes >= 0 && offset <= size && bytes <= size - offset)
    return STATUS_OK;
  return status_fail(STATUS_USER, "bytes %lld+%lld lie outside of place %s", (long long)offset,
                     (long long)bytes, exec->plan->places.at[place].name);
}

Status exec_read(Exec *exec, int place, int64_t offset, int64_t bytes, void *to) {
  STATUS_TRY(check_range(exec, place, offset, bytes));
  comm_goes_on(exec->comm);
  return exec->type->read(exec->device, to, exec->base[place] + offset, bytes);
}

Status exec_write(Exec *exec, int place, int64_t offset, int64_t bytes, const void *from) {
  STATUS_TRY(check_range(exec, place, offset, bytes));
  exec_written(exec, place, offset, bytes);
  comm_goes_on(exec->comm);
  return exec->type->write(exec->device, exec->base[place] + offset, from, bytes);
}

int exec_find_param(const Exec *exec, const char *name) {
  return plan_find_tensor(exec->plan->params.at, exec->plan->params.count, name);
}

int exec_find_state(const Exec *exec, const char *name) {
  return plan_find_tensor(exec->plan->states.at, exec->plan->states.count, name);
}

Status exec_read_state(Exec *exec, int index, int64_t bytes, void *to) {
  const PlanTensor *state = &exec->plan->states.at[index];
  return exec_read(exec, state->place, state->offset, bytes, to);
}

Status exec_write_state(Exec *exec, int index, int64_t bytes, const void *from) {
  const PlanTensor *state = &exec->plan->states.at[index];
  return exec_write(exec, state->place, state->offset, bytes, from);
}

Status exec_step(Exec *exec, int64_t *step) {
  int index = plan_find_role(exec->plan, ROLE_STEP);
  *step = 0;
  if (index < 0) return STATUS_OK;
  return exec_read_state(exec, index, sizeof *step, step);
}

Status exec_set_step(Exec *exec, int64_t step) {
  int index = plan_find_role(exec->plan, ROLE_STEP);
  if (index < 0) return STATUS_OK;
  return exec_write_state(exec, index, sizeof step, &step);
}
