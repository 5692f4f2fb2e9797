/* spool: see spool.h. Invariant: an entry of the list is complete when it is in there, and stays. */
#define _GNU_SOURCE /* pipe2 */
#include "runtime/data/spool.h"
#include "base/text.h"
#include "runtime/data/unpack.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef struct Spooled Spooled;
struct Spooled {
  char *name;
  int fd;
  Spooled *next;
};
static Spooled *spooled;
static pthread_mutex_t spool_lock = PTHREAD_MUTEX_INITIALIZER;

bool spool_is_command(const char *name) { return name[0] == '|'; }

/* ── running ──────────────────────────────────────────────────────────────────────────────── */
/* Signals are as a shell would have them, whatever this thread blocks and this process ignores. */
static int start_shell(const char *command, int out, pid_t *pid) {
  char *arguments[] = {(char *)(uintptr_t)"sh", (char *)(uintptr_t)"-c", (char *)(uintptr_t)command,
                       NULL};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  int error = posix_spawn_file_actions_init(&actions);
  if (error) return error;
  error = posix_spawnattr_init(&attributes);
  if (!error) {
    error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, out, 1);
    if (!error) error = posix_spawnattr_setsigmask(&attributes, &none);
    if (!error) error = posix_spawnattr_setsigdefault(&attributes, &all);
    if (!error)
      error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (!error) error = posix_spawn(pid, "/bin/sh", &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/* All that comes, until nobody can write any more. */
static Status take_output(int from, int to, uint64_t *count) {
  enum { PIECE = 1 << 17 };
  char *piece = malloc(PIECE);
  Status status = piece ? STATUS_OK : status_errno(ENOMEM, "cannot be read");
  *count = 0;
  while (status == STATUS_OK) {
    ssize_t got = read(from, piece, PIECE);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) status = status_errno(errno, "cannot be read");
    if (got <= 0) break;
    int error = text_write_all(to, piece, (size_t)got);
    if (error)
      status = status_errno(error, "prints more than the temporary file can hold (%llu MiB, in %s)",
                            (unsigned long long)(*count >> 20),
                            getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp");
    *count += (uint64_t)got;
  }
  free(piece);
  return status;
}

static Status judge_end(int state, uint64_t count) {
  int code = WIFEXITED(state) ? WEXITSTATUS(state) : 0;
  if (WIFSIGNALED(state))
    return status_fail(STATUS_USER, "was ended by signal %d (%s), after %llu bytes",
                       WTERMSIG(state), strsignal(WTERMSIG(state)), (unsigned long long)count);
  if (code == 127)
    return status_fail(STATUS_USER, "failed with exit code 127: the shell finds no such command");
  if (code)
    return status_fail(STATUS_USER, "failed with exit code %d, after %llu bytes", code,
                       (unsigned long long)count);
  if (!count) return status_fail(STATUS_USER, "has printed nothing");
  return STATUS_OK;
}

static Status run_into(const char *command, int to) {
  int ends[2], state = 0;
  pid_t pid;
  uint64_t count = 0;
  if (pipe2(ends, O_CLOEXEC) != 0) return status_errno(errno, "cannot be run");
  int error = start_shell(command, ends[1], &pid);
  close(ends[1]);
  if (error) {
    close(ends[0]);
    return status_errno(error, "cannot be run");
  }
  Status status = take_output(ends[0], to, &count);
  close(ends[0]); /* what it still writes ends it */
  if (status != STATUS_OK) kill(pid, SIGTERM);
  while (waitpid(pid, &state, 0) < 0 && errno == EINTR) continue;
  return status == STATUS_OK ? judge_end(state, count) : status;
}

/* ── the list ─────────────────────────────────────────────────────────────────────────────── */
static Spooled *find_spooled(const char *name) {
  Spooled *at = spooled;
  while (at && strcmp(at->name, name) != 0) at = at->next;
  return at;
}

/* Under the lock. */
static Status spool_new(const char *name) {
  const char *command = name + 1;
  while (*command == ' ') command++;
  for (const char *at = command; *at; at++)
    if ((unsigned char)*at < ' ' || *at == 127)
      return status_fail(STATUS_USER, "is no command: it has control characters");
  if (!*command) return status_fail(STATUS_USER, "names no command");
  Spooled *made = calloc(1, sizeof *made);
  if (!made || !(made->name = strdup(name))) {
    free(made);
    return status_errno(ENOMEM, "cannot be run");
  }
  Status status = unpack_temporary(&made->fd);
  if (status == STATUS_OK && (status = run_into(command, made->fd)) != STATUS_OK) close(made->fd);
  if (status != STATUS_OK) {
    free(made->name);
    free(made);
    return status;
  }
  made->next = spooled;
  spooled = made;
  return STATUS_OK;
}

Status spool_run(const char *name) {
  pthread_mutex_lock(&spool_lock);
  Status status = find_spooled(name) ? STATUS_OK : spool_new(name);
  pthread_mutex_unlock(&spool_lock);
  if (status == STATUS_OK) return status;
  Text shown = {0}, why = {0};
  text_printf(&shown, "%s", name);
  text_printf(&why, "%s", status_message());
  text_make_printable(shown.at);
  status = status_fail(status, "\"%s\" %s", text_cstr(&shown), text_cstr(&why));
  text_free(&shown);
  text_free(&why);
  return status;
}

int spool_open(const char *name) {
  if (spool_is_command(name)) {
    pthread_mutex_lock(&spool_lock);
    const Spooled *found = find_spooled(name);
    pthread_mutex_unlock(&spool_lock);
    if (found) return fcntl(found->fd, F_DUPFD_CLOEXEC, 0);
  }
  /* a pipe's writer may never come */
  return open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}
