/* ckpt: see ckpt.h. A checkpoint file's metadata holds the numbers of CkptInfo as text. */
#include "runtime/ckpt.h"
#include "runtime/ckpt_arena.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char format_name[] = "ft-checkpoint-1";

Status ckpt_save(Exec *exec, const char *path, const CkptInfo *info) {
  enum { NUMBERS = 6, WIDTH = 40 };
  char text[NUMBERS][WIDTH];
  snprintf(text[0], WIDTH, "%" PRId64, info->step);
  snprintf(text[1], WIDTH, "%" PRIu64, info->seed);
  snprintf(text[2], WIDTH, "%" PRId64, info->batch);
  snprintf(text[3], WIDTH, "%" PRId64, info->samples);
  snprintf(text[4], WIDTH, "%d", info->is_shuffled);
  snprintf(text[5], WIDTH, "%.17g", info->best);
  SafeText texts[] = {{"format", format_name}, {"model", exec_plan(exec)->model},
                      {"step", text[0]},       {"seed", text[1]},
                      {"batch", text[2]},      {"samples", text[3]},
                      {"shuffled", text[4]},   {"best", text[5]}};
  int count = (int)(sizeof texts / sizeof *texts) - (info->has_best ? 0 : 1);
  return ckpt_write_tensors(exec, path, CKPT_ALL, texts, count);
}

static bool read_number(const Safetensors *file, const char *key, int64_t *out) {
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
  const char *seed = safetensors_text(file, "seed");
  if (!format)
    return status_fail(STATUS_USER,
                       "%s holds weights but no checkpoint; start from them with "
                       "--init %s",
                       path, path);
  if (strcmp(format, format_name) != 0)
    return status_fail(STATUS_USER, "%s is a checkpoint of format '%.40s'; expected %s", path,
                       format, format_name);
  int64_t shuffled;
  if (!read_number(file, "step", &out->step) || out->step < 0 || !seed ||
      !read_number(file, "batch", &out->batch) || !read_number(file, "samples", &out->samples) ||
      !read_number(file, "shuffled", &shuffled))
    return status_fail(STATUS_USER, "%s is damaged: its metadata is incomplete", path);
  out->seed = strtoull(seed, NULL, 10);
  out->is_shuffled = shuffled != 0;
  out->has_best = best != NULL;
  out->best = best ? strtod(best, NULL) : 0;
  return STATUS_OK;
}

static Status restore(Exec *exec, const Safetensors *file, const char *path) {
  const Plan *plan = exec_plan(exec);
  CkptArena params = {0}, states = {0};
  Status status = ckpt_arena_read(exec, ARENA_PARAMS, &params);
  if (status == STATUS_OK) status = ckpt_arena_read(exec, ARENA_STATE, &states);
  for (int i = 0; i < plan->params.count && status == STATUS_OK; i++)
    status = ckpt_arena_set(&params, &plan->params.at[i], file, path);
  Arena *arena = arena_new();
  CkptTensors tensors = ckpt_state_tensors(arena, plan, true);
  for (int i = 0; i < tensors.count && status == STATUS_OK; i++)
    status = ckpt_arena_set(&states, &tensors.at[i], file, path);
  arena_free(arena);
  if (status == STATUS_OK) status = ckpt_arena_write(exec, &params);
  if (status == STATUS_OK) status = ckpt_arena_write(exec, &states);
  ckpt_arena_free(&params);
  ckpt_arena_free(&states);
  return status;
}

static Status resume_file(Exec *exec, const char *path, CkptInfo *info) {
  Safetensors *file;
  STATUS_TRY(safetensors_open(path, &file));
  Status status = read_info(file, path, info);
  if (status == STATUS_OK) status = restore(exec, file, path);
  safetensors_close(file);
  return status;
}

/* ── folders ──────────────────────────────────────────────────────────────────────────────── */

