/* signals: see signals.h. */
#include "runtime/common/signals.h"
#include "base/clock.h"
#include <signal.h>
#include <string.h>

static volatile sig_atomic_t pending;
static int64_t first;

/* timeout(1), shells and container runtimes send one request twice, to the process and to its
 * group: only a signal half a second after the first one is a second request. */
static bool is_repeated_request(void) { return clock_nanoseconds() - first > 500000000; }

static void on_signal(int number) {
  if (!pending) {
    first = clock_nanoseconds();
    pending = number;
  } else if (number != SIGPIPE && is_repeated_request()) {
    signal(number, SIG_DFL);
    raise(number); /* taken when this handler returns */
  }
}

void signals_listen(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = (int)SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  static const int unless_ignored[] = {SIGHUP, SIGUSR1, SIGPIPE}; /* nohup means what it says */
  for (int i = 0; i < 3; i++) {
    struct sigaction before;
    if (sigaction(unless_ignored[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
      sigaction(unless_ignored[i], &action, NULL);
  }
}

int signals_pending(void) { return pending; }
bool signals_came_before(int64_t time) { return pending && time - first > 500000000; }
