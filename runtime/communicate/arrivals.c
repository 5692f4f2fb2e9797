/* arrivals: see arrivals.h. The names are of Linux's abstract sockets, of a machine's network. A
 * rank has two: questions fill the queue of one that is stopped, and what has been said is to reach
 * it all the same, for when it is continued. One more name, bound by whoever says why the job ends,
 * sees to it that only one does. */
#include "runtime/communicate/arrivals.h"
#include "base/clock.h"
#include "runtime/common/guard.h"
#include "runtime/common/signals.h"
#include "runtime/communicate/launcher.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ASKS = 1, ANSWERS, HAS_SAID };
enum { IS_JOINING = 1, WAS_AWAY = 2 };
enum { TICK = 50 /* ms */, QUICK = 16 /* ranks of a machine; more look less often */ };
static const int64_t away_after = 2000000000, answer_time = 1500000000;
static const int64_t quiet_time = 3000000000, word_time = 1000000000, coming_time = 2000000000;
static const int64_t saying_time = 3000000000; /* for the rank that has the word to say it */

typedef struct {
  int32_t kind, rank, value; /* of ANSWERS: IS_JOINING, WAS_AWAY; of HAS_SAID: its exit code */
} Message;

typedef struct {
  bool has_come, is_there, has_said, is_joining, was_away;
  int64_t heard;
} Arrival;

/* Of the process. Other threads than its own take the lock. */
static struct {
  CommPlace place;
  char host[64], job[106]; /* 5 words of 20, or a process */
  int socket, questions, word, launcher;
  Arrival *of; /* each rank; NULL: not begun */
  pthread_t thread;
  pthread_mutex_t lock;
  atomic_bool is_joining, is_ending;
  bool has_thread, is_quiet; /* is_quiet: this rank speaks, or another has */
  int64_t said_at;           /* another has; 0: none */
  int said_code;
  void (*leave)(void); /* before the process is ended here; NULL: nothing is to be done */
} here = {
    .socket = -1, .questions = -1, .word = -1, .launcher = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

/* ── names ────────────────────────────────────────────────────────────────────────────────── */
/* What tells jobs apart that run at the same time. It is read before there are threads: starting
 * MPI changes the environment. */
static void name_job(void) {
  static const char *const jobs[] = {"PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID",
                                     "TORCHELASTIC_RUN_ID", "MASTER_PORT"};
  size_t length = 0;
  for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
    if (getenv(jobs[i]) && length < sizeof here.job)
      length +=
          (size_t)snprintf(here.job + length, sizeof here.job - length, "-%.20s", getenv(jobs[i]));
  int launcher = launcher_process(here.launcher); /* MPICH's mpirun sets none of these */
  if (!length && launcher > 0) snprintf(here.job, sizeof here.job, "-launcher%d", launcher);
}

static socklen_t name_of(const char *what, int rank, struct sockaddr_un *out) {
  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  size_t size = sizeof out->sun_path - 1;
  size_t length = (size_t)snprintf(out->sun_path + 1, size, "%s-%d-%d-%d%s", what, (int)getuid(),
                                   rank, here.place.ranks, here.job);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (length < size ? length : size));
}

/* -1: another process has it. */
static int bind_name(const char *what, int rank) {
  struct sockaddr_un name;
  socklen_t size = name_of(what, rank, &name);
  int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (made >= 0 && bind(made, (struct sockaddr *)&name, size) == 0) return made;
  if (made >= 0) close(made);
  return -1;
}

static bool is_there(int rank) {
  struct sockaddr_un name;
  socklen_t size = name_of("ft", rank, &name);
  int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool found = made >= 0 && connect(made, (struct sockaddr *)&name, size) == 0;
  if (made >= 0) close(made);
  return found;
}

static bool is_one_machine(void) { return here.place.local_ranks == here.place.ranks; }

/* ── messages ─────────────────────────────────────────────────────────────────────────────── */
/* False: its queue is full. A rank that is not there needs none. */
static bool tell_rank(int rank, int kind, int value) {
  struct sockaddr_un name;
  socklen_t size = name_of(kind == HAS_SAID ? "ft" : "ft-ask", rank, &name);
  Message message = {kind, here.place.rank, value};
  return sendto(here.socket, &message, sizeof message, MSG_DONTWAIT, (struct sockaddr *)&name,
                size) >= 0 ||
         errno != EAGAIN;
}

