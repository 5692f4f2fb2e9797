/* ckpt_weights: --init and --save (declared in ckpt.h). */
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/ckpt_file.h"
#include "runtime/checkpoint/ckpt_places.h"
#include "base/text.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMED = 5 };

/* Appends a name to a list that shows only the first few. */
static void list_name(Text *list, int *count, const char *name, const char *nearest) {
  if ((*count)++ >= MOST_NAMED) return;
  text_printf(list, "%s%s", *count > 1 ? ", " : "", name);
  if (nearest) text_printf(list, " (the file has %s)", nearest);
}

static void end_list(Text *list, int count) {
  if (count > MOST_NAMED) text_printf(list, " and %d more", count - MOST_NAMED);
}

static bool is_of_plan(const Plan *plan, const char *name) {
  if (plan_find_tensor(plan->params.at, plan->params.count, name) >= 0 ||
      plan_find_tensor(plan->states.at, plan->states.count, name) >= 0)
    return true;
  for (int i = 0; i < plan->states.count; i++) { /* of a checkpoint */
    const PlanTensor *state = &plan->states.at[i];
    size_t length = strlen(state->name);
    if (role_has(state->role, ROLE_SLICED) && !strncmp(name, state->name, length) &&
        name[length] == '.')
      return true;
  }
  return false;
}

/* By this rank, or by one of another stage. */
static bool weights_is_expected(const Exec *exec, const char *name) {
  const PlanStages *stages = exec_stages(exec);
  for (int s = 0; s < stages->count; s++)
    if (is_of_plan(stages->at[s], name)) return true;
  return false;
}

/* Is there a tensor that the model knows and that holds the same? Then this is a tied one: a head
 * that is the table of tokens again. (Not vectors: many hold zeros.) */
static bool is_tied(const Exec *exec, const Safetensors *file, const SafeTensor *tensor) {
  for (int i = 0; tensor->shape.rank > 1 && i < file->tensor_count; i++) {
    const SafeTensor *other = &file->tensor[i];
    if (other != tensor && weights_is_expected(exec, other->name) &&
        other->element == tensor->element && shape_equal(&other->shape, &tensor->shape) &&
        other->bytes == tensor->bytes && memcmp(other->data, tensor->data, tensor->bytes) == 0)
      return true;
  }
  return false;
}

/* What other programs save and we have no use for: batch norm's count of batches, GPT-2's masks. */
static bool is_harmless(const Exec *exec, const Safetensors *file, const SafeTensor *tensor) {
  const Shape *shape = &tensor->shape;
  bool is_mask = (text_ends_with(tensor->name, ".attn.bias") && shape->rank == 4 &&
                  shape->dim[0] == 1 && shape->dim[1] == 1 && shape->dim[2] == shape->dim[3]) ||
                 (text_ends_with(tensor->name, ".attn.masked_bias") && shape_elements(shape) == 1);
  return is_mask || text_ends_with(tensor->name, "num_batches_tracked") ||
         is_tied(exec, file, tensor);
}

/* Weights that another program saved as a part of something larger, such as
 * "transformer.wte.weight" for wte.weight, lose what stands in front, if it is the same for all
 * parameters. */
static void drop_prefix(const Plan *plan, Safetensors *file) {
  const char *first = plan->params.count ? plan->params.at[0].name : "";
  size_t tail = strlen(first);
  const char *prefix = NULL;
  size_t length = 0;
  if (!tail || safetensors_find(file, first)) return;
  for (int i = 0; i < file->tensor_count && !prefix; i++) {
    const char *name = file->tensor[i].name;
    size_t all = strlen(name);
    if (all > tail + 1 && name[all - tail - 1] == '.' && strcmp(name + all - tail, first) == 0)
      prefix = name, length = all - tail;
  }
  for (int i = 0; i < file->tensor_count && prefix; i++)
    if (strncmp(file->tensor[i].name, prefix, length) == 0) file->tensor[i].name += length;
}

/* Which parameters are not in the file, which tensors of the file the model does not know. */
static Status compare_names(const Exec *exec, const Safetensors *file, const char *path,
                            Text *notes) {
  const Plan *plan = exec_plan(exec);
  const char **names = calloc((size_t)file->tensor_count + 1, sizeof *names);
  if (!names) return status_errno(ENOMEM, "%s", path);
  for (int i = 0; i < file->tensor_count; i++) names[i] = file->tensor[i].name;
  Text missing = {0}, unexpected = {0};
  int missing_count = 0, unexpected_count = 0;
  for (int i = 0; i < plan->params.count; i++) {
    const char *name = plan->params.at[i].name;
    if (!safetensors_find(file, name))
      list_name(&missing, &missing_count, name, text_nearest(name, names, file->tensor_count));
  }
  for (int i = 0; i < file->tensor_count; i++)
    if (!weights_is_expected(exec, names[i]) && !is_harmless(exec, file, &file->tensor[i]))
      list_name(&unexpected, &unexpected_count, names[i], NULL);
  end_list(&missing, missing_count);
  end_list(&unexpected, unexpected_count);
  Status status = STATUS_OK;
  if (missing_count)
    status = status_fail(STATUS_USER, "%s lacks %d of the model's %d parameters: %s%s%s", path,
                         missing_count, plan->params.count, text_cstr(&missing),
                         unexpected_count ? "; not in the model: " : "", text_cstr(&unexpected));
  else if (unexpected_count && notes)
    text_printf(notes, "%s%s: %d tensor%s not in the model and ignored: %s",
                notes->count ? "\n" : "", path, unexpected_count,
                unexpected_count == 1 ? " is" : "s are", text_cstr(&unexpected));
  text_free(&missing);
  text_free(&unexpected);
  free(names);
  return status;
}

Status ckpt_load_weights(Exec *exec, const char *path, Text *notes) {
  Safetensors *file;
  STATUS_TRY(safetensors_open(path, &file));
  const Plan *plan = exec_plan(exec);
  CkptPlaces places = {0};
  drop_prefix(plan, file);
  Status status = compare_names(exec, file, path, notes);
  if (status == STATUS_OK) status = ckpt_places_read(exec, &places);
  for (int i = 0; i < plan->params.count && status == STATUS_OK; i++)
    status = ckpt_places_set(&places, &plan->params.at[i], file, path);
  for (int i = 0; i < plan->states.count && status == STATUS_OK; i++) {
    const PlanTensor *state = &plan->states.at[i];
    if (state->is_saved && safetensors_find(file, state->name))
      status = ckpt_places_set(&places, state, file, path);
  }
  if (status == STATUS_OK) status = ckpt_places_write(&places);
  ckpt_places_free(&places);
  safetensors_close(file);
  return status;
}

static Status save_weights(Exec *exec, Comm *comm, const char *path, CkptContent content) {
  CkptFile *file;
  STATUS_TRY(ckpt_file_begin(exec, comm, NULL, path, content, NULL, 0, &file));
  return ckpt_file_end(file, ckpt_file_write(file, NULL, 0));
}

Status ckpt_save_weights(Exec *exec, Comm *comm, const char *path) {
  return save_weights(exec, comm, path, CKPT_WEIGHTS);
}

Status ckpt_save_ema(Exec *exec, Comm *comm, const char *path) {
  return save_weights(exec, comm, path, CKPT_EMA);
}
