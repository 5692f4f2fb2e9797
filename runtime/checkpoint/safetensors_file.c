/* safetensors_file: a file that is written at known places, by one process or by several (declared in
 * safetensors.h). Only its maker gives it its name. */
#include "base/text.h"
#include "runtime/checkpoint/safetensors_sum.h"
#include "runtime/common/watchdog.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct SafeFile {
  const char *path;
  const SafeLayout *layout;
  char *temporary;
  int fd;
  bool is_maker, is_finished;
  uint64_t sum;
  size_t written; /* since the last time that it went to the disk */
};

static Status file_failed(const SafeFile *file, int error) {
  return error ? status_errno(error, "cannot write %s", file->path) : STATUS_OK;
}

static SafeFile *file_new(const char *path, const SafeLayout *layout, bool is_maker) {
  SafeFile *file = calloc(1, sizeof *file);
  if (file) *file = (SafeFile){.path = path, .layout = layout, .fd = -1, .is_maker = is_maker};
  return file;
}

/* At a place of the file. */
static Status file_put(SafeFile *file, size_t at, const void *bytes, size_t count) {
  for (size_t done = 0; done < count;) {
    ssize_t now = pwrite(file->fd, (const char *)bytes + done, count - done, (off_t)(at + done));
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return file_failed(file, now < 0 ? errno : ENOSPC);
    done += (size_t)now;
    watchdog_progress();
  }
  return STATUS_OK;
}

/* The lock tells a process that finds the temporary file whether its maker lives (ckpt_folder.c).
 * With its length from the start, so that others see at once whether it is the same file. */
Status safetensors_file_make(const char *path, const SafeLayout *layout, SafeFile **out) {
  Text temporary = {0};
  SafeFile *file = *out = file_new(path, layout, true);
  if (!file) return status_errno(ENOMEM, "%s", path);
  int error = text_open_beside(path, &temporary, &file->fd);
  if (file->fd >= 0) {
    file->temporary = temporary.at;
  } else {
    text_free(&temporary);
  }
  Status status = file_failed(file, error);
  if (status == STATUS_OK) {
    (void)flock(file->fd, LOCK_EX | LOCK_NB);
    status = file_put(file, 0, layout->head, layout->head_bytes);
  }
  if (status == STATUS_OK && ftruncate(file->fd, (off_t)(layout->head_bytes + layout->data_bytes)))
    status = file_failed(file, errno);
  if (status == STATUS_OK) return STATUS_OK;
  safetensors_file_free(file);
  *out = NULL;
  return status;
}

const char *safetensors_file_temporary(const SafeFile *file) { return file->temporary; }

Status safetensors_file_join(const char *path, const char *temporary, const SafeLayout *layout,
                             SafeFile **out) {
  struct stat info;
  SafeFile *file = *out = file_new(path, layout, false);
  if (!file) return status_errno(ENOMEM, "%s", path);
  file->fd = open(temporary, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file->fd >= 0 && fstat(file->fd, &info) == 0 &&
      (size_t)info.st_size == layout->head_bytes + layout->data_bytes)
    return STATUS_OK;
  Status status =
      file->fd < 0 ? status_errno(errno, "cannot open %s, which rank 0 has made", temporary)
                   : status_fail(STATUS_FAULT, "%s is not the file that rank 0 has made", temporary);
  safetensors_file_free(file);
  *out = NULL;
  return status;
}

/* What is in memory only would make the fsync at the end long, and whoever waits for it would see
 * no sign of life meanwhile. */
static void sync_now_and_then(SafeFile *file, size_t count) {
  enum { EVERY = 256 << 20 };
  file->written += count;
  if (file->written < EVERY) return;
  file->written = 0;
  (void)!fdatasync(file->fd);
}

Status safetensors_file_write(SafeFile *file, size_t at, const void *bytes, size_t count) {
  STATUS_TRY(file_put(file, file->layout->head_bytes + at, bytes, count));
  if (file->layout->has_sum) file->sum += safetensors_sum_part(at, bytes, count);
  sync_now_and_then(file, count);
  return STATUS_OK;
}

Status safetensors_file_sync(SafeFile *file, uint64_t *sum) {
  *sum = file->sum;
  return fsync(file->fd) != 0 && errno != EINVAL ? file_failed(file, errno) : STATUS_OK;
}

Status safetensors_file_finish(SafeFile *file, uint64_t sum) {
  const SafeLayout *layout = file->layout;
  size_t place;
  char digits[SAFE_SUM_DIGITS + 1];
  if (layout->has_sum) {
    safetensors_sum_text(
        safetensors_sum_all(layout->head, layout->head_bytes, sum, layout->data_bytes, &place),
        digits);
    STATUS_TRY(file_put(file, place, digits, SAFE_SUM_DIGITS));
    STATUS_TRY(safetensors_file_sync(file, &sum));
  }
  int fd = file->fd;
  file->fd = -1;
  if (close(fd) != 0) return file_failed(file, errno);
  if (rename(file->temporary, file->path) != 0) return file_failed(file, errno);
  file->is_finished = true;
  text_sync_parent(file->path);
  return STATUS_OK;
}

void safetensors_file_free(SafeFile *file) {
  if (!file) return;
  if (file->is_maker && file->temporary && !file->is_finished) unlink(file->temporary);
  if (file->fd >= 0) close(file->fd);
  free(file->temporary);
  free(file);
}
