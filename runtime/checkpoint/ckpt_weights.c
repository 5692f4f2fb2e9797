/* ckpt_weights: --init and --save (declared in ckpt.h). */
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/ckpt_file.h"
#include "runtime/checkpoint/ckpt_places.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/checkpoint/weight_prefix.h"
#include "base/text.h"
#include <errno.h>
#include <stdio.h>
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
 * "transformer.wte.weight" for wte.weight, lose what stands in front. */
static Status drop_prefix(const Exec *exec, const CkptInit *init, WeightFiles *files) {
  const PlanStages *stages = exec_stages(exec);
  VEC(const char *) names = {0};
  WeightPrefix prefix;
  Safetensors *file = &files->all;
  for (int s = 0; s < stages->count; s++)
    for (int i = 0; i < stages->at[s]->params.count; i++) VEC_PUSH(files->arena, names, stages->at[s]->params.at[i].name);
  STATUS_TRY(weight_prefix(file, names.at, names.count, &prefix));
  if (prefix.rival)
    return status_fail(STATUS_USER, "%s has the model's parameters behind %.*s and behind %.*s%s", files->named, (int)prefix.length, prefix.text,
                       (int)prefix.rival_length, prefix.rival, init->has_flags ? ": --init-rename \"PREFIX.*=*\" says which are meant" : "");
  for (int i = 0; i < file->tensor_count && prefix.length; i++) {
    const char *name = file->tensor[i].name;
    if (strncmp(name, prefix.text, prefix.length) == 0 && !weights_is_expected(exec, name) && !safetensors_find(file, name + prefix.length))
      file->tensor[i].name += prefix.length;
  }
  return STATUS_OK;
}

/* How the files and the model fit, name by name. */
typedef struct {
  Text missing, mismatched, unexpected, lacking; /* lacking: states */
  int missing_count, mismatch_count, unexpected_count, lacking_count, taken, parameters;
  int unknown; /* tensors whose names the model does not have; some of them are harmless */
} Comparison;

static void comparison_free(Comparison *c) {
  text_free(&c->missing);
  text_free(&c->mismatched);
  text_free(&c->unexpected);
  text_free(&c->lacking);
}

static void list_mismatch(Comparison *c, const PlanTensor *tensor, const SafeTensor *from) {
  char have[TYPE_TEXT], want[TYPE_TEXT], both[3 * TYPE_TEXT];
  Type whole = plan_whole(tensor);
  snprintf(both, sizeof both, "%.60s (%s, there %s)", tensor->name, shape_text(&whole.shape, want), shape_text(&from->shape, have));
  list_name(&c->mismatched, &c->mismatch_count, both, NULL);
}

static void compare_param(Comparison *c, const PlanTensor *param, const Safetensors *file, const char **unknown) {
  const SafeTensor *from = safetensors_find(file, param->name);
  c->parameters++;
  if (!from)
    list_name(&c->missing, &c->missing_count, param->name,
              text_nearest(param->name, unknown, c->unknown));
  else if (!ckpt_places_fit(param, from))
    list_mismatch(c, param, from);
  else
    c->taken++;
}

/* Averages of layers begin as what they are averages of, and ranges and scales of rounded layers are found where there are none. */
static bool begins_by_itself(const char *name) {
  return text_ends_with(name, ".average") || text_ends_with(name, ".average.begun") || weight_files_is_of_rounding(name);
}

/* States that evaluations read, such as running statistics: from their first values every prediction would be another one. */
static void compare_state(Comparison *c, const PlanTensor *state, const Safetensors *file, const char **unknown) {
  const SafeTensor *from = safetensors_find(file, state->name);
  if (!state->is_saved || state->role != ROLE_MODEL || begins_by_itself(state->name)) return;
  if (!from)
    list_name(&c->lacking, &c->lacking_count, state->name, text_nearest(state->name, unknown, c->unknown));
  else if (!ckpt_places_fit(state, from))
    list_mismatch(c, state, from);
}

