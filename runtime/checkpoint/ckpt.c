/* ckpt: see ckpt.h. A checkpoint file's metadata holds the numbers of CkptInfo as text, and a sum
 * over all bytes of the file. Folders of checkpoints are in ckpt_folder.c. */
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/ckpt_file.h"
#include "runtime/checkpoint/ckpt_places.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 2 has the sum that one process makes; 1: its sum left out the metadata, and names no mark */
static const char format_name[] = "ft-checkpoint-3", format_before[] = "ft-checkpoint-2";

Status ckpt_begin(Exec *exec, Comm *comm, const char *folder, const char *path,
                  const CkptInfo *info, CkptFile **out) {
  enum { NUMBERS = 11, WIDTH = 40 };
  char text[NUMBERS][WIDTH];
  const Plan *plan = exec_plan(exec);
  const CkptStop *stop = &info->stop;
  snprintf(text[0], WIDTH, "%" PRId64, info->step);
  snprintf(text[1], WIDTH, "%" PRIu64, info->seed);
  snprintf(text[2], WIDTH, "%" PRId64, info->batch);
  snprintf(text[3], WIDTH, "%" PRId64, info->samples);
  snprintf(text[4], WIDTH, "%d", info->is_shuffled);
  snprintf(text[5], WIDTH, "%d", info->owes_evaluation);
  snprintf(text[6], WIDTH, "%.17g", info->best);
  snprintf(text[7], WIDTH, "%.17g", stop->best);
  snprintf(text[8], WIDTH, "%" PRId64, stop->waited);
  snprintf(text[9], WIDTH, "%016" PRIx64, info->data);
  snprintf(text[10], WIDTH, "%016" PRIx64, info->given);
  const struct {
    SafeText text;
    bool is_there;
  } all[] = {{{"format", format_name}, true},
             {{"model", plan->model}, true},
             {{"optimizer", setting_text(plan->settings, "train.optimizer")}, true},
             {{"step", text[0]}, true},
             {{"seed", text[1]}, true},
             {{"batch", text[2]}, true},
             {{"samples", text[3]}, true},
             {{"data", text[9]}, info->data != 0},
             {{"given", text[10]}, info->given != 0},
             {{"shuffled", text[4]}, true},
             {{"drawn", info->drawn}, info->drawn[0]},
             {{"owes_evaluation", text[5]}, true},
             {{"best", text[6]}, info->has_best},
             {{"best_of", info->best_of}, info->has_best},
             {{"stop_metric", stop->metric}, stop->metric[0]},
             {{"stop_best", text[7]}, stop->has_best},
             {{"stop_waited", text[8]}, stop->metric[0]},
             {{"stop_reached", stop->reached}, stop->reached[0]},
             {{"plateau_of", info->plateau_of}, info->plateau_of[0]},
             {{"average", setting_text(plan->settings, "train.average")}, plan_find_role(plan, ROLE_AVERAGE) >= 0}};
  enum { ALL = sizeof all / sizeof *all };
  SafeText texts[ALL];
  int count = 0;
  for (int i = 0; i < ALL; i++)
    if (all[i].is_there) texts[count++] = all[i].text;
  return ckpt_file_begin(exec, comm, folder, path, CKPT_ALL, texts, count, out);
}

static Status save_in(Exec *exec, Comm *comm, const char *folder, const char *path,
                      const CkptInfo *info) {
  CkptFile *file;
  STATUS_TRY(ckpt_begin(exec, comm, folder, path, info, &file));
  return ckpt_file_end(file, ckpt_file_write(file, NULL, 0));
}

Status ckpt_save(Exec *exec, Comm *comm, const char *path, const CkptInfo *info) {
  return save_in(exec, comm, NULL, path, info);
}

Status ckpt_save_step(Exec *exec, const char *folder, const CkptInfo *info, int64_t keep) {
  char *path = ckpt_path(folder, info, keep);
  Status status = save_in(exec, NULL, folder, path, info);
  free(path);
  return status == STATUS_OK ? ckpt_keep(folder, info->step, keep) : status;
}

static bool ckpt_read_number(const Safetensors *file, const char *key, int64_t *out) {
  const char *text = safetensors_text(file, key);
  char *end;
  if (!text || !*text) return false;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return !*end && errno == 0;
}

static void read_stop(const Safetensors *file, CkptStop *out) {
  const char *metric = safetensors_text(file, "stop_metric"),
             *best = safetensors_text(file, "stop_best"),
             *reached = safetensors_text(file, "stop_reached");
  snprintf(out->metric, sizeof out->metric, "%s", metric ? metric : "");
  snprintf(out->reached, sizeof out->reached, "%s", reached ? reached : "");
  out->has_best = best != NULL;
  out->best = best ? strtod(best, NULL) : 0;
  if (!ckpt_read_number(file, "stop_waited", &out->waited) || out->waited < 0) out->waited = 0;
}

