/* launcher: see launcher.h. */
#define _GNU_SOURCE /* close_range */
#include "runtime/communicate/launcher.h"
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* mpirun by itself ends within two seconds of its ranks. */
enum { TIME_TO_END = 5000, TIME_TO_TIDY_UP = 3000 /* ms */ };

/* Daemons, on machines other than mpirun's own, end their ranks when they are asked to end. mpirun
 * has done so by then; asked once more Open MPI's 4.1 ends with a stack trace. */
typedef enum { LAUNCHER_UNKNOWN, LAUNCHER_DAEMON, LAUNCHER_FRONT } LauncherKind;
static LauncherKind launcher_kind(const char *name) {
  static const struct {
    const char *name;
    LauncherKind kind;
  } known[] = {{"mpirun", LAUNCHER_FRONT},  {"mpiexec", LAUNCHER_FRONT},
               {"orterun", LAUNCHER_FRONT}, {"prterun", LAUNCHER_FRONT},
               {"orted", LAUNCHER_DAEMON},  {"prted", LAUNCHER_DAEMON},
               {"prte", LAUNCHER_DAEMON},   {"hydra_pmi_proxy", LAUNCHER_DAEMON}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(name, known[i].name)) return known[i].kind;
  return LAUNCHER_UNKNOWN;
}

/* "PID (NAME) STATE PARENT …"; the name may hold anything. Returns the parent, or 0. */
static int read_process(int pid, char *name, size_t size) {
  char path[32], line[512];
  int parent = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "re");
  size_t count = file ? fread(line, 1, sizeof line - 1, file) : 0;
  if (file) fclose(file);
  line[count] = 0;
  char *begin = strchr(line, '('), *end = strrchr(line, ')');
  if (!begin || !end || sscanf(end + 1, " %*c %d", &parent) != 1) return 0;
  snprintf(name, size, "%.*s", (int)(end - begin - 1), begin + 1);
  return parent;
}

int launcher_find(void) {
  enum { ABOVE = 8 }; /* there may be shells and wrappers between */
  char name[64];
  int pid = getppid();
  for (int i = 0; i < ABOVE && pid > 1; i++) {
    int parent = read_process(pid, name, sizeof name);
    if (parent && launcher_kind(name)) return (int)syscall(SYS_pidfd_open, pid, 0);
    pid = parent;
  }
  return -1;
}

/* Is this the first of the ranks of this launcher? The name ends with the process. */
static int is_launchers_first(int launcher_pid) {
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  int made = socket(AF_UNIX, SOCK_DGRAM, 0);
  int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ft-launcher-%d-%d",
                        (int)getuid(), launcher_pid);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
  return made >= 0 && bind(made, (struct sockaddr *)&name, size) == 0;
}

static int child_has_ended(int launcher, int milliseconds) {
  struct pollfd poll_for = {.fd = launcher, .events = POLLIN};
  return poll(&poll_for, 1, milliseconds) != 0;
}

/* In a process of its own, forked from one with threads: calls of the kernel only. */
static void wait_and_end(int launcher, LauncherKind kind) {
  if (child_has_ended(launcher, TIME_TO_END)) return;
  if (kind == LAUNCHER_DAEMON) syscall(SYS_pidfd_send_signal, launcher, SIGTERM, NULL, 0);
  if (kind == LAUNCHER_DAEMON && child_has_ended(launcher, TIME_TO_TIDY_UP)) return;
  syscall(SYS_pidfd_send_signal, launcher, SIGKILL, NULL, 0);
}

int launcher_process(int launcher) {
  char path[48], line[64];
  int pid = -1;
  if (launcher < 0) return -1;
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", launcher);
  FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "Pid: %d", &pid) == 1) break;
  if (file) fclose(file);
  return pid;
}

void launcher_see_off(int launcher) {
  int pid = launcher_process(launcher);
  char name[64];
  if (pid <= 0 || !read_process(pid, name, sizeof name) || !is_launchers_first(pid)) return;
  LauncherKind kind = launcher_kind(name);
  pid_t child = fork();
  if (child > 0) waitpid(child, NULL, 0);
  if (child != 0) return;
  if (fork() != 0) _exit(0); /* the other is nobody's child, and not of the group that mpirun ends */
  setsid();
  if (launcher > 0) dup2(launcher, 0);
  syscall(SYS_close_range, 1, ~0u, 0);
  wait_and_end(0, kind);
  _exit(0);
}