/* Of all stages: each rank knows them, and rank 0 tells. */
static Status compare_names(const Exec *exec, const Safetensors *file, Comparison *c) {
  const PlanStages *stages = exec_stages(exec);
  const char **unknown = calloc((size_t)file->tensor_count + 1, sizeof *unknown);
  if (!unknown) return status_errno(ENOMEM, "weights");
  for (int i = 0; i < file->tensor_count; i++) /* a tensor of the model's own, another layer's, is not one under a wrong name */
    if (!weights_is_expected(exec, file->tensor[i].name)) unknown[c->unknown++] = file->tensor[i].name;
  for (int s = 0; s < stages->count; s++) {
    for (int i = 0; i < stages->at[s]->params.count; i++) {
      const PlanTensor *param = &stages->at[s]->params.at[i];
      bool is_known = false; /* a parameter that several stages read */
      for (int k = 0; k < s && !is_known; k++)
        is_known = plan_find_tensor(stages->at[k]->params.at, stages->at[k]->params.count,
                                    param->name) >= 0;
      if (!is_known) compare_param(c, param, file, unknown);
    }
    for (int i = 0; i < stages->at[s]->states.count; i++) compare_state(c, &stages->at[s]->states.at[i], file, unknown);
  }
  for (int i = 0; i < file->tensor_count; i++)
    if (!weights_is_expected(exec, file->tensor[i].name) && !is_harmless(exec, file, &file->tensor[i]))
      list_name(&c->unexpected, &c->unexpected_count, file->tensor[i].name, NULL);
  end_list(&c->missing, c->missing_count);
  end_list(&c->lacking, c->lacking_count);
  end_list(&c->mismatched, c->mismatch_count);
  end_list(&c->unexpected, c->unexpected_count);
  free(unknown);
  return STATUS_OK;
}

static Status must_fit(const CkptInit *init, const WeightFiles *files, const Comparison *c, bool needs_states) {
  if (c->missing_count && !init->keeps_missing)
    return status_fail(STATUS_USER, "%s lacks %d of the model's %d parameters: %s%s%s%s",
                       files->named, c->missing_count, c->parameters, text_cstr(&c->missing),
                       c->unexpected_count ? "; not in the model: " : "", text_cstr(&c->unexpected),
                       !init->has_flags      ? ""
                       : c->unexpected_count ? " (--init-rename OLD=NEW, or --init-missing keep)"
                                             : " (--init-missing keep lets them begin anew)");
  if (!c->taken && c->parameters)
    return status_fail(STATUS_USER, "%s has none of the model's %d parameters in its shape: %s%s%s",
                       files->named, c->parameters, text_cstr(&c->missing),
                       c->missing_count && c->mismatch_count ? ", " : "",
                       text_cstr(&c->mismatched));
  if (c->lacking_count && needs_states && !init->has_flags) /* a training makes them anew */
    return status_fail(STATUS_USER, "%s lacks %s, which evaluations of the model read; a training with --init makes them anew", files->named,
                       text_cstr(&c->lacking));
  return STATUS_OK;
}

static void tell_fit(const CkptInit *init, const WeightFiles *files, const Comparison *c,
                     Text *notes) {
  bool is_plain = init->path_count == 1 && !init->rename_count && !files->is_several &&
                  !init->keeps_missing && !init->keeps_mismatch;
  if (!is_plain) {
    text_printf(notes, "%s%s: %d of the model's %d parameters were taken", notes->count ? "\n" : "",
                files->named, c->taken, c->parameters);
    if (files->replaced)
      text_printf(notes, "; of %d tensor%s in several of them, the last", files->replaced,
                  files->replaced == 1 ? "" : "s");
    if (files->left_out) text_printf(notes, "; %d were left out by name", files->left_out);
    if (c->missing_count)
      text_printf(notes, "\nnot there, begin as without --init: %s", text_cstr(&c->missing));
    if (c->mismatch_count)
      text_printf(notes, "\nof another shape, begin as without --init: %s",
                  text_cstr(&c->mismatched));
  }
  if (c->lacking_count)
    text_printf(notes, "%s%s: states that are not there, begin as without --init: %s", notes->count ? "\n" : "", files->named, text_cstr(&c->lacking));
  if (c->unexpected_count)
    text_printf(notes, "%s%s: %d tensor%s not in the model and ignored: %s",
                notes->count ? "\n" : "", files->named, c->unexpected_count,
                c->unexpected_count == 1 ? " is" : "s are", text_cstr(&c->unexpected));
}

