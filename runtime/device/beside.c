/* beside: see beside.h. */
#include "runtime/device/beside.h"
#include <string.h>

static int64_t beside_attribute(const PlanStep *step, const char *key) {
  for (int i = 0; i < step->int_count; i++)
    if (!strcmp(step->ints[i].key, key)) return step->ints[i].value;
  return 0;
}

static bool find_kind(const char *name, CommKind *out) {
  for (*out = COMM_ALL_REDUCE; *out <= COMM_RECEIVE; ++*out)
    if (!strcmp(comm_kind_text(*out), name)) return true;
  return false;
}

/* The parts of all ranks are the whole. */
static Status beside_check_parts(const PlanStep *step, CommKind kind, int64_t in, int64_t out,
                                 int ranks) {
  bool is_right = kind == COMM_REDUCE_SCATTER ? in == out * ranks
                  : kind == COMM_ALL_GATHER   ? out == in * ranks
                                              : true;
  if (is_right) return STATUS_OK;
  return status_fail(STATUS_USER,
                     "%s (%s): %lld elements become %lld, which is for another number of ranks "
                     "than %d: compile it with ftc --set distributed.data=%d",
                     step->name, step->label, (long long)in, (long long)out, ranks, ranks);
}

/* Which part of a transfer is this rank's? */
static Status beside_transfer(const Comm *comm, const PlanStep *step, int ranks, CommWork *out) {
  int64_t from = beside_attribute(step, "from"), to = beside_attribute(step, "to");
  int own = comm_index(comm, out->over);
  if (from >= ranks || to >= ranks || from == to)
    return status_fail(STATUS_USER,
                       "%s (%s) from rank %lld to rank %lld: it goes between two of %d ranks",
                       step->name, step->label, (long long)from, (long long)to, ranks);
  out->kind = own == from ? COMM_SEND : own == to ? COMM_RECEIVE : COMM_ABSENT;
  out->peer = (int)(own == from ? to : from);
  out->clears = own != to;
  return STATUS_OK;
}

Status beside_work(const Comm *comm, const Artifact *artifact, const PlanGraph *graph,
                   const PlanStep *step, CommWork *out) {
  CommKind kind;
  int64_t group = beside_attribute(step, "group");
  bool has_both = step->input_count && step->arg_count > step->input_count;
  bool is_transfer = strcmp(step->name, "transfer") == 0;
  if (is_transfer)
    kind = COMM_ABSENT;
  else if (!find_kind(step->name, &kind))
    return dev_refuse_beside(artifact->path, step);
  if (group >= MESH_AXIS_COUNT)
    return status_fail(STATUS_USER, "%s (%s): there is no group %lld of ranks", step->name,
                       step->label, (long long)group);
  if (group == MESH_ALL && artifact->stages.count > 1) group = MESH_STAGE;
  int ranks = comm_size(comm, (MeshAxis)group);
  if (!comm && (kind == COMM_SEND || kind == COMM_RECEIVE))
    return dev_refuse_beside(artifact->path, step);
  const PlanBuffer *first = &graph->buffers.at[step->args[0]];
  int64_t elements = shape_elements(&first->type.shape);
  *out = (CommWork){.kind = kind,
                    .op = (CommOp)beside_attribute(step, "op"),
                    .over = (MeshAxis)group,
                    .peer = (int)beside_attribute(step, "peer"),
                    .dtype = first->type.dtype,
                    .count = elements,
                    .label = step->label};
  if (is_transfer) STATUS_TRY(beside_transfer(comm, step, ranks, out));
  if (has_both)
    STATUS_TRY(
        beside_check_parts(step, kind, elements,
                           shape_elements(&graph->buffers.at[step->args[1]].type.shape), ranks));
  return comm_check(out, ranks);
}
