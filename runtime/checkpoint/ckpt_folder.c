/* ckpt_folder: a folder of checkpoints (declared in ckpt.h): step-00001234.safetensors, of which
 * the newest `keep` are kept, and best.safetensors, which nothing here removes. A file has its name
 * only when it is whole; what a killed writer leaves is called *.tmp. The training holds the
 * folder's lock (ckpt_lock.c). */
#include "runtime/checkpoint/ckpt.h"
#include "runtime/checkpoint/ckpt_file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

static char *best_path(const char *folder) {
  Text path = {0};
  text_printf(&path, "%s/best.safetensors", folder);
  return path.at;
}

static void add_note(Text *notes, const char *text) {
  if (notes) text_printf(notes, "%s%s", notes->count ? "\n" : "", text);
}

/* The newest that is whole, or else the best: one damaged by hand or by a disk must not hide the
 * one before it. One that belongs to another model hides it: taking an older one would be a guess.
 */
static Status resume_folder(Exec *exec, const char *folder, CkptInfo *info, char **used,
                            Text *notes) {
  int64_t *steps;
  int count;
  STATUS_TRY(list_steps(folder, &steps, &count));
  Status status = STATUS_USER;
  bool is_damaged = true, is_any = false;
  for (int i = 0; i <= count && status != STATUS_OK && is_damaged; i++) {
    char *path = i < count ? step_path(folder, steps[i]) : best_path(folder);
    if (i == count && access(path, F_OK) != 0) {
      free(path);
      break;
    }
    free(*used);
    *used = path;
    is_any = true;
    status = ckpt_resume_file(exec, path, info, &is_damaged);
    if (status == STATUS_USER && is_damaged) add_note(notes, status_message());
  }
  free(steps);
  if (!is_any)
    return status_fail(STATUS_USER, "%s holds no checkpoint (step-….safetensors)", folder);
  if (status == STATUS_USER && is_damaged)
    return status_fail(status, "%s holds no whole checkpoint", folder);
  return status;
}

Status ckpt_folder_says(const char *folder, Text *out) {
  int64_t *steps;
  int count;
  STATUS_TRY(list_steps(folder, &steps, &count));
  char *best = best_path(folder), *newest = count ? step_path(folder, steps[0]) : NULL;
  bool has_best = access(best, F_OK) == 0;
  if (has_best) text_printf(out, "%s", best);
  if (newest) text_printf(out, "%s%s, the newest", has_best ? " or " : "", newest);
  free(best);
  free(newest);
  free(steps);
  return STATUS_OK;
}

Status ckpt_is_any(const char *path, bool *is_any) {
  struct stat entry;
  *is_any = stat(path, &entry) == 0;
  if (!*is_any && errno != ENOENT) return status_errno(errno, "--resume %s", path);
  if (!*is_any || !S_ISDIR(entry.st_mode)) return STATUS_OK;
  int64_t *steps;
  int count;
  STATUS_TRY(list_steps(path, &steps, &count));
  free(steps);
  char *best = best_path(path);
  *is_any = count > 0 || access(best, F_OK) == 0;
  free(best);
  return STATUS_OK;
}

Status ckpt_resume(Exec *exec, const char *path, CkptInfo *info, char **used, Text *notes) {
  struct stat entry;
  bool is_damaged;
  *used = NULL;
  if (stat(path, &entry) != 0 && errno == ENOENT)
    return status_fail(STATUS_USER,
                       "--resume %s: there is no such checkpoint; --or-start as well begins anew "
                       "where there is none",
                       path);
  if (stat(path, &entry) != 0) return status_errno(errno, "--resume %s", path);
  if (S_ISDIR(entry.st_mode)) return resume_folder(exec, path, info, used, notes);
  *used = strdup(path);
  return *used ? ckpt_resume_file(exec, path, info, &is_damaged) : status_errno(ENOMEM, "%s", path);
}

Status ckpt_make_folder(const char *folder) {
  char *path = strdup(folder);
  if (!path) return status_errno(ENOMEM, "%s", folder);
  int error = 0;
  for (char *at = path + 1; !error; at++) {
    if (*at && *at != '/') continue;
    char end = *at;
    *at = 0;
    if (mkdir(path, 0777) == 0)
      text_sync_parent(path);
    else if (errno != EEXIST)
      error = errno;
    *at = end;
    if (!end) break;
  }
  free(path);
  struct stat info;
  if (!error && stat(folder, &info) == 0 && !S_ISDIR(info.st_mode)) error = ENOTDIR;
  return error ? status_errno(error, "cannot make the folder %s for checkpoints", folder)
               : STATUS_OK;
}

char *ckpt_path(const char *folder, const CkptInfo *info, int64_t keep) {
  return keep ? step_path(folder, info->step) : best_path(folder);
}

/* Only older ones: files of a longer training in the same folder are not ours to remove. */
Status ckpt_keep(const char *folder, int64_t step, int64_t keep) {
  int64_t *steps;
  int count;
  STATUS_TRY(list_steps(folder, &steps, &count));
  for (int i = 0, older = 0; i < count; i++) {
    if (steps[i] > step || ++older <= (keep < 1 ? 1 : keep)) continue;
    char *old = step_path(folder, steps[i]);
    unlink(old);
    free(old);
  }
  free(steps);
  return STATUS_OK;
}

/* What a killed writer has left: step-….tmp, best….tmp and .ft-try….tmp (which asks whether all ranks see
 * the folder) that no process has locked. */
static void remove_leftover(const char *folder, const char *name) {
  size_t length = strlen(name);
  bool is_checkpoint = (strncmp(name, "step-", 5) == 0 || strncmp(name, "best.", 5) == 0) &&
                       strstr(name, ".safetensors.");
  if (length < 4 || strcmp(name + length - 4, ".tmp") != 0 ||
      (!is_checkpoint && strncmp(name, ".ft-try", 7) != 0))
    return;
  Text path = {0};
  text_printf(&path, "%s/%s", folder, name);
  int fd = open(path.at, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) unlink(path.at);
  if (fd >= 0) close(fd);
  text_free(&path);
}

int64_t ckpt_tidy(const char *folder) {
  DIR *directory = opendir(folder);
  int64_t newest = -1, step;
  if (!directory) return newest;
  for (struct dirent *entry; (entry = readdir(directory));) {
    if (step_of_name(entry->d_name, &step) && step > newest) newest = step;
    remove_leftover(folder, entry->d_name);
  }
  closedir(directory);
  return newest;
}