static void answer(int rank) {
  bool was_away = here.of[here.place.rank].was_away;
  (void)!tell_rank(rank, ANSWERS,
                   (atomic_load(&here.is_joining) ? IS_JOINING : 0) | (was_away ? WAS_AWAY : 0));
}

static void read_from(int queue) {
  Message message;
  while (recv(queue, &message, sizeof message, MSG_DONTWAIT) == sizeof message) {
    if (message.rank < 0 || message.rank >= here.place.ranks) continue;
    Arrival *from = &here.of[message.rank];
    from->heard = clock_nanoseconds();
    if (message.kind == ASKS) answer(message.rank);
    if (message.kind == ANSWERS) from->is_joining = message.value & IS_JOINING;
    if (message.kind == ANSWERS) from->was_away = message.value & WAS_AWAY;
    if (message.kind != HAS_SAID) continue;
    from->has_said = true;
    if (!here.said_at) here.said_code = message.value;
    if (!here.said_at) here.said_at = clock_nanoseconds();
  }
}

static void read_messages(void) {
  read_from(here.socket);
  read_from(here.questions);
}

/* Those that are stopped are not waited for. */
static void tell_all_said(int code) {
  for (int r = 0; r < here.place.ranks; r++)
    for (int i = 0; r != here.place.rank && i < 5 && !tell_rank(r, HAS_SAID, code); i++)
      usleep(5000);
}

static void look_around(void) {
  int come = 0;
  for (int r = 0; r < here.place.ranks; r++) come += here.of[r].has_come;
  for (int r = 0; r < here.place.ranks; r++) {
    Arrival *of = &here.of[r];
    if (!of->has_come && come >= here.place.local_ranks) continue;
    of->is_there = r == here.place.rank || is_there(r);
    of->has_come = of->has_come || of->is_there;
  }
}

/* ── sentences ────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  char text[160];
  int count;
} Names;

static void add_name(Names *names, int rank) {
  enum { MOST_NAMED = 16 };
  size_t length = strlen(names->text);
  if (names->count++ < MOST_NAMED)
    snprintf(names->text + length, sizeof names->text - length, "%s%d", length ? ", " : "", rank);
  else if (names->count == MOST_NAMED + 1)
    snprintf(names->text + length, sizeof names->text - length, ", …");
}

static const char *of_several(const Names *names) { return names->count == 1 ? "" : "s"; }
static const char *has(const Names *names) { return names->count == 1 ? "has" : "have"; }

/* Said nothing and gone. */
static bool find_dead(char *sentence, size_t size) {
  Names dead = {.count = 0};
  for (int r = 0; r < here.place.ranks; r++)
    if (here.of[r].has_come && !here.of[r].is_there && !here.of[r].has_said) add_name(&dead, r);
  if (!dead.count) return false;
  snprintf(sentence, size,
           "rank%s %s (host %s) %s ended without a word (killed, or out of memory) before all %d "
           "ranks had joined",
           of_several(&dead), dead.text, here.host, has(&dead), here.place.ranks);
  return true;
}

static bool find_absent(Names *absent, Names *came) {
  *absent = *came = (Names){.count = 0};
  for (int r = 0; r < here.place.ranks; r++) add_name(here.of[r].has_come ? came : absent, r);
  return came->count < here.place.local_ranks;
}

/* The launcher ends the job, as it does when one of its processes has died before it was here. */
static bool find_never_come(char *sentence, size_t size) {
  Names absent, came;
  if (!find_absent(&absent, &came)) return false;
  if (is_one_machine())
    snprintf(
        sentence, size,
        "rank%s %s of %d (host %s) had not come when SIGTERM ended the job (died at %s start?)",
        of_several(&absent), absent.text, here.place.ranks, here.host,
        absent.count == 1 ? "its" : "their");
  else
    snprintf(sentence, size,
             "of the %d ranks of this machine (host %s) only rank%s %s had come when SIGTERM ended "
             "the job (has one died at its start?)",
             here.place.local_ranks, here.host, of_several(&came), came.text);
  return true;
}

static bool say_absent(double seconds, char *sentence, size_t size) {
  Names absent, came;
  if (!find_absent(&absent, &came)) return false;
  if (is_one_machine())
    snprintf(sentence, size, "rank%s %s of %d %s not come within %g s (host %s)",
             of_several(&absent), absent.text, here.place.ranks, has(&absent), seconds, here.host);
  else
    snprintf(sentence, size,
             "not all of the %d ranks have come within %g s: of the %d of host %s only %s %s there",
             here.place.ranks, seconds, here.place.local_ranks, here.host, came.text,
             came.count == 1 ? "is" : "are");
  return true;
}

