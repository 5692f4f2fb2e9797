/* exec_round: places of rounded elements, which products read in place of the parameters, where it
 * is not a step that writes them: when parameters come from outside, and when evaluation reads
 * their average in their place. The device rounds, as a step does, before the next graph runs. */
#include "runtime/execute/exec_fetch.h"

Status exec_round_ready(Exec *exec, ExecGraph graph, bool *has_rounded) {
  const Plan *plan = exec->plan;
  const PlanRun *run = plan_run_at(plan, graph - plan->graphs.count);
  for (int p = 0; p < plan->places.count; p++) {
    const PlanPlace *place = &plan->places.at[p];
    if (place->elements != ELEMENTS_ROUNDED || !exec->bytes[p]) continue;
    int from = run && run->instead_of == place->of_elements ? run->reads : place->of_elements;
    if (exec->rounded[p] == from) continue;
    exec->rounded[p] = -1;
    *has_rounded = true;
    int64_t count = plan->places.at[place->of_elements].bytes / dtype_bytes(DT_F32);
    STATUS_TRY(
        exec->type->round(exec->device, exec->base[p], exec->base[from], count, place->dtype));
    exec->rounded[p] = from;
  }
  return STATUS_OK;
}

void exec_round_written(Exec *exec, int place) {
  int64_t offset = 0;
  int written = plan_whole_place(exec->plan, place, &offset);
  for (int p = 0; p < exec->plan->places.count; p++)
    if (exec->rounded[p] >= 0 && plan_whole_place(exec->plan, exec->rounded[p], &offset) == written)
      exec->rounded[p] = -1;
}
