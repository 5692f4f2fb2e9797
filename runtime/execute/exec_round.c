/* exec_round: the arena "narrow", what products read of the parameters, where it is not a step that
 * writes it: when parameters come from outside, and when evaluation reads their average in their
 * place. The device rounds, as a step does, before the next graph that reads them runs. */
#include "runtime/execute/exec_fetch.h"

Status exec_round_ready(Exec *exec, ExecGraph graph) {
  int wanted = graph >= exec->plan->graphs.count ? ROUNDED_EMA : ROUNDED_PARAMS;
  if (!exec->bytes[ARENA_NARROW] || (int)exec->rounded == wanted) return STATUS_OK;
  exec->rounded = ROUNDED_NONE;
  const char *from = exec->base[ARENA_PARAMS];
  if (wanted == ROUNDED_EMA)
    from = exec->base[ARENA_STATE] +
           exec->plan->states.at[plan_find_role(exec->plan, ROLE_AVERAGE)].offset;
  STATUS_TRY(exec->type->round(exec->device, exec->base[ARENA_NARROW], from,
                               exec->bytes[ARENA_PARAMS] / 4, plan_narrow_type(exec->plan)));
  exec->rounded = wanted;
  return STATUS_OK;
}

void exec_round_written(Exec *exec, ArenaId arena) {
  if (arena == ARENA_PARAMS || (arena == ARENA_STATE && exec->rounded == ROUNDED_EMA))
    exec->rounded = ROUNDED_NONE;
}
