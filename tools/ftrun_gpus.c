/* ftrun_gpus: `ftrun --gpus N`, see ftrun_ranks.h. The ranks are in a process group of their own,
 * so the terminal's signals come here and are handed on: the first one as SIGUSR1, which ends a
 * training after its step, the second one as SIGTERM. A rank ends with ftrun. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "tools/ftrun_ranks.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_GPUS = 256 };
static const int64_t time_to_end = 10000000000; /* after the first that fails */

typedef struct {
  int count, left, first; /* first: the exit code of the first that failed */
  pid_t pid[MOST_GPUS], group;
  int port, signal;
  int64_t signal_time, failed_at;
} Gpus;

/* One with free ones behind it, most likely. */
static int gpus_find_port(void) {
  struct sockaddr_in name = {.sin_family = AF_INET};
  socklen_t size = sizeof name;
  int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 29500;
  if (made >= 0 && bind(made, (struct sockaddr *)&name, size) == 0 &&
      getsockname(made, (struct sockaddr *)&name, &size) == 0)
    port = ntohs(name.sin_port);
  if (made >= 0) close(made);
  return port > 65000 ? port - 1000 : port;
}

static void gpus_set(const char *name, int value) {
  char text[16];
  snprintf(text, sizeof text, "%d", value);
  setenv(name, text, 1);
}

static void run_gpu(const Gpus *gpus, int rank, const char *self, char *const *command,
                    const sigset_t *mask, pid_t parent) {
  int nothing = open("/dev/null", O_RDONLY);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(3);
  setpgid(0, gpus->group);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  gpus_set("RANK", rank);
  gpus_set("WORLD_SIZE", gpus->count);
  gpus_set("LOCAL_RANK", rank);
  gpus_set("LOCAL_WORLD_SIZE", gpus->count);
  gpus_set("MASTER_PORT", gpus->port);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  sigprocmask(SIG_SETMASK, mask, NULL);
  execv(self, command);
  fprintf(stderr, "error: cannot run %s: %s\n", self, strerror(errno));
  _exit(3);
}

static void gpus_kill(const Gpus *gpus, int number) {
  for (int i = 0; i < gpus->count; i++)
    if (gpus->pid[i] > 0) kill(gpus->pid[i], number);
}

static void gpus_reap(Gpus *gpus) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
    for (int i = 0; i < gpus->count; i++) {
      if (gpus->pid[i] != pid) continue;
      gpus->pid[i] = 0;
      gpus->left--;
      int code = WIFEXITED(status) ? WEXITSTATUS(status) : 3;
      if (code && !gpus->failed_at) {
        gpus->first = code;
        gpus->failed_at = clock_nanoseconds();
      }
    }
}

/* What comes within half a second is the same request (runtime/common/signals.c). */
static void gpus_hand_on(Gpus *gpus, int number) {
  int64_t now = clock_nanoseconds();
  if (!gpus->signal) {
    gpus->signal = number;
    gpus->signal_time = now;
    gpus_kill(gpus, SIGUSR1);
  } else if (now - gpus->signal_time > 500000000) {
    gpus_kill(gpus, SIGTERM);
  }
}

static int gpus_wait(Gpus *gpus, const sigset_t *signals) {
  static const struct timespec tick = {.tv_nsec = 100000000};
  while (gpus->left) {
    int number = sigtimedwait(signals, NULL, &tick);
    if (number > 0 && number != SIGCHLD) gpus_hand_on(gpus, number);
    gpus_reap(gpus);
    if (gpus->failed_at && clock_nanoseconds() - gpus->failed_at > time_to_end)
      gpus_kill(gpus, SIGKILL);
  }
  if (gpus->signal && gpus->first == 128 + SIGUSR1) return 128 + gpus->signal;
  return gpus->first;
}

int gpus_start(int64_t count, char *const *arguments) {
  static char self[4096];
  static Gpus gpus;
  sigset_t signals, before;
  int arguments_count = 0;
  if (count < 1 || count > MOST_GPUS) {
    fprintf(stderr, "error: --gpus: from 1 to %d\n", MOST_GPUS);
    return 2;
  }
  while (arguments[arguments_count]) arguments_count++;
  char **command = calloc((size_t)arguments_count + 2, sizeof *command);
  if (!command || readlink("/proc/self/exe", self, sizeof self - 1) <= 0) {
    fprintf(stderr, "error: cannot start the ranks: %s\n", strerror(errno));
    free(command);
    return 3;
  }
  command[0] = self;
  for (int i = 0; i < arguments_count; i++) command[i + 1] = arguments[i];
  gpus.count = (int)count;
  gpus.port = gpus_find_port();
  sigemptyset(&signals);
  static const int wanted[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) sigaddset(&signals, wanted[i]);
  sigprocmask(SIG_BLOCK, &signals, &before);
  pid_t parent = getpid();
  for (int i = 0; i < gpus.count; i++) {
    pid_t pid = fork();
    if (pid == 0) run_gpu(&gpus, i, self, command, &before, parent);
    if (pid < 0 && !gpus.failed_at) {
      fprintf(stderr, "error: cannot start rank %d: %s\n", i, strerror(errno));
      gpus.first = 3;
      gpus.failed_at = clock_nanoseconds();
    }
    if (pid <= 0) continue;
    if (!gpus.group) gpus.group = pid;
    setpgid(pid, gpus.group);
    gpus.pid[i] = pid;
    gpus.left++;
  }
  free(command);
  int code = gpus_wait(&gpus, &signals);
  sigprocmask(SIG_SETMASK, &before, NULL);
  return code;
}
