/* plateau: see plateau.h. */
#include "runtime/command/plateau.h"
#include "runtime/command/rule.h"
#include <math.h>

static const char *const key = "train.schedule.metric";

/* The state's five numbers, in order. */
typedef struct {
  double reductions, has_best, best, bad, cooldown;
} Memory;

bool plateau_is_used(const Exec *exec) {
  int index = plan_find_role(exec_plan(exec), ROLE_PLATEAU);
  if (index < 0) return false;
  const PlanTensor *state = &exec_plan(exec)->states.at[index];
  return state->type.dtype == DT_F64 && type_bytes(&state->type) == sizeof(Memory);
}

/* As in torch: what is not a number is no progress, at the first evaluation either. */
static bool is_progress(const Memory *memory, double value, bool is_max, double threshold) {
  if (memory->has_best == 0) return is_max ? value > -INFINITY : value < INFINITY;
  return is_max ? value > memory->best * (1 + threshold) : value < memory->best * (1 - threshold);
}

Status plateau_begin(Exec *exec) {
  if (!plateau_is_used(exec)) return STATUS_OK;
  Memory memory;
  int index = plan_find_role(exec_plan(exec), ROLE_PLATEAU);
  STATUS_TRY(exec_read_state(exec, index, sizeof memory, &memory));
  memory.has_best = memory.best = memory.bad = 0;
  return exec_write_state(exec, index, sizeof memory, &memory);
}

Status plateau_note(Exec *exec, const LogStep *result, bool *is_reduced) {
  const Plan *plan = exec_plan(exec);
  *is_reduced = false;
  if (!plateau_is_used(exec)) return STATUS_OK;
  int index = plan_find_role(plan, ROLE_PLATEAU);
  const char *text = setting_text(plan->settings, key);
  Memory memory;
  MetricRule rule;
  double value;
  STATUS_TRY(rule_parse(key, text, &rule));
  STATUS_TRY(rule_value(key, text, rule.name, result, &value));
  STATUS_TRY(exec_read_state(exec, index, sizeof memory, &memory));
  double threshold = setting_number(plan->settings, "train.schedule.threshold");
  if (is_progress(&memory, value, rule.is_max, threshold)) {
    memory.has_best = 1;
    memory.best = value;
    memory.bad = 0;
  } else {
    memory.bad++;
  }
  if (memory.cooldown > 0) {
    memory.cooldown--;
    memory.bad = 0;
  }
  if (memory.bad > setting_number(plan->settings, "train.schedule.patience")) {
    *is_reduced = true;
    memory.reductions++;
    memory.cooldown = setting_number(plan->settings, "train.schedule.cooldown");
    memory.bad = 0;
  }
  return exec_write_state(exec, index, sizeof memory, &memory);
}
