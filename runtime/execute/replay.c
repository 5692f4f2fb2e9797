/* replay: see replay.h. Here: what is kept, the step again, and which of its numbers are bad. */
#include "runtime/execute/replay_private.h"
#include "runtime/execute/exec_fetch.h"
#include "runtime/execute/exec_snapshot.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  ExecGraph graph;
  void *batch;
} ReplayRun;

struct Replay {
  Exec *exec;
  ExecRange *range;
  int range_count;
  ExecSnapshot *before;
  ReplayRun *run;
  int run_count, run_room; /* of this step; of any */
  int leader;
};

Exec *replay_exec(const Replay *replay) { return replay->exec; }

Comm *replay_comm(const Replay *replay) { return replay->exec->comm; }

int *replay_leader(Replay *replay) { return &replay->leader; }

int replay_last_run(const Replay *replay) { return replay->run_count - 1; }

const PlanGraph *replay_graph(const Replay *replay, int run) {
  return exec_graph_plan(replay->exec, replay->run[run].graph);
}

/* What a step may write and a later one read. */
static bool is_kept_between(const Exec *exec, int place) {
  const PlanPlace *of = &exec->plan->places.at[place];
  return !of->is_window && exec->bytes[place] > 0 && exec->base[place] && of->host == HOST_NONE &&
         (of->life == FOR_EVER || of->life == FOR_STEP) && of->elements != ELEMENTS_ROUNDED;
}

Status replay_new(Exec *exec, Replay **out) {
  Replay *replay = calloc(1, sizeof *replay);
  *out = replay;
  if (!replay) return status_errno(ENOMEM, "--check=nan");
  replay->exec = exec;
  replay->range = calloc((size_t)exec->plan->places.count + 1, sizeof *replay->range);
  if (!replay->range) {
    replay_free(replay);
    *out = NULL;
    return status_errno(ENOMEM, "--check=nan");
  }
  for (int p = 0; p < exec->plan->places.count; p++)
    if (is_kept_between(exec, p))
      replay->range[replay->range_count++] = (ExecRange){p, 0, exec->bytes[p]};
  return STATUS_OK;
}

void replay_free(Replay *replay) {
  if (!replay) return;
  exec_snapshot_free(replay->before);
  for (int i = 0; i < replay->run_room; i++) exec_batch_free(replay->exec, replay->run[i].batch);
  free(replay->run);
  free(replay->range);
  free(replay);
}

Status replay_begin(Replay *replay, bool *is_kept) {
  replay->run_count = 0;
  *is_kept = true;
  if (replay->before) return exec_snapshot_again(replay->exec, replay->before);
  Status status = exec_snapshot_new(replay->exec, replay->range, replay->range_count,
                                    SNAPSHOT_ANYWHERE, &replay->before);
  *is_kept = replay->before != NULL;
  return status;
}

static Status replay_make_room(Replay *replay) {
  if (replay->run_count < replay->run_room) return STATUS_OK;
  ReplayRun *more = realloc(replay->run, (size_t)(replay->run_room + 1) * sizeof *more);
  if (!more) return status_errno(ENOMEM, "--check=nan");
  replay->run = more;
  more[replay->run_room].batch = NULL;
  STATUS_TRY(exec_batch_new(replay->exec, &more[replay->run_room].batch));
  replay->run_room++;
  return STATUS_OK;
}

Status replay_run(Replay *replay, ExecGraph graph, const void *batch) {
  STATUS_TRY(replay_make_room(replay));
  ReplayRun *run = &replay->run[replay->run_count++];
  run->graph = graph;
  memcpy(run->batch, batch, (size_t)exec_batch_bytes(replay->exec));
  return exec_run(replay->exec, graph, run->batch);
}

/* ── the step again ───────────────────────────────────────────────────────────────────────── */
static Status replay_restore(Replay *replay) {
  enum { PIECE = 1 << 22 };
  Exec *exec = replay->exec;
  char *piece = malloc(PIECE);
  Status status = piece ? exec_sync(exec) : status_errno(ENOMEM, "--check=nan");
  for (int i = 0; i < replay->range_count; i++) {
    const ExecRange *range = &replay->range[i];
    for (int64_t at = 0; at < range->bytes && status == STATUS_OK; at += PIECE) {
      int64_t bytes = range->bytes - at < PIECE ? range->bytes - at : PIECE;
      status = exec_snapshot_read(replay->before, range->place, range->offset + at, bytes, piece);
      if (status == STATUS_OK)
        status = exec_write(exec, range->place, range->offset + at, bytes, piece);
    }
  }
  free(piece);
  return status;
}

