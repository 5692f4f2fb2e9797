/* exec_init: settings and initial values in the memory of a model that runs. */
#include "runtime/execute/exec_fetch.h"
#include "runtime/execute/init.h"
#include <stdlib.h>
#include <string.h>

void exec_set_derived(Exec *exec, const char *key, double value) {
  int index = setting_find(key);
  if (index >= 0) exec->plan->settings[index].number = value;
}

Status exec_write_settings(Exec *exec) {
  for (int i = 0; i < exec->plan->scalars.count; i++) {
    const PlanTensor *scalar = &exec->plan->scalars.at[i];
    double value = setting_number(exec->plan->settings, scalar->name);
    STATUS_TRY(exec_write(exec, scalar->place, scalar->offset, sizeof value, &value));
  }
  return STATUS_OK;
}

/* No graph that runs here reads or writes it: the moments of an optimizer, where nothing is trained. It stays as it is, and takes no memory. */
static bool is_out_of_reach(const Exec *exec, const PlanTensor *tensor) {
  int64_t offset = tensor->offset;
  int under = plan_whole_place(exec->plan, tensor->place, &offset);
  return exec->plan->places.at[under].saved == SAVED_CHECKPOINT && offset >= exec->reach[under];
}

static Status write_zeros(Exec *exec, int place, int64_t offset, int64_t bytes) {
  enum { PIECE = 1 << 20 };
  char *zeros = calloc(1, PIECE);
  Status status = zeros ? STATUS_OK : status_fail(STATUS_FAULT, "out of memory");
  for (int64_t at = 0; at < bytes && status == STATUS_OK; at += PIECE)
    status = exec_write(exec, place, offset + at, bytes - at < PIECE ? bytes - at : PIECE, zeros);
  free(zeros);
  return status;
}

static Status init_list(Exec *exec, bool is_states, const PlanTensor *list, int count,
                        uint64_t seed) {
  for (int i = 0; i < count; i++) {
    Type whole = plan_whole(&list[i]), held = plan_held(&list[i]);
    int64_t bytes = type_bytes(&whole) + type_bytes(&held);
    bool is_zeros = !list[i].init.text || !strcmp(list[i].init.text, "zeros");
    if (list[i].file || is_out_of_reach(exec, &list[i])) continue; /* given_load's */
    if (is_zeros) {
      STATUS_TRY(write_zeros(exec, list[i].place, list[i].offset, type_bytes(&held)));
      continue;
    }
    char *values = calloc(1, (size_t)bytes + 1);
    if (!values) return status_fail(STATUS_FAULT, "out of memory");
    /* the stream tells parameters from states, and one from the next */
    Status status =
        init_fill(&list[i].init, &whole, seed, (uint32_t)(list[i].stream * 2 + is_states), values);
    if (status == STATUS_OK) status = exec_take_tensor(exec, &list[i], values, values);
    if (status == STATUS_OK)
      status = exec_write(exec, list[i].place, list[i].offset, type_bytes(&held), values);
    free(values);
    if (status != STATUS_OK) return status_prefix(status, "%s", list[i].name);
  }
  return STATUS_OK;
}

Status exec_clear(Exec *exec, PlaceLife life) {
  for (int p = 0; p < exec->plan->places.count; p++)
    if (exec->plan->places.at[p].life == life) STATUS_TRY(write_zeros(exec, p, 0, exec->bytes[p]));
  return STATUS_OK;
}

Status exec_init(Exec *exec, uint64_t seed) {
  const Plan *plan = exec->plan;
  STATUS_TRY(init_list(exec, false, plan->params.at, plan->params.count, seed));
  STATUS_TRY(exec_init_states(exec, seed));
  return exec_clear_parts(exec);
}

Status exec_clear_parts(Exec *exec) {
  const Plan *plan = exec->plan;
  if (exec_parts(exec) <= 1) return STATUS_OK;
  for (int i = 0; i < plan->states.count; i++) {
    const PlanTensor *state = &plan->states.at[i];
    if ((state->role != ROLE_PART && state->role != ROLE_PART_TOTAL) || is_out_of_reach(exec, state)) continue;
    Type held = plan_held(state);
    STATUS_TRY(write_zeros(exec, state->place, state->offset, type_bytes(&held)));
  }
  return exec_clear(exec, FOR_STEP); /* sums of gradients begin where the first part is */
}

Status exec_init_states(Exec *exec, uint64_t seed) {
  return init_list(exec, true, exec->plan->states.at, exec->plan->states.count, seed);
}