static Status read_info(const Safetensors *file, const char *path, CkptInfo *out) {
  *out = (CkptInfo){0};
  const char *format = safetensors_text(file, "format"), *best = safetensors_text(file, "best");
  const char *seed = safetensors_text(file, "seed"), *best_of = safetensors_text(file, "best_of");
  if (!format || strcmp(format, CKPT_WEIGHTS_FORMAT) == 0)
    return status_fail(STATUS_USER,
                       "%s holds weights but no checkpoint; start from them with "
                       "--init %s",
                       path, path);
  if (strcmp(format, format_name) != 0 && strcmp(format, format_before) != 0)
    return status_fail(STATUS_USER,
                       "%s is a checkpoint of format '%.40s'; this ftrun goes on from %s only "
                       "(--init %s starts a new training from its weights)",
                       path, format, format_name, path);
  if (!safetensors_sum_agrees(file))
    return status_fail(STATUS_USER, "%s is damaged: its bytes are not those that were written",
                       path);
  int64_t shuffled, owes = 0;
  if (!ckpt_read_number(file, "step", &out->step) || out->step < 0 || !seed ||
      !ckpt_read_number(file, "batch", &out->batch) ||
      !ckpt_read_number(file, "samples", &out->samples) ||
      !ckpt_read_number(file, "shuffled", &shuffled))
    return status_fail(STATUS_USER, "%s is damaged: its metadata is incomplete", path);
  out->seed = strtoull(seed, NULL, 10);
  const char *data = safetensors_text(file, "data"), *given = safetensors_text(file, "given");
  out->data = data ? strtoull(data, NULL, 16) : 0;
  out->given = given ? strtoull(given, NULL, 16) : 0;
  out->is_shuffled = shuffled != 0;
  const char *drawn = safetensors_text(file, "drawn");
  snprintf(out->drawn, sizeof out->drawn, "%s", drawn ? drawn : "");
  out->has_best = best != NULL;
  out->best = best ? strtod(best, NULL) : 0;
  out->owes_evaluation = ckpt_read_number(file, "owes_evaluation", &owes) && owes != 0;
  snprintf(out->best_of, sizeof out->best_of, "%s", best_of ? best_of : "");
  const char *plateau_of = safetensors_text(file, "plateau_of");
  snprintf(out->plateau_of, sizeof out->plateau_of, "%s", plateau_of ? plateau_of : "");
  read_stop(file, &out->stop);
  return STATUS_OK;
}

/* A training of another kind would go on from what happens to fit. */
static Status check_kind(const Exec *exec, const Safetensors *file, const char *path) {
  const Plan *plan = exec_plan(exec);
  static const struct {
    const char *text, *key, *what;
  } kinds[] = {{"optimizer", "train.optimizer", ""}, {"average", "train.average", "an average of weights by "}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const char *mine = setting_text(plan->settings, kinds[i].key), *other = safetensors_text(file, kinds[i].text);
    if (!other || strcmp(mine, other) == 0 || (i && plan_find_role(plan, ROLE_AVERAGE) < 0)) continue;
    return status_fail(STATUS_USER,
                       "%s comes from a training with %s%.40s, this one has %s: it cannot go on exactly "
                       "(--init %s starts a new training from its weights)",
                       path, kinds[i].what, other, mine, path);
  }
  return STATUS_OK;
}

/* What goes with the parameters, of this training's kind. */
static Status restore_tensor(CkptPlaces *places, const PlanTensor *tensor, const Safetensors *file, const char *path) {
  if (safetensors_find(file, tensor->name)) return ckpt_places_set(places, tensor, file, path);
  return status_fail(STATUS_USER, "%s lacks %s, which this training has: it cannot go on exactly (--init %s starts a new training from its weights)", path,
                     tensor->name, path);
}

/* ── what was frozen, and what is ─────────────────────────────────────────────────────────────── */
static bool is_sliced(const Plan *plan, const PlanTensor *state) {
  return plan->places.at[state->place].elements == ELEMENTS_LIKE;
}

static const SafeTensor *find_slice(Arena *arena, const Safetensors *file, const char *state,
                                    const char *param) {
  return safetensors_find(file, arena_printf(arena, "%s.%s", state, param));
}

/* Moments, or the average, of a parameter that is frozen here. */
static bool is_of_frozen(Arena *arena, const Plan *plan, const SafeTensor *tensor) {
  for (int s = 0; s < plan->states.count; s++) {
    size_t length = strlen(plan->states.at[s].name);
    if (!is_sliced(plan, &plan->states.at[s]) ||
        strncmp(tensor->name, plan->states.at[s].name, length))
      continue;
    for (int i = 0; i < plan->params.count; i++)
      if (plan->places.at[plan->params.at[i].place].is_frozen &&
          !strcmp(tensor->name,
                  arena_printf(arena, "%s.%s", plan->states.at[s].name, plan->params.at[i].name)))
        return true;
  }
  return false;
}

/* The file has all that goes with parameters of others, and nothing of what goes with this one. */
static bool was_frozen(Arena *arena, const Plan *plan, const PlanTensor *param,
                       const Safetensors *file) {
  bool has_others = false;
  PlanTensor slice;
  for (int s = 0; s < plan->states.count; s++) {
    const PlanTensor *state = &plan->states.at[s];
    if (!is_sliced(plan, state)) continue;
    if (find_slice(arena, file, state->name, param->name)) return false;
    for (int i = 0; i < plan->params.count && !has_others; i++)
      has_others = ckpt_slice(plan, state, &plan->params.at[i], &slice) &&
                   find_slice(arena, file, state->name, plan->params.at[i].name);
  }
  return has_others;
}