static Status replay_run_steps(Replay *replay, int run, int end) {
  Exec *exec = replay->exec;
  int64_t time = 0;
  ExecGraph graph = replay->run[run].graph;
  STATUS_TRY(exec_ready(exec, graph));
  if (!end) return STATUS_OK;
  return exec->type->run_part(exec->graph[graph], replay->run[run].batch, 0, end, &time);
}

Status replay_to(Replay *replay, int run, int step) {
  STATUS_TRY(replay_restore(replay));
  for (int r = 0; r < run; r++)
    STATUS_TRY(replay_run_steps(replay, r, replay_graph(replay, r)->steps.count));
  return replay_run_steps(replay, run, step);
}

Status replay_rest(Replay *replay, int run, int step) {
  Exec *exec = replay->exec;
  if (!exec->comm) return STATUS_OK;
  int64_t time = 0;
  int end = replay_graph(replay, run)->steps.count;
  if (step < end)
    STATUS_TRY(exec->type->run_part(exec->graph[replay->run[run].graph], replay->run[run].batch,
                                    step, end, &time));
  for (int r = run + 1; r < replay->run_count; r++)
    STATUS_TRY(replay_run_steps(replay, r, replay_graph(replay, r)->steps.count));
  return exec_sync(exec);
}

Status replay_bytes(Replay *replay, int run, int place, int64_t offset, int64_t bytes,
                    const char **at, char **copy) {
  Exec *exec = replay->exec;
  const PlanPlace *of = &exec->plan->places.at[place];
  *copy = NULL;
  if (of->life == FOR_BATCH && of->host == HOST_FROM) {
    *at = (const char *)replay->run[run].batch + offset;
    return STATUS_OK;
  }
  if (exec->type->is_host_memory && !exec->comm) { /* with others the step goes on */
    *at = exec->base[place] + offset;
    return STATUS_OK;
  }
  *at = *copy = malloc((size_t)bytes + 1);
  if (!*copy) return status_errno(ENOMEM, "--check=nan");
  Status status = exec_read(exec, place, offset, bytes, *copy);
  if (status == STATUS_OK) return status;
  free(*copy);
  *copy = NULL;
  return status;
}

/* ── numbers that are not finite ──────────────────────────────────────────────────────────── */
/* Before this element all are finite: whole runs of f32, which is what is kept, by their bits. */
static int64_t find_suspect(const Type *type, const char *at, int64_t count) {
  enum { RUN = 1024 };
  int64_t i = 0;
  const uint32_t *bits = (const uint32_t *)(const void *)at;
  for (; type->dtype == DT_F32 && i + RUN <= count; i += RUN) {
    uint32_t is_bad = 0;
    for (int k = 0; k < RUN; k++) is_bad |= (bits[i + k] & 0x7f800000u) == 0x7f800000u;
    if (is_bad) break;
  }
  return i;
}

int64_t replay_first_bad(const Type *type, const char *at, bool nan) {
  int64_t count = shape_elements(&type->shape), first = -1;
  if (!dtype_is_float(type->dtype)) return -1;
  for (int64_t i = find_suspect(type, at, count); i < count; i++) {
    double x = body_read_element(type->dtype, at, i).f;
    if (isnan(x)) return i;
    if (isinf(x) && first < 0) first = i;
    if (first >= 0 && !nan) return first;
  }
  return first;
}

/* The first bad element of what lies there after the step. */
static Status replay_look_at(Replay *replay, int place, int64_t offset, const Type *type,
                             ReplaySpot *out) {
  const char *at;
  char *copy;
  if (!dtype_is_float(type->dtype)) return STATUS_OK;
  place = plan_whole_place(replay->exec->plan, place, &offset);
  int last = replay->run_count - 1;
  STATUS_TRY(replay_bytes(replay, last, place, offset, type_bytes(type), &at, &copy));
  int64_t bad = replay_first_bad(type, at, false);
  free(copy);
  if (bad < 0) return STATUS_OK;
  *out = (ReplaySpot){.run = last,
                      .step = replay_graph(replay, last)->steps.count,
                      .place = place,
                      .at = offset + bad * dtype_bytes(type->dtype),
                      .what = "?"};
  return STATUS_OK;
}

static bool is_looked_at(LeafRole role) {
  return role == ROLE_PARAMS || role == ROLE_MODEL || role_has(role, ROLE_SLICED);
}

