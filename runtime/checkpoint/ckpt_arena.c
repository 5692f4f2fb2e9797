/* ckpt_arena: see ckpt_arena.h. */
#include "runtime/checkpoint/ckpt_arena.h"
#include "runtime/common/permute.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

Status ckpt_arena_read(Exec *exec, ArenaId id, CkptArena *out) {
  *out = (CkptArena){.id = id, .bytes = exec_plan(exec)->arena_bytes[id]};
  out->at = malloc((size_t)out->bytes + 1);
  if (!out->at) return status_errno(ENOMEM, "weights");
  return out->bytes ? exec_read(exec, id, 0, out->bytes, out->at) : STATUS_OK;
}

Status ckpt_arena_write(Exec *exec, const CkptArena *arena) {
  return arena->bytes ? exec_write(exec, arena->id, 0, arena->bytes, arena->at) : STATUS_OK;
}

void ckpt_arena_free(CkptArena *arena) {
  free(arena->at);
  *arena = (CkptArena){0};
}

Status ckpt_arena_set(CkptArena *arena, const PlanTensor *tensor, const Safetensors *file,
                      const char *path) {
  const SafeTensor *from = safetensors_find(file, tensor->name);
  char have[TYPE_TEXT], want[TYPE_TEXT];
  if (!from) return status_fail(STATUS_USER, "%s lacks %s", path, tensor->name);
  ArrayHeader header = {.element = from->element, .shape = from->shape};
  if (!shape_equal(&from->shape, &tensor->type.shape) ||
      !element_converts(from->element, tensor->type.dtype))
    return status_fail(STATUS_USER, "%s: %s is %s but the model's is %s", path, tensor->name,
                       array_header_text(&header, have), type_text(&tensor->type, want));
  int64_t count = shape_elements(&tensor->type.shape);
  if (element_convert(from->data, from->element, false, count, tensor->type.dtype,
                      arena->at + tensor->offset) != count)
    return status_fail(STATUS_USER, "%s: %s holds a number that does not fit %s", path,
                       tensor->name, dtype_text(tensor->type.dtype));
  return permute_in_place(tensor, true, arena->at + tensor->offset);
}

/* The part of a sliced state that belongs to a parameter, "@adamw.m.fc1.weight"; false if the state
 * does not reach so far (what Muon trains has no second moment). */
static bool ckpt_slice(Arena *names, const PlanTensor *state, const PlanTensor *param,
                       PlanTensor *out) {
  Type type = {state->type.dtype, param->type.shape};
  int64_t first = param->offset / dtype_bytes(param->type.dtype) * dtype_bytes(type.dtype);
  if (first + type_bytes(&type) > type_bytes(&state->type)) return false;
  *out = (PlanTensor){.name = arena_printf(names, "%s.%s", state->name, param->name),
                      .type = type,
                      .offset = state->offset + first,
                      .storage = param->storage};
  return true;
}

CkptTensors ckpt_state_tensors(Arena *arena, const Plan *plan, bool all) {
  CkptTensors out = {0};
  for (int i = 0; i < plan->states.count; i++) {
    const PlanTensor *state = &plan->states.at[i];
    PlanTensor slice;
    bool is_sliced = role_has(state->role, ROLE_SLICED);
    if ((!all && !state->is_saved) || role_has(state->role, ROLE_SCRATCH)) continue;
    if (!is_sliced) VEC_PUSH(arena, out, *state);
    for (int k = 0; is_sliced && k < plan->params.count; k++)
      if (ckpt_slice(arena, state, &plan->params.at[k], &slice)) VEC_PUSH(arena, out, slice);
  }
  return out;
}