static bool say_silent(double seconds, int64_t asked, char *sentence, size_t size) {
  Names silent = {.count = 0}, away = {.count = 0}, busy = {.count = 0};
  for (int r = 0; r < here.place.ranks; r++) {
    const Arrival *of = &here.of[r];
    if (of->is_there && of->was_away) add_name(&away, r);
    if (r == here.place.rank || !of->is_there) continue;
    if (of->heard < asked) add_name(&silent, r);
    if (of->heard >= asked && !of->is_joining) add_name(&busy, r);
  }
  if (silent.count)
    snprintf(
        sentence, size,
        "nothing is heard from rank%s %s (host %s), which %s come (stopped?), and the %d ranks "
        "have not joined within %g s",
        of_several(&silent), silent.text, here.host, has(&silent), here.place.ranks, seconds);
  else if (away.count)
    snprintf(
        sentence, size,
        "rank%s %s (host %s) did not run for long (stopped?), and the %d ranks have not joined "
        "within %g s",
        of_several(&away), away.text, here.host, here.place.ranks, seconds);
  else if (busy.count)
    snprintf(sentence, size,
             "rank%s %s (host %s) %s not begun to join, and the %d ranks have not joined within %g "
             "s",
             of_several(&busy), busy.text, here.host, has(&busy), here.place.ranks, seconds);
  return silent.count || away.count || busy.count;
}

/* ── ending ───────────────────────────────────────────────────────────────────────────────── */
typedef enum { WORD_MINE, WORD_SAID, WORD_OTHERS } Word;

/* With the lock held. OTHERS: another rank is about to say it. */
static Word take_word(void) {
  if (!here.of) return WORD_MINE;
  read_messages();
  if (here.said_at && here.word < 0) return WORD_SAID;
  if (here.word < 0) here.word = bind_name("ft-word", 0);
  here.is_quiet = true;
  return here.word >= 0 ? WORD_MINE : WORD_OTHERS;
}

/* Launchers end the others as soon as one rank has ended, so this one waits until it has been said.
 * The rank that has the word may itself be ended before: then its name is free, and this one says
 * it. */
static bool wait_for_word(bool is_locked) {
  Word word = WORD_OTHERS;
  for (int64_t end = clock_nanoseconds() + saying_time;
       word == WORD_OTHERS && clock_nanoseconds() < end;) {
    if (!is_locked) pthread_mutex_lock(&here.lock);
    word = take_word();
    if (!is_locked) pthread_mutex_unlock(&here.lock);
    if (word == WORD_OTHERS) usleep(TICK * 100);
  }
  return word == WORD_MINE;
}

static _Noreturn void end_process_as(int code) {
  if (here.leave) here.leave();
  _exit(code);
}

/* With the lock held. The word is held until the others have heard that it has been said. */
static _Noreturn void say_and_end(const char *sentence) {
  if (wait_for_word(true)) {
    fprintf(stderr, "error: %s\n", sentence);
    fflush(stderr);
    tell_all_said(STATUS_FAULT);
    if (here.leave) here.leave(); /* launchers kill those that take long */
    usleep((useconds_t)(word_time / 1000));
  }
  launcher_see_off(here.launcher);
  end_process_as(STATUS_FAULT);
}

static void end_by_signal(int number, char *sentence, size_t size) {
  look_around();
  if (number == SIGTERM && (find_dead(sentence, size) || find_never_come(sentence, size)))
    say_and_end(sentence);
  tell_all_said(128 + number);
  end_process_as(128 + number);
}

/* With the lock held. */
static void look(void) {
  char sentence[1024];
  int number = signals_pending();
  read_messages();
  if (here.is_quiet) return;
  if (here.said_at) { /* it has ended, or waits for the launcher: so do these */
    bool is_due = number || clock_nanoseconds() - here.said_at > quiet_time;
    if (is_due) end_process_as(here.said_code);
    return;
  }
  if (number && number != SIGPIPE) end_by_signal(number, sentence, sizeof sentence);
  look_around();
  read_messages(); /* what it has said before it went */
  if (!here.said_at && find_dead(sentence, sizeof sentence)) say_and_end(sentence);
}

