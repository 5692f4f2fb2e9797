/* ckpt_arena: see ckpt_arena.h. */
#include "runtime/ckpt_arena.h"
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
  return STATUS_OK;
}

static SafeTensor tensor_of(const PlanTensor *tensor, const CkptArena *arena) {
  return (SafeTensor){.name = tensor->name,
                      .element = element_of(tensor->type.dtype),
                      .shape = tensor->type.shape,
                      .data = arena->at + tensor->offset,
                      .bytes = (size_t)type_bytes(&tensor->type)};
}

Status ckpt_write_tensors(Exec *exec, const char *path, bool all_states, const SafeText *texts,
                          int text_count) {
  const Plan *plan = exec_plan(exec);
  CkptArena params = {0}, states = {0};
  SafeTensor *tensors =
      calloc((size_t)plan->params.count + (size_t)plan->states.count + 1, sizeof *tensors);
  int count = 0;
  Status status = tensors ? STATUS_OK : status_errno(ENOMEM, "%s", path);
  if (status == STATUS_OK) status = ckpt_arena_read(exec, ARENA_PARAMS, &params);
  if (status == STATUS_OK) status = ckpt_arena_read(exec, ARENA_STATE, &states);
  if (status == STATUS_OK) {
    for (int i = 0; i < plan->params.count; i++)
      tensors[count++] = tensor_of(&plan->params.at[i], &params);
    for (int i = 0; i < plan->states.count; i++)
      if (all_states || plan->states.at[i].is_saved)
        tensors[count++] = tensor_of(&plan->states.at[i], &states);
    status = safetensors_write(path, tensors, count, texts, text_count);
  }
  free(tensors);
  ckpt_arena_free(&params);
  ckpt_arena_free(&states);
  return status;
}
