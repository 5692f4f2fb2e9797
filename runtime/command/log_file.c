/* log_file: see log_file.h. */
#include "runtime/command/log_file.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Status log_file_open(LogFile *file, const char *path, bool append) {
  *file = (LogFile){.path = path};
  if (!path || !path[0]) return STATUS_OK;
  file->file = fopen(path, append ? "ae" : "we");
  int error = errno;
  const char *slash = strrchr(path, '/');
  if (!file->file && error == ENOENT && slash)
    return status_fail(STATUS_USER,
                       "cannot write the log %s: there is no folder %.*s; make it first", path,
                       slash > path ? (int)(slash - path) : 1, path);
  return file->file ? STATUS_OK : status_errno(error, "cannot write the log %s", path);
}

/* Told once: what is done about it has messages of its own. */
static Status log_file_failed(LogFile *file, int error) {
  file->has_failed = true;
  return status_errno(error ? error : EIO, "cannot write the log %s", file->path);
}

Status log_file_write(LogFile *file, const Text *text) {
  errno = 0;
  if (!file->file || file->has_failed) return STATUS_OK;
  if (fwrite(text_cstr(text), 1, text->count, file->file) == text->count && !ferror(file->file))
    return STATUS_OK;
  return log_file_failed(file, errno);
}

Status log_file_flush(LogFile *file) {
  errno = 0;
  if (!file->file || file->has_failed || fflush(file->file) == 0) return STATUS_OK;
  return log_file_failed(file, errno);
}

typedef LogPlace PlaceOf(const char *line);

static size_t bytes_to_keep(const Text *text, int64_t step, bool is_evaluated, PlaceOf *place_of) {
  size_t kept = 0;
  while (kept < text->count) {
    const char *line = text->at + kept, *end = memchr(line, '\n', text->count - kept);
    if (!end) break;
    LogPlace place = place_of(line);
    if (place.step > step || (place.step == step && place.is_eval && !is_evaluated)) break;
    kept = (size_t)(end + 1 - text->at);
  }
  return kept;
}

Status log_file_cut(LogFile *file, int64_t step, bool is_evaluated, PlaceOf *place_of) {
  struct stat info;
  Text text = {0};
  if (!file->file || fstat(fileno(file->file), &info) != 0 || !S_ISREG(info.st_mode))
    return STATUS_OK;
  int error = text_read_file(&text, file->path);
  size_t kept = error ? 0 : bytes_to_keep(&text, step, is_evaluated, place_of);
  if (!error && ftruncate(fileno(file->file), (off_t)kept) != 0) error = errno;
  text_free(&text);
  return error ? status_errno(error, "the log %s", file->path) : STATUS_OK;
}

bool log_file_is_empty(const LogFile *file) {
  struct stat info;
  return file->file && fstat(fileno(file->file), &info) == 0 && info.st_size == 0;
}

Status log_file_close(LogFile *file) {
  if (!file->file) return STATUS_OK;
  Status status = log_file_flush(file);
  errno = 0;
  if (fclose(file->file) != 0 && !file->has_failed) status = log_file_failed(file, errno);
  file->file = NULL;
  return status;
}
