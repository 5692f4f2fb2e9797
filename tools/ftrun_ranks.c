/* ftrun_ranks: see ftrun_ranks.h. mpirun ends its ranks a second after Ctrl-C, whatever they are
 * about, but hands SIGUSR1 on to them, which ends a training after its step: so it does not see the
 * terminal's signals, and gets that one in their place. */
#define _GNU_SOURCE
#include "tools/ftrun_ranks.h"
#include "base/clock.h"
#include "base/say.h"
#include "base/text.h"
#include "runtime/communicate/comm.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 4096 };

static volatile sig_atomic_t first_signal;
static volatile pid_t child;

static int64_t first_time;

/* The first asks the ranks to end, the second one ends mpirun, which ends them at once. What comes
 * within half a second is the same request (runtime/common/signals.c). */
static void hand_on(int number) {
  int before = errno;
  int64_t now = clock_nanoseconds();
  if (child > 0 && !first_signal) kill(child, SIGUSR1);
  if (child > 0 && first_signal && now - first_time > 500000000) kill(child, SIGTERM);
  if (!first_signal) first_time = now;
  if (!first_signal) first_signal = number;
  errno = before;
}

static void listen(void) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  enum { ALWAYS = 2 }; /* as a training by itself does (runtime/common/signals.c) */
  struct sigaction action, before;
  memset(&action, 0, sizeof action);
  action.sa_handler = hand_on;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < 4; i++)
    if (i < ALWAYS || (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN))
      sigaction(numbers[i], &action, NULL);
}

/* Open MPI's mpirun would give each rank one core, refuse more ranks than cores, and refuse root;
 * others would not know these options. */
static int is_open_mpi(void) {
  char line[128] = "";
  FILE *pipe = popen("mpirun --version 2>/dev/null", "re");
  if (!pipe) return 0;
  if (!fgets(line, sizeof line, pipe)) line[0] = 0;
  while (fgetc(pipe) != EOF) {
  }
  pclose(pipe);
  return strstr(line, "Open MPI") || strstr(line, "OpenRTE");
}

static void run_mpirun(char *const *command, sigset_t *mask) {
  int nothing = open("/dev/null", O_RDONLY);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setpgid(0, 0);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  sigprocmask(SIG_SETMASK, mask, NULL);
  execvp("mpirun", command);
  if (errno == ENOENT)
    say_error("--ranks: there is no mpirun here; install Open MPI (on Debian: apt install "
              "openmpi-bin)");
  else
    say_error("cannot run mpirun: %s", strerror(errno));
  _exit(127);
}

static int wait_for_child(pid_t process, RanksWatch *watch, void *context) {
  int status = 0, is_asked = 0;
  pid_t ended;
  while ((ended = waitpid(process, &status, watch ? WNOHANG : 0)) <= 0) {
    if (ended < 0 && errno != EINTR) break;
    if (ended < 0 || !watch) continue;
    usleep(100000);
    if (!is_asked && !first_signal && watch(context)) {
      is_asked = 1;
      kill(process, SIGUSR1);
    }
  }
  return status;
}

/* Without a handler's interruption lost: signals wait while the child is made. */
static int start_and_wait(char *const *command, RanksWatch *watch, void *context) {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  listen();
  child = fork();
  if (child == 0) run_mpirun(command, &before);
  int error = errno;
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (child < 0) {
    say_error("cannot start mpirun: %s", strerror(error));
    return 3;
  }
  int status = wait_for_child(child, watch, context);
  child = 0;
  if (!WIFEXITED(status)) return first_signal ? 128 + first_signal : 3;
  int code = WEXITSTATUS(status);
  if (code == 127) return 1;
  return first_signal && code == 128 + SIGUSR1 ? 128 + first_signal : code;
}

int ranks_signalled(void) { return first_signal; }

int ranks_start(int64_t ranks, char *const *arguments, RanksWatch *watch, void *context) {
  static char self[4096], number[24];
  int count = 0, at = 0;
  if (ranks < 1 || ranks > MOST_RANKS) {
    say_error("--ranks %lld: expected a number from 1 to %d", (long long)ranks, MOST_RANKS);
    return 2;
  }
  while (arguments[count]) count++;
  char **command = calloc((size_t)count + 16, sizeof *command);
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (!command || length <= 0) {
    say_error("cannot start mpirun: %s", strerror(errno));
    free(command);
    return 3;
  }
  snprintf(number, sizeof number, "%d", (int)ranks);
  command[at++] = "mpirun";
  if (is_open_mpi()) {
    command[at++] = "-q";
    command[at++] = "--oversubscribe";
    command[at++] = "--bind-to";
    command[at++] = "none";
    if (geteuid() == 0) command[at++] = "--allow-run-as-root";
  }
  command[at++] = "-n";
  command[at++] = number;
  command[at++] = self;
  for (int i = 0; i < count; i++) command[at++] = arguments[i];
  int code = start_and_wait(command, watch, context);
  free(command);
  return code;
}

/* ── the command line ─────────────────────────────────────────────────────────────────────── */

static int ranks_usage(const char *format, const char *what) {
  say_begin(SAY_ERROR);
  fprintf(stderr, format, what);
  fputs("\nftrun --help shows what it takes\n", stderr);
  return 2;
}

int ranks_start_line(const char *artifact, int64_t ranks, int64_t gpus, int argc, char **argv) {
  CommPlace place;
  bool is_gpus = gpus != 1;
  const char *flag = is_gpus ? "--gpus" : "--ranks";
  size_t length = strlen(flag);
  long long number = is_gpus ? gpus : ranks;
  if (is_gpus && ranks != 1)
    return ranks_usage("--ranks and --gpus do not go together%s", ": one at a time");
  if (is_gpus && text_ends_with(artifact, ".so"))
    return ranks_usage("--gpus: %s is compiled for the CPU, where --ranks N starts processes; for "
                       "GPUs compile a .ptx",
                       artifact);
  if (comm_place(&place) != STATUS_OK) return say_error("%s", status_message()), STATUS_USER;
  if (place.launcher) {
    say_error("%s %lld: this is rank %d of %d already, of those that %s has started; leave "
              "out %s",
              flag, number, place.rank, place.ranks, place.launcher, flag);
    return 2;
  }
  char **kept = calloc((size_t)argc + 1, sizeof *kept);
  int count = 0;
  if (!kept) return say_error("out of memory"), 3;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], flag) == 0)
      i++;
    else if (strncmp(argv[i], flag, length) != 0 || argv[i][length] != '=')
      kept[count++] = argv[i];
  }
  GpusRun run = {.count = number, .arguments = kept};
  int code = is_gpus ? gpus_start(&run) : ranks_start(number, kept, NULL, NULL);
  free(kept);
  return code;
}
