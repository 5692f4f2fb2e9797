/* run_file: see run_file.h. Polled, for inotify says nothing of files on other machines. That what
 * was read is still there is seen by its last bytes, which are compared before more is read: a
 * resumed training cuts lines off and may be beyond their end again when one looks. */
#include "runtime/command/run_file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, CHUNKS = 8, TAIL = 512 };

struct RunFile {
  char *path;
  RunLog *log;
  char *chunk;
  int fd; /* -1: there is none */
  off_t offset;
  char tail[TAIL]; /* the last bytes in front of offset */
  size_t tail_count;
  int restarts;
};

static char *path_of(const char *given) {
  struct stat info;
  Text path = {0};
  text_append(&path, given, strlen(given));
  if (stat(given, &info) == 0 && S_ISDIR(info.st_mode))
    text_printf(&path, "%slog.jsonl", text_ends_with(given, "/") ? "" : "/");
  char *copy = strdup(text_cstr(&path));
  text_free(&path);
  return copy;
}

Status run_file_new(const char *path, RunFile **out) {
  RunFile *file = calloc(1, sizeof *file);
  *out = NULL;
  if (!file) return status_errno(ENOMEM, "%s", path);
  file->fd = -1;
  file->path = path_of(path);
  file->chunk = malloc(CHUNK);
  Status status = file->path && file->chunk ? run_log_new(file->path, &file->log)
                                            : status_errno(ENOMEM, "%s", path);
  if (status == STATUS_OK)
    *out = file;
  else
    run_file_free(file);
  return status;
}

void run_file_free(RunFile *file) {
  if (!file) return;
  if (file->fd >= 0) close(file->fd);
  run_log_free(file->log);
  free(file->chunk);
  free(file->path);
  free(file);
}

bool run_file_is_there(const RunFile *file) { return file->fd >= 0; }
int run_file_restarts(const RunFile *file) { return file->restarts; }
RunLog *run_file_log(RunFile *file) { return file->log; }
const char *run_file_path(const RunFile *file) { return file->path; }

static Status open_file(RunFile *file) {
  struct stat info;
  int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return STATUS_OK; /* not yet */
  if (fd < 0) return status_errno(errno, "%s", file->path);
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return status_fail(STATUS_USER, "%s is no file: a log of JSON lines is wanted (--log-jsonl)",
                       file->path);
  }
  file->fd = fd;
  file->offset = 0;
  file->tail_count = 0;
  return STATUS_OK;
}

static void begin_anew(RunFile *file) {
  run_log_restart(file->log);
  file->offset = 0;
  file->tail_count = 0;
  file->restarts++;
}

/* Is there another file under the name by now? One that is gone for the moment is waited for. */
static bool is_replaced(const RunFile *file) {
  struct stat here, named;
  return fstat(file->fd, &here) == 0 && stat(file->path, &named) == 0 &&
         (here.st_dev != named.st_dev || here.st_ino != named.st_ino);
}

static bool has_kept_its_bytes(const RunFile *file) {
  char now[TAIL];
  off_t from = file->offset - (off_t)file->tail_count;
  return pread(file->fd, now, file->tail_count, from) == (ssize_t)file->tail_count &&
         !memcmp(now, file->tail, file->tail_count);
}

static void keep_tail(RunFile *file, size_t count) {
  if (count >= TAIL) {
    memcpy(file->tail, file->chunk + count - TAIL, TAIL);
    file->tail_count = TAIL;
    return;
  }
  size_t kept = file->tail_count < TAIL - count ? file->tail_count : TAIL - count;
  memmove(file->tail, file->tail + file->tail_count - kept, kept);
  memcpy(file->tail + kept, file->chunk, count);
  file->tail_count = kept + count;
}

Status run_file_read(RunFile *file, RunSeen *seen, void *user, bool *more, bool *has_changed) {
  *more = *has_changed = false;
  if (file->fd >= 0 && is_replaced(file)) {
    close(file->fd);
    file->fd = -1;
    begin_anew(file);
    *has_changed = true;
  }
  if (file->fd < 0) STATUS_TRY(open_file(file));
  if (file->fd < 0) return STATUS_OK;
  if (!has_kept_its_bytes(file)) {
    begin_anew(file);
    *has_changed = true;
  }
  for (int i = 0; i < CHUNKS; i++) {
    ssize_t count = pread(file->fd, file->chunk, CHUNK, file->offset);
    if (count < 0) return status_errno(errno, "%s", file->path);
    if (count == 0) return STATUS_OK;
    keep_tail(file, (size_t)count);
    file->offset += count;
    *has_changed = true;
    STATUS_TRY(run_log_feed(file->log, file->chunk, (size_t)count, seen, user));
  }
  *more = true;
  return STATUS_OK;
}
