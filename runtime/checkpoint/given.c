/* given: see given.h. */
#include "runtime/checkpoint/given.h"
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/safetensors_sum.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/checkpoint/weight_prefix.h"
#include "runtime/data/spool.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  Exec *exec;
  const SourcePlaces *places;
  bool trains;
  Text *notes;
  SafeSum sum;
  int summed;
} GivenLoad;

/* Is it in the memory of this Exec? */
static bool given_is_held(const Exec *exec, const PlanTensor *state) {
  const Plan *plan = exec_plan(exec);
  int index = plan_find_tensor(plan->states.at, plan->states.count, state->name);
  if (index < 0 || !plan->states.at[index].file) return false;
  const PlanTensor *own = &plan->states.at[index];
  return own->offset + type_bytes(&own->type) <= exec_place_bytes(exec, own->place);
}

/* The i-th state of all stages' plans, each name once; NULL: there are no more. */
static const PlanTensor *given_at(const Exec *exec, int i) {
  const PlanStages *stages = exec_stages(exec);
  for (int s = 0; s < stages->count; s++)
    for (int k = 0; k < stages->at[s]->states.count; k++) {
      const PlanTensor *state = &stages->at[s]->states.at[k];
      bool is_known = !state->file;
      for (int p = 0; p < s && !is_known; p++)
        is_known = plan_find_tensor(stages->at[p]->states.at, stages->at[p]->states.count,
                                    state->name) >= 0;
      if (!is_known && i-- == 0) return state;
    }
  return NULL;
}

static bool is_needed(const GivenLoad *load, const PlanTensor *state) {
  return load->trains || given_is_held(load->exec, state);
}

/* Is it the first that this file has? */
static bool is_new_file(const Exec *exec, int i) {
  const PlanTensor *state = given_at(exec, i);
  for (int k = 0; k < i; k++)
    if (!strcmp(given_at(exec, k)->file, state->file)) return false;
  return true;
}

void given_files(const Exec *exec, Text *out) {
  const PlanTensor *state;
  for (int i = 0; (state = given_at(exec, i)) != NULL; i++)
    if (is_new_file(exec, i)) text_printf(out, "%s%s", out->count ? ", " : "", state->file);
}

/* Of the names of one file. */
static Status find_prefix(const GivenLoad *load, WeightFiles *files, const char *name, const char *path, WeightPrefix *out) {
  const PlanTensor *state;
  VEC(const char *) names = {0};
  for (int i = 0; (state = given_at(load->exec, i)) != NULL; i++)
    if (!strcmp(state->file, name)) VEC_PUSH(files->arena, names, state->file_name);
  STATUS_TRY(weight_prefix(&files->all, names.at, names.count, out));
  return out->rival ? status_fail(STATUS_USER, "%s has what its frozen layer needs behind %.*s and behind %.*s", path, (int)out->length, out->text,
                                  (int)out->rival_length, out->rival)
                    : STATUS_OK;
}

static Status given_missing(const Safetensors *file, const char *path, const PlanTensor *state) {
  const char **names = calloc((size_t)file->tensor_count + 1, sizeof *names);
  if (!names) return status_errno(ENOMEM, "%s", path);
  for (int i = 0; i < file->tensor_count; i++) names[i] = file->tensor[i].name;
  const char *nearest = text_nearest(state->file_name, names, file->tensor_count);
  Status status = status_fail(STATUS_USER, "%s lacks %s, which the frozen layer of %s needs%s%s",
                              path, state->file_name, state->name,
                              nearest ? "; it has " : "", nearest ? nearest : "");
  free(names);
  return status;
}

/* Converted to what the plan has, and written to its place. */
static Status given_put(GivenLoad *load, const PlanTensor *state, const SafeTensor *from,
                        const char *path) {
  const Plan *plan = exec_plan(load->exec);
  const PlanTensor *own =
      &plan->states.at[plan_find_tensor(plan->states.at, plan->states.count, state->name)];
  int64_t count = shape_elements(&own->type.shape), bytes = type_bytes(&own->type);
  char *values = malloc((size_t)bytes + 1);
  if (!values) return status_errno(ENOMEM, "%s", path);
  Status status = STATUS_OK;
  if (element_convert(from->data, from->element, false, count, own->type.dtype,
                      (uint8_t *)values) != count)
    status = status_fail(STATUS_USER, "%s: %s holds a number that does not fit %s", path,
                         from->name, dtype_text(own->type.dtype));
  if (status == STATUS_OK)
    status = exec_write(load->exec, own->place, own->offset, bytes, values);
  free(values);
  return status;
}