static void *arrivals_main(void *unused) {
  (void)unused;
  sigset_t before;
  guard_block_signals(&before);
  int slower = here.place.local_ranks / QUICK;
  for (int64_t looked = 0, last = 0; !atomic_load(&here.is_ending);) {
    struct pollfd poll_for[] = {{.fd = here.socket, .events = POLLIN},
                                {.fd = here.questions, .events = POLLIN}};
    poll(poll_for, 2, TICK);
    int64_t now = clock_nanoseconds();
    pthread_mutex_lock(&here.lock);
    if (last && now - last > away_after) here.of[here.place.rank].was_away = true;
    last = now;
    read_messages();
    bool is_due = now - looked >= TICK * 1000000ll * (slower ? slower : 1) || signals_pending();
    if (is_due && !atomic_load(&here.is_ending)) {
      looked = now;
      look();
    }
    pthread_mutex_unlock(&here.lock);
  }
  return NULL;
}

/* ── for others ───────────────────────────────────────────────────────────────────────────── */
void arrivals_begin(const CommPlace *place) {
  if (here.of || place->ranks < 2) return;
  here.place = *place;
  here.launcher = launcher_find();
  name_job();
  gethostname(here.host, sizeof here.host - 1);
  here.socket = bind_name("ft", place->rank);
  here.questions = bind_name("ft-ask", place->rank);
  if (here.socket < 0) return; /* another job has the same name: nothing can be told */
  here.of = calloc((size_t)place->ranks, sizeof *here.of);
  if (here.of) here.has_thread = pthread_create(&here.thread, NULL, arrivals_main, NULL) == 0;
}

void arrivals_before_end(void (*leave)(void)) { here.leave = leave; }

void arrivals_join(void) { atomic_store(&here.is_joining, true); }

/* The name stays: others may not be as far. */
void arrivals_end(void) {
  atomic_store(&here.is_ending, true);
  if (here.has_thread) pthread_join(here.thread, NULL);
  here.has_thread = false;
}

bool arrivals_find_missing(double seconds, char *sentence, size_t size) {
  if (!here.of || !here.has_thread) return false;
  int64_t asked = clock_nanoseconds();
  pthread_mutex_lock(&here.lock);
  look_around();
  bool is_found = say_absent(seconds, sentence, size);
  pthread_mutex_unlock(&here.lock);
  for (int64_t end = asked + answer_time; !is_found && clock_nanoseconds() < end; usleep(100000)) {
    pthread_mutex_lock(&here.lock);
    for (int r = 0; r < here.place.ranks; r++)
      if (r != here.place.rank && here.of[r].is_there && here.of[r].heard < asked)
        (void)!tell_rank(r, ASKS, 0);
    pthread_mutex_unlock(&here.lock);
  }
  pthread_mutex_lock(&here.lock);
  if (!is_found) is_found = say_silent(seconds, asked, sentence, size);
  pthread_mutex_unlock(&here.lock);
  return is_found;
}

bool arrivals_say_elsewhere(double seconds, char *sentence, size_t size) {
  Names absent, came;
  if (!here.of || !here.has_thread || is_one_machine()) return false;
  pthread_mutex_lock(&here.lock);
  look_around();
  find_absent(&absent, &came);
  pthread_mutex_unlock(&here.lock);
  snprintf(
      sentence, size,
      "nothing is heard from rank%s %s of %d, on other machines (stopped, or cut off), and the "
      "ranks have not joined within %g s; rank%s %s (host %s), all of this machine, %s come",
      of_several(&absent), absent.text, here.place.ranks, seconds, of_several(&came), came.text,
      here.host, has(&came));
  return true;
}

/* A launcher ends a rank that comes later than this one goes, which would not know why. */
static void tell_those_that_come(int code) {
  int64_t end = clock_nanoseconds() + coming_time;
  for (bool all = !here.of || !here.has_thread; !all && clock_nanoseconds() < end;) {
    int told = 0;
    pthread_mutex_lock(&here.lock);
    look_around();
    for (int r = 0; r < here.place.ranks; r++) told += here.of[r].has_come;
    tell_all_said(code);
    pthread_mutex_unlock(&here.lock);
    all = told >= here.place.local_ranks;
    if (!all) usleep(TICK * 1000);
  }
}

bool arrivals_first_word(void) { return wait_for_word(false); }

void arrivals_have_said(int code) {
  pthread_mutex_lock(&here.lock);
  if (here.of) tell_all_said(code);
  pthread_mutex_unlock(&here.lock);
  tell_those_that_come(code);
}