/* Pruning that begins with this run: the file has nothing of it. */
static bool begins_pruning(Arena *arena, const Plan *plan, const PlanTensor *state, const Safetensors *file) {
  bool has_any = state->role != ROLE_PRUNE;
  for (int i = 0; i < plan->params.count && !has_any; i++)
    has_any = find_slice(arena, file, state->name, plan->params.at[i].name) != NULL;
  return !has_any;
}

/* Layers that train.quantize names have scales and ranges, which a training without it has not. */
static bool begins_rounding(const Plan *plan, const PlanTensor *state, const Safetensors *file) {
  const char *name = state->name;
  bool is_of_rounding = text_ends_with(name, "_scale") || text_ends_with(name, ".input.max_abs") || text_ends_with(name, ".input_factor");
  return setting_text(plan->settings, "train.quantize")[0] && state->role == ROLE_MODEL && is_of_rounding && !safetensors_find(file, name);
}

/* A parameter and what goes with it. Of one that was frozen the moments stay as they are at the start,
 * and the average begins as the parameter. */
static Status restore_param(Arena *arena, CkptPlaces *places, const PlanTensor *param,
                            const Safetensors *file, const char *path, CkptInfo *info) {
  const Plan *plan = exec_plan(places->exec);
  bool begins = was_frozen(arena, plan, param, file);
  PlanTensor slice;
  STATUS_TRY(restore_tensor(places, param, file, path));
  for (int s = 0; s < plan->states.count; s++) {
    const PlanTensor *state = &plan->states.at[s];
    if (!is_sliced(plan, state) || !ckpt_slice(plan, state, param, &slice)) continue;
    if (begins_pruning(arena, plan, state, file)) {
      info->begins_pruning = true;
      continue;
    }
    info->begins_moments |= begins;
    if (begins && state->role != ROLE_AVERAGE) continue;
    if (!begins) slice.name = arena_printf(arena, "%s.%s", state->name, param->name);
    STATUS_TRY(restore_tensor(places, &slice, file, path));
  }
  return STATUS_OK;
}

/* All that the checkpoint holds has a place here, or in another stage; or had one before it was frozen. */
static Status check_none_left(Arena *arena, const PlanStages *stages, const Safetensors *file,
                              const char *path, CkptInfo *info) {
  CkptTensors *states = ARENA_ARRAY(arena, CkptTensors, stages->count);
  for (int s = 0; s < stages->count; s++)
    states[s] = ckpt_state_tensors(arena, stages->at[s], true);
  for (int i = 0; i < file->tensor_count; i++) {
    const char *name = file->tensor[i].name;
    bool is_known = false;
    for (int s = 0; s < stages->count && !is_known; s++)
      is_known =
          plan_find_tensor(stages->at[s]->params.at, stages->at[s]->params.count, name) >= 0 ||
          plan_find_tensor(states[s].at, states[s].count, name) >= 0;
    for (int s = 0; s < stages->count && !is_known; s++)
      info->leaves_moments |= is_known = is_of_frozen(arena, stages->at[s], &file->tensor[i]);
    if (!is_known)
      return status_fail(STATUS_USER,
                         "%s holds %s, which this training does not have: it cannot go on exactly "
                         "(--init %s starts a new training from its weights)",
                         path, name, path);
  }
  return STATUS_OK;
}

static Status restore(Exec *exec, const Safetensors *file, const char *path, CkptInfo *info) {
  const Plan *plan = exec_plan(exec);
  CkptPlaces places = {0};
  Arena *arena = arena_new();
  Status status = check_kind(exec, file, path);
  if (status == STATUS_OK) status = ckpt_places_new(exec, &places);
  for (int i = 0; i < plan->params.count && status == STATUS_OK; i++)
    status = restore_param(arena, &places, &plan->params.at[i], file, path, info);
  for (int i = 0; i < plan->states.count && status == STATUS_OK; i++) {
    const PlanTensor *state = &plan->states.at[i];
    if (is_sliced(plan, state) || role_has(state->role, ROLE_SCRATCH)) continue;
    if (begins_rounding(plan, state, file))
      info->begins_rounding = true;
    else
      status = restore_tensor(&places, state, file, path);
  }
  if (status == STATUS_OK) status = check_none_left(arena, exec_stages(exec), file, path, info);
  if (status == STATUS_OK) status = ckpt_places_write(&places);
  ckpt_places_free(&places);
  arena_free(arena);
  return status;
}

Status ckpt_resume_file(Exec *exec, const char *path, CkptInfo *info, bool *is_damaged) {
  Safetensors *file;
  *is_damaged = true;
  STATUS_TRY(safetensors_open(path, &file));
  Status status = read_info(file, path, info);
  *is_damaged = status == STATUS_USER;
  if (status == STATUS_OK) status = restore(exec, file, path, info);
  safetensors_close(file);
  return status;
}