static Status given_set(GivenLoad *load, const PlanTensor *state, const Safetensors *file,
                        const WeightPrefix *prefix, const char *path) {
  char have[TYPE_TEXT], want[TYPE_TEXT];
  const SafeTensor *from = safetensors_find(file, state->file_name);
  if (!from && prefix->length) {
    Text name = {0};
    text_append(&name, prefix->text, prefix->length);
    text_printf(&name, "%s", state->file_name);
    from = safetensors_find(file, text_cstr(&name));
    text_free(&name);
  }
  if (!from) return given_missing(file, path, state);
  ArrayHeader header = {.element = from->element, .shape = from->shape};
  if (!shape_equal(&from->shape, &state->type.shape) ||
      !weight_files_converts(from->element, state->type.dtype))
    return status_fail(STATUS_USER, "%s: %s is %s, but the frozen layer's %s is %s", path,
                       from->name, array_header_text(&header, have), state->name,
                       type_text(&state->type, want));
  STATUS_TRY(weight_files_check(from, path));
  safetensors_sum_add(&load->sum, &from->element, sizeof from->element);
  safetensors_sum_add(&load->sum, from->data, from->bytes);
  load->summed++;
  return given_is_held(load->exec, state) ? given_put(load, state, from, path) : STATUS_OK;
}

static Status given_read(GivenLoad *load, const char *name, const char *path) {
  WeightFiles files;
  const PlanTensor *state;
  WeightPrefix prefix;
  int count = 0;
  Status status = weight_files_open(&path, 1, NULL, 0, &files);
  if (status == STATUS_OK) status = find_prefix(load, &files, name, path, &prefix);
  for (int i = 0; status == STATUS_OK && (state = given_at(load->exec, i)) != NULL; i++) {
    if (strcmp(state->file, name) || !is_needed(load, state)) continue;
    status = given_set(load, state, &files.all, &prefix, path);
    count++;
  }
  weight_files_close(&files);
  if (status == STATUS_OK && load->notes)
    text_printf(load->notes, "%sfrozen layers: %d tensors of %s", load->notes->count ? "\n" : "",
                count, path);
  return status;
}

/* One that is named like a command is none: weights are not printed. */
static Status given_file(GivenLoad *load, const char *name) {
  char *path = NULL;
  if (spool_is_command(name))
    return status_fail(STATUS_USER, "\"%s\" is no name of a file of weights", name);
  STATUS_TRY(source_find_file(exec_plan(load->exec), load->places, name, &path));
  Status status = given_read(load, name, path);
  free(path);
  return status;
}

Status given_load(Exec *exec, const SourcePlaces *places, bool trains, Text *notes, uint64_t *sum) {
  GivenLoad load = {.exec = exec, .places = places, .trains = trains, .notes = notes};
  const PlanTensor *state;
  safetensors_sum_start(&load.sum, 0);
  for (int i = 0; (state = given_at(exec, i)) != NULL; i++) {
    bool is_read = false; /* by this run */
    const PlanTensor *other;
    for (int k = i; is_new_file(exec, i) && !is_read && (other = given_at(exec, k)) != NULL; k++)
      is_read = !strcmp(other->file, state->file) && is_needed(&load, other);
    if (is_read) STATUS_TRY(given_file(&load, state->file));
  }
  if (sum) *sum = load.summed ? safetensors_sum_end(&load.sum) : 0;
  return STATUS_OK;
}

Status given_load_all(Exec *exec, const SourcePlaces *places, const char *weights, Text *notes) {
  STATUS_TRY(given_load(exec, places, false, notes, NULL));
  return ckpt_load_weights(exec, weights, notes);
}

Status given_clear(Exec *exec) {
  const Plan *plan = exec_plan(exec);
  for (int i = 0; i < plan->states.count; i++) {
    const PlanTensor *state = &plan->states.at[i];
    if (!state->file || !given_is_held(exec, state)) continue;
    size_t bytes = (size_t)type_bytes(&state->type);
    char *zeros = calloc(1, bytes + 1);
    if (!zeros) return status_errno(ENOMEM, "%s", state->name);
    Status status = exec_write(exec, state->place, state->offset, (int64_t)bytes, zeros);
    free(zeros);
    STATUS_TRY(status);
  }
  return STATUS_OK;
}
