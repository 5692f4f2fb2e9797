/* read_whole: see read_whole.h. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "runtime/common/read_whole.h"
#include "runtime/common/watchdog.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

Status read_whole_shorter(const char *path) {
  return status_fail(
      STATUS_FAULT, "%s has become shorter while it was being read (or its disk has failed)", path);
}

Status read_whole_size(const char *path, int fd, size_t *bytes) {
  struct stat info;
  if (fstat(fd, &info) != 0) return status_errno(errno, "%s cannot be read", path);
  if (!S_ISREG(info.st_mode))
    return status_fail(STATUS_USER, "%s is %s, not a file", path,
                       S_ISDIR(info.st_mode) ? "a folder" : "a pipe or device");
  if (info.st_size == 0) return status_fail(STATUS_USER, "%s is empty", path);
  *bytes = (size_t)info.st_size;
  return STATUS_OK;
}

/* Without O_NONBLOCK a pipe would keep us waiting until another process writes to it. */
Status read_whole_open(const char *path, int *fd, size_t *bytes) {
  *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (*fd < 0) return status_errno(errno, "%s cannot be read", path);
  Status status = read_whole_size(path, *fd, bytes);
  if (status != STATUS_OK) close(*fd);
  return status;
}

Status read_whole_from(const char *path, int fd, size_t bytes, uint8_t **out) {
  uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return status_errno(errno, "%s", path);
  size_t done = 0;
  Status status = STATUS_OK;
  while (done < bytes && status == STATUS_OK) {
    ssize_t got = pread(fd, at + done, bytes - done, (off_t)done);
    if (got > 0)
      done += (size_t)got;
    else if (got == 0)
      status = read_whole_shorter(path);
    else if (errno != EINTR)
      status = status_errno(errno, "%s cannot be read", path);
  }
  watchdog_progress();
  if (status == STATUS_OK)
    *out = at;
  else
    munmap(at, bytes);
  return status;
}

Status read_whole(const char *path, uint8_t **out, size_t *bytes) {
  int fd;
  STATUS_TRY(read_whole_open(path, &fd, bytes));
  Status status = read_whole_from(path, fd, *bytes, out);
  close(fd);
  return status;
}