/* Whether it may stay as it is, where it is not there or not in this shape, was decided before. */
static Status set_from(CkptPlaces *places, const CkptInit *init, const PlanTensor *tensor,
                       const WeightFiles *files) {
  const SafeTensor *from = safetensors_find(&files->all, tensor->name);
  bool fits = from && ckpt_places_fit(tensor, from);
  if (!from || (init->keeps_mismatch && !fits)) return STATUS_OK;
  Status status = ckpt_places_set(places, tensor, &files->all, weight_files_path(files, from));
  return status == STATUS_USER && !fits && init->has_flags
             ? status_fail(status, "%s; --init-mismatch keep lets it begin anew", status_message())
             : status;
}

/* Weights of a training in another precision, or of another tool: numbers are as large as the formats' own. */
static void tell_scales(const Plan *plan, const WeightFiles *files, Text *notes) {
  for (int i = 0; i < plan->states.count; i++) {
    const PlanTensor *state = &plan->states.at[i];
    if (state->role != ROLE_FLOAT8 || !state->is_saved || safetensors_find(&files->all, state->name)) continue;
    text_printf(notes, "%s%s has no %s: operands of 8-bit products are not scaled, but by what a training finds in its steps",
                notes->count ? "\n" : "", files->named, state->name);
  }
}

static Status load_from(Exec *exec, const CkptInit *init, WeightFiles *files, Text *notes) {
  const Plan *plan = exec_plan(exec);
  CkptPlaces places = {0};
  Comparison c = {0};
  Status status = drop_prefix(exec, init, files);
  if (status == STATUS_OK) status = compare_names(exec, &files->all, &c);
  if (status == STATUS_OK) status = must_fit(init, files, &c, setting_number(plan->settings, "train.statistics") == 0);
  if (status == STATUS_OK) status = ckpt_places_new(exec, &places);
  for (int i = 0; i < plan->params.count && status == STATUS_OK; i++)
    status = set_from(&places, init, &plan->params.at[i], files);
  for (int i = 0; i < plan->states.count && status == STATUS_OK; i++)
    if (plan->states.at[i].is_saved) status = set_from(&places, init, &plan->states.at[i], files);
  if (status == STATUS_OK) status = ckpt_places_write(&places);
  if (status == STATUS_OK && notes) tell_fit(init, files, &c, notes);
  if (status == STATUS_OK && notes) tell_scales(plan, files, notes);
  ckpt_places_free(&places);
  comparison_free(&c);
  return status;
}

Status ckpt_init_weights(Exec *exec, const CkptInit *init, Text *notes) {
  WeightFiles files;
  Status status =
      weight_files_open(init->paths, init->path_count, init->renames, init->rename_count, &files);
  if (status == STATUS_OK) status = load_from(exec, init, &files, notes);
  weight_files_close(&files);
  return status;
}

Status ckpt_load_weights(Exec *exec, const char *path, Text *notes) {
  return ckpt_init_weights(exec, &(CkptInit){.paths = &path, .path_count = 1}, notes);
}

static Status save_weights(Exec *exec, Comm *comm, const char *path, CkptContent content) {
  CkptFile *file;
  STATUS_TRY(ckpt_file_begin(exec, comm, NULL, path, content, NULL, 0, &file));
  return ckpt_file_end(file, ckpt_file_write(file, NULL, 0));
}

Status ckpt_save_weights(Exec *exec, Comm *comm, const char *path) {
  return save_weights(exec, comm, path, CKPT_WEIGHTS);
}

/* Before the first step the average has not begun, and is the weights. */
Status ckpt_save_ema(Exec *exec, Comm *comm, const char *path) {
  int64_t step;
  STATUS_TRY(exec_step(exec, &step));
  return save_weights(exec, comm, path, step ? CKPT_EMA : CKPT_WEIGHTS);
}