/* Is it a number for each element of the parameters, in their order? */
static bool is_like_params(const Plan *plan, const PlanTensor *state) {
  if (!plan->params.count || !role_has(state->role, ROLE_SLICED)) return false;
  const PlanPlace *all = &plan->places.at[plan->params.at[0].place];
  Type held = plan_held(state);
  return all->elements != ELEMENTS_NONE &&
         shape_elements(&held.shape) == all->bytes / dtype_bytes(all->dtype);
}

/* Between two parameters there may be elements of none, which are no one's loss. */
static Status look_at_each(Replay *replay, const PlanTensor *state, ReplaySpot *out) {
  const Plan *plan = replay->exec->plan;
  DType dtype = state->type.dtype;
  for (int i = 0; i < plan->params.count && !out->what[0]; i++) {
    const PlanTensor *t = &plan->params.at[i];
    Type part = exec_held(replay->exec, t);
    int64_t begin = t->offset / dtype_bytes(part.dtype);
    part.dtype = dtype;
    STATUS_TRY(replay_look_at(replay, state->place, state->offset + begin * dtype_bytes(dtype),
                              &part, out));
    if (out->what[0])
      snprintf(out->what, sizeof out->what, "%s of parameter %s", state->name + 1, t->name);
  }
  return STATUS_OK;
}

static Status look_after_step(Replay *replay, ReplaySpot *out) {
  const Plan *plan = replay->exec->plan;
  ExecGraph graph = replay->run[replay->run_count - 1].graph;
  int loss = exec_find_output(replay->exec, graph, OUTPUT_LOSS, NULL);
  *out = (ReplaySpot){0};
  STATUS_TRY(exec_sync(replay->exec));
  if (loss >= 0) {
    const PlanOutput *output = &exec_graph_plan(replay->exec, graph)->outputs.at[loss];
    STATUS_TRY(replay_look_at(replay, output->place, output->offset, &output->type, out));
    if (out->what[0]) snprintf(out->what, sizeof out->what, "the loss");
  }
  for (int i = 0; i < plan->params.count + plan->states.count && !out->what[0]; i++) {
    bool is_param = i < plan->params.count;
    const PlanTensor *t = is_param ? &plan->params.at[i] : &plan->states.at[i - plan->params.count];
    if (!is_looked_at(t->role)) continue;
    Type held = exec_held(replay->exec, t);
    if (is_like_params(plan, t)) {
      STATUS_TRY(look_at_each(replay, t, out));
      continue;
    }
    STATUS_TRY(replay_look_at(replay, t->place, t->offset, &held, out));
    if (out->what[0])
      snprintf(out->what, sizeof out->what, "%s %s", is_param ? "parameter" : "state", t->name);
  }
  return STATUS_OK;
}

Status replay_look(Replay *replay, ReplaySpot *out) {
  STATUS_TRY(look_after_step(replay, out));
  return replay_agree_on(replay, out);
}

/* What asks of all gradients whether they are finite; NULL: nothing does. */
static const PlanBody *find_asking(const PlanGraph *graph) {
  const PlanBody *found = NULL;
  int64_t most = 0;
  for (int b = 0; b < graph->bodies.count; b++) {
    const PlanBody *body = &graph->bodies.at[b];
    for (int i = 0; i < body->ops.count; i++) {
      const PlanOp *op = &body->ops.at[i];
      int64_t elements = shape_elements(&op->type.shape);
      if (op->op == OP_ISFINITE && op->phase == PHASE_UPDATE && elements > most)
        found = body, most = elements;
    }
  }
  return found;
}

Status replay_look_at_gradients(Replay *replay, ReplaySpot *out) {
  int last = replay->run_count - 1;
  const PlanGraph *graph = replay_graph(replay, last);
  const PlanBody *body = find_asking(graph);
  int asking = body ? body->first : -1;
  *out = (ReplaySpot){0};
  STATUS_TRY(replay_to(replay, last, asking < 0 ? 0 : asking));
  for (int i = 0; body && i < body->input_count && !out->what[0]; i++) {
    const PlanBuffer *buffer = &graph->buffers.at[body->args[i]];
    STATUS_TRY(replay_look_at(replay, buffer->place, buffer->offset, &buffer->type, out));
    if (out->what[0]) snprintf(out->what, sizeof out->what, "a gradient"), out->step = asking;
  }
  STATUS_TRY(replay_rest(replay, last, asking < 0 ? 0 : asking));
  return replay_agree_on(replay, out);
}
