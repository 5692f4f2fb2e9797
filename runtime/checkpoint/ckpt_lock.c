/* ckpt_lock: one training at a time writes to a folder of checkpoints (declared in ckpt.h). The
 * lock is that of the file .lock in it, so it ends with its process whatever happens; the file says
 * which process holds it. It is removed when the training ends, only by the holder. */
#include "runtime/checkpoint/ckpt.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct CkptLock {
  int fd;
  char *path;
};

/* "process 123 on host a", as the other one wrote it; printable, for it may be anyone's file. */
static void read_holder(int fd, char *text, size_t size) {
  ssize_t got = pread(fd, text, size - 1, 0);
  text[got > 0 ? got : 0] = 0;
  for (char *at = text; *at; at++)
    if (*at < ' ' || *at > '~') *at = *at == '\n' ? 0 : '?';
}

static void write_holder(int fd) {
  char host[65] = "", text[128];
  if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
  int count = snprintf(text, sizeof text, "process %d on host %s\n", (int)getpid(), host);
  if (ftruncate(fd, 0) == 0) (void)!pwrite(fd, text, (size_t)count, 0);
}

/* Is it still the file of that name, or did the one before remove it? */
static bool is_named(int fd, const char *path) {
  struct stat mine, named;
  return fstat(fd, &mine) == 0 && lstat(path, &named) == 0 && mine.st_ino == named.st_ino &&
         mine.st_dev == named.st_dev;
}

static Status take_lock(const char *folder, CkptLock *lock) {
  for (;;) {
    char holder[128];
    lock->fd = open(lock->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (lock->fd < 0) return status_errno(errno, "cannot write to the folder %s", folder);
    if (flock(lock->fd, LOCK_EX | LOCK_NB) == 0) {
      if (is_named(lock->fd, lock->path)) break;
    } else if (errno != EWOULDBLOCK) {
      return STATUS_OK; /* a file system without locks */
    } else if (is_named(lock->fd, lock->path)) {
      read_holder(lock->fd, holder, sizeof holder);
      return status_fail(STATUS_USER,
                         "another training writes its checkpoints to %s (%s): wait for its end, or "
                         "choose another folder with --set train.checkpoint.dir=DIR",
                         folder, holder[0] ? holder : "of an unknown process");
    }
    close(lock->fd);
  }
  write_holder(lock->fd);
  return STATUS_OK;
}

Status ckpt_lock(const char *folder, CkptLock **out) {
  Text path = {0};
  *out = NULL;
  STATUS_TRY(ckpt_make_folder(folder));
  CkptLock *lock = calloc(1, sizeof *lock);
  if (!lock) return status_errno(ENOMEM, "%s", folder);
  text_printf(&path, "%s/.lock", folder);
  *lock = (CkptLock){.fd = -1, .path = path.at};
  Status status = take_lock(folder, lock);
  if (status == STATUS_OK) {
    *out = lock;
    return STATUS_OK;
  }
  if (lock->fd >= 0) close(lock->fd);
  free(lock->path);
  free(lock);
  return status;
}

void ckpt_unlock(CkptLock *lock) {
  if (!lock) return;
  if (is_named(lock->fd, lock->path)) unlink(lock->path);
  close(lock->fd);
  free(lock->path);
  free(lock);
}
