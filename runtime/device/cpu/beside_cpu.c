/* beside_cpu: see beside_cpu.h. */
#include "runtime/device/cpu/beside_cpu.h"
#include "base/clock.h"
#include "runtime/device/beside.h"
#include <sched.h>
#include <stdio.h>
#include <string.h>

static void fail_besides(CpuBesides *all, Status status) {
  if (atomic_exchange(&all->is_failing, true)) return;
  all->status = status;
  snprintf(all->message, sizeof all->message, "%s", status_message());
  atomic_store(&all->has_failed, true);
}

Status cpu_besides_status(CpuBesides *all) {
  if (!atomic_load(&all->has_failed)) return STATUS_OK;
  return status_fail(all->status, "%s", all->message);
}

/* By a thread of the Comm. The graph may be gone as soon as nothing is under way. */
static void beside_ended(void *context, Status status) {
  CpuBeside *beside = context;
  CpuBesides *all = beside->all;
  if (status != STATUS_OK) fail_besides(all, status);
  atomic_store(&beside->ended_at, clock_nanoseconds());
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
  work.is_shared = beside->is_held && *all->is_shared;
  atomic_store(&beside->begun_at, clock_nanoseconds());
  atomic_store(&beside->begun, ticket);
  atomic_fetch_add(&all->under_way, 1);
  Status status = comm_begin(all->comm, &work, &number);
  if (status != STATUS_OK) beside_ended(beside, status);
}

void cpu_besides_settle(CpuBesides *all) {
  while (atomic_load(&all->under_way)) sched_yield();
}

/* ── binding ──────────────────────────────────────────────────────────────────────────────── */
Status cpu_beside_new(CpuBesides *all, Arena *arena, const Artifact *artifact,
                      const PlanGraph *graph, const PlanStep *step, void *const *args,
                      CpuBeside **out) {
  CpuBeside *beside = ARENA_NEW(arena, CpuBeside);
  *out = beside;
  beside->all = all;
  STATUS_TRY(beside_work(all->comm, artifact, graph, step, &beside->work));
  beside->has_input = step->input_count > 0;
  beside->has_output = step->arg_count > step->input_count;
  beside->is_held = true;
  for (int i = 0; i < step->arg_count; i++)
    beside->is_held = beside->is_held && comm_holds(all->comm, args[i], 1);
  beside->work.done = beside_ended;
  beside->work.context = beside;
  return STATUS_OK;
}