/* step-<digits>.safetensors, nothing before or after. */
static bool step_of_name(const char *name, int64_t *step) {
  int end = 0;
  return sscanf(name, "step-%18" SCNd64 ".safetensors%n", step, &end) == 1 && end > 0 &&
         !name[end] && *step >= 0;
}

static int newest_first(const void *a, const void *b) {
  int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
  return left > right ? -1 : left < right;
}

/* The steps that have a file in the folder, newest first; malloc'd. */
static Status list_steps(const char *folder, int64_t **out, int *count) {
  *out = NULL;
  *count = 0;
  DIR *directory = opendir(folder);
  if (!directory) return status_errno(errno, "%s", folder);
  int capacity = 0;
  for (struct dirent *entry; (entry = readdir(directory));) {
    int64_t step;
    if (!step_of_name(entry->d_name, &step)) continue;
    if (*count == capacity) {
      capacity = capacity ? 2 * capacity : 16;
      int64_t *grown = realloc(*out, (size_t)capacity * sizeof *grown);
      if (!grown) {
        free(*out);
        closedir(directory);
        return status_errno(ENOMEM, "%s", folder);
      }
      *out = grown;
    }
    (*out)[(*count)++] = step;
  }
  closedir(directory);
  if (*count) qsort(*out, (size_t)*count, sizeof **out, newest_first);
  return STATUS_OK;
}

static char *step_path(const char *folder, int64_t step) {
  Text path = {0};
  text_printf(&path, "%s/step-%08" PRId64 ".safetensors", folder, step);
  return path.at;
}

/* The newest that is whole; one damaged by hand must not hide the one before it. */
static Status resume_folder(Exec *exec, const char *folder, CkptInfo *info, char **used) {
  int64_t *steps;
  int count;
  STATUS_TRY(list_steps(folder, &steps, &count));
  Status status = status_fail(STATUS_USER, "%s holds no checkpoint (step-….safetensors)", folder);
  for (int i = 0; i < count && status != STATUS_OK; i++) {
    free(*used);
    *used = step_path(folder, steps[i]);
    status = resume_file(exec, *used, info);
    if (status == STATUS_FAULT) break;
  }
  free(steps);
  return status;
}

Status ckpt_resume(Exec *exec, const char *path, CkptInfo *info, char **used) {
  struct stat entry;
  *used = NULL;
  if (stat(path, &entry) != 0) return status_errno(errno, "--resume %s", path);
  if (S_ISDIR(entry.st_mode)) return resume_folder(exec, path, info, used);
  *used = strdup(path);
  return *used ? resume_file(exec, path, info) : status_errno(ENOMEM, "%s", path);
}

Status ckpt_make_folder(const char *folder) {
  char *path = strdup(folder);
  if (!path) return status_errno(ENOMEM, "%s", folder);
  int error = 0;
  for (char *at = path + 1; !error; at++) {
    if (*at && *at != '/') continue;
    char end = *at;
    *at = 0;
    if (mkdir(path, 0777) != 0 && errno != EEXIST) error = errno;
    *at = end;
    if (!end) break;
  }
  free(path);
  struct stat info;
  if (!error && stat(folder, &info) == 0 && !S_ISDIR(info.st_mode)) error = ENOTDIR;
  return error ? status_errno(error, "cannot make the folder %s", folder) : STATUS_OK;
}

Status ckpt_save_step(Exec *exec, const char *folder, const CkptInfo *info, int64_t keep) {
  STATUS_TRY(ckpt_make_folder(folder));
  char *path = step_path(folder, info->step);
  Status status = ckpt_save(exec, path, info);
  free(path);
  STATUS_TRY(status);
  int64_t *steps;
  int count;
  STATUS_TRY(list_steps(folder, &steps, &count));
  /* only older ones: files of a longer training in the same folder are not ours to remove */
  for (int i = 0, older = 0; i < count; i++) {
    if (steps[i] > info->step || ++older <= (keep < 1 ? 1 : keep)) continue;
    char *old = step_path(folder, steps[i]);
    unlink(old);
    free(old);
  }
  free(steps);
  return STATUS_OK;
}
