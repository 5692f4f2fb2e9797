/* ckpt: see ckpt.h. A checkpoint file's metadata holds the numbers of CkptInfo as text, and a sum
 * over all bytes of the file. Folders of checkpoints are in ckpt_folder.c. */
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/ckpt_places.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char format_name[] =
    "ft-checkpoint-2"; /* 1: its sum left out the metadata, and names no mark */

Status ckpt_save_from(const CkptFrom *from, const char *path, const CkptInfo *info) {
  enum { NUMBERS = 7, WIDTH = 40 };
  char text[NUMBERS][WIDTH];
  const Plan *plan = exec_plan(from->exec);
  snprintf(text[0], WIDTH, "%" PRId64, info->step);
  snprintf(text[1], WIDTH, "%" PRIu64, info->seed);
  snprintf(text[2], WIDTH, "%" PRId64, info->batch);
  snprintf(text[3], WIDTH, "%" PRId64, info->samples);
  snprintf(text[4], WIDTH, "%d", info->is_shuffled);
  snprintf(text[5], WIDTH, "%d", info->owes_evaluation);
  snprintf(text[6], WIDTH, "%.17g", info->best);
  SafeText texts[] = {{"format", format_name},
                      {"model", plan->model},
                      {"optimizer", setting_text(plan->settings, "train.optimizer")},
                      {"step", text[0]},
                      {"seed", text[1]},
                      {"batch", text[2]},
                      {"samples", text[3]},
                      {"shuffled", text[4]},
                      {"owes_evaluation", text[5]},
                      {"best", text[6]},
                      {"best_of", info->best_of}};
  int count = (int)(sizeof texts / sizeof *texts) - (info->has_best ? 0 : 2);
  return ckpt_write_tensors(from, path, CKPT_ALL, texts, count);
}

Status ckpt_save(Exec *exec, const char *path, const CkptInfo *info) {
  return ckpt_save_from(&(CkptFrom){.exec = exec}, path, info);
}

static bool ckpt_read_number(const Safetensors *file, const char *key, int64_t *out) {
  const char *text = safetensors_text(file, key);
  char *end;
  if (!text || !*text) return false;
  errno = 0;
  *out = strtoll(text, &end, 10);
  return !*end && errno == 0;
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
  if (strcmp(format, format_name) != 0)
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
  out->is_shuffled = shuffled != 0;
  out->has_best = best != NULL;
  out->best = best ? strtod(best, NULL) : 0;
  out->owes_evaluation = ckpt_read_number(file, "owes_evaluation", &owes) && owes != 0;
  snprintf(out->best_of, sizeof out->best_of, "%s", best_of ? best_of : "");
  return STATUS_OK;
}

/* A training of another kind would go on from what happens to fit. */
static Status check_kind(const Exec *exec, const Safetensors *file, const char *path) {
  const char *mine = setting_text(exec_plan(exec)->settings, "train.optimizer");
  const char *other = safetensors_text(file, "optimizer");
  if (!other || strcmp(mine, other) == 0) return STATUS_OK;
  return status_fail(
      STATUS_USER,
      "%s comes from a training with %.40s, this one has %s: it cannot go on exactly "
      "(--init %s starts a new training from its weights)",
      path, other, mine, path);
}

/* All that the checkpoint holds has a place here. */
static Status check_none_left(const Plan *plan, const CkptTensors *states, const Safetensors *file,
                              const char *path) {
  for (int i = 0; i < file->tensor_count; i++) {
    const char *name = file->tensor[i].name;
    if (plan_find_tensor(plan->params.at, plan->params.count, name) < 0 &&
        plan_find_tensor(states->at, states->count, name) < 0)
      return status_fail(STATUS_USER,
                         "%s holds %s, which this training does not have: it cannot go on exactly "
                         "(--init %s starts a new training from its weights)",
                         path, name, path);
  }
  return STATUS_OK;
}

static Status restore(Exec *exec, const Safetensors *file, const char *path) {
  const Plan *plan = exec_plan(exec);
  CkptPlaces places = {0};
  Arena *arena = arena_new();
  CkptTensors tensors = ckpt_state_tensors(arena, plan, true);
  Status status = check_kind(exec, file, path);
  if (status == STATUS_OK) status = ckpt_places_read(exec, &places);
  for (int i = 0; i < plan->params.count && status == STATUS_OK; i++)
    status = ckpt_places_set(&places, &plan->params.at[i], file, path);
  for (int i = 0; i < tensors.count && status == STATUS_OK; i++)
    status = ckpt_places_set(&places, &tensors.at[i], file, path);
  if (status == STATUS_OK) status = check_none_left(plan, &tensors, file, path);
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
  if (status == STATUS_OK) status = restore(exec, file, path);
  safetensors_close(file);
  return status;
}
