/* ftrun_gpus: `ftrun --gpus N`, see ftrun_ranks.h. The ranks are in a process group of their own,
 * so the terminal's signals come here and are handed on: the first one as SIGUSR1, which ends a
 * training after its step, the second one as SIGTERM. A rank ends with ftrun. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/say.h"
#include "runtime/command/ranks.h"
#include "tools/ftrun_ranks.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
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
  int lost;
  int fault[2];  /* a pipe: a rank whose own fault it is says its number (RANKS_FAULT) */
  bool is_asked; /* by its watch, to end */
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

typedef struct {
  const char *visible;
  char *const *command;
  sigset_t mask;
  pid_t parent;
} GpuStart;

static void run_gpu(const Gpus *gpus, int rank, const GpuStart *start) {
  int nothing = open("/dev/null", O_RDONLY);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != start->parent) _exit(3);
  setpgid(0, gpus->group);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  gpus_set("RANK", rank);
  gpus_set("WORLD_SIZE", gpus->count);
  gpus_set("LOCAL_RANK", rank);
  gpus_set("LOCAL_WORLD_SIZE", gpus->count);
  gpus_set("MASTER_PORT", gpus->port);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  if (gpus->fault[1] >= 0) fcntl(gpus->fault[1], F_SETFD, 0);
  gpus_set(RANKS_FAULT, gpus->fault[1]);
  if (start->visible) setenv("CUDA_VISIBLE_DEVICES", start->visible, 1);
  sigprocmask(SIG_SETMASK, &start->mask, NULL);
  execv(start->command[0], start->command);
  say_error("cannot run %s: %s", start->command[0], strerror(errno));
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
        if (WIFSIGNALED(status)) gpus->lost = i;
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

/* Those that are still there are stopped, or hang in their device. */
static void gpus_end_the_rest(Gpus *gpus) {
  int left = 0, last = -1;
  for (int i = 0; i < gpus->count; i++)
    if (gpus->pid[i] > 0) left++, last = i;
  if (left == 1 && gpus->lost < 0) gpus->lost = last;
  gpus_kill(gpus, SIGKILL);
}

static int gpus_wait(Gpus *gpus, const GpusRun *run, const sigset_t *signals) {
  static const struct timespec tick = {.tv_nsec = 100000000};
  while (gpus->left) {
    int number = sigtimedwait(signals, NULL, &tick);
    if (number > 0 && number != SIGCHLD) gpus_hand_on(gpus, number);
    gpus_reap(gpus);
    bool is_quiet = !gpus->failed_at && !gpus->signal && !gpus->is_asked;
    if (run->watch && is_quiet && run->watch(run->context)) {
      gpus->is_asked = true;
      gpus_kill(gpus, SIGUSR1);
    }
    if (gpus->failed_at && clock_nanoseconds() - gpus->failed_at > time_to_end)
      gpus_end_the_rest(gpus);
  }
  if (gpus->signal && gpus->first == 128 + SIGUSR1) return 128 + gpus->signal;
  return gpus->first;
}

/* All wait for rank 0 to say why they end, so who ends first says nothing, but for a signal. */
static void gpus_find_lost(Gpus *gpus) {
  int32_t rank;
  close(gpus->fault[1]);
  if (read(gpus->fault[0], &rank, sizeof rank) == sizeof rank && gpus->lost < 0) gpus->lost = rank;
  close(gpus->fault[0]);
}

static void gpus_fork(Gpus *gpus, const GpuStart *start) {
  if (pipe2(gpus->fault, O_CLOEXEC | O_NONBLOCK) != 0) gpus->fault[0] = gpus->fault[1] = -1;
  for (int i = 0; i < gpus->count; i++) {
    pid_t pid = fork();
    if (pid == 0) run_gpu(gpus, i, start);
    if (pid < 0 && !gpus->failed_at) {
      say_error("cannot start rank %d: %s", i, strerror(errno));
      gpus->first = 3;
      gpus->failed_at = clock_nanoseconds();
    }
    if (pid <= 0) continue;
    if (!gpus->group) gpus->group = pid;
    setpgid(pid, gpus->group);
    gpus->pid[i] = pid;
    gpus->left++;
  }
}

static Gpus the_gpus;

int gpus_signalled(void) { return the_gpus.signal; }

int gpus_start(GpusRun *run) {
  static const int wanted[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  static char self[4096];
  Gpus *gpus = &the_gpus;
  GpuStart start = {.visible = run->visible, .parent = getpid()};
  sigset_t signals;
  int arguments = 0;
  if (run->count < 1 || run->count > MOST_GPUS) {
    say_error("--gpus: from 1 to %d", MOST_GPUS);
    return 2;
  }
  while (run->arguments[arguments]) arguments++;
  char **command = calloc((size_t)arguments + 2, sizeof *command);
  if (!command || readlink("/proc/self/exe", self, sizeof self - 1) <= 0) {
    say_error("cannot start the ranks: %s", strerror(errno));
    free(command);
    return 3;
  }
  command[0] = self;
  for (int i = 0; i < arguments; i++) command[i + 1] = run->arguments[i];
  start.command = command;
  *gpus = (Gpus){.count = (int)run->count, .lost = -1, .port = gpus_find_port()};
  sigemptyset(&signals);
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) sigaddset(&signals, wanted[i]);
  sigprocmask(SIG_BLOCK, &signals, &start.mask);
  gpus_fork(gpus, &start);
  free(command);
  int code = gpus_wait(gpus, run, &signals);
  sigprocmask(SIG_SETMASK, &start.mask, NULL);
  gpus_find_lost(gpus);
  run->lost = gpus->lost;
  return code;
}
