/* ckpt_places: see ckpt_places.h. */
#include "runtime/checkpoint/ckpt_places.h"
#include "runtime/checkpoint/weight_files.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool ckpt_is_copied(const PlanPlace *place) { return place->saved && !place->is_window; }

Status ckpt_places_new(Exec *exec, CkptPlaces *out) {
  const Plan *plan = exec_plan(exec);
  *out = (CkptPlaces){.exec = exec, .at = calloc((size_t)plan->places.count + 1, sizeof *out->at)};
  if (!out->at) return status_errno(ENOMEM, "weights");
  for (int p = 0; p < plan->places.count; p++) {
    if (!ckpt_is_copied(&plan->places.at[p])) continue;
    out->at[p] = malloc((size_t)plan->places.at[p].bytes + 1);
    if (!out->at[p]) return status_errno(ENOMEM, "weights");
  }
  return STATUS_OK;
}

Status ckpt_places_read(Exec *exec, CkptPlaces *out) {
  const Plan *plan = exec_plan(exec);
  STATUS_TRY(ckpt_places_new(exec, out));
  out->is_whole = true;
  for (int p = 0; p < plan->places.count; p++)
    if (out->at[p] && plan->places.at[p].bytes) STATUS_TRY(exec_read(exec, p, 0, plan->places.at[p].bytes, out->at[p]));
  return STATUS_OK;
}

Status ckpt_places_write(const CkptPlaces *places) {
  const Plan *plan = exec_plan(places->exec);
  for (int p = 0; p < plan->places.count && places->is_whole; p++)
    if (places->at[p] && plan->places.at[p].bytes)
      STATUS_TRY(exec_write(places->exec, p, 0, plan->places.at[p].bytes, places->at[p]));
  for (int i = 0; i < places->set_count && !places->is_whole; i++) {
    const CkptRange *set = &places->set[i];
    STATUS_TRY(exec_write(places->exec, set->place, set->offset, set->bytes, places->at[set->place] + set->offset));
  }
  return STATUS_OK;
}

void ckpt_places_free(CkptPlaces *places) {
  for (int p = 0; places->at && p < exec_plan(places->exec)->places.count; p++) free(places->at[p]);
  free(places->at);
  free(places->set);
  *places = (CkptPlaces){0};
}

static Status note_set(CkptPlaces *places, int place, int64_t offset, int64_t bytes) {
  if (places->is_whole || !bytes) return STATUS_OK;
  if (places->set_count == places->set_room) {
    int room = places->set_room ? 2 * places->set_room : 64;
    CkptRange *more = realloc(places->set, (size_t)room * sizeof *more);
    if (!more) return status_errno(ENOMEM, "weights");
    places->set = more;
    places->set_room = room;
  }
  places->set[places->set_count++] = (CkptRange){place, offset, bytes};
  return STATUS_OK;
}

bool ckpt_places_fit(const PlanTensor *tensor, const SafeTensor *from) {
  Type whole = plan_whole(tensor);
  return shape_equal(&from->shape, &whole.shape);
}

Status ckpt_places_set(CkptPlaces *places, const PlanTensor *tensor, const Safetensors *file,
                       const char *path) {
  const SafeTensor *from = safetensors_find(file, tensor->name);
  char have[TYPE_TEXT], want[TYPE_TEXT];
  if (!from) return status_fail(STATUS_USER, "%s lacks %s", path, tensor->name);
  ArrayHeader header = {.element = from->element, .shape = from->shape};
  Type whole = plan_whole(tensor);
  if (!ckpt_places_fit(tensor, from) || !weight_files_converts(from->element, tensor->type.dtype))
    return status_fail(STATUS_USER, "%s: %s is %s but the model's is %s", path, tensor->name,
                       array_header_text(&header, have), type_text(&whole, want));
  STATUS_TRY(weight_files_check(from, path));
  int64_t count = shape_elements(&whole.shape), offset = tensor->offset;
  int place = plan_whole_place(exec_plan(places->exec), tensor->place, &offset);
  uint8_t *to = places->at[place];
  if (!to) return status_fail(STATUS_FAULT, "%s lies where nothing is saved", tensor->name);
  to += offset;
  bool is_part = tensor->shared || tensor->cut.ranks;
  uint8_t *all = is_part ? malloc((size_t)type_bytes(&whole) + 1) : to;
  if (!all) return status_errno(ENOMEM, "%s", path);
  Status status = STATUS_OK;
  if (element_convert(from->data, from->element, false, count, tensor->type.dtype, all) != count)
    status = status_fail(STATUS_USER, "%s: %s holds a number that does not fit %s", path,
                         tensor->name, dtype_text(tensor->type.dtype));
  if (status == STATUS_OK) status = exec_take_tensor(places->exec, tensor, (char *)all, (char *)to);
  if (is_part) free(all);
  Type held = plan_held(tensor);
  return status == STATUS_OK ? note_set(places, place, offset, type_bytes(&held)) : status;
}

bool ckpt_slice(const Plan *plan, const PlanTensor *state, const PlanTensor *param,
                PlanTensor *out) {
  Type type = {state->type.dtype, param->type.shape};
  if (plan->places.at[state->place].of_elements != param->place) return false;
  int64_t first = param->offset / dtype_bytes(param->type.dtype) * dtype_bytes(type.dtype);
  PlanTensor slice = {.type = type, .shared = param->shared};
  Type held = plan_held(&slice);
  if (first + type_bytes(&held) > type_bytes(&state->type)) return false;
  *out = (PlanTensor){.name = param->name,
                      .type = type,
                      .place = state->place,
                      .offset = state->offset + first,
                      .role = state->role,
                      .storage = param->storage,
                      .shared = param->shared,
                      .cut = param->cut};
  return true;
}

CkptTensors ckpt_state_tensors(Arena *arena, const Plan *plan, bool all) {
  CkptTensors out = {0};
  for (int i = 0; i < plan->states.count; i++) {
    const PlanTensor *state = &plan->states.at[i];
    PlanTensor slice;
    bool is_sliced = plan->places.at[state->place].elements == ELEMENTS_LIKE;
    if ((!all && !state->is_saved) || role_has(state->role, ROLE_SCRATCH)) continue;
    if (!is_sliced) VEC_PUSH(arena, out, *state);
    for (int k = 0; is_sliced && k < plan->params.count; k++) {
      if (!ckpt_slice(plan, state, &plan->params.at[k], &slice)) continue;
      slice.name = arena_printf(arena, "%s.%s", state->name, slice.name);
      VEC_PUSH(arena, out, slice);
    }
  }
  return out;
}
