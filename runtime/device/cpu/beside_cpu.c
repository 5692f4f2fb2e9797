/* beside_cpu: see beside_cpu.h. */
#include "runtime/device/cpu/beside_cpu.h"
#include <sched.h>
#include <stdio.h>
#include <string.h>

static void fail_besides(CpuBesides *all) {
  if (atomic_exchange(&all->is_failing, true)) return;
  snprintf(all->message, sizeof all->message, "%s", status_message());
  atomic_store(&all->has_failed, true);
}

Status cpu_besides_status(CpuBesides *all) {
  if (!atomic_load(&all->has_failed)) return STATUS_OK;
  return status_fail(STATUS_FAULT, "%s", all->message);
}

/* By a thread of the Comm. The graph may be gone as soon as nothing is under way. */
static void beside_ended(void *context, Status status) {
  CpuBeside *beside = context;
  CpuBesides *all = beside->all;
  if (status != STATUS_OK) fail_besides(all);
  atomic_store(&beside->ended, atomic_load(&beside->begun) + 1);
  pool_bump(all->pool, &all->ends);
  atomic_fetch_sub(&all->under_way, 1);
}

void cpu_beside_begin(CpuBeside *beside, void *const *args, uint64_t ticket) {
  CpuBesides *all = beside->all;
  CommWork work = beside->work;
  int64_t number;
  if (beside->has_input) work.x = args[0];
  if (beside->has_output) work.out = args[beside->has_input];
  atomic_store(&beside->begun, ticket);
  atomic_fetch_add(&all->under_way, 1);
  Status status = comm_begin(all->comm, &work, &number);
  if (status != STATUS_OK) beside_ended(beside, status);
}

void cpu_besides_settle(CpuBesides *all) {
  while (atomic_load(&all->under_way)) sched_yield();
}

/* ── binding ──────────────────────────────────────────────────────────────────────────────── */
static int64_t attribute(const PlanStep *step, const char *key) {
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
                     "than %d",
                     step->name, step->label, (long long)in, (long long)out, ranks);
}

Status cpu_beside_new(CpuBesides *all, Arena *arena, const Artifact *artifact,
                      const PlanGraph *graph, const PlanStep *step, CpuBeside **out) {
  CpuBeside *beside = ARENA_NEW(arena, CpuBeside);
  CommKind kind;
  int ranks = comm_ranks(all->comm);
  if (!find_kind(step->name, &kind)) return dev_refuse_beside(artifact->path, step);
  if (!all->comm && (kind == COMM_SEND || kind == COMM_RECEIVE))
    return dev_refuse_beside(artifact->path, step);
  if (attribute(step, "group"))
    return status_fail(STATUS_USER, "%s (%s): there is no group %lld of ranks, only 0, all of them",
                       step->name, step->label, (long long)attribute(step, "group"));
  beside->all = all;
  beside->has_input = step->input_count > 0;
  beside->has_output = step->arg_count > step->input_count;
  const PlanBuffer *first = &graph->buffers.at[step->args[0]];
  int64_t elements = shape_elements(&first->type.shape);
  beside->work = (CommWork){.kind = kind,
                            .op = (CommOp)attribute(step, "op"),
                            .peer = (int)attribute(step, "peer"),
                            .dtype = first->type.dtype,
                            .count = elements,
                            .label = step->label,
                            .done = beside_ended,
                            .context = beside};
  *out = beside;
  if (beside->has_input && beside->has_output)
    STATUS_TRY(
        beside_check_parts(step, kind, elements,
                           shape_elements(&graph->buffers.at[step->args[1]].type.shape), ranks));
  return comm_check(&beside->work, ranks);
}
