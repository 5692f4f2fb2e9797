/* watchdog: a wait is one number, odd while it lasts, and so nothing needs the time but the thread that watches. */
#include "runtime/common/watchdog.h"
#include "runtime/common/guard.h"
#include "runtime/common/status.h"
#include "base/clock.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static struct {
  double seconds;
  const char *setting;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t change;
  atomic_bool is_running;
  bool stop;
  atomic_uint_fast64_t wait; /* counts up where a wait begins, and where it ends */
  atomic_uint_fast64_t progress;
  _Atomic(const char *) what, path;
  atomic_int_fast64_t step;
  int64_t saved; /* by the lock, as this: */
  char saved_in[1024];
} dog = {.lock = PTHREAD_MUTEX_INITIALIZER, .saved = -1};

/* Under the lock. In one write, so that it stays whole beside what other ranks say. */
static _Noreturn void end_run(void) {
  char step[40] = "", from[1100] = "", saved[1300] = "", text[2700];
  const char *path = atomic_load(&dog.path);
  int64_t at = atomic_load(&dog.step);
  if (at) snprintf(step, sizeof step, "step %lld: ", (long long)at);
  if (path && path[0]) snprintf(from, sizeof from, " (%.1024s)", path);
  if (dog.saved >= 0)
    snprintf(saved, sizeof saved,
             "; the checkpoint of step %lld is whole: the same command with --resume %s goes on from it",
             (long long)dog.saved, dog.saved_in);
  int count = snprintf(text, sizeof text,
                       "error: %sthe run has waited for %s%s for %g seconds in which nothing moved (%s)%s\n", step,
                       atomic_load(&dog.what), from, dog.seconds, dog.setting, saved);
  (void)!write(STDERR_FILENO, text, (size_t)count);
  _exit(STATUS_FAULT);
}

static void *watch(void *argument) {
  uint64_t seen[2] = {0};
  int64_t last = clock_nanoseconds(), still = 0, limit = (int64_t)(dog.seconds * 1e9);
  int64_t pause = limit / 8 < 1000000000 ? limit / 8 + 1 : 1000000000;
  pthread_mutex_lock(&dog.lock);
  while (!dog.stop) {
    uint64_t now[2] = {atomic_load(&dog.wait), atomic_load(&dog.progress)};
    int64_t time = clock_nanoseconds(), passed = time - last;
    still += passed < 2 * pause ? passed : pause; /* a process that was stopped (Ctrl-Z) waited no longer */
    if (now[0] % 2 == 0 || now[0] != seen[0] || now[1] != seen[1]) still = 0;
    if (still > limit) end_run();
    last = time;
    seen[0] = now[0];
    seen[1] = now[1];
    struct timespec until = {(time + pause) / 1000000000, (time + pause) % 1000000000};
    pthread_cond_timedwait(&dog.change, &dog.lock, &until);
  }
  pthread_mutex_unlock(&dog.lock);
  return argument;
}

void watchdog_start(double seconds, const char *setting) {
  pthread_condattr_t monotonic;
  sigset_t before;
  if (dog.is_running || seconds <= 0) return;
  dog.seconds = seconds;
  dog.setting = setting;
  dog.stop = false;
  atomic_store(&dog.wait, 0);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&dog.change, &monotonic);
  pthread_condattr_destroy(&monotonic);
  guard_block_signals(&before);
  atomic_store(&dog.is_running, pthread_create(&dog.thread, NULL, watch, NULL) == 0);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!dog.is_running) pthread_cond_destroy(&dog.change);
}

void watchdog_stop(void) {
  if (!dog.is_running) return;
  pthread_mutex_lock(&dog.lock);
  dog.stop = true;
  pthread_cond_signal(&dog.change);
  pthread_mutex_unlock(&dog.lock);
  pthread_join(dog.thread, NULL);
  pthread_cond_destroy(&dog.change);
  dog.is_running = false;
}

void watchdog_begin(const char *what, const char *path, int64_t step) {
  if (!dog.is_running) return;
  atomic_store_explicit(&dog.what, what, memory_order_relaxed);
  atomic_store_explicit(&dog.path, path, memory_order_relaxed);
  atomic_store_explicit(&dog.step, step, memory_order_relaxed);
  atomic_fetch_add_explicit(&dog.wait, 1, memory_order_release);
}

void watchdog_end(void) {
  if (dog.is_running) atomic_fetch_add_explicit(&dog.wait, 1, memory_order_release);
}

void watchdog_progress(void) {
  if (dog.is_running) atomic_fetch_add_explicit(&dog.progress, 1, memory_order_relaxed);
}

void watchdog_saved(int64_t step, const char *path) {
  pthread_mutex_lock(&dog.lock);
  dog.saved = step;
  snprintf(dog.saved_in, sizeof dog.saved_in, "%s", path);
  pthread_mutex_unlock(&dog.lock);
}
